"""A tabular softmax policy, trained with the project's own returns and advantages.

Each step has one group of rollouts for every question kind and takes one gradient step on the
logits. The rollouts are of the present policy, so the ratio is 1, where the gradient of the
clipped objective is the plain policy gradient: mean over i of A[i, k] * grad log pi_k.

Shapes: L = learning rates tried side by side on the same draws, n = rollouts, Q, K, A as in
the environment. Steps that were never enough are infinite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.credit.environment import (
    OPTIMUM,
    QUESTIONS,
    STAGES,
    Chain,
    Kind,
    draw_chain,
    expected_answer,
    judge_noisily,
    true_scores,
)
from rubricem.training.rows.credit import Dependence, Floats, stage_advantages

GROUP = 8
GOAL = 0.9
RATES = tuple(2.0**power for power in range(-3, 6))
TUNING_SEEDS = tuple(range(100, 110))
MOST = 400
"""steps, after which a run has failed"""

Noise = tuple[float, ...]
"""for each stage, the chance that the judge guesses"""


@dataclass(frozen=True)
class Outcome:
    """Steps to the goal of one arm in one setting, at the rate that other seeds chose."""

    rate: float
    steps: tuple[float, ...]
    """one for each seed; infinite where MOST steps were not enough"""

    @property
    def median(self) -> float:
        return float(np.median(self.steps))

    @property
    def mean(self) -> float:
        """With MOST for a run that failed, so it is a lower bound there."""
        return float(np.minimum(self.steps, MOST).mean())


def measure(arm: Dependence, kind: Kind, noise: Noise, seeds: int) -> Outcome:
    """Choose the rate on the tuning seeds, then count the steps on seeds 0, 1, ..."""
    read = tuple(
        share if any(row[stage] for row in arm.weights) else 0.0
        for stage, share in enumerate(noise)
    )
    return _measure(arm, kind, read, seeds)


@cache
def _measure(arm: Dependence, kind: Kind, noise: Noise, seeds: int) -> Outcome:
    tuning = [steps_to_goal(arm, kind, noise, RATES, seed) for seed in TUNING_SEEDS]
    cost = np.minimum(tuning, MOST).mean(axis=0)
    rate = RATES[int(np.argmin(cost))]
    steps = [float(steps_to_goal(arm, kind, noise, (rate,), seed)[0]) for seed in range(seeds)]
    return Outcome(rate, tuple(steps))


def steps_to_goal(
    arm: Dependence, kind: Kind, noise: Noise, rates: Sequence[float], seed: int
) -> Floats:
    """Steps until the exact expected answer score is GOAL of the optimum, for each rate, (L,)."""
    rng = np.random.default_rng(seed)
    chain = draw_chain(rng, kind)
    logits = np.zeros((len(rates), QUESTIONS, STAGES, kind.actions))
    sizes = np.array(rates).reshape(-1, 1, 1, 1)
    reached = np.full(len(rates), np.inf)
    for step in range(1, MOST + 1):
        logits += sizes * _gradient(arm, chain, np.array(noise), softmax(logits), rng)
        there = expected_answer(chain, softmax(logits)) >= GOAL * OPTIMUM
        reached[there & np.isinf(reached)] = step
        if np.isfinite(reached).all():
            break
    return reached


def softmax(logits: Floats) -> Floats:
    """Over the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _gradient(
    arm: Dependence, chain: Chain, noise: Floats, policy: Floats, rng: np.random.Generator
) -> Floats:
    """(L, Q, K, A), from one group for every question; the draws are the same for each rate."""
    draw, chance, guess = rng.random((3, GROUP, 1, QUESTIONS, STAGES))
    cumulated = policy.cumsum(axis=-1)[..., :-1]
    actions = (draw[..., np.newaxis] > cumulated).sum(axis=-1)
    scores = judge_noisily(true_scores(chain, actions), noise, chance, guess)
    returns = arm.returns(scores.reshape(-1, STAGES))
    # every question and rate is a group of its own: as columns they are normalised apart
    advantages = stage_advantages(returns.reshape(GROUP, -1)).reshape(scores.shape)
    taken = actions[..., np.newaxis] == np.arange(policy.shape[-1])
    return np.asarray((advantages[..., np.newaxis] * (taken - policy)).mean(axis=0))
