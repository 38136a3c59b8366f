"""A share with its uncertainty."""

import math
from collections.abc import Sequence

from memory.schema import Value

Z = 1.959964
"""of a 95% interval"""


class Share(Value):
    """So many of n, with Wilson's 95% interval; of none at all it is unknown."""

    hits: float
    """half a hit counts half"""
    n: int
    value: float | None
    low: float
    high: float


def share(hits: float, n: int) -> Share:
    """The share and its interval (Wilson, 1927); (0, 1) where n is 0."""
    if n == 0:
        return Share(hits=0, n=0, value=None, low=0.0, high=1.0)
    rate = hits / n
    middle = (rate + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * math.sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    return Share(
        hits=hits, n=n, value=rate, low=max(middle - reach, 0.0), high=min(middle + reach, 1.0)
    )


def share_of(values: Sequence[bool]) -> Share:
    return share(sum(values), len(values))


def mean_share(marks: Sequence[float]) -> Share:
    """The mean of marks in [0, 1]. The interval is Wilson's for as many hits, which is too wide
    rather than too narrow: no marks of one mean vary more than zeros and ones.
    """
    return share(math.fsum(marks), len(marks))
