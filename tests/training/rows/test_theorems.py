"""The theorems of RubricEM (arXiv:2605.10899, appendix E), 1 to 4, as computations.

1 and 2: what a policy loses that does not see which stage it is in. 3 and 4: how far the gradient
is off when stages are credited by a judge that errs, and when the last stage's score is broadcast.
Every gradient of ours goes through `stage_returns` and `clipped_objective`; what it is compared
with does not.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from rubricem.training.rows.credit import CREDITS, PAPER, Floats
from tests.support.collected import IDENTITY
from tests.support.objective import Aliased, Staged

pytestmark = pytest.mark.usefixtures("one_thread")
ONE = np.array([1.0])
BROADCAST = CREDITS["answer-only"].dependence


def two_by_two(first: tuple[float, float], second: tuple[float, float], p: float) -> Aliased:
    """One context, two stages of probabilities p and 1 - p, two actions."""
    return Aliased(ONE, np.array([[p, 1 - p]]), np.array([[first, second]]))


OPPOSED = two_by_two((1.0, 0.0), (0.0, 1.0), 0.5)
TILTED = two_by_two((1.0, 0.2), (0.1, 0.6), 0.3)
AGREED = two_by_two((1.0, 0.2), (0.9, 0.6), 0.3)
UNREACHED = two_by_two((1.0, 0.0), (0.0, 1.0), 1.0)
TWO_CONTEXTS = Aliased(
    np.array([0.25, 0.75]),
    np.array([[0.5, 0.5], [0.2, 0.8]]),
    np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.5], [0.9, 0.1]]]),
)


@pytest.mark.parametrize(
    ("problem", "gap"),
    [
        (OPPOSED, 0.5),  # 1 against 1/2
        (TILTED, 0.24),  # 0.3 * 1 + 0.7 * 0.6 = 0.72 against 0.3 * 0.2 + 0.7 * 0.6 = 0.48
        (AGREED, 0.0),  # the first action in both stages
        (UNREACHED, 0.0),  # they disagree, but the second stage never happens
        # 0.25 * (1 - 0.5) + 0.75 * ((0.1 + 0.72) - max(0.72, 0.1 + 0.08))
        (TWO_CONTEXTS, 0.125 + 0.75 * 0.1),
    ],
)
def test_seeing_the_stage_is_worth_the_alias_gap(problem: Aliased, gap: float) -> None:
    """Theorems 1 and 2: by trying every policy, and by the formula, and by hand."""
    worth = problem.best(sees_stage=True) - problem.best(sees_stage=False)
    assert worth == pytest.approx(gap, abs=1e-12)
    assert problem.gap() == pytest.approx(gap, abs=1e-12)


def test_the_gap_is_zero_just_where_one_action_is_best_in_every_stage_of_the_support() -> None:
    random = np.random.default_rng(0)
    agreeing = 0
    for _ in range(60):
        problem = two_by_two(tuple(random.random(2)), tuple(random.random(2)), random.random())
        best = problem.values[0].argmax(-1)
        assert (problem.gap() < 1e-12) == (best[0] == best[1])
        assert problem.gap() >= -1e-12
        agreeing += int(best[0] == best[1])
    assert 10 < agreeing < 50, "both cases are there"


@pytest.mark.parametrize("problem", [OPPOSED, TILTED, AGREED, TWO_CONTEXTS])
def test_policies_trained_by_the_objective_end_the_alias_gap_apart(problem: Aliased) -> None:
    staged, flat = problem.learnt(sees_stage=True), problem.learnt(sees_stage=False)
    assert staged == pytest.approx(problem.best(sees_stage=True), abs=0.02)
    assert staged - flat == pytest.approx(problem.gap(), abs=0.02)


LAMBDA = PAPER.array()
STAGES = len(LAMBDA)


def judged(error: float, seed: int) -> Staged:
    """Four stages whose true scores depend on the whole path, and a judge that errs so much."""
    random = np.random.default_rng(seed)
    shape = (2**STAGES, STAGES)
    truth = random.random(shape)
    table = random.normal(size=(STAGES, 2, 2))
    return Staged(table, truth, truth + error * random.normal(size=shape))


def norms(gradients: Tensor) -> Floats:
    """(K,), of each stage's block."""
    return gradients.double().norm(dim=1).numpy()  # type: ignore[no-any-return]


