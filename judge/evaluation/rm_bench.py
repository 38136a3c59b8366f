"""RM-Bench: accuracy by the style of the chosen (row) and of the rejected answer (column).

Styles go from concise over detailed to detailed with markdown. Hard is where the rejected answer
is the fancier one (above the diagonal), normal the same style, easy below. A domain's number is
the mean of the three, the total the mean over domains (arXiv:2410.16184, section 3.4). Every
cell is the mean over all of its own comparisons; a cell without any is unknown, and so is
whatever needs it.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from judge.evaluation.labelled import Comparison, Pair
from memory.schema import Value

STYLES = 3
DOMAINS = ("chat", "math", "code", "safety")
"""what a row's domain begins with: both kinds of safety rows are one domain"""

Matrix = tuple[tuple[float | None, ...], ...]


class DomainScores(Value):
    """One domain's 3 x 3 matrix and what is read off it, in [0, 1]."""

    matrix: Matrix
    hard: float | None
    normal: float | None
    easy: float | None
    mean: float | None


class RmBenchScores(Value):
    domains: dict[str, DomainScores]
    hard: float | None
    normal: float | None
    easy: float | None
    total: float | None
    """the mean over the domains that were judged"""


def rm_bench_scores(
    pairs: Sequence[Pair], comparisons: Sequence[Comparison]
) -> RmBenchScores | None:
    """None where no pair tells its styles."""
    known = {pair.id: pair for pair in pairs}
    marks: defaultdict[str, defaultdict[tuple[int, int], list[float]]]
    marks = defaultdict(lambda: defaultdict(list))
    for comparison in comparisons:
        pair = known[comparison.pair]
        if pair.styles is not None:
            right = float(comparison.winner == pair.better)
            marks[_domain(pair.subset)][pair.styles].append(right)
    if not marks:
        return None
    domains = {
        name: domain_scores(
            tuple(
                tuple(_known_mean(cells.get((row, column), [])) for column in range(STYLES))
                for row in range(STYLES)
            )
        )
        for name, cells in marks.items()
    }
    return RmBenchScores(
        domains=domains,
        hard=_known_mean([scores.hard for scores in domains.values()]),
        normal=_known_mean([scores.normal for scores in domains.values()]),
        easy=_known_mean([scores.easy for scores in domains.values()]),
        total=_known_mean([scores.mean for scores in domains.values()]),
    )


def domain_scores(matrix: Matrix) -> DomainScores:
    """Hard, normal, easy and their mean of one 3 x 3 matrix."""
    places = [(row, column) for row in range(STYLES) for column in range(STYLES)]
    hard = _known_mean([matrix[row][column] for row, column in places if row < column])
    normal = _known_mean([matrix[row][column] for row, column in places if row == column])
    easy = _known_mean([matrix[row][column] for row, column in places if row > column])
    return DomainScores(
        matrix=matrix, hard=hard, normal=normal, easy=easy, mean=_known_mean([hard, normal, easy])
    )


def _domain(subset: str) -> str:
    return next((name for name in DOMAINS if subset.startswith(name)), subset or "all")


def _known_mean(values: Sequence[float | None]) -> float | None:
    """None as soon as one is unknown, or where there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
