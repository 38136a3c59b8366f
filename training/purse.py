"""Money that one run, or several at the same time, may spend, and the calls it pays for.

Runs that share a purse are those of one training: its rounds and its held-out questions, whose
rollouts, judgements and reflections overlap. What each has cost is in its own journal, so a
training that goes on counts the journals of all that it did before.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from memory.errors import RubricemError
from memory.journal import Journal
from training.meter import Meter


@dataclass(eq=False)
class Purse:
    """What may be spent, is spent, and is about to be."""

    most: float | None = None
    """US dollars; None: no limit"""
    limit: str = "--max-run-cost"
    """what sets `most`, for whoever is told of it"""
    empty: RubricemError | None = None
    """why no run that shares it begins a call any more"""
    in_flight: int = 0
    """calls"""
    waiting: set[asyncio.Future[None]] = field(default_factory=set)
    """of all runs that share it, each set when something has changed"""
    _meters: dict[Path, Meter] = field(default_factory=dict)

    def share(self, journal: Path, meter: Meter) -> None:
        """Count what is in a journal by its meter, and in place of an earlier meter of it."""
        self._meters[journal] = meter

    def count(self, journals: Iterable[Path]) -> None:
        """Count journals that nobody has open. Raises StoreError where one cannot be read."""
        for path in journals:
            meter = Meter()
            Journal(path, meter.hear, lambda thread: False).close()
            self.share(path, meter)

    @property
    def spent(self) -> float:
        """US dollars, of the calls whose price is known."""
        return sum(meter.cost for meter in self._meters.values())

    def affords(self) -> bool:
        """Whether one more call fits, if it and all in flight cost as much as the dearest did."""
        if self.most is None:
            return True
        # What a call costs is known from the first one on.
        if not any(meter.calls for meter in self._meters.values()):
            return not self.in_flight
        dearest = max(meter.largest for meter in self._meters.values())
        return self.spent + (self.in_flight + 1) * dearest <= self.most

    def told(self) -> str:
        return f"{self.spent:.2f} of {self.most or 0:g} US dollars"
