"""The credit benchmark measures what it says: its environment, its learning and its crossing."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.credit.__main__ import ARMS, crossing
from benchmarks.credit.environment import (
    QUESTIONS,
    STAGES,
    Chain,
    Kind,
    draw_chain,
    expected_answer,
    judge_noisily,
    true_scores,
)
from benchmarks.credit.learning import Outcome, softmax, steps_to_goal
from benchmarks.credit.plot import draw
from benchmarks.credit.theory import allowed_noise
from rubricem.training.rows.credit import PAPER, Floats, broadcast, identity

RIGHT, ALIKE, WRONG = 0, 1, 2
SILENT = (0.0, 0.0, 0.0, 0.0)


def chain() -> Chain:
    """Right action 0 everywhere, its look-alike 1 in the plan, d = 0.75."""
    own = np.full((QUESTIONS, STAGES, 3), 0.2)
    own[:, :, RIGHT] = (0.8, 0.8, 0.8, 1.0)
    own[:, 0, ALIKE] = 0.8
    hands_on = np.zeros_like(own)
    hands_on[:, :, RIGHT] = 1.0
    hands_on[:, 0, ALIKE] = 0.25
    return Chain(0.75, own, hands_on)


def scores(*actions: int) -> list[float]:
    """Of the first question when every question takes these actions."""
    taken = np.tile(np.array(actions), (QUESTIONS, 1))
    return [float(score) for score in true_scores(chain(), taken)[0]]


def test_right_actions_reach_the_optimum() -> None:
    assert scores(RIGHT, RIGHT, RIGHT, RIGHT) == pytest.approx([0.8, 0.8, 0.8, 1.0])


def test_wrong_plan_spoils_every_later_score() -> None:
    # received: 1, .25, .25 + .75*.25 = .4375, .25 + .75*.4375 = .578125
    by_hand = [0.2, 0.8 * 0.25, 0.8 * 0.4375, 0.578125]
    assert scores(WRONG, RIGHT, RIGHT, RIGHT) == pytest.approx(by_hand)


def test_look_alike_shows_only_in_later_scores() -> None:
    # received: 1, .25 + .75*.25 = .4375, .25 + .75*.4375 = .578125, .25 + .75*.578125
    by_hand = [0.8, 0.8 * 0.4375, 0.8 * 0.578125, 0.68359375]
    assert scores(ALIKE, RIGHT, RIGHT, RIGHT) == pytest.approx(by_hand)


def test_drawn_chain_has_one_right_action_and_look_alikes_where_asked() -> None:
    drawn = draw_chain(np.random.default_rng(3), Kind(actions=5, look_alikes=2, lure=0.1))
    assert ((drawn.hands_on == 1.0).sum(axis=-1) == 1).all()
    assert (drawn.hands_on == 0.25).sum(axis=-1).tolist() == [[1, 1, 0, 0]] * QUESTIONS
    assert drawn.own[drawn.hands_on == 0.25] == pytest.approx(0.9)
    assert drawn.own[:, -1].max(axis=-1).tolist() == [1.0] * QUESTIONS


def test_expected_answer_is_the_mean_over_all_ways_to_act() -> None:
    drawn = draw_chain(np.random.default_rng(4), Kind(actions=3))
    policy = softmax(np.random.default_rng(5).normal(size=(QUESTIONS, STAGES, 3)))
    total = 0.0
    for actions in product(range(3), repeat=STAGES):
        answers = true_scores(drawn, np.tile(np.array(actions), (QUESTIONS, 1)))[:, -1]
        chance = policy[:, range(STAGES), actions].prod(axis=-1)
        total += float((chance * answers).mean())
    assert float(expected_answer(drawn, policy)) == pytest.approx(total)


def test_judge_guesses_in_the_share_it_is_told_stage_by_stage() -> None:
    rng = np.random.default_rng(6)
    truth = np.zeros((20_000, STAGES))
    noise = np.array([0.0, 0.3, 1.0, 0.0])
    said = judge_noisily(truth, noise, rng.random(truth.shape), rng.random(truth.shape))
    np.testing.assert_allclose((said > 0).mean(axis=0), noise, atol=0.02)


def test_same_seed_gives_the_same_steps_and_noise_that_no_return_reads_costs_nothing() -> None:
    loud = (0.9, 0.9, 0.9, 0.0)
    kind = Kind(actions=4)
    quiet_steps = steps_to_goal(broadcast(), kind, SILENT, (2.0,), seed=1)
    np.testing.assert_array_equal(
        steps_to_goal(broadcast(), kind, loud, (2.0,), seed=1), quiet_steps
    )
    assert np.isfinite(quiet_steps).all()
    assert steps_to_goal(PAPER, kind, loud, (2.0,), seed=1) > quiet_steps


def test_rates_tried_side_by_side_equal_each_rate_alone() -> None:
    together = steps_to_goal(PAPER, Kind(actions=4), SILENT, (0.5, 2.0), seed=2)
    alone = [steps_to_goal(PAPER, Kind(actions=4), SILENT, (r,), seed=2)[0] for r in (0.5, 2.0)]
    assert together.tolist() == alone


def test_myopic_credit_never_learns_what_a_lure_hides_and_stage_credit_does() -> None:
    kind = Kind(actions=4, lure=0.2)
    assert steps_to_goal(identity(), kind, SILENT, (0.5, 2.0), seed=0).tolist() == [np.inf] * 2
    assert np.isfinite(steps_to_goal(PAPER, kind, SILENT, (0.5, 2.0), seed=0)).all()


def outcomes(*medians: float) -> list[Outcome]:
    return [Outcome(1.0, (median,)) for median in medians]


def test_crossing_is_interpolated_between_the_levels_around_it() -> None:
    levels = (0.0, 0.2, 0.4)
    flat = outcomes(30, 30, 30)
    curves = {"SS-GRPO": outcomes(10, 20, 60), "answer only": flat}
    # the gap goes from -10 to +30, so it is 0 a quarter of the way
    assert crossing(levels, curves) == pytest.approx(0.25)
    assert crossing(levels, {"SS-GRPO": outcomes(10, 20, 30), "answer only": flat}) is None
    assert crossing(levels, {"SS-GRPO": outcomes(40, 1, 1), "answer only": flat}) == 0.0
    never = outcomes(np.inf, np.inf, np.inf)
    assert crossing(levels, {"SS-GRPO": never, "answer only": never}) is None


def test_at_the_noise_the_theorem_allows_the_bounds_are_equal() -> None:
    drawn = draw_chain(np.random.default_rng(7), Kind(actions=2))
    signal: Floats = np.zeros(2)
    errors = np.zeros(STAGES)
    for actions in product(range(2), repeat=STAGES):
        rewards = true_scores(drawn, np.tile(np.array(actions), (QUESTIONS, 1)))[0]
        omitted = rewards[0] + 0.4 * rewards[1] + 0.6 * rewards[2]
        signal += omitted * (np.eye(2)[actions[0]] - 0.5) / 16
        errors += (1 / 3 - rewards + rewards**2) / 16
    share = allowed_noise(drawn, PAPER)
    # with two actions the score function always has the squared length 1/2
    eps = np.sqrt(0.5 * share * errors)
    assert eps[0] + 0.4 * eps[1] + 0.6 * eps[2] == pytest.approx(float(np.linalg.norm(signal)))


def test_figure_shows_every_arm(tmp_path: Path) -> None:
    curves = {name: outcomes(3, np.inf) for name in ARMS}
    draw({"one": curves, "two": curves}, (0.0, 0.5), tmp_path / "new" / "credit.svg")
    written = (tmp_path / "new" / "credit.svg").read_text()
    assert all(f"<!-- {name} -->" in written for name in (*ARMS, "one", "two"))
