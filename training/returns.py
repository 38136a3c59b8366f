"""Stage rewards to stage returns: how much of what came later each stage is credited with.

    G[i, k] = sum over j >= k of L[k, j] * R[i, j]

Shapes: n = trajectories of one question, K = stages, in order. R are stage rewards in the range
of the judge that gave them (the stage judge: [0, 1]), L is the dependence matrix of stage-wise
GRPO (RubricEM, arXiv:2605.10899, section 3.3). NaN is "not known", never 0: a return that
needs an unknown reward is unknown itself.
"""

import math
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from memory.schema import Value

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Dependence(Value):
    """The dependence matrix: row k says what the stage k is credited with, column by column.

    Finite, not negative and causal (upper triangular). The diagonal need not be 1. The scale
    of a row cancels in the normalisation over the group; only its proportions matter.
    """

    weights: tuple[tuple[float, ...], ...]
    """K rows of K"""

    @model_validator(mode="after")
    def _causal(self) -> Self:
        stages = len(self.weights)
        if not stages or any(len(row) != stages for row in self.weights):
            raise ValueError("a dependence matrix is square and not empty")
        for k, row in enumerate(self.weights):
            if any(not math.isfinite(weight) or weight < 0 for weight in row):
                raise ValueError(f"row {k} of the dependence matrix is negative or not finite")
            if any(row[:k]):
                raise ValueError(f"row {k} of the dependence matrix credits an earlier stage")
        return self

    def array(self) -> Floats:
        """The weights, (K, K)."""
        return np.array(self.weights, dtype=np.float64)


PAPER = Dependence(
    weights=(
        (1.0, 0.4, 0.6, 0.8),
        (0.0, 1.0, 0.4, 0.8),
        (0.0, 0.0, 1.0, 0.8),
        (0.0, 0.0, 0.0, 1.0),
    )
)
"""Plan, research, review, answer (RubricEM, appendix F.1.2)"""


def broadcast(stages: int = 4) -> Dependence:
    """Answer-only credit: every stage's return is the reward of the last one."""
    last = (0.0,) * (stages - 1) + (1.0,)
    return Dependence(weights=(last,) * stages)


def identity(stages: int = 4) -> Dependence:
    """Myopic credit: every stage's return is its own reward."""
    return Dependence(
        weights=tuple(tuple(float(j == k) for j in range(stages)) for k in range(stages))
    )


def stage_returns(scores: Floats, dependence: Dependence, absent: Flags | None = None) -> Floats:
    """The return of every stage of every trajectory of a group, (n, K).

    `scores` is (n, K), NaN where a stage is unscored. `absent`, (n, K), marks a stage whose
    rubric had no item: it is left out of every sum (a score that stands there is not read), and
    with nothing left to sum the return is unknown. Every other return that gives weight to an
    unscored stage is NaN. Raises ValueError for wrong shapes or an infinite score.
    """
    weights = dependence.array()
    left_out = np.zeros(scores.shape, dtype=np.bool_) if absent is None else absent
    if scores.ndim != 2 or scores.shape[1] != len(weights) or left_out.shape != scores.shape:
        raise ValueError(
            f"need (n, {len(weights)}) scores and flags; got {scores.shape}, {left_out.shape}"
        )
    if np.isinf(scores).any():
        raise ValueError("a stage score is infinite")
    unscored = np.isnan(scores) & ~left_out
    needs = (weights > 0).astype(np.int64)
    returns = np.where(unscored | left_out, 0.0, scores) @ weights.T
    unknown = (unscored @ needs.T > 0) | (~left_out @ needs.T == 0)
    return np.where(unknown, np.nan, returns)
