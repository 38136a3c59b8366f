"""Stage returns to stage-wise advantages: how much better a stage went than its group did.

    A[i, k] = (G[i, k] - mean over i of G[., k]) / (std over i of G[., k] + eps)

Shapes: n = trajectories of one question, K = stages. Each stage has its own baseline, over the
members whose return is known, with the population standard deviation (RubricEM,
arXiv:2605.10899, section 3.3; with one stage this is GRPO, arXiv:2402.03300).
"""

from dataclasses import dataclass

import numpy as np

from training.returns import Floats


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
