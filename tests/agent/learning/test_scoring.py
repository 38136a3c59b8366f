"""What code tells of a stage: whether its form is whole, and whether its citations hold."""

from pathlib import Path

import pytest

from rubricem.agent.learning.scoring import (
    SupportBound,
    Supported,
    Valid,
    bound_by_support,
    gate_scores,
)
from rubricem.agent.reports.verifier import ChatChecker
from rubricem.judge.buffers import add
from rubricem.judge.composed import ComposedJudge, StageView
from rubricem.judge.evidence import measured
from rubricem.judge.stage import StageJudge
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import RubricBuffer, Stage, StageScore, Trajectory
from tests.support.banks import bank_in, put
from tests.support.policies import RUN, answer, asked, plan, search
from tests.support.scripted_server import ScriptedServer
from tests.support.values import (
    GivenChat,
    ScriptedProposer,
    ScriptedScorer,
    group_of,
    item,
    verdicts,
)

CACHE = "cache can grow without bound"
KNOWN = '<cite id="S1">Known</cite>.'


async def run_with(tmp_path: Path, *turns: str) -> Trajectory:
    with ScriptedServer(turns) as server:
        return await asked(server.base_url, tmp_path)


def view(trajectory: Trajectory, stage: Stage) -> StageView:
    async def unasked() -> StageScore:
        raise AssertionError("code needs no judge")

    return StageView(trajectory, stage, unasked)


def validity(trajectory: Trajectory) -> list[float]:
    return [float(Valid()("", view(trajectory, stage))) for stage in Stage]  # type: ignore[arg-type]


def support(trajectory: Trajectory) -> float:
    return float(Supported()("", view(trajectory, Stage.ANSWER)))  # type: ignore[arg-type]


def damaged(trajectory: Trajectory, old: str, new: str) -> Trajectory:
    """The run with a piece of the policy's text replaced."""
    assert old in trajectory.transcript()
    segments = tuple(
        s.model_copy(update={"text": s.text.replace(old, new)}) if s.stage else s
        for s in trajectory.segments
    )
    return trajectory.model_copy(update={"segments": segments})


@pytest.mark.parametrize(
    ("old", "new", "valid"),
    [
        ("<deep_analysis>Simple.</deep_analysis>", "", [0, 1, 1, 1]),
        ("<research_plan>Read the documentation.", "<research_plan>", [0, 1, 1, 1]),
        ("<state_evaluation>Size is open.</state_evaluation>", "", [1, 0, 1, 1]),
        ("<rubric_review>Both items: S1.</rubric_review>", "", [1, 1, 0, 1]),
        ("</answer>", "", [1, 1, 1, 0]),
    ],
)
async def test_what_is_missing_in_a_stage_is_that_stages_fault_alone(
    tmp_path: Path, old: str, new: str, valid: list[float]
):
    run = await run_with(tmp_path, *RUN)
    assert validity(damaged(run, old, new)) == valid


async def test_support_is_the_share_of_cited_claims_that_a_passage_holds(tmp_path: Path):
    held, made_up = (
        f'<cite id="S1">{CACHE}</cite>',
        '<cite id="S1">Some 4,196 penguins breed on Biscoe Island</cite>',
    )
    unknown = f'<cite id="S99">{CACHE}</cite>'
    run = await run_with(tmp_path, plan(), search("cache"), answer(KNOWN))
    for text, share in (
        (f"{held}.", 1.0),
        (f"{held}. {made_up}.", 0.5),
        (f"{held}.\n\n## References\n\n1. {run.sources[0].title}", 1.0),
        (f"{held}.\n\n## References\n\n1. Smith, J. (2019). A history of caches.", 0.5),
        (f"{held}. {made_up}. {unknown}. {made_up}.", 0.25),
        ("Nothing is cited.", 0.0),
    ):
        assert support(damaged(run, KNOWN, text)) == pytest.approx(share)


