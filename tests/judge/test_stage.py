"""The stage judge by hand: rewards, what is missing or unscored, what a group teaches."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.judge.buffers import CAPS, add
from rubricem.judge.build import attempt_reader, stage_judge
from rubricem.judge.stage import (
    PASSAGES,
    FirstRubrics,
    RepeatedScorer,
    Scored,
    StageJudge,
    Standard,
    distinct,
    stage_reward,
)
from rubricem.judge.stage_readers import (
    ChoiceScorer,
    LineProposer,
    render_passages,
)
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    NO_CRITERIA,
    Author,
    Completion,
    Criterion,
    Decoding,
    Passage,
    RubricBuffer,
    Segment,
    Stage,
    StageScore,
    Status,
    Trajectory,
    Usage,
    Verdict,
)
from tests.support.judges import FixedReader
from tests.support.policies import PASSAGES as FOUND
from tests.support.policies import FixedSearch, chatting, client
from tests.support.scripted_server import ScriptedServer
from tests.support.values import (
    QUESTION,
    WHOLE,
    ScriptedProposer,
    ScriptedScorer,
    group_of,
    item,
    run_of,
    varied,
)

EMPTY = RubricBuffer(question=QUESTION)
EACH = {stage: (item(f"Does what {stage} needs."),) for stage in Stage}
KEPT = {stage: (item(f"Does what {stage} needs.", kept=True),) for stage in Stage}
GROWN = add(EMPTY, EACH, 0, "before")
FULL = ScriptedScorer(lambda *_: 2.0)


def verdict(points: float, weight: float = 2, *, positive: bool = True) -> Verdict:
    return Verdict(criterion=item("x", weight, positive=positive), points=points)


async def scores_of(
    trajectory: Trajectory, scorer: ScriptedScorer = FULL, buffer: RubricBuffer = GROWN
) -> dict[Stage, StageScore]:
    """A lone run under criteria that are there already."""
    judge = StageJudge(ScriptedProposer(None), scorer)
    result = await judge.judge(group_of(trajectory), buffer)
    return {score.stage: score for score in result.judgements[0].stages}


def test_the_reward_is_the_weighted_mean_with_flaws_turned_round():
    # (3 * 2/2 + 1 * 1/2 + 2 * (2 - 0.5)/2) / 6 = (3 + 0.5 + 1.5) / 6
    verdicts = [verdict(2, 3), verdict(1, 1), verdict(0.5, 2, positive=False)]
    assert stage_reward(verdicts) == pytest.approx(5 / 6)
    assert stage_reward([verdict(2, positive=False)]) == 0
    assert stage_reward([verdict(0, positive=False)]) == 1


async def test_every_stage_gets_its_own_reward():
    points = dict(zip(Stage, (0.0, 1.0, 1.5, 2.0), strict=True))
    scores = await scores_of(run_of(), ScriptedScorer(lambda _, stage, __: points[stage]))
    assert [scores[stage].score for stage in Stage] == [0, 0.5, 0.75, 1]
    assert list(scores) == list(Stage)


async def test_a_stage_the_policy_left_out_is_zero_and_missing():
    texts = {stage: text for stage, text in WHOLE.items() if stage is not Stage.REVIEW}
    for status in (Status.FINISHED, Status.PARTIAL):
        review = (await scores_of(run_of(texts, status=status)))[Stage.REVIEW]
        assert (review.score, review.missing, review.unscored_reason) == (0, True, "")


async def test_a_run_that_broke_off_is_unscored_from_there_on_unless_its_answer_is_whole():
    texts = {Stage.PLAN: "Look it up.", Stage.RESEARCH: "It says that"}
    broken = run_of(texts, status=Status.FAILED, reason="the server is down")
    scores = await scores_of(broken)
    assert scores[Stage.PLAN].score == 1
    for stage in (Stage.RESEARCH, Stage.REVIEW, Stage.ANSWER):
        assert scores[stage].score is None and not scores[stage].missing
        assert scores[stage].unscored_reason == "the run broke off: the server is down"
    scores = await scores_of(run_of(status=Status.FAILED, reason="the disk is full"))
    assert all(score.score == 1 for score in scores.values())


async def test_an_answer_kept_from_the_policy_by_an_empty_search_is_unscored():
    texts = {stage: text for stage, text in WHOLE.items() if stage is not Stage.ANSWER}
    note = Segment(author=Author.PROMPT, stage=Stage.ANSWER, turn=1, text="<answer>Nothing.")
    unlucky = run_of(
        texts,
        status=Status.PARTIAL,
        reason="nothing was found",
        decoding=Decoding.FORCED,
        extra=[note],
        sources=(),
    )
    answer = (await scores_of(unlucky))[Stage.ANSWER]
    assert answer.unscored_reason == "there was nothing to answer from: nothing was found"


async def test_a_stage_without_criteria_is_unscored_by_that_reason_alone():
    buffer = add(EMPTY, {Stage.ANSWER: EACH[Stage.ANSWER]}, 0, "")
    scores = await scores_of(run_of(), buffer=buffer)
    assert scores[Stage.ANSWER].score == 1
    assert [scores[s].unscored_reason for s in list(Stage)[:3]] == [NO_CRITERIA] * 3


async def test_a_judge_that_fails_leaves_the_stages_unscored_with_its_reason():
    scores = await scores_of(run_of(), ScriptedScorer(lambda *_: None))
    for score in scores.values():
        assert score.score is None
        assert score.unscored_reason == "the judge failed: the server is down."


async def test_one_failed_trajectory_does_not_spoil_the_others():
    def points(trajectory: Trajectory, stage: Stage, criterion: Criterion) -> float | None:
        return None if trajectory.id == "b" else 1.0

    group = group_of(varied("a", "one"), varied("b", "two"), varied("c", "three"))
    judge = StageJudge(ScriptedProposer(EACH), ScriptedScorer(points))
    result = await judge.judge(group, EMPTY)
    assert [j.score(Stage.ANSWER) for j in result.judgements] == [0.5, None, 0.5]
    assert result.notes == ("b: the judge failed: the server is down.",)


async def test_a_group_is_contrasted_scored_on_what_that_brought_and_then_pruned():
    def points(trajectory: Trajectory, stage: Stage, criterion: Criterion) -> float:
        return 2.0 if trajectory.id == "a" or stage is not Stage.ANSWER else 0.0

    proposer, scorer = ScriptedProposer(EACH), ScriptedScorer(points)
    group = group_of(varied("a", "right"), varied("b", "wrong"))
    result = await StageJudge(proposer, scorer).judge(group, EMPTY, step=7)
    assert (proposer.contrasted, proposer.asked) == ([2], [])
    assert scorer.standards[0] == EACH
    assert [j.score(Stage.ANSWER) for j in result.judgements] == [1, 0]
    assert result.buffer.active[Stage.ANSWER] == EACH[Stage.ANSWER], "it separates the runs"
    assert result.buffer.active[Stage.PLAN] == (), "all agree on it"
    assert result.buffer.retired[Stage.PLAN] == EACH[Stage.PLAN]
    assert {change.step for change in result.buffer.history} == {7}
    assert all(j.rubric_version == add(EMPTY, EACH, 7, "").label for j in result.judgements)


async def test_a_lone_run_is_scored_on_criteria_from_its_question_and_prunes_nothing():
    proposer = ScriptedProposer(KEPT)
    judge = StageJudge(proposer, FULL)
    first = await judge.judge(group_of(run_of()), EMPTY)
    assert (proposer.contrasted, proposer.asked) == ([], [QUESTION])
    assert first.buffer.persistent == KEPT
    again = await judge.judge(group_of(run_of()), first.buffer)
    assert proposer.asked == [QUESTION], "persistent criteria are made once"
    assert again.buffer is first.buffer


async def test_identical_runs_count_once_and_have_nothing_to_contrast():
    proposer = ScriptedProposer(KEPT)
    group = group_of(run_of(name="a"), run_of(name="b"))
    result = await StageJudge(proposer, FULL).judge(group, GROWN)
    assert proposer.contrasted == []
    assert result.buffer.active == GROWN.active, "nothing is pruned"
    assert len(result.judgements) == 2
    runs = [varied("a", "one"), varied("b", "two"), varied("c", "one")]
    assert distinct(runs) == [0, 1]


async def test_a_failed_proposal_brings_nothing_and_a_note():
    group = group_of(varied("a", "one"), varied("b", "two"))
    scorer = ScriptedScorer(lambda t, *_: 2.0 if t.id == "a" else 0.0)
    result = await StageJudge(ScriptedProposer(None), scorer).judge(group, GROWN)
    assert result.notes == ("No new criteria: it wrote nothing of use.",)
    assert [j.score(Stage.PLAN) for j in result.judgements] == [1, 0]
    assert result.buffer == GROWN


async def test_no_more_criteria_join_than_one_proposal_may_bring():
    many = {Stage.PLAN: tuple(item(f"Names fact {n}.") for n in range(9))}
    group = group_of(varied("a", "one"), varied("b", "two"))
    scorer = ScriptedScorer(lambda *_: 1.0)
    await StageJudge(ScriptedProposer(many), scorer).judge(group, EMPTY)
    assert len(scorer.standards[0][Stage.PLAN]) == 4


@pytest.mark.parametrize(
    ("good", "flaws", "kept"), [(4, 3, (2, 2)), (4, 1, (3, 1)), (1, 4, (1, 3)), (5, 0, (4, 0))]
)
async def test_flaws_are_not_cut_off_behind_what_should_hold(
    good: int, flaws: int, kept: tuple[int, int]
):
    said = [item(f"Names fact {n}.") for n in range(good)]
    said += [item(f"Denies fact {n + 5}.", positive=False) for n in range(flaws)]
    scorer = ScriptedScorer(lambda *_: 1.0)
    judge = StageJudge(ScriptedProposer({Stage.PLAN: tuple(said)}), scorer)
    await judge.judge(group_of(varied("a", "one"), varied("b", "two")), EMPTY)
    signs = [c.positive for c in scorer.standards[0][Stage.PLAN]]
    assert (signs.count(True), signs.count(False)) == kept


class Inventive(ScriptedProposer):
    """Proposes four other criteria a stage each time."""

    def _given(self) -> Any:
        n = len(self.contrasted)
        self.criteria = {s: tuple(item(f"Names fact {n} {k}.") for k in range(4)) for s in Stage}
        return super()._given()


@pytest.mark.parametrize("scored", [0, 1])
async def test_a_buffer_keeps_its_caps_with_fewer_than_two_scored_rollouts(scored: int):
    def points(trajectory: Trajectory, *_: Any) -> float | None:
        return 1.0 if trajectory.id in "ab"[:scored] else None

    judge, buffer = StageJudge(Inventive({}), ScriptedScorer(points)), EMPTY
    for step in range(8):
        group = group_of(varied("a", "one"), varied("b", "two"))
        buffer = (await judge.judge(group, buffer, step)).buffer
    assert [len(buffer.active[stage]) for stage in Stage] == list(CAPS.values())


async def test_a_group_may_be_given_criteria_that_are_kept_before_it_is_contrasted():
    class Both(ScriptedProposer):
        async def from_question(self, question: str, found: Any = (), stages: Any = ()) -> Any:
            assert stages == (Stage.ANSWER,), "of the others none would be kept"
            self.criteria = KEPT
            return await super().from_question(question, found)

        async def contrast(self, trajectories: Any, buffer: RubricBuffer, step: int) -> Any:
            self.criteria = {Stage.ANSWER: (item(f"{len(buffer.persistent)} kept before."),)}
            return await super().contrast(trajectories, buffer, step)

    group, proposer = group_of(varied("a", "one"), varied("b", "two")), Both({})
    scorer = ScriptedScorer(lambda t, *_: 2.0 if t.id == "a" else 0.0)
    judge = StageJudge(proposer, scorer, persistent=True)
    first = await judge.judge(group, EMPTY)
    assert first.buffer.persistent == {Stage.ANSWER: KEPT[Stage.ANSWER]}, "of the answer alone"
    assert [c.title for c in first.buffer.active[Stage.ANSWER]] == ["1 kept before."]
    await judge.judge(group, first.buffer)
    assert (proposer.asked, proposer.contrasted) == ([QUESTION], [2, 2]), "they are made once"


OWN = item("Names the least recently used.", kept=True)


class Listening(ScriptedProposer):
    """Remembers what a search had found."""

    found: tuple[Passage, ...] = ()

    async def from_question(self, question: str, found: Any = (), stages: Any = ()) -> Any:
        self.found = tuple(found)
        return await super().from_question(question, found)


async def test_criteria_come_from_the_question_and_from_a_search_for_it():
    search, proposer = (
        FixedSearch(),
        Listening({Stage.ANSWER: (OWN, item("Has a tag", kept=True))}),
    )
    made = await FirstRubrics.propose(EMPTY, proposer, search)
    assert (search.queries, proposer.found) == ([QUESTION], tuple(FOUND))
    assert made.buffer.persistent[Stage.ANSWER] == (OWN,)
    assert made.buffer.history[0].reason == f"from the question and {len(FOUND)} passages"
    assert len(FOUND) <= PASSAGES and len(made.notes) == 1, "the tag is a loophole"
    assert made.usage.calls == 1


async def test_criteria_are_made_once_also_without_a_search():
    buffer = EMPTY.model_copy(update={"persistent": {Stage.PLAN: (OWN,)}})
    with pytest.raises(SettingsError, match="kept for good"):
        await FirstRubrics.propose(buffer, ScriptedProposer({}), None)
    made = await FirstRubrics.propose(EMPTY, ScriptedProposer({Stage.ANSWER: (OWN,)}), None)
    assert (made.passages, made.buffer.history[0].reason) == (0, "from the question")


def test_passages_are_fenced_and_cut():
    shown = render_passages([Passage("t", "l", "p", "x" * 999), Passage("u", "l", "p", "y")], 200)
    assert shown.count("[end of text") == 2 and "t\nx" in shown
    assert len(shown) < 200 + 2 * 80


def make(server: ScriptedServer, *arguments: str) -> Result:
    command = ["judge", "rubrics", "from-search", *arguments, "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BufferStore:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return BufferStore(tmp_path / "data" / "buffers")


def test_the_command_searches_a_folder_and_keeps_what_was_made(store: BufferStore, tmp_path: Path):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nlru_cache evicts the oldest use first.\n")
    reply = {"answer": {"positive": [{"title": "Rule", "description": "Names the oldest use."}]}}
    with ScriptedServer([json.dumps(reply)]) as server:
        done = make(server, QUESTION, "--source", str(folder))
    assert done.exit_code == 0, done.output
    assert "Names the oldest use." in done.stdout and "1 criteria, after 1 passages" in done.stdout
    said = server.requests[0].body["messages"][1]["content"]
    assert "evicts the oldest use first" in said
    (kept,) = store.load(QUESTION).persistent[Stage.ANSWER]
    assert kept.persistent


class Writer:
    """A `TokenPolicy` of one token a character that remembers its prompts and writes one line."""

    name, version, context_tokens = "writer", "1", 4096

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def render(self, messages: Any) -> tuple[int, ...]:
        self.asked.append(messages[-1].content)
        return (1,)

    async def encode(self, text: str) -> tuple[int, ...]:
        return (2,)

    async def complete(self, prefix: Any, sampling: Any, stop: Any = None) -> Completion:
        return Completion(" Says how lru_cache does evict the oldest use.", "stop")


async def test_the_embedded_proposer_reads_the_passages_too():
    writer = Writer()
    writer_any: Any = writer
    proposed = await LineProposer(writer_any).from_question(QUESTION, FOUND)
    assert all(FOUND[0].text in said for said in writer.asked) and len(writer.asked) == 4
    assert proposed.criteria[Stage.ANSWER][0].persistent


RULE, SIZE = item("Names the rule.", 3), item("Names the size.", 1)


class Fixed:
    """Gives the same points for every criterion; None: it fails, having cost a call."""

    name = "fixed"

    def __init__(self, *points: float | None) -> None:
        self.points = points

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        points = iter(self.points)
        verdicts = {
            stage: tuple(self._verdict(c, next(points)) for c in criteria)
            for stage, criteria in standard.items()
        }
        return Scored(verdicts, Usage(calls=1))

    def _verdict(self, criterion: Any, points: float | None) -> Verdict:
        if points is None:
            raise JudgeError("no", "", Usage(calls=2))
        return Verdict(criterion=criterion, points=points, justification=f"gave {points}")


async def test_points_are_means_and_the_spread_is_of_the_stages_score():
    scorer = RepeatedScorer([Fixed(2, 0), Fixed(2, 2), Fixed(1, 1)])
    scored = await scorer.score(run_of(), {Stage.ANSWER: (RULE, SIZE)})
    rule, size = scored.verdicts[Stage.ANSWER]
    assert (rule.points, size.points) == (pytest.approx(5 / 3), 1)
    assert (rule.justification, size.justification) == ("gave 2", "gave 1")
    # The stage scored 3/4, 1 and 1/2.
    assert scored.spread[Stage.ANSWER] == pytest.approx((1 / 24) ** 0.5)
    assert scored.usage.calls == 3


async def test_scorings_that_fail_are_left_out_but_paid_for():
    scored = await RepeatedScorer([Fixed(None, 0), Fixed(2, 2)]).score(
        run_of(), {Stage.ANSWER: (RULE, SIZE)}
    )
    assert scored.verdicts[Stage.ANSWER][0].points == 2
    assert (scored.spread, scored.usage.calls) == ({}, 3)


async def test_no_scoring_at_all_is_an_error_with_the_whole_bill():
    with pytest.raises(JudgeError) as caught:
        await RepeatedScorer([Fixed(None), Fixed(None)]).score(run_of(), {Stage.ANSWER: (RULE,)})
    assert caught.value.usage == Usage(calls=4)


async def test_a_server_scores_each_run_as_often_as_asked_with_other_seeds():
    def answer(body: dict[str, Any], number: int) -> str:
        points = body["seed"] // 3
        given = {"number": 1, "justification": "so", "points": points}
        return json.dumps({"verdicts": [given]})

    buffer = RubricBuffer(question=QUESTION, persistent={Stage.ANSWER: (RULE,)})
    async with chatting(answer) as (chat, server):
        result = await stage_judge(chat, repeat=3).judge(group_of(run_of()), buffer)
    answer_score = result.judgements[0].stages[-1]
    assert answer_score.score == 0.5
    assert answer_score.spread == pytest.approx((1 / 6) ** 0.5)
    assert {request.body["temperature"] for request in server.requests} == {0.7}
    assert result.judgements[0].usage.calls == 3


class LocalReader(FixedReader):
    """One that also continues tokens, as models of this process do."""

    async def complete(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError


async def test_graded_points_are_expected_values():
    reader = FixedReader(lambda text: (0.25, 0.5, 0.25))
    scored = await ChoiceScorer(reader, graded=True).score(run_of(), {Stage.ANSWER: (RULE,)})
    assert scored.verdicts[Stage.ANSWER][0].points == 1
    assert reader.options == [("0", "1", "2")]


async def test_what_a_model_cannot_do_is_refused():
    local = LocalReader(lambda text: (1.0,))
    with pytest.raises(SettingsError, match="repeating tells nothing"):
        stage_judge(local, repeat=2)
    with pytest.raises(SettingsError, match="without a rubric"):
        attempt_reader(local, "- mine")
    async with client("http://127.0.0.1:9/v1") as chat:
        with pytest.raises(SettingsError, match="embedded"):
            stage_judge(chat, graded=True)
