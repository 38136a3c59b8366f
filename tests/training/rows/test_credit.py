"""Advantages worked by hand, their invariances, and the counts of what is not learnt from.

Returns worked by hand, and what an unknown or an absent reward does to them.

Every credit over the same judged groups, by hand; and what is no credit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricem.judge.relative import Attempts, Read, RelativeGroups, RelativeJudge
from rubricem.memory.errors import SettingsError
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import Judgement
from rubricem.training.rows.compile import NO_SPREAD, policy_rows
from rubricem.training.rows.credit import (
    CREDITS,
    PAPER,
    Dependence,
    Floats,
    broadcast,
    identity,
    row_rule,
    stage_advantages,
    stage_returns,
)
from tests.support.collected import judgement
from tests.training.rows.test_compile import ONE, TWO, group, rollout

NAN = float("nan")
MANY = settings(max_examples=40, deadline=None)
SCORES = st.lists(
    st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(4)]),
    min_size=2,
    max_size=8,
).map(np.array)


@pytest.mark.parametrize(
    ("returns", "more", "values", "idle"),
    [
        # mean 0.5; variance (0.25 + 0.25 + 0 + 0) / 4 = 0.125, not / 3
        ([[1.0], [0.0], [0.5], [0.5]], {"eps": 0.0}, [[2**0.5], [-(2**0.5)], [0.0], [0.0]],
         ((0,), (0,), (0,))),
        ([[1.0], [0.0]], {"eps": 0.5}, [[0.5], [-0.5]], ((0,), (0,), (0,))),
        ([[1.0], [0.0], [NAN]], {"eps": 0.0}, [[1.0], [-1.0], [0.0]], ((1,), (0,), (0,))),
        ([[1.0, NAN], [NAN, NAN], [NAN, NAN]], {}, np.zeros((3, 2)), ((2, 3), (1, 0), (0, 0))),
        ([[0.5, 0.0], [0.5 + 1e-7, 0.002]], {"minimum_spread": 1e-3, "eps": 0.0},
         [[0.0, -1.0], [0.0, 1.0]], ((0, 0), (0, 0), (2, 0))),
        ([[100.0, 0.0], [101.0, 0.5]], {"eps": 0.0}, [[-1.0, -1.0], [1.0, 1.0]],
         ((0, 0), (0, 0), (0, 0))),
    ],
    ids=["population standard deviation", "eps is added to it", "unknown is in no baseline",
         "a lone known return has no baseline", "below the minimum spread is noise, at it is not",
         "each stage has its own baseline"],
)  # fmt: skip
def test_advantages_by_hand(
    returns: Any, more: dict[str, Any], values: Any, idle: tuple[tuple[int, ...], ...]
) -> None:
    found = stage_advantages(np.array(returns), **more)
    np.testing.assert_allclose(found.values, values)
    assert (found.unscored, found.too_few, found.no_spread) == idle


@MANY
@given(SCORES, st.floats(0.5, 20), st.floats(-5, 5))
def test_advantages_ignore_scale_and_shift_of_the_scores(
    scores: Floats, scale: float, shift: float
) -> None:
    def values(rewards: Floats) -> Floats:
        return stage_advantages(stage_returns(rewards, PAPER), 1e-6, eps=0.0).values

    np.testing.assert_allclose(values(scores * scale + shift), values(scores), atol=1e-6)


@MANY
@given(SCORES, st.floats(0.1, 10))
def test_scale_of_a_row_of_the_dependence_cancels(scores: Floats, scale: float) -> None:
    rows = [list(row) for row in PAPER.weights]
    rows[1] = [weight * scale for weight in rows[1]]
    scaled = Dependence(weights=tuple(tuple(row) for row in rows))
    np.testing.assert_allclose(
        stage_advantages(stage_returns(scores, scaled), 1e-6, eps=0.0).values,
        stage_advantages(stage_returns(scores, PAPER), 1e-6, eps=0.0).values,
        atol=1e-6,
    )


def grpo(rewards: Floats) -> Floats:
    """The group-relative advantage of scalar rewards, written out apart from the code."""
    deviation = float(np.sqrt(np.mean((rewards - np.mean(rewards)) ** 2)))
    if deviation < 1e-3:
        return np.zeros_like(rewards)
    return (rewards - np.mean(rewards)) / (deviation + 1e-6)


@MANY
@given(SCORES)
def test_identity_is_grpo_stage_by_stage(scores: Floats) -> None:
    found = stage_advantages(stage_returns(scores, identity())).values
    expected = np.stack([grpo(scores[:, k]) for k in range(4)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@MANY
@given(SCORES)
def test_one_stage_is_grpo_and_broadcast_is_it_everywhere(scores: Floats) -> None:
    answer = grpo(scores[:, 3])
    lone = stage_advantages(stage_returns(scores[:, 3:], Dependence(weights=((1.0,),))))
    everywhere = stage_advantages(stage_returns(scores, broadcast())).values
    np.testing.assert_allclose(lone.values[:, 0], answer, atol=1e-9)
    for k in range(4):
        np.testing.assert_allclose(everywhere[:, k], answer, atol=1e-9)


@MANY
@given(
    st.lists(
        st.tuples(*[st.sampled_from([NAN, 0.0, 0.0, 0.5, 1.0]) for _ in range(4)]),
        min_size=1,
        max_size=6,
    ).map(np.array)
)
def test_every_member_is_learnt_from_or_counted_once_and_no_nan_gets_out(
    scores: Floats,
) -> None:
    found = stage_advantages(stage_returns(scores, PAPER))
    assert np.isfinite(found.values).all()
    np.testing.assert_allclose(found.values.sum(axis=0), 0.0, atol=1e-9)
    for k in range(4):
        idle = found.unscored[k] + found.too_few[k] + found.no_spread[k]
        assert np.count_nonzero(found.values[:, k]) <= len(scores) - idle
        assert idle == len(scores) or np.count_nonzero(found.values[:, k]) >= 2


def test_infinite_returns_are_refused() -> None:
    with pytest.raises(ValueError, match="finite or NaN"):
        stage_advantages(np.array([[np.inf], [0.0]]))


NO_REVIEW, NO_ANSWER = [[False, False, True, False]], [[False, False, False, True]]


@pytest.mark.parametrize(
    ("scores", "dependence", "absent", "returns"),
    [
        # 1 + .4*0 + .6*.5 + .8*1, 0 + .4*.5 + .8*1, .5 + .8*1, 1
        ([[1.0, 0.0, 0.5, 1.0]], PAPER, None, [[2.1, 1.0, 1.3, 1.0]]),
        # .5 + .4*1 + .6*0 + .8*.25, 1 + .4*0 + .8*.25, 0 + .8*.25, .25
        ([[0.5, 1.0, 0.0, 0.25]], PAPER, None, [[1.1, 1.2, 0.2, 0.25]]),
        ([[1.0, 0.0, 0.25], [0.5, 1.0, 0.75]], broadcast(3), None, [[0.25] * 3, [0.75] * 3]),
        ([[1.0, 0.0, 0.25, 0.5]], identity(), None, [[1.0, 0.0, 0.25, 0.5]]),
        ([[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]], PAPER, None,
         [[NAN, NAN, 1.3, 1.0], [NAN] * 4]),
        ([[1.0, NAN, 0.5, 1.0]], identity(), None, [[1.0, NAN, 0.5, 1.0]]),
        ([[1.0, 0.0, 0.5, NAN]], identity(), None, [[1.0, 0.0, 0.5, NAN]]),
        ([[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]], broadcast(), None, [[1.0] * 4, [NAN] * 4]),
        # a missing stage counts as the zero it is given
        ([[1.0, 0.0, 0.0, 0.0]], PAPER, None, [[1.0, 0.0, 0.0, 0.0]]),
        # left out of every sum: 1 + .4*.5 + .8*.25, .5 + .8*.25, its downstream term .8*.25, .25
        ([[1.0, 0.5, NAN, 0.25]], PAPER, NO_REVIEW, [[1.4, 0.7, 0.2, 0.25]]),
        # with no term left a return is unknown
        ([[1.0, 0.5, 0.5, NAN]], PAPER, NO_ANSWER, [[1.5, 0.7, 0.5, NAN]]),
        ([[1.0, 0.5, 0.5, NAN]], broadcast(), NO_ANSWER, [[NAN] * 4]),
    ],
)  # fmt: skip
def test_returns_by_hand(scores: Any, dependence: Dependence, absent: Any, returns: Any) -> None:
    left_out = None if absent is None else np.array(absent)
    found = stage_returns(np.array(scores), dependence, left_out)
    np.testing.assert_allclose(found, returns, atol=1e-12)


def test_score_of_an_absent_stage_is_not_read() -> None:
    absent = np.array([[False, False, True, False]])
    with_score = stage_returns(np.array([[1.0, 0.5, 1.0, 0.25]]), PAPER, absent)
    without = stage_returns(np.array([[1.0, 0.5, NAN, 0.25]]), PAPER, absent)
    np.testing.assert_array_equal(with_score, without)


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ((), "square"),
        (((1.0, 0.5),), "square"),
        (((1.0, 0.5), (0.1, 1.0)), "row 1 .* earlier"),
        (((1.0, -0.5), (0.0, 1.0)), "row 0 .* negative"),
        (((1.0, NAN), (0.0, 1.0)), "row 0 .* finite"),
        (((1.0, float("inf")), (0.0, 1.0)), "row 0 .* finite"),
    ],
)
def test_matrix_that_is_not_causal_is_refused(
    weights: tuple[tuple[float, ...], ...], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        Dependence(weights=weights)


def test_any_causal_matrix_is_taken_and_survives_json() -> None:
    skewed = Dependence(weights=((0.0, 3.0), (0.0, 0.5)))
    assert Dependence.model_validate_json(skewed.model_dump_json()) == skewed
    np.testing.assert_allclose(stage_returns(np.array([[9.0, 2.0]]), skewed), [[6.0, 1.0]])


def test_wrong_shapes_and_infinite_scores_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need \(n, 4\)"):
        stage_returns(np.zeros((2, 3)), PAPER)
    with pytest.raises(ValueError, match=r"need \(n, 4\)"):
        stage_returns(np.zeros((2, 4)), PAPER, np.zeros((1, 4), dtype=np.bool_))
    with pytest.raises(ValueError, match="infinite"):
        stage_returns(np.array([[0.0, 0.0, 0.0, np.inf]]), PAPER)


FOUND = ([0.0, 0.5, 0.5, 1.0], [1.0, 0.5, 0.5, 0.0])
JUDGED = [judgement(run, scores) for run, scores in zip((ONE, TWO), FOUND, strict=True)]
MATRIX = [[1, 0, 0, 1], [0, 1, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]]


def stages(credit: Any, judged: Sequence[Judgement] = JUDGED) -> list[float]:
    """The advantages of the first rollout's plan, research, review and answer."""
    row, _ = policy_rows(group(ONE, TWO), judged, row_rule(credit)).rows
    return [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]


