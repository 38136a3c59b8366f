"""Stage rewards composed of rubrics: gates before the judge, what it costs, and what fails."""

import asyncio
import math
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.judge.base import stage_text
from rubricem.judge.buffers import add, persistent_criteria
from rubricem.judge.checklist import ChecklistJudge
from rubricem.judge.composed import ComposedJudge, Compositions, Judged, StageView, compositions_of
from rubricem.judge.rubrics import (
    ChatClient,
    Gate,
    LLMJudge,
    Rubric,
    RubricDict,
    Sequential,
    WeightedSum,
)
from rubricem.judge.stage import StageJudge
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import (
    CitationCheck,
    Completion,
    Criterion,
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Stage,
    StageScore,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verification,
)
from tests.support.judges import ScriptedChat
from tests.support.values import (
    QUESTION,
    SOURCE,
    WHOLE,
    Called,
    Fixed,
    ScriptedProposer,
    ScriptedScorer,
    Slow,
    group_of,
    item,
    run_of,
    varied,
)

EACH = {stage: (item(f"Does what {stage} needs."),) for stage in Stage}
BUFFER = add(RubricBuffer(question=QUESTION), EACH, 0, "before")


def scorer(points: float | None = 1.5) -> ScriptedScorer:
    """Points of 1.5 are a score of 0.75."""
    return ScriptedScorer(lambda *_: points)


async def judged(
    group: TrajectoryGroup,
    compositions: Compositions,
    scoring: ScriptedScorer | None = None,
    buffer: RubricBuffer = BUFFER,
) -> GroupJudgement:
    inner = StageJudge(ScriptedProposer({}), scoring or scorer())
    return await ComposedJudge(inner, compositions).judge(group, buffer)


def says(word: str) -> Rubric:
    return Called(lambda action, observation: float(word in action))


def gated_on(word: str) -> Compositions:
    return dict.fromkeys(Stage, lambda: Sequential(Gate(says(word)), Judged()))


def scores(judgement: Judgement) -> Mapping[Stage, StageScore]:
    return {score.stage: score for score in judgement.stages}


async def test_a_closed_gate_is_zero_costs_nothing_and_is_not_shown_to_the_judge():
    scoring = scorer()
    group = group_of(varied("a", "no idea"), run_of(dict.fromkeys(Stage, "a rule"), "b"))
    result = await judged(group, gated_on("rule"), scoring)
    first, second = result.judgements
    assert [s.score for s in first.stages] == [0.0, 0.0, 0.75, 0.0]
    assert [s.score for s in second.stages] == [0.75] * 4
    asked_of = [list(standard) for standard in scoring.standards]
    assert asked_of == [[Stage.REVIEW], list(Stage)], "only the review of the first says rule"
    scoring = scorer()
    result = await judged(group, gated_on("a rule"), scoring)
    assert len(scoring.standards) == 1
    unasked, asked = result.judgements
    assert [s.score for s in unasked.stages] == [0.0] * 4
    assert (unasked.trajectory_id, unasked.usage.calls, asked.usage.calls) == ("a", 0, 1)
    assert scores(unasked)[Stage.PLAN].justification == "Sequential 0.00 (Gate 0.00 (Called 0.00))"
    scoring = scorer()
    result = await judged(group_of(run_of()), gated_on("absent"), scoring)
    assert (scoring.standards, result.usage.calls, result.buffer) == ([], 0, BUFFER)
    assert [s.score for s in result.judgements[0].stages] == [0.0] * 4


async def test_rubrics_that_wait_run_together_and_the_judge_is_asked_once():
    asked: list[int] = []

    class Counting(StageJudge):
        async def judge(self, group: Any, *rest: Any) -> GroupJudgement:
            asked.append(len(group.trajectories))
            return await super().judge(group, *rest)

    inner = Counting(ScriptedProposer({}), scorer())
    mean = dict.fromkeys(Stage, lambda: WeightedSum([Slow(0.25), Judged()], [0.5, 0.5]))
    group = group_of(varied("a", "one"), varied("b", "two"), varied("c", "three"))
    result = await ComposedJudge(inner, mean).judge(group, BUFFER)
    assert {s.score for j in result.judgements for s in j.stages} == {0.5}
    assert asked == [3]


