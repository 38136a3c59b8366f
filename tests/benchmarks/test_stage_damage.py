"""One stage made worse: nothing else changes, and what counts as noticed, by hand."""

import pytest

from benchmarks.stage_damage import BOASTING, NOTHING_FOUND, damage, sensitivity
from rubricem.judge.base import stage_text
from rubricem.memory.schema import Author, Judgement, Segment, Stage, StageScore, Trajectory
from tests.support.values import WHOLE, run_of

FOUND = Segment(author=Author.TOOL, stage=Stage.RESEARCH, turn=1, text="S1 says it evicts LRU.")
SEARCH = 'I will look. <call_tool name="search">lru</call_tool>'
CITED = '<answer>So <cite id="S1">the oldest goes</cite>.</answer>'


@pytest.fixture
def run() -> Trajectory:
    texts = {**WHOLE, Stage.RESEARCH: SEARCH, Stage.ANSWER: CITED}
    return run_of(texts, extra=[FOUND])


@pytest.fixture
def other() -> Trajectory:
    return run_of({**WHOLE, Stage.PLAN: "Look up heapq."}, "other")


@pytest.mark.parametrize("stage", Stage)
def test_damage_changes_its_stage_and_no_other(run: Trajectory, other: Trajectory, stage: Stage):
    worse = damage(run, stage, other)
    changed = {s for s in Stage if stage_text(worse, s) != stage_text(run, s)}
    assert changed == {stage}
    assert [s.stage for s in worse.segments] == [s.stage for s in run.segments]


def test_each_damage_is_what_it_says(run: Trajectory, other: Trajectory):
    texts = {stage: stage_text(damage(run, stage, other), stage) for stage in Stage}
    assert texts[Stage.PLAN] == "Look up heapq."
    assert texts[Stage.REVIEW] == BOASTING
    assert texts[Stage.ANSWER] == "<answer>So the oldest goes.</answer>"
    assert texts[Stage.RESEARCH] == f'<call_tool name="search">lru</call_tool>{NOTHING_FOUND}'


def test_a_stage_of_several_turns_is_replaced_as_one():
    more = Segment(author=Author.POLICY, stage=Stage.REVIEW, turn=2, text=" And more.")
    worse = damage(run_of(extra=[more]), Stage.REVIEW, run_of())
    assert stage_text(worse, Stage.REVIEW) == BOASTING


def judged(*scores: float | None) -> Judgement:
    stages = tuple(
        StageScore(stage=stage, score=score, unscored_reason="" if score is not None else "x")
        for stage, score in zip(Stage, scores, strict=True)
    )
    return Judgement(trajectory_id="t", judge="j", stages=stages)


def test_lower_only_and_most_by_hand():
    intact = {name: judged(0.8, 0.8, 0.8, 0.8) for name in "abc"}
    hurt = {
        Stage.PLAN: {
            "a": judged(0.5, 0.8, 0.79, 0.9),  # only the plan; 0.01 is noise
            "b": judged(0.5, 0.7, 0.8, 0.8),  # the research fell too, by less
            "c": judged(0.8, 0.2, 0.8, 0.8),  # the wrong stage
        }
    }
    found = sensitivity(intact, hurt)[Stage.PLAN]
    assert [(s.hits, s.n) for s in (found.lower, found.only, found.most)] == [
        (2, 3),
        (1, 3),
        (2, 3),
    ]
    assert found.change[Stage.PLAN] == pytest.approx(-0.2)
    assert found.change[Stage.RESEARCH] == pytest.approx((-0.1 - 0.6) / 3)


def test_an_unscored_stage_is_unknown_and_says_nothing_of_the_others():
    hurt = judged(0.2, None, 1, 1)
    found = sensitivity({"a": judged(1, 1, 1, 1)}, {s: {"a": hurt} for s in list(Stage)[:2]})
    plan, research = found[Stage.PLAN], found[Stage.RESEARCH]
    assert (plan.only.hits, plan.only.n, research.lower.n) == (1, 1, 0)
    assert plan.change == pytest.approx({Stage.PLAN: -0.8, Stage.REVIEW: 0, Stage.ANSWER: 0})
    assert research.change == {}