@pytest.mark.parametrize(
    ("credit", "advantages"),
    [
        # The plan's returns are 0 + 0.2 + 0.3 + 0.8 and 1 + 0.2 + 0.3 + 0.
        ("ss-grpo", [-1, 1, 1, 1]),
        ("answer-only", [1, 1, 1, 1]),
        ("dr-grpo", [0.5, 0.5, 0.5, 0.5]),
        ("identity", [-1, 0, 0, 1]),
        # The plan's are 1 and 1, the review's own are alike.
        (MATRIX, [0, 1, 0, 1]),
    ],
    ids=["ss-grpo", "answer-only", "dr-grpo", "identity", "matrix"],
)
def test_credits_of_the_same_group_by_hand(credit: Any, advantages: list[float]):
    np.testing.assert_allclose(stages(credit), advantages, atol=1e-4)


def test_unscaled_advantages_keep_the_size_of_the_difference():
    judged = [judgement(ONE, [0.0, 0.0, 0.0, 0.7]), judgement(TWO, [0.0, 0.0, 0.0, 0.5])]
    np.testing.assert_allclose(stages("dr-grpo", judged), [0.1] * 4)
    np.testing.assert_allclose(stages("answer-only", judged), [1.0] * 4, atol=1e-4)


def test_alike_members_teach_nothing_unscaled_either():
    judged = [judgement(ONE, [0.1] * 4), judgement(TWO, [0.1] * 3 + [0.1 + 5e-13])]
    assert policy_rows(group(ONE, TWO), judged, CREDITS["dr-grpo"]).dropped == {NO_SPREAD: 2}


