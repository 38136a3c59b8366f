"""The pairwise judge: which of two replies is better, shown in both orders or in a drawn one.

Judges prefer a place as well as a reply. So each pair is read twice by default, once in either
order, and the consistency of the readings is reported; or once, in an order drawn from a seed.
A reading that names no winner is unknown: it is neither a win nor a loss.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from judge.pairwise_parsing import Chain, Side
from memory.schema import NO_USAGE, Usage

Order = Literal["both", "flip"]
"""`both`: two readings, one in either order; `flip`: one, in an order drawn from the seed"""


@dataclass(frozen=True, slots=True)
class Preference:
    """What one reading of two replies says: A is the one that was shown first."""

    winner: Side | None
    reason: str
    """why it wins; or, where nobody does, what went wrong"""
    first_share: float | None = None
    """probability that the first is better, where it was read and not written"""
    chain: Chain | None = None
    text: str = ""
    """what the model wrote, where it wrote its verdict"""
    usage: Usage = NO_USAGE


class Comparer(Protocol):
    """Reads one pair in one order. A model that fails is a preference without a winner."""

    @property
    def name(self) -> str: ...

    async def prefer(self, question: str, first: str, second: str) -> Preference: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A preference, with the order in which the pair was shown."""

    swapped: bool
    preference: Preference

    @property
    def first_wins(self) -> bool | None:
        """Whether the pair's first reply won, wherever it was shown."""
        if self.preference.winner is None:
            return None
        return (self.preference.winner == "A") != self.swapped

    @property
    def first_share(self) -> float | None:
        """The probability of the pair's first reply; 0 or 1 where only a verdict was written."""
        share = self.preference.first_share
        if share is not None:
            return 1 - share if self.swapped else share
        return None if self.first_wins is None else float(self.first_wins)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was read of one pair."""

    readings: tuple[Reading, ...]

    @property
    def first_wins(self) -> bool | None:
        """Whether the first reply is better; None where no reading says, or two contradict."""
        won = {r.first_wins for r in self.readings} - {None}
        return won.pop() if len(won) == 1 else None

    @property
    def first_share(self) -> float | None:
        """The mean of the readings that say something: over both orders, places cancel out."""
        shares = [share for r in self.readings if (share := r.first_share) is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def reason(self) -> str:
        said = [r.preference.reason for r in self.readings if r.first_wins is self.first_wins]
        return said[0] if said else "The two orders contradict each other."

    @property
    def usage(self) -> Usage:
        return sum((r.preference.usage for r in self.readings), NO_USAGE)


class PairwiseJudge:
    """Compares replies with one comparer."""

    def __init__(self, comparer: Comparer, order: Order = "both", seed: int = 0) -> None:
        self._comparer = comparer
        self._order = order
        self._seed = seed

    @property
    def name(self) -> str:
        return self._comparer.name

    async def compare(self, question: str, first: str, second: str) -> Comparison:
        """Which reply to the question is better. Raises nothing that the judge's model causes."""
        orders = [False, True] if self._order == "both" else [self._swap(question, first, second)]
        return Comparison(
            tuple(await asyncio.gather(*(self._read(question, first, second, o) for o in orders)))
        )

    async def _read(self, question: str, first: str, second: str, swapped: bool) -> Reading:
        shown = (second, first) if swapped else (first, second)
        return Reading(swapped, await self._comparer.prefer(question, *shown))

    def _swap(self, question: str, first: str, second: str) -> bool:
        """Drawn for each pair by itself, so that it does not depend on what else is judged."""
        return random.Random(f"{self._seed}\0{question}\0{first}\0{second}").random() < 0.5


@dataclass(frozen=True, slots=True)
class Consistency:
    """How far a judge's readings of pairs hang on the order in which they were shown."""

    pairs: int
    readings: int
    unparsed: int
    """readings that named no winner"""
    shown_first_won: int
    """readings that preferred what they were shown first"""
    in_both_orders: int
    """pairs of which both orders named a winner"""
    consistent: int
    """of those, the pairs in which it was the same reply"""

    def sentence(self) -> str:
        decided = self.readings - self.unparsed
        return (
            f"{self.consistent} of {self.in_both_orders} pairs had the same winner in both orders; "
            f"what was shown first won {self.shown_first_won} of {decided} readings; "
            f"{self.unparsed} of {self.readings} named no winner."
        )


def consistency(comparisons: Sequence[Comparison]) -> Consistency:
    """The report over comparisons, in whichever orders they were read."""
    readings = [reading for comparison in comparisons for reading in comparison.readings]
    decided = [
        [r.first_wins for r in c.readings]
        for c in comparisons
        if len(c.readings) > 1 and all(r.first_wins is not None for r in c.readings)
    ]
    return Consistency(
        pairs=len(comparisons),
        readings=len(readings),
        unparsed=sum(r.first_wins is None for r in readings),
        shown_first_won=sum(r.preference.winner == "A" for r in readings),
        in_both_orders=len(decided),
        consistent=sum(len(set(won)) == 1 for won in decided),
    )
