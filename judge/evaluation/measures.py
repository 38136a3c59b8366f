"""What comparisons of labelled pairs say of a judge.

A comparison is right when its winner is the better side; a tie and a missing verdict are not.
Per order: as stored (`given`) and with the second answer shown first (`swapped`). Over both:
right in both, the same winner in both (`consistent`), and JudgeBench's rule (`net`: +1 for right,
-1 for wrong, 0 for a tie or no verdict; right where the sum is positive).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from judge.evaluation.labelled import Comparison, Pair
from judge.evaluation.shares import Share, mean_share, share_of
from memory.schema import Value


class PairMeasures(Value):
    """One judge on one set of pairs; only pairs that were shown count."""

    pairs: int
    comparisons: int
    accuracy: Share
    """mean over pairs of the share of its orders that were right"""
    given: Share
    swapped: Share
    both: Share
    """right in both orders, of pairs shown in both"""
    consistent: Share
    """the same verdict in both orders, of pairs shown in both; none is not the same as none"""
    net: Share
    pooled: Share
    """the mean of both orders' shares is on the right side; of pairs with a share in each order"""
    picks_first: Share
    """the answer shown first won, of comparisons with a winner"""
    ties: Share
    unparsed: Share


Orders = Mapping[bool, Comparison]
"""swapped or not -> the comparison"""


def pair_measures(pairs: Sequence[Pair], comparisons: Sequence[Comparison]) -> PairMeasures:
    """Raises KeyError for a comparison of a pair that is not among them."""
    known = {pair.id: pair for pair in pairs}
    shown = by_pair(comparisons)
    judged = [(known[name], orders) for name, orders in shown.items()]
    whole = [(pair, orders) for pair, orders in judged if len(orders) == 2]
    return PairMeasures(
        pairs=len(judged),
        comparisons=len(comparisons),
        accuracy=mean_share([_mean_right(pair, orders) for pair, orders in judged]),
        given=_in_order(judged, swapped=False),
        swapped=_in_order(judged, swapped=True),
        both=share_of([_mean_right(pair, orders) == 1 for pair, orders in whole]),
        consistent=share_of([_consistent(orders) for _, orders in whole]),
        net=share_of([_net(pair, orders) > 0 for pair, orders in judged]),
        pooled=share_of(
            [right for pair, orders in whole if (right := _pooled(pair, orders)) is not None]
        ),
        picks_first=share_of(
            [c.winner == _shown_first(c) for c in comparisons if c.winner in ("first", "second")]
        ),
        ties=share_of([c.winner == "tie" for c in comparisons]),
        unparsed=share_of([c.winner is None for c in comparisons]),
    )


def by_subset(pairs: Sequence[Pair], comparisons: Sequence[Comparison]) -> dict[str, PairMeasures]:
    """The measures of each named subset that was judged, in the data's order."""
    subset = {pair.id: pair.subset for pair in pairs}
    of: dict[str, list[Comparison]] = {name: [] for name in subset.values() if name}
    for comparison in comparisons:
        if name := subset[comparison.pair]:
            of[name].append(comparison)
    return {name: pair_measures(pairs, listed) for name, listed in of.items() if listed}


def longest_wins(pairs: Sequence[Pair]) -> Share:
    """How often a judge that takes the longer answer is right; equal lengths are half right."""
    return mean_share(
        [
            0.5
            if len(pair.first) == len(pair.second)
            else float((len(pair.first) > len(pair.second)) == (pair.better == "first"))
            for pair in pairs
        ]
    )


def by_pair(comparisons: Sequence[Comparison]) -> dict[str, Orders]:
    shown: defaultdict[str, dict[bool, Comparison]] = defaultdict(dict)
    for comparison in comparisons:
        shown[comparison.pair][comparison.swapped] = comparison
    return dict(shown)


def _in_order(judged: Sequence[tuple[Pair, Orders]], *, swapped: bool) -> Share:
    return share_of(
        [orders[swapped].winner == pair.better for pair, orders in judged if swapped in orders]
    )


def _mean_right(pair: Pair, orders: Orders) -> float:
    return sum(c.winner == pair.better for c in orders.values()) / len(orders)


def _consistent(orders: Orders) -> bool:
    return orders[False].winner is not None and orders[False].winner == orders[True].winner


def _net(pair: Pair, orders: Orders) -> int:
    decided = [c.winner for c in orders.values() if c.winner in ("first", "second")]
    return sum(1 if winner == pair.better else -1 for winner in decided)


def _pooled(pair: Pair, orders: Orders) -> bool | None:
    shares = [c.share for c in orders.values() if c.share is not None]
    if len(shares) < len(orders):
        return None
    mean = sum(shares) / len(shares)
    return mean > 0.5 if pair.better == "first" else mean < 0.5


def _shown_first(comparison: Comparison) -> str:
    return "second" if comparison.swapped else "first"