async def test_the_judge_is_asked_only_behind_form_and_citations(tmp_path: Path):
    good = damaged(await run_with(tmp_path, *RUN), "an unbounded cache", CACHE)
    refusing = damaged(good, f'<cite id="S1">{CACHE}</cite>', "The sources do not say it")
    badly = damaged(good, '<cite id="S1">', '<cite id="S7">')
    planless = damaged(good, "<deep_analysis>Simple.</deep_analysis>", "")
    each = {stage: (item(f"Does what {stage} needs."),) for stage in Stage}
    buffer = add(RubricBuffer(question=good.question), each, 0, "before")
    inner = StageJudge(ScriptedProposer({}), ScriptedScorer(lambda *_: 1.5))
    result = await ComposedJudge(inner, gate_scores()).judge(
        group_of(good, refusing, badly, planless), buffer
    )
    assert [[s.score for s in j.stages] for j in result.judgements] == [
        [0.75, 0.75, 0.75, 0.75],
        [0.75, 0.75, 0.75, 0.75],
        [0.75, 0.75, 0.75, 0.0],
        [0.0, 0.75, 0.75, 0.75],
    ]


async def test_an_answer_gains_nothing_by_what_its_sources_do_not_say(tmp_path: Path):
    """The judge thinks alike of all; each is shown to it with its citations checked."""
    held, made_up = (
        f'<cite id="S1">{CACHE}</cite>',
        '<cite id="S1">Some 4,196 penguins breed on Biscoe Island</cite>',
    )
    run = await run_with(tmp_path, plan(), search("cache"), answer(KNOWN))
    written = {
        "good": f"{held}.", "false": f"{held}. {made_up}.",
        "unknown": '<cite id="S9">It is</cite>.', "uncited": "It is so.",
    }  # fmt: skip
    runs = [damaged(run, KNOWN, text).model_copy(update={"id": name})
            for name, text in written.items()]  # fmt: skip
    seen: list[Trajectory] = []

    def points(trajectory: Trajectory, *_: object) -> float:
        seen.append(trajectory)
        return 1.5

    buffer = add(RubricBuffer(question=run.question), {Stage.ANSWER: (item("Says."),)}, 0, "")
    judge = SupportBound(StageJudge(ScriptedProposer({}), ScriptedScorer(points)))
    judged = await judge.judge(group_of(*runs), buffer)
    scores = [judgement.at(Stage.ANSWER) for judgement in judged.judgements]
    assert [score and score.score for score in scores] == [0.75, 0.375, 0.0, 0.75]
    assert [score and score.components.get("support") for score in scores] == [1, 0.5, 0, None]
    told = {trajectory.id: measured(trajectory) for trajectory in seen}
    assert ["penguins" in told[name] for name in written] == [
        False, True, False, False,
    ]  # fmt: skip
    assert all(run.verification is None for run in runs), "what was collected stays as it was"


async def test_a_review_gains_nothing_by_sources_that_no_tool_returned(tmp_path: Path):
    marked = "Both items: S1."
    run = await run_with(tmp_path, *RUN)
    reviews = {
        "all": "\n- Size [met: S1]\n- Eviction [met: S1]",
        "half": "\n- Size [met: S1]\n- Eviction [met: S8]",
        "none": "\n- Size [partly: S7]",
        "written": "\n- Size [met: s1]\n- Eviction [met: S_01-S2]\n- Rest [met (`S1`)]",
        "missing": "\n- Size [missing]",
        "unmarked": marked,
    }
    runs = [damaged(run, marked, text).model_copy(update={"id": name})
            for name, text in reviews.items()]  # fmt: skip
    buffer = add(RubricBuffer(question=run.question), {Stage.REVIEW: (item("Checks."),)}, 0, "")
    inner = StageJudge(ScriptedProposer({}), ScriptedScorer(lambda *_: 2.0))
    judged = await SupportBound(inner).judge(group_of(*runs), buffer)
    assert [j.score(Stage.REVIEW) for j in judged.judgements] == [1.0, 0.5, 0.0, 1.0, 1.0, 1.0]
    free = await SupportBound(inner, bound=False).judge(group_of(*runs), buffer)
    assert [j.score(Stage.REVIEW) for j in free.judgements] == [1.0] * 6
    told = [score and score.components for j in free.judgements for score in [j.at(Stage.REVIEW)]]
    assert told == [{"support": 1}, {"support": 0.5}, {"support": 0}, {"support": 1}, {}, {}]


