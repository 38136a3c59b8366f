"""Measures of a judge on labelled pairs.

A comparison is right if its winner is the better side; a tie and a missing verdict are not. Over
both orders: right in both, the same winner in both (`consistent`), and by the mean of both orders'
shares (`pooled`).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import Field

from rubricem.judge.evaluation.data import LabelledComparison, LabelledPair
from rubricem.memory.schema import NO_USAGE, Usage, Value

Z = 1.959964
"""of a 95% interval"""


class Share(Value):
    """A number of hits among n, with Wilson's 95% interval; unknown if n is 0."""

    hits: float
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
    low, high = max(middle - reach, 0.0), min(middle + reach, 1.0)
    return Share(hits=hits, n=n, value=rate, low=low, high=high)


def share_of(values: Sequence[float]) -> Share:
    """The mean of marks in [0, 1], with the interval for as many hits.

    It is rather too wide than too narrow: no marks of one mean vary more than zeros and ones.
    """
    return share(math.fsum(values), len(values))


Orders = Mapping[bool, LabelledComparison]
"""swapped or not -> the comparison"""


class PairMeasures(Value):
    """One judge on one set of pairs; only pairs that were shown count."""

    pairs: int
    comparisons: int
    accuracy: Share = Field(title="accuracy")
    """mean over pairs of the share of its orders that were right"""
    both: Share = Field(title="right in both orders")
    """of pairs shown in both"""
    pooled: Share = Field(title="right by the mean share")
    """the mean of both orders' shares is on the right side; of pairs with a share in each order"""
    consistent: Share = Field(title="consistent")
    """the same verdict in both orders, of pairs shown in both; two missing ones are not the same"""
    picks_first: Share = Field(title="picks the first shown")
    """the answer shown first won, of comparisons with a winner"""
    ties: Share = Field(title="ties")
    unparsed: Share = Field(title="no verdict")


def pair_measures(
    pairs: Sequence[LabelledPair], comparisons: Sequence[LabelledComparison]
) -> PairMeasures:
    """Raises KeyError for a comparison of an unknown pair."""
    known = {pair.id: pair for pair in pairs}
    shown: defaultdict[str, dict[bool, LabelledComparison]] = defaultdict(dict)
    for comparison in comparisons:
        shown[comparison.pair][comparison.swapped] = comparison
    judged = [(known[name], orders) for name, orders in shown.items()]
    whole = [(pair, orders) for pair, orders in judged if len(orders) == 2]
    winners = [(orders[False].winner, orders[True].winner) for _, orders in whole]
    decided = [c for c in comparisons if c.winner in ("first", "second")]
    pooled = (_pooled_right(pair, orders) for pair, orders in whole)
    return PairMeasures(
        pairs=len(judged),
        comparisons=len(comparisons),
        accuracy=share_of([_mean_right(pair, orders) for pair, orders in judged]),
        both=share_of([_mean_right(pair, orders) == 1 for pair, orders in whole]),
        consistent=share_of([one is not None and one == other for one, other in winners]),
        pooled=share_of([right for right in pooled if right is not None]),
        picks_first=share_of([(c.winner == "second") == c.swapped for c in decided]),
        ties=share_of([c.winner == "tie" for c in comparisons]),
        unparsed=share_of([c.winner is None for c in comparisons]),
    )


def _mean_right(pair: LabelledPair, orders: Orders) -> float:
    return sum(c.winner == pair.better for c in orders.values()) / len(orders)


def _pooled_right(pair: LabelledPair, orders: Orders) -> bool | None:
    shares = [c.share for c in orders.values() if c.share is not None]
    if len(shares) < len(orders):
        return None
    return fmean(shares) > 0.5 if pair.better == "first" else fmean(shares) < 0.5


def longest_wins(pairs: Sequence[LabelledPair]) -> Share:
    """How often a judge that takes the longer answer is right; equal lengths are half right."""
    longer = [(p.better, len(p.first) - len(p.second)) for p in pairs]
    return share_of([((by > 0) == (better == "first")) if by else 0.5 for better, by in longer])


class PairReport(Value):
    """A judge of pairs on labelled pairs."""

    data: str
    judge: str
    measures: PairMeasures
    longest: Share
    """the score of always taking the longer answer on the same pairs; a coin scores 0.5"""
    subsets: dict[str, PairMeasures] = Field(default_factory=dict)
    usage: Usage = NO_USAGE
    """of all verdicts, also failed ones"""

    @classmethod
    def of(
        cls,
        data: str,
        judge: str,
        pairs: Sequence[LabelledPair],
        comparisons: Sequence[LabelledComparison],
    ) -> "PairReport":
        subset = {pair.id: pair.subset for pair in pairs}
        by_subset: dict[str, list[LabelledComparison]] = defaultdict(list)
        for comparison in comparisons:
            by_subset[subset[comparison.pair]].append(comparison)
        judged = {comparison.pair for comparison in comparisons}
        return cls(
            data=data,
            judge=judge,
            measures=pair_measures(pairs, comparisons),
            longest=longest_wins([pair for pair in pairs if pair.id in judged]),
            subsets={n: pair_measures(pairs, found) for n, found in by_subset.items() if n},
            usage=sum((comparison.usage for comparison in comparisons), NO_USAGE),
        )


def pair_shares(measures: PairMeasures) -> list[tuple[str, Share]]:
    """The measures by their names in words; unknown ones are left out."""
    fields = PairMeasures.model_fields.items()
    named = [(told.title, getattr(measures, name)) for name, told in fields if told.title]
    return [(title, share) for title, share in named if share.n]


def shares_of(report: PairReport) -> list[tuple[str, Share]]:
    """The report's shares, then each subset's accuracy."""
    shares = [*pair_shares(report.measures), ("longest answer wins", report.longest)]
    return shares + [(name, each.accuracy) for name, each in report.subsets.items()]
