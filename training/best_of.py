"""Best of n: the score that the best of n answers is expected to have, for every n at once.

Of N scored answers in ascending order s_1 ... s_N, n drawn without replacement have s_k for their
best in C(k - 1, n - 1) of C(N, n) equally likely draws, so

    best(n) = sum over k >= n of s_k * C(k - 1, n - 1) / C(N, n)

is exact and, as an estimate of the best of n new answers, unbiased; n = 1 is the mean, n = N the
maximum (the estimator of pass@k, arXiv:2107.03374, for scores).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean


def best_of(scores: Sequence[float]) -> list[float]:
    """The expected best score of 1, 2, ... N of N answers, in the scores' units; [] of none."""
    ascending, count = sorted(scores), len(scores)
    return [
        sum(score * comb(place, n - 1) for place, score in enumerate(ascending)) / comb(count, n)
        for n in range(1, count + 1)
    ]


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
