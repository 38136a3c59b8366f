"""Stages and their scores in the one tensor that verl hands on to an estimator.

verl 0.9 gives an estimator the rewards of all tokens, the mask and the question's id, and nothing
else of the batch. So each token of a response carries a number, 4 * (s + 1) + c:

- s: the stage it stands in, 0 to 3, or -1 for none;
- c: 0, but of the first K tokens, where it tells the score of the stage of that number: 0.5 for one
  without a rubric item (`absent`), 1 to 2 for a score of 0 to 1, 3 for one that is not known.

A sum over tokens means nothing then: verl's own reward metrics are none, and its penalty on the
divergence must not be put into the rewards (`algorithm.use_kl_in_reward`). Shapes: B = responses,
T = tokens of the longest, K = stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.returns import Flags, Floats

WIDTH = 4.0
ABSENT, SCORED, UNKNOWN = 0.5, 1.0, 3.0
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class StageCodes:
    """What was read of a batch."""

    stages: NDArray[np.int64]
    """(B, T); -1 for none, and in the padding"""
    scores: Floats
    """(B, K); NaN where not known"""
    absent: Flags
    """(B, K)"""


def encoded(
    stages: Sequence[int], scores: Sequence[float | None], absent: Sequence[bool]
) -> Tensor:
    """(T,) float32 of one response's tokens; a score is in [0, 1], None where it is not known.

    A response of fewer tokens than stages keeps what it has room for. Raises ValueError for a score
    outside its range.
    """
    codes = WIDTH * (torch.tensor(stages, dtype=torch.float32) + 1)
    for place, (score, without) in enumerate(zip(scores, absent, strict=True)):
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"a stage score of {score} is not in [0, 1]")
        if place < len(codes):
            known = UNKNOWN if score is None else SCORED + score
            codes[place] += ABSENT if without else known
    return codes


def decoded(codes: Tensor, mask: Tensor, stages: int) -> StageCodes:
    """What `encoded` put into a padded batch; `mask` is (B, T), 1 where the policy wrote.

    Raises ValueError for a tensor that is not made so, as one with a penalty in it.
    """
    values = codes.detach().cpu().double().numpy()
    block = np.floor((values + TOLERANCE) / WIDTH)
    told = values - WIDTH * block
    scores, absent = _scores(told[:, :stages])
    plain = np.abs(told[:, stages:]) <= TOLERANCE
    written = mask.detach().cpu().numpy().astype(bool)
    found = block.astype(np.int64) - 1
    bare = written.any(axis=1) & (np.where(written, found, -1) < 0).all(axis=1)
    if bare.any() or not plain.all() or (found < -1).any() or (found >= stages).any():
        raise ValueError(
            "the rewards are not stage codes; use the agent loop and reward manager of "
            "training.verl_engine, and leave algorithm.use_kl_in_reward off"
        )
    short = stages - scores.shape[1]
    return StageCodes(
        stages=np.where(written, found, -1),
        scores=np.pad(scores, ((0, 0), (0, short)), constant_values=np.nan),
        absent=np.pad(absent, ((0, 0), (0, short))),
    )


def _scores(told: Floats) -> tuple[Floats, Flags]:
    """Scores and absences of the first tokens; a token that is padding tells nothing."""
    scored = (told >= SCORED - TOLERANCE) & (told <= SCORED + 1 + TOLERANCE)
    scores = np.where(scored, np.clip(told - SCORED, 0.0, 1.0), np.nan)
    return scores, np.abs(told - ABSENT) <= TOLERANCE
