"""Advantages worked by hand, their invariances, and the counts of what is not learnt from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.advantages import stage_advantages
from training.returns import PAPER, Dependence, Floats, broadcast, identity, stage_returns

NAN = float("nan")
MANY = settings(max_examples=40, deadline=None)
SCORES = st.lists(
    st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) for _ in range(4)]),
    min_size=2,
    max_size=8,
).map(np.array)


def test_advantages_by_hand_with_the_population_standard_deviation() -> None:
    # mean 0.5; variance (0.25 + 0.25 + 0 + 0) / 4 = 0.125, not / 3
    found = stage_advantages(np.array([[1.0], [0.0], [0.5], [0.5]]), eps=0.0)
    np.testing.assert_allclose(found.values[:, 0], [2**0.5, -(2**0.5), 0.0, 0.0])
    assert (found.unscored, found.too_few, found.no_spread) == ((0,), (0,), (0,))


def test_eps_is_added_to_the_standard_deviation() -> None:
    found = stage_advantages(np.array([[1.0], [0.0]]), eps=0.5)
    np.testing.assert_allclose(found.values[:, 0], [0.5, -0.5])


def test_unknown_return_is_in_no_baseline_and_teaches_nothing() -> None:
    found = stage_advantages(np.array([[1.0], [0.0], [NAN]]), eps=0.0)
    np.testing.assert_allclose(found.values[:, 0], [1.0, -1.0, 0.0])
    assert found.unscored == (1,)


def test_lone_known_return_has_no_baseline() -> None:
    found = stage_advantages(np.array([[1.0, NAN], [NAN, NAN], [NAN, NAN]]))
    np.testing.assert_array_equal(found.values, np.zeros((3, 2)))
    assert found.too_few == (1, 0)
    assert found.unscored == (2, 3)


def test_spread_below_the_minimum_is_noise_and_at_it_is_not() -> None:
    returns = np.array([[0.5, 0.0], [0.5 + 1e-7, 0.002]])
    found = stage_advantages(returns, minimum_spread=1e-3, eps=0.0)
    np.testing.assert_allclose(found.values, [[0.0, -1.0], [0.0, 1.0]])
    assert found.no_spread == (2, 0)


def test_stages_have_baselines_of_their_own() -> None:
    found = stage_advantages(np.array([[100.0, 0.0], [101.0, 0.5]]), eps=0.0)
    np.testing.assert_allclose(found.values, [[-1.0, -1.0], [1.0, 1.0]])


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
