"""Values as named metrics, without any for no value."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev

from rubricem.memory.schema import Stage
from rubricem.training.rows.row import TrainRow

Numbers = dict[str, float]


def spread(
    name: str, values: Sequence[float], kinds: Sequence[str] = ("mean", "std", "min", "max")
) -> Numbers:
    """`std` is the population's; {} of no value."""
    if not values:
        return {}
    found: Mapping[str, float] = {
        "mean": fmean(values),
        "std": pstdev(values),
        "min": float(min(values)),
        "max": float(max(values)),
    }
    return {f"{name}/{kind}": found[kind] for kind in kinds}


def share_if_any(name: str, flags: Iterable[bool]) -> Numbers:
    """How many of them hold, in [0, 1]; {} of none."""
    counted = list(flags)
    return {name: sum(counted) / len(counted)} if counted else {}


def advantage_numbers(rows: Iterable[TrainRow]) -> Numbers:
    """Of each trained stage of each row, in the units of the rule; what is imitated has none."""
    stages: dict[Stage, list[float]] = {stage: [] for stage in Stage}
    for row in (row for row in rows if row.objective != "sft"):
        trained = zip(row.stages, row.advantages, row.loss_mask, strict=True)
        of_stage = {stage: advantage for stage, advantage, on in trained if on}
        for number, stage in enumerate(Stage):
            if number in of_stage:
                stages[stage].append(of_stage[number])
    numbers: Numbers = {}
    for stage, values in stages.items():
        numbers |= spread(f"advantage/{stage}", values, ("mean", "std"))
        numbers |= spread(f"advantage/{stage}/size", list(map(abs, values)), ("max",))
        numbers |= share_if_any(
            f"advantage/{stage}/positive_share", (value > 0 for value in values)
        )
    return numbers
