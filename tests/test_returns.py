"""Returns worked by hand, and what an unknown or an absent reward does to them."""

import numpy as np
import pytest
from pydantic import ValidationError

from training.returns import PAPER, Dependence, broadcast, identity, stage_returns

NAN = float("nan")


def test_returns_of_the_papers_matrix_by_hand() -> None:
    scores = np.array([[1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 0.0, 0.25]])
    by_hand = [
        # 1 + .4*0 + .6*.5 + .8*1, 0 + .4*.5 + .8*1, .5 + .8*1, 1
        [2.1, 1.0, 1.3, 1.0],
        # .5 + .4*1 + .6*0 + .8*.25, 1 + .4*0 + .8*.25, 0 + .8*.25, .25
        [1.1, 1.2, 0.2, 0.25],
    ]
    np.testing.assert_allclose(stage_returns(scores, PAPER), by_hand)


def test_broadcast_gives_every_stage_the_answers_reward() -> None:
    scores = np.array([[1.0, 0.0, 0.25], [0.5, 1.0, 0.75]])
    np.testing.assert_array_equal(
        stage_returns(scores, broadcast(3)), [[0.25, 0.25, 0.25], [0.75, 0.75, 0.75]]
    )


def test_identity_gives_every_stage_its_own_reward() -> None:
    scores = np.array([[1.0, 0.0, 0.25, 0.5]])
    np.testing.assert_array_equal(stage_returns(scores, identity()), scores)


def test_unscored_stage_makes_only_the_returns_that_need_it_unknown() -> None:
    scores = np.array([[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]])
    np.testing.assert_allclose(
        stage_returns(scores, PAPER), [[NAN, NAN, 1.3, 1.0], [NAN, NAN, NAN, NAN]]
    )
    np.testing.assert_array_equal(
        stage_returns(scores, identity()), [[1.0, NAN, 0.5, 1.0], [1.0, 0.0, 0.5, NAN]]
    )
    np.testing.assert_array_equal(stage_returns(scores, broadcast()), [[1.0] * 4, [NAN] * 4])


def test_missing_stage_counts_as_the_zero_it_is_given() -> None:
    scores = np.array([[1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(stage_returns(scores, PAPER), [[1.0, 0.0, 0.0, 0.0]])


def test_stage_without_rubric_items_is_left_out_of_every_sum() -> None:
    scores = np.array([[1.0, 0.5, NAN, 0.25]])
    absent = np.array([[False, False, True, False]])
    # 1 + .4*.5 + .8*.25, .5 + .8*.25, its downstream term .8*.25, .25
    np.testing.assert_allclose(stage_returns(scores, PAPER, absent), [[1.4, 0.7, 0.2, 0.25]])


def test_score_of_an_absent_stage_is_not_read() -> None:
    absent = np.array([[False, False, True, False]])
    with_score = stage_returns(np.array([[1.0, 0.5, 1.0, 0.25]]), PAPER, absent)
    without = stage_returns(np.array([[1.0, 0.5, NAN, 0.25]]), PAPER, absent)
    np.testing.assert_array_equal(with_score, without)


def test_return_with_no_term_left_is_unknown() -> None:
    absent = np.array([[False, False, False, True]])
    scores = np.array([[1.0, 0.5, 0.5, NAN]])
    np.testing.assert_allclose(stage_returns(scores, PAPER, absent), [[1.5, 0.7, 0.5, NAN]])
    np.testing.assert_array_equal(stage_returns(scores, broadcast(), absent), [[NAN] * 4])


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
