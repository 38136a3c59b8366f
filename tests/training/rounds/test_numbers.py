"""One round in numbers: values worked by hand."""

from dataclasses import replace

import pytest

from rubricem.agent.learning.reflect import Reflected
from rubricem.memory.schema import (
    NO_CRITERIA,
    Author,
    Segment,
    Stage,
    StageScore,
    Status,
    TrajectoryGroup,
    Usage,
)
from rubricem.training.rounds.numbers import (
    form_numbers,
    guard_numbers,
    judge_numbers,
    numbers_of,
    reflection_numbers,
    reward_intervals,
    rows_numbers,
)
from rubricem.training.rounds.update import RoundGroup, RoundRows
from tests.support.collected import IDENTITY, candidate, judgement
from tests.support.rows import row
from tests.support.values import run_of
from tests.training.rows.test_credit import rollout


def group(*scores: list[float | None], failures: tuple[str, ...] = ()) -> RoundGroup:
    runs = tuple(run_of(name=f"t{number}") for number in range(len(scores)))
    return RoundGroup(
        name="g",
        group=TrajectoryGroup(question="q", trajectories=runs, failures=failures),
        judged=tuple(judgement(t, s) for t, s in zip(runs, scores, strict=True)),
        reflected=Reflected(
            trajectory_id="t0",
            candidates=(candidate(runs[0], 0.8), candidate(runs[0], None, fault="no form")),
        ),
    )


def test_rewards_are_means_over_what_is_scored_and_the_rest_is_counted():
    found = numbers_of([group([0.2, 0.5, 0.5, None], [0.6, 0.5, 0.5, 1.0])], IDENTITY)
    assert found["reward/plan/mean"] == pytest.approx(0.4)
    assert found["reward/plan/std"] == pytest.approx(0.2)
    assert (found["reward/plan/min"], found["reward/plan/max"]) == (0.2, 0.6)
    assert found["reward/answer/mean"] == 1.0, "the unscored one is in no mean"
    assert found["unscored_share"] == 1 / 8


def test_a_stage_that_no_member_differs_at_has_no_spread():
    groups = [group([0.2, 0.5, 0.5, 1.0], [0.6, 0.5, 0.5, 0.0]), group([0.1] * 4, [0.1] * 4)]
    found = numbers_of(groups, IDENTITY)
    shares = [found[f"groups_without_spread/{s}"] for s in ("plan", "research", "answer")]
    assert shares == [0.5, 1.0, 0.5]


def test_answers_that_please_by_form_are_told_by_length_cites_and_what_they_repeat_of_the_plan():
    rubric = " ".join(f"criterion{n}" for n in range(24))
    honest, copied = (
        run_of({Stage.PLAN: rubric, Stage.ANSWER: text}) for text in ("Rome fell. It did.", rubric)
    )
    found = guard_numbers([honest])
    assert (found["answer_words/mean"], found["copied_rubric_share/mean"]) == (4, 0)
    both = guard_numbers([honest, copied, run_of(status=Status.PARTIAL)])
    assert both["answer_words/max"] == 24 and both["copied_rubric_share/mean"] == 0.5
    assert both["cites_per_sentence/mean"] == 0
    assert numbers_of([group([0.1] * 4, [0.1] * 4)], IDENTITY)["groups/dropped"] == 1


def test_failures_and_form_are_shares_of_what_was_sampled():
    one = group([0.2] * 4, failures=("the server was away",))
    cut = one.group.trajectories[0].model_copy(update={"status": Status.PARTIAL})
    one = RoundGroup("g", one.group.model_copy(update={"trajectories": (cut,)}),
                      one.judged, one.reflected)  # fmt: skip
    found = numbers_of([one], IDENTITY)
    assert (found["rollouts"], found["failed_share"], found["cut_off_share"]) == (2, 0.5, 1.0)
    assert found["malformed_share"] == 1.0, "it has no structured plan"
    reflected = reflection_numbers([one])
    assert reflected["reflection/score/mean"] == pytest.approx(0.8)
    assert reflected["reflection/malformed_share"] == 0.5