class FixedReader:
    """Scores attempts by the order of their texts."""

    name, rubric_version, characters = "fixed", "1", 10_000

    async def read(self, attempts: Attempts, seed: int) -> Read:
        order = sorted(attempts.texts)
        scores = (0.2, 0.8)
        return Read(tuple((scores[order.index(text)], "why") for text in attempts.texts))


@pytest.mark.parametrize("credit", ["ss-grpo", "answer-only", "dr-grpo"])
async def test_scores_of_whole_trajectories_reach_every_stage(credit: str):
    first, second = rollout("one"), rollout("two")
    last = second.segments[-1].model_copy(update={"text": "e"})
    second = second.model_copy(update={"segments": (*second.segments[:-1], last)})
    runs = group(first, second)
    judged = await RelativeGroups(RelativeJudge(FixedReader())).judge(
        runs, RubricBuffer(question="q")
    )
    scores = [one.stages[-1].score for one in judged.judgements]
    assert sorted(scores) == [0.2, 0.8]  # type: ignore[type-var]
    row, _ = policy_rows(runs, judged.judgements, row_rule(credit)).rows
    trained = [a for a, on in zip(row.advantages, row.loss_mask, strict=True) if on]
    size = 0.3 if credit == "dr-grpo" else 1.0
    sign = 1 if scores[0] == 0.8 else -1
    np.testing.assert_allclose(trained, [sign * size] * 4, atol=1e-4)