def true_gradient(problem: Staged) -> Tensor:
    """(K, 4): block k is the slope of the true return of stage k."""
    returns = problem.truth @ LAMBDA.T
    slopes = [problem.slope(returns[:, k])[k] for k in range(STAGES)]
    return torch.stack(slopes).float()


def judge_errors(problem: Staged) -> Floats:
    """(K, K): eps_kj, how far stage k's gradient is off by the judge's error on stage j."""
    errors = problem.judged - problem.truth
    return np.stack([norms(problem.slope(errors[:, j])) for j in range(STAGES)], axis=1)


def omitted(problem: Staged) -> Floats:
    """(K,): M_k, the slope of what the true returns have beyond the last stage's score."""
    beyond = problem.truth @ LAMBDA.T - problem.truth[:, -1:]
    return np.array([norms(problem.slope(beyond[:, k]))[k] for k in range(STAGES)])


@pytest.mark.parametrize("seed", range(4))
def test_our_gradient_of_a_faultless_judge_is_the_true_one(seed: int) -> None:
    problem = judged(0.0, seed)
    ours = problem.gradient(problem.judged, PAPER)
    torch.testing.assert_close(ours, true_gradient(problem), rtol=1e-4, atol=1e-6)
    assert norms(ours).min() > 1e-3, "there is something to learn"


@pytest.mark.parametrize("error", [0.05, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_stage_credit_is_off_by_no_more_than_the_judges_weighed_errors(
    seed: int, error: float
) -> None:
    """Theorem 3: |g_hat_k - g_k| <= sum_j lambda_kj eps_kj, and eps_kj <= sqrt(B_k) delta_j."""
    problem = judged(error, seed)
    off = norms(problem.gradient(problem.judged, PAPER) - true_gradient(problem))
    eps = judge_errors(problem)
    bound = (LAMBDA * eps).sum(1)
    assert (off <= bound + 1e-6).all()
    assert off[-1] == pytest.approx(bound[-1], rel=1e-3), "one term alone is met exactly"
    squares = problem.chances() @ (problem.judged - problem.truth) ** 2
    assert (eps <= np.sqrt(problem.score_norms()[:, None] * squares[None]) + 1e-9).all()


@pytest.mark.parametrize("error", [0.05, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_broadcast_is_off_by_at_least_the_signal_that_it_omits(seed: int, error: float) -> None:
    """Theorem 4: |g_broadcast_k - g_k| >= M_k - eps_kK; with a faultless judge, M_k itself."""
    problem = judged(error, seed)
    off = norms(problem.gradient(problem.judged, BROADCAST) - true_gradient(problem))
    least = omitted(problem) - judge_errors(problem)[:, -1]
    assert (off >= least - 1e-6).all()
    exact = norms(problem.gradient(problem.truth, BROADCAST) - true_gradient(problem))
    np.testing.assert_allclose(exact, omitted(problem), rtol=1e-3, atol=1e-5)


def test_stage_credit_wins_where_the_theorem_says_so_and_can_lose_elsewhere() -> None:
    """It wins if sum_j lambda_kj eps_kj < M_k - eps_kK; a poor judge makes it lose."""
    wins, losses = 0, 0
    for seed, error in [(seed, error) for seed in range(6) for error in (0.02, 3.0)]:
        problem = judged(error, seed)
        truth, eps = true_gradient(problem), judge_errors(problem)
        staged = norms(problem.gradient(problem.judged, PAPER) - truth)
        flat = norms(problem.gradient(problem.judged, BROADCAST) - truth)
        said = (LAMBDA * eps).sum(1) < omitted(problem) - eps[:, -1]
        assert (staged[said] < flat[said]).all()
        wins, losses = wins + int(said[:-1].sum()), losses + int((staged > flat)[:-1].sum())
    assert wins >= 6 and losses >= 6, "both happen"


def test_own_scores_alone_leave_out_the_later_stages() -> None:
    """Answer-only and own-score credit are both off; only the last stage's gradient is right."""
    problem = judged(0.0, 0)
    for dependence in (BROADCAST, IDENTITY.dependence):
        off = norms(problem.gradient(problem.truth, dependence) - true_gradient(problem))
        assert off[-1] == pytest.approx(0.0, abs=1e-5)
        assert (off[:-1] > 1e-3).all()
