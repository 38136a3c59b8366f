"""How sure a mean over few questions is."""

from collections.abc import Sequence

import numpy as np

DRAWS = 4000
LEVEL = 0.95


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The ends of the mean's 95% interval; None of fewer than two values.

    By percentiles of means of samples drawn with replacement (Efron, 1979), from a fixed seed:
    the same values give the same interval. With fewer than ten values it is too narrow.
    """
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(0).choice(np.asarray(values), size=(DRAWS, len(values)))
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(drawn.mean(axis=1), [edge, 1 - edge])
    return float(low), float(high)