async def test_one_call_of_the_judges_model_checks_the_claims_of_a_group(tmp_path: Path):
    """Both call their source S1; its texts differ, and so they are two to the checker."""
    run = await run_with(tmp_path, plan(), search("cache"), answer(KNOWN))
    text = (
        f'<cite id="S1">{CACHE}</cite>. <cite id="S1">An idea that a model alone can weigh</cite>.'
    )
    one = damaged(run, KNOWN, text)
    other = one.model_copy(update={
        "id": "other", "sources": (one.sources[0].model_copy(update={"text": f"Or {CACHE}."}),)
    })  # fmt: skip
    chat = GivenChat(verdicts("supported", "unsupported", "supported", "supported"))
    buffer = add(RubricBuffer(question=run.question), {Stage.ANSWER: (item("Says."),)}, 0, "")
    inner = StageJudge(ScriptedProposer({}), ScriptedScorer(lambda *_: 2.0))
    judged = await bound_by_support(inner, "stage", chat, "judge").judge(
        group_of(one, other), buffer
    )
    assert [j.score(Stage.ANSWER) for j in judged.judgements] == [0.5, 1.0]
    assert (judged.usage.calls, len(chat.asked)) == (2, 1), "the proposal, and one check of both"
    said = chat.asked[0][1].content
    assert "Claim 1, citing passage S1:" in said and "Claim 3, citing passage S2:" in said
    down = GivenChat(PolicyError("it is down"))
    judged = await SupportBound(inner, ChatChecker(down)).judge(group_of(one, other), buffer)
    assert judged.notes == ("The claims were checked by rules: it is down",)
    assert [j.score(Stage.ANSWER) for j in judged.judgements] == [1.0, 1.0]


async def test_claims_that_nobody_can_check_change_no_score_and_leave_the_gate_unscored(
    tmp_path: Path,
):
    run = await run_with(tmp_path, plan(), search("cache"), answer(KNOWN))
    foreign = damaged(
        run, KNOWN, '<cite id="S1">\u7f13\u5b58\u53ef\u80fd\u65e0\u9650\u589e\u957f</cite>.'
    )
    each = {Stage.ANSWER: (item("Says."),)}
    buffer = add(RubricBuffer(question=run.question), each, 0, "")
    inner = StageJudge(ScriptedProposer({}), ScriptedScorer(lambda *_: 1.0))
    for judge, score in ((inner, 0.5), (ComposedJudge(inner, gate_scores()), None)):
        [judged] = (await SupportBound(judge).judge(group_of(foreign), buffer)).judgements
        scored = judged.at(Stage.ANSWER)
        assert scored and scored.score == score and "support" not in scored.components


async def test_what_only_the_gate_scored_says_nothing_of_how_well_the_memory_helped(tmp_path: Path):
    run = damaged(await run_with(tmp_path, *RUN), "an unbounded cache", CACHE)
    bank = bank_in(tmp_path)
    await put(bank, ("heap", "a"))
    await bank.note_use(run.id, ["a"])
    each = {Stage.RESEARCH: (item("Searches."),), Stage.ANSWER: (item("Says."),)}
    buffer = add(RubricBuffer(question=run.question), each, 0, "")
    inner = StageJudge(ScriptedProposer({}), ScriptedScorer(lambda *_: 1.0))
    [judged] = (await ComposedJudge(inner, gate_scores()).judge(group_of(run), buffer)).judgements
    assert [stage.score for stage in judged.stages] == [1.0, 0.5, 1.0, 0.5]
    await bank.note_judgements([judged])
    [told] = await bank.items()
    assert told.mean_score == 0.5, "plan and review were let through, and not judged"
