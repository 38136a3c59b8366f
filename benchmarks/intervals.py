"""Intervals of 95%: Wilson's for a share, the bootstrap's for a mean of paired differences."""

import math
import random
import statistics
from collections.abc import Sequence

Z = 1.959964
"""of a 95% interval"""


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of `hits` in `count`; (0, 1) where nothing was counted.

    It stays inside [0, 1] and holds for small counts.

    Source: Wilson (1927), Journal of the American Statistical Association 22, 209-212.
    """
    if not count:
        return 0.0, 1.0
    share, square = hits / count, Z * Z / count
    centre = (share + square / 2) / (1 + square)
    half = Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def bootstrap_mean(
    values: Sequence[float], seed: int = 0, draws: int = 10_000
) -> tuple[float, float]:
    """The 95% percentile interval of the mean, over samples drawn anew with replacement.

    Of paired differences this is the paired bootstrap. Raises ValueError for no values.
    Source: Efron and Tibshirani (1993), chapter 13.
    """
    if not values:
        raise ValueError("no values to draw from")
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(draws))
    return means[round(0.025 * (draws - 1))], means[round(0.975 * (draws - 1))]
