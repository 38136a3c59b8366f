"""Values as named metrics, without any for no value, and the best of n.

Best of n is the expected score of the best of n answers. Of N scores in ascending order s_1 ... s_N

    best(n) = sum over k >= n of s_k * C(k - 1, n - 1) / C(N, n)

is exact and unbiased (the estimator of pass@k, arXiv:2107.03374, for scores).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def best_of(scores: Sequence[float]) -> list[float]:
    """The expected best score of 1, 2, ... N of N answers, in the scores' units; [] of none."""
    descending, best = sorted(scores, reverse=True), []
    for n in range(1, len(scores) + 1):
        total, share = 0.0, n / len(scores)
        # From place to place the share falls by a factor, since the binomials are huge.
        for k, score in zip(range(len(scores), 0, -1), descending, strict=True):
            total += share * score
            share *= max(k - n, 0) / max(k - 1, 1)
        best.append(total)
    return best


@dataclass(frozen=True, slots=True)
class MeanBestOf:
    """The mean curve of some groups."""

    scores: tuple[float, ...] = ()
    groups: int = 0


def mean_best_of(groups: Sequence[Sequence[float]]) -> MeanBestOf:
    """Over the groups with the most scores: every n is of the same groups, to the end."""
    size = max(map(len, groups), default=0)
    curves = [best_of(scores) for scores in groups if size and len(scores) == size]
    points = zip(*curves, strict=True)
    return MeanBestOf(tuple(fmean(point) for point in points), len(curves))


@dataclass(frozen=True, slots=True)
class ScaffoldPlace:
    """A place in the groups of a run under a scaffold; the first is shown the most."""

    place: int
    shown: float
    reward: float | None
    """mean score of the answer; None: none has one"""


def by_place(members: Sequence[tuple[int, int, float | None]]) -> list[ScaffoldPlace]:
    """Of members' places, criteria shown and answer scores; [] where nothing was shown to any."""
    if not any(shown for _, shown, _ in members):
        return []
    found = []
    for place in sorted({place for place, _, _ in members}):
        own = [(shown, score) for at, shown, score in members if at == place]
        scores = [score for _, score in own if score is not None]
        shown = fmean(shown for shown, _ in own)
        found.append(ScaffoldPlace(place, shown, fmean(scores) if scores else None))
    return found
