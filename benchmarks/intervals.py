"""Wilson's score interval for a share, which stays inside [0, 1] and holds for small counts."""

import math

Z = 1.959964
"""of a 95% interval"""


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of `hits` in `count`; (0, 1) where nothing was counted.

    Source: Wilson (1927), Journal of the American Statistical Association 22, 209-212.
    """
    if not count:
        return 0.0, 1.0
    share, square = hits / count, Z * Z / count
    centre = (share + square / 2) / (1 + square)
    half = Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(centre - half, 0.0), min(centre + half, 1.0)