def test_advantages_and_staleness_are_of_the_rows_that_are_trained():
    trained = [
        row(n, "policy", advantage, stages=(-1,) * 10 + (0,) * 6 + (-1,) * 3 + (3,) * 5)
        for n, advantage in enumerate((1.5, -0.5))
    ]
    reflections = RoundRows((row(2, "reflect"),), {"it was not judged": 3}, (2,))
    found = rows_numbers(RoundRows(tuple(trained), {}, (1, 1)), reflections)
    assert (found["rows/policy"], found["rows/reflect"]) == (2, 1)
    assert found["advantage/plan/mean"] == 0.5 and found["advantage/answer/size/max"] == 1.5
    assert found["advantage/plan/positive_share"] == 0.5
    assert found["staleness/mean"] == pytest.approx(4 / 3) and found["staleness/max"] == 2
    assert found["dropped"] == 3 == found["dropped/it was not judged"]
    assert "advantage/research/mean" not in found
    assert rows_numbers(RoundRows((trained[0].first(18),)), RoundRows())["rows/cut"] == 1


def test_a_stages_reward_has_an_interval_of_two_values_at_least():
    ends = reward_intervals([group([0.2] * 4, [0.6, 0.2, 0.2, None])])
    assert ends["reward/plan/low"] < 0.4 < ends["reward/plan/high"]
    assert "reward/answer/low" not in ends


def test_what_the_judge_took_is_told_and_a_price_only_where_it_is_known():
    one = group([0.5] * 4)
    spent = Usage(prompt_tokens=100, completion_tokens=10, cost=0.25, calls=4)
    known = judge_numbers([RoundGroup("g", one.group, one.judged, None, spent)])
    assert (known["judge/calls"], known["judge/tokens_read"], known["judge/cost"]) == (4, 100, 0.25)
    unknown = Usage(prompt_tokens=1, calls=1)
    both = judge_numbers([RoundGroup("g", one.group, one.judged, None, unknown)])
    assert "judge/cost" not in both and both["judge/calls"] == 1
    assert "judge/calls" not in judge_numbers([one])


def test_a_stage_that_the_judge_failed_at_is_told_from_one_without_criteria():
    found = judge_numbers([group([0.5, 0.5, 0.5, None])])
    assert found["unscored_share"] == 0.25 and found["judge/failed_share"] == 0.25
    assert found["no_criteria_share"] == 0
    one = group([0.5, 0.5, 0.5, 0.5])
    absent = StageScore(stage=Stage.ANSWER, unscored_reason=NO_CRITERIA)
    judged = [j.model_copy(update={"stages": (*j.stages[:3], absent)}) for j in one.judged]
    found = judge_numbers([replace(one, judged=tuple(judged))])
    assert found["unscored_share"] == found["judge/failed_share"] == 0
    assert found["no_criteria_share"] == 0.25


def test_lengths_are_told_by_author_and_stage_and_errors_of_tools_are_counted():
    failed = Segment(author=Author.TOOL, stage=Stage.RESEARCH, text='\n<tool_output error="away">')
    other = Segment(author=Author.POLICY, stage=Stage.PLAN, text="x", retokenised=True)
    found = form_numbers([rollout("one"), rollout("two", failed, other)])
    assert found["tokens/policy/mean"] == 4, "of the other run not all tokens are known"
    assert found["tokens/policy/plan/mean"] == 1 and found["tokens/tool/research/mean"] == 1
    assert found["tokens/prompt/mean"] == 2 and "tokens/tool/plan/mean" not in found
    assert found["tool_error_share"] == pytest.approx(1 / 3)
    assert found["retokenised_share"] == pytest.approx(1 / 9), "retried attempts do not count"
