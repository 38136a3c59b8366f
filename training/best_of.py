"""Best of n: the score that the best of n answers is expected to have, for every n at once.

Of N scored answers in ascending order s_1 ... s_N, n drawn without replacement have s_k for their
best in C(k - 1, n - 1) of C(N, n) equally likely draws, so

    best(n) = sum over k >= n of s_k * C(k - 1, n - 1) / C(N, n)

is exact and, as an estimate of the best of n new answers, unbiased; n = 1 is the mean, n = N the
maximum (the estimator of pass@k, arXiv:2107.03374, for scores).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


def best_of(scores: Sequence[float]) -> list[float]:
    """The expected best score of 1, 2, ... N of N answers, in the scores' units; [] of none."""
    descending = sorted(scores, reverse=True)
    return [_best(descending, n) for n in range(1, len(scores) + 1)]


def _best(descending: Sequence[float], n: int) -> float:
    """Of n; from place to place the share falls by a factor, since the binomials are huge."""
    total, share = 0.0, n / len(descending)
    for place, score in enumerate(descending):
        k = len(descending) - place
        total += share * score
        share *= max(k - n, 0) / max(k - 1, 1)
    return total


@dataclass(frozen=True, slots=True)
class MeanBestOf:
    """The mean curve of some groups."""

    scores: tuple[float, ...] = ()
    """of n = 1, 2, ...; () of no group"""
    groups: int = 0
    """that it is over"""


def mean_best_of(groups: Sequence[Sequence[float]]) -> MeanBestOf:
    """Over the groups with the most scores: every n is of the same groups, to the end."""
    size = max(map(len, groups), default=0)
    curves = [best_of(scores) for scores in groups if size and len(scores) == size]
    points = zip(*curves, strict=True)
    return MeanBestOf(tuple(fmean(point) for point in points), len(curves))
