"""The stage judge by hand: rewards, what is missing or unscored, what a group teaches."""

from typing import Any

import pytest

from rubricem.judge.buffers import CAPS, add
from rubricem.judge.stage import StageJudge, distinct, stage_reward
from rubricem.memory.schema import (
    NO_CRITERIA,
    Author,
    Criterion,
    Decoding,
    RubricBuffer,
    Segment,
    Stage,
    StageScore,
    Status,
    Trajectory,
    Verdict,
)
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
    assert result.unproposed == "it wrote nothing of use."
    assert [j.score(Stage.PLAN) for j in result.judgements] == [1, 0]
    assert result.buffer == GROWN


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