async def test_a_judge_that_fails_leaves_the_stage_unscored_unless_a_gate_settled_it():
    group = group_of(varied("a", "the rule"))
    result = await judged(group, gated_on("rule"), scorer(None))
    found = scores(result.judgements[0])
    assert found[Stage.PLAN].score == 0.0
    assert found[Stage.ANSWER].score is None
    assert found[Stage.ANSWER].unscored_reason == "the judge failed: the server is down."
    assert result.notes == ("a: the judge failed: the server is down.",)

    class Half(Judged):
        async def forward(self, action: str, observation: StageView) -> float:
            given = await super().forward(action, observation)
            return 0.5 if math.isnan(given) else given

    result = await judged(group, {Stage.PLAN: Half}, scorer(None))
    plan = scores(result.judgements[0])[Stage.PLAN]
    assert (plan.score, plan.failed, plan.unscored_reason) == (0.5, False, "")
    assert result.notes == ("a: the judge failed: the server is down.",)


async def test_a_rubric_that_fails_leaves_its_stage_unscored_and_says_so():
    broken = {Stage.PLAN: lambda: Fixed(ZeroDivisionError("no tests"))}
    result = await judged(group_of(run_of()), broken)
    plan = scores(result.judgements[0])[Stage.PLAN]
    reason = (
        "the judge failed: The rubric composed for the stage plan failed: "
        "ZeroDivisionError: no tests."
    )
    assert (plan.score, plan.unscored_reason) == (None, reason)
    assert result.notes == (f"a: {reason}",)
    assert scores(result.judgements[0])[Stage.ANSWER].score == 0.75


@pytest.mark.parametrize(
    ("given", "score", "reason"),
    [
        (1.0000001, 1.0, ""),
        (1.5, None, "its rubrics gave 1.5, which is not in 0 to 1"),
        (-1.0, None, "its rubrics gave -1, which is not in 0 to 1"),
        (math.nan, None, "its rubrics gave no number"),
    ],
)
async def test_a_reward_outside_its_range_is_no_score(
    given: float, score: float | None, reason: str
):
    result = await judged(group_of(run_of()), {Stage.PLAN: lambda: Fixed(given)})
    plan = scores(result.judgements[0])[Stage.PLAN]
    assert (plan.score, plan.unscored_reason) == (score, reason)


def test_a_dict_of_rubrics_that_scores_by_itself_is_one_rubric(monkeypatch: pytest.MonkeyPatch):
    class Choosing(RubricDict):
        async def forward(self, action: Any, observation: Any) -> float:
            return 1.0

    monkeypatch.setitem(sys.modules, "own", SimpleNamespace(Choosing=Choosing))
    made = compositions_of("rubric:own:Choosing")
    assert [type(make()) for make in made.values()] == [Choosing] * len(Stage)


async def test_a_gate_lets_the_minus_points_of_a_checklist_through():
    def flawed(run: Trajectory, stage: Stage, criterion: Criterion) -> float:
        return 2.0 * (criterion.positive != ("bad" in stage_text(run, stage)))

    given = persistent_criteria([("", "names it", 5), ("", "errs", -3)])
    buffer = RubricBuffer(question=QUESTION, persistent={Stage.ANSWER: given})
    judge = ChecklistJudge(ScriptedProposer({}), ScriptedScorer(flawed))
    group = group_of(varied("a", "good"), varied("b", "bad"))
    composed = ComposedJudge(judge, {Stage.ANSWER: lambda: Sequential(Judged())})
    for each in (judge, composed):
        found = (await each.judge(group, buffer)).judgements
        assert [one.score(Stage.ANSWER) for one in found] == [1.0, -0.6]