def test_a_list_for_each_stage_is_credited_stage_by_stage():
    # Relative scores of each stage by itself: the first wins the plan, the second the rest.
    judged = [judgement(ONE, [0.8, 0.2, 0.2, 0.2]), judgement(TWO, [0.2, 0.8, 0.8, 0.8])]
    np.testing.assert_allclose(stages("identity", judged), [1, -1, -1, -1], atol=1e-4)


@pytest.mark.parametrize(
    ("credit", "fault"),
    [
        ("paper", "There is no credit 'paper'"),
        ([[1.0, 0.0], [0.0, 1.0]], "it has 2 rows"),
        ([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "credits an earlier stage"),
        ([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "negative or not finite"),
        ([[1, 2], [3]], "square and not empty"),
        (3, "should be a valid tuple"),
    ],
)
def test_what_is_no_credit_is_told_with_those_that_are(credit: Any, fault: str):
    with pytest.raises(SettingsError, match=fault) as told:
        row_rule(credit)
    assert "ss-grpo, answer-only, dr-grpo, identity" in told.value.remedy


def test_what_is_no_ratio_is_told_with_those_that_are():
    with pytest.raises(SettingsError, match="no scaffold_ratio 'mixed'") as told:
        row_rule(ratio="mixed")
    assert "unscaffolded, behaviour, scaffolded" in told.value.remedy
