"""Some values as named numbers; of no value there is no number, so that nothing missing is a 0."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

Numbers = dict[str, float]


def spread(
    name: str, values: Sequence[float], kinds: Sequence[str] = ("mean", "std", "min", "max")
) -> Numbers:
    """`std` is the population's; {} of no value."""
    if not values:
        return {}
    found: Mapping[str, float] = {
        "mean": statistics.fmean(values),
        "std": statistics.pstdev(values),
        "min": float(min(values)),
        "max": float(max(values)),
    }
    return {f"{name}/{kind}": found[kind] for kind in kinds}


def share(name: str, flags: Iterable[bool]) -> Numbers:
    """How many of them hold, in [0, 1]; {} of none."""
    counted = list(flags)
    return {name: sum(counted) / len(counted)} if counted else {}