async def test_a_stage_left_out_is_missing_and_one_cut_off_unscored_whatever_the_rubric_says():
    texts = {Stage.PLAN: "Look it up.", Stage.RESEARCH: "It says"}
    best = dict.fromkeys(Stage, lambda: Fixed(1.0))
    ended = run_of(texts, "a", status=Status.PARTIAL)
    broken = run_of(texts, "b", status=Status.FAILED, reason="the server is down")
    first, second = (await judged(group_of(ended, broken), best)).judgements
    assert [(s.score, s.missing) for s in first.stages] == [
        (1.0, False),
        (1.0, False),
        (0.0, True),
        (0.0, True),
    ]
    assert [s.score for s in second.stages] == [1.0, None, None, None]
    assert "the run broke off" in second.stages[1].unscored_reason


async def test_what_rubrics_ask_of_models_of_their_own_is_counted_with_their_run():
    class Model:
        name = "small"

        async def chat(self, messages: Any, *_: Any) -> Completion:
            used = Usage(prompt_tokens=len(messages[0].content), calls=1)
            if "bad" in messages[0].content:
                raise PolicyError("the server is down", usage=used)
            return Completion("0.5", "stop", usage=used)

    client = ChatClient(Model())

    def both() -> Rubric:
        return WeightedSum([LLMJudge("{action}", client), Judged()], [0.5, 0.5])

    group = group_of(varied("a", "good"), varied("b", "bad!"), varied("c", "longer"))
    result = await judged(group, {Stage.ANSWER: both})
    assert [j.usage.prompt_tokens for j in result.judgements] == [4, 4, 6]
    assert [j.usage.calls for j in result.judgements] == [2, 2, 2], "its own and the judge's"
    assert [j.score(Stage.ANSWER) for j in result.judgements] == [0.625, None, 0.625]
    assert client.usage.calls == 3


@pytest.mark.parametrize(
    ("said", "default", "score", "alone"),
    [
        ("I would rather not say.", 0.0, None, 0.0),
        ("I would rather not say.", 0.25, 0.25, 0.0),
        ("On a scale of 1 to 10: 7", 0.0, None, 1.0),
    ],
)
async def test_a_reply_that_cannot_be_read_is_unscored_and_never_0_or_the_best(
    said: str, default: float, score: float | None, alone: float
):
    class Unclear:
        async def complete(self, prompt: str, **kwargs: Any) -> str:
            return said

    def made() -> Rubric:
        return Sequential(LLMJudge("{action}", Unclear(), default_score=default))

    result = await judged(group_of(varied("a", "good")), {Stage.ANSWER: made})
    answer = result.judgements[0].stages[-1]
    assert answer.score == score
    if score is None:
        assert f"no score can be read in its model's reply '{said[:9]}" in answer.unscored_reason
        assert answer.unscored_reason.startswith("the judge failed")
    assert await LLMJudge("{action}", Unclear())("a", None) == alone, "as OpenEnv has it"


async def test_cancelling_leaves_no_rubric_at_work():
    log: list[str] = []
    slow = {Stage.PLAN: lambda: Slow(1.0, "late", log, seconds=3600)}
    judge = ComposedJudge(StageJudge(ScriptedProposer({}), scorer()), slow)
    task = asyncio.ensure_future(judge.judge(group_of(run_of()), BUFFER))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()} and log == []


async def test_a_model_that_judges_is_shown_what_a_person_would_be():
    model = ScriptedChat(["The answer covers 2 of 4 parts. I would give it 0.3 out of 1."])
    rubric = LLMJudge("Rate it: {observation}", ChatClient(model))
    run = varied("a", f'{WHOLE[Stage.ANSWER]} <cite id="{SOURCE.id}">So it is</cite>')
    check = CitationCheck(source=SOURCE.id, claim="So it is", verdict="unsupported")
    checked = Verification(mode="mark", checker="rules", checks=(check,))
    run = run.model_copy(update={"verification": checked})
    view = StageView(run, Stage.ANSWER, lambda: None)  # type: ignore[arg-type]
    assert await rubric("the answer", view) == pytest.approx(0.3)
    shown = model.asked[0][0].content
    assert all(text in shown for text in (QUESTION, WHOLE[Stage.ANSWER], f"passage {SOURCE.id}]"))
    assert f'{SOURCE.id} is cited for "So it is": it does not bear that out' in shown
    assert SOURCE.text in shown and "Trajectory(" not in shown and len(shown) < 3000
