"""Stage rewards to stage-wise advantages: what a stage is credited with, against its group.

    G[i, k] = sum over j >= k of L[k, j] * R[i, j]
    A[i, k] = (G[i, k] - mean over i of G[., k]) / (std over i of G[., k] + eps)

Shapes: n = trajectories of one question, K = stages, in order. R are stage rewards in the range
of the judge that gave them (the stage judge: [0, 1]), G stage returns, A advantages; L is the
dependence matrix of stage-wise GRPO (RubricEM, arXiv:2605.10899, section 3.3). Each stage has its
own baseline, over the members whose return is known, with the population standard deviation; with
one stage this is GRPO (arXiv:2402.03300). NaN is "not known", never 0: a return that needs an
unknown reward is unknown itself.

A credit is called by its name, or is a dependence matrix of one's own, of four rows:

- `ss-grpo`: each stage by its own score and those of later ones (RubricEM, arXiv:2605.10899);
- `answer-only`: every stage by the answer's score (GRPO, arXiv:2402.03300);
- `dr-grpo`: the same, and a return is not divided by its group's standard deviation; with a
  constant token budget in place of a row's length (Dr. GRPO, arXiv:2503.20783);
- `identity`: every stage by its own score alone.

Of a rollout that was shown a rubric scaffold, with o its tokens, q the prompt without it and q_S
the one with it (RuscaRL, arXiv:2508.16949, appendix D.5), the ratio is

- `unscaffolded`: pi(o|q) / pi_old(o|q), the old policy computed again without the scaffold;
- `behaviour`: pi(o|q) / pi_old(o|q_S), to what the sampler computed: unbiased, of high variance;
- `scaffolded`: pi(o|q_S) / pi_old(o|q_S): the row keeps the scaffold in its prompt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError, model_validator

from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Value
from rubricem.training.rows.sequences import STAGES

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


@dataclass(frozen=True)
class StageAdvantages:
    """Advantages of one group, and why some of them are 0.

    Each count has one entry for each stage and counts members: a member's advantage at a stage is
    learnt from, or is 0 for exactly one of the three reasons.
    """

    values: Floats
    """(n, K), in standard deviations of the group, or unscaled in units of the returns; 0 where
    nothing is learnt"""
    unscored: tuple[int, ...]
    """the return is not known"""
    too_few: tuple[int, ...]
    """known, but no other member's is, so there is no baseline"""
    no_spread: tuple[int, ...]
    """known, but all members' are alike, so a difference would be noise"""


def stage_advantages(
    returns: Floats, minimum_spread: float = 1e-3, eps: float = 1e-6, *, scaled: bool = True
) -> StageAdvantages:
    """Normalise each stage's returns over the group; `returns` is (n, K), NaN where unknown.

    Unless `scaled`, the mean is taken away and nothing is divided by (arXiv:2503.20783). A stage
    whose known returns have a standard deviation below `minimum_spread` (in the units of the
    returns), or of which fewer than two are known, teaches nothing.
    """
    if returns.ndim != 2 or np.isinf(returns).any():
        raise ValueError(f"need finite or NaN returns of shape (n, K); got {returns.shape}")
    known = ~np.isnan(returns)
    count = known.sum(axis=0)
    filled = np.where(known, returns, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    centred = np.where(known, filled - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / np.maximum(count, 1))
    lone = count < 2
    flat = ~lone & (spread < minimum_spread)
    scale = np.where(lone | flat | (not scaled), 1.0, spread + eps)
    return StageAdvantages(
        values=np.where(lone | flat, 0.0, centred / scale),
        unscored=tuple(int(n) for n in len(returns) - count),
        too_few=tuple(int(n) for n in np.where(lone, count, 0)),
        no_spread=tuple(int(n) for n in np.where(flat, count, 0)),
    )


ScaffoldRatio = Literal["unscaffolded", "behaviour", "scaffolded"]
RATIOS: tuple[ScaffoldRatio, ...] = get_args(ScaffoldRatio)
DR_GRPO = "dr-grpo"


class RowRule(Value):
    """What turns the judgements of a group into the advantages of its rows."""

    dependence: Dependence = PAPER
    scaled: bool = True
    """whether an advantage is in standard deviations of its group, or in units of the return"""
    ratio: ScaffoldRatio = "unscaffolded"


SS_GRPO = RowRule()
CREDITS = {
    "ss-grpo": SS_GRPO,
    "answer-only": RowRule(dependence=broadcast()),
    DR_GRPO: RowRule(dependence=broadcast(), scaled=False),
    "identity": RowRule(dependence=identity()),
}


def row_rule(
    credit: str | Sequence[Sequence[float]] = "ss-grpo", ratio: str = "unscaffolded"
) -> RowRule:
    """The rule of a credit, by name or matrix, and a ratio. Raises SettingsError for neither."""
    if ratio not in RATIOS:
        raise SettingsError(f"There is no scaffold_ratio {ratio!r}.", f"Use {', '.join(RATIOS)}.")
    rule = _named(credit) if isinstance(credit, str) else _of_matrix(credit)
    return rule.model_copy(update={"ratio": ratio})


def credit_name(rule: RowRule) -> str:
    """What a rule's credit is called; `matrix` where it is one of somebody's own."""
    plain = rule.model_copy(update={"ratio": SS_GRPO.ratio})
    return next((name for name, one in CREDITS.items() if one == plain), "matrix")


def _named(credit: str) -> RowRule:
    if credit not in CREDITS:
        raise SettingsError(
            f"There is no credit {credit!r}.",
            f"Use {', '.join(CREDITS)}, or a matrix of {len(STAGES)} rows.",
        )
    return CREDITS[credit]


def _of_matrix(credit: Sequence[Sequence[float]]) -> RowRule:
    """Raises SettingsError for a matrix that credits earlier stages, or is none of the stages'."""
    try:
        rule = RowRule(dependence=Dependence.model_validate({"weights": credit}))
        if len(rule.dependence.weights) != len(STAGES):
            raise ValueError(f"it has {len(rule.dependence.weights)} rows")
    except (ValidationError, ValueError) as error:
        fault = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SettingsError(
            f"The credit is no matrix of the stages: {fault.removeprefix('Value error, ')}.",
            f"Give {len(STAGES)} rows of as many weights, 0 below the diagonal, none negative; "
            f"or use {', '.join(CREDITS)}.",
        ) from error
    return rule
