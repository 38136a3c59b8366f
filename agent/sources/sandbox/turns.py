"""Whose reading comes next: people in turns, and the runs of each in turns.

A process that is free takes a piece of work of whoever has the fewest processes now, then of who
had the least of their time in this hour. What is read for a run ends with it.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

HOUR = 3600.0
PERSONS_SECONDS = 1800.0
"""of reading that a user of a server has in an hour; whoever runs it has no limit"""
LIGHT_SECONDS = 30.0
"""in the hour, up to which somebody's work may go to the process for short work"""


@dataclass(eq=False)
class Requester:
    """For whom something is read: a person in one of their runs; "": whoever runs the program."""

    person: str = ""
    ended: bool = False
    """its run: nothing is read for it any more"""
    served: float = field(default_factory=time.monotonic)
    """when it last got a process"""


REQUESTER: ContextVar[Requester] = ContextVar("REQUESTER", default=Requester())  # noqa: B039


@dataclass(eq=False)
class ReadingPiece:
    """A piece of work."""

    requester: Requester
    job: Any
    give: Callable[[Any], None]
    """takes its reply"""
    done: Future[Any]
    """cancelled where nobody waits for it any more"""
    long: bool = False
    """it was more than the process for short work does"""


class Turns:
    """What waits; used under its pool's lock."""

    def __init__(self) -> None:
        self._waiting: dict[Requester, deque[ReadingPiece]] = {}
        self._busy: Counter[str] = Counter()
        self._spent: Counter[tuple[str, int]] = Counter()
        """milliseconds of processes by person and hour"""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, piece: ReadingPiece) -> None:
        self._waiting.setdefault(piece.requester, deque()).append(piece)

    def take(self, short: bool) -> ReadingPiece | None:
        """The next one; `short`: for the process that is kept for short work of others."""

        def turn(r: Requester) -> tuple[int, float, float]:
            return self._busy[r.person], self.spent(r.person), r.served

        able = [r for r, held in self._waiting.items() if not short or self._is_light(held[0])]
        if not able:
            return None
        first = min(able, key=turn)
        first.served = time.monotonic()
        self._busy[first.person] += 1
        piece = self._waiting[first].popleft()
        if not self._waiting[first]:
            del self._waiting[first]
        return piece

    def give_back(self, piece: ReadingPiece, seconds: float) -> None:
        """One that was taken is no longer worked on; it took so long."""
        person = piece.requester.person
        self._busy[person] -= 1
        self._spent[person, int(time.monotonic() // HOUR)] += round(1000 * seconds)

    def spent(self, person: str) -> float:
        """Seconds of processes in this hour."""
        return self._spent[person, int(time.monotonic() // HOUR)] / 1000

    def persons(self) -> int:
        """How many people have work here, waiting or being done."""
        return len({*+self._busy, *(requester.person for requester in self._waiting)})

    def drop(self, requester: Requester) -> deque[ReadingPiece]:
        return self._waiting.pop(requester, deque())

    def _is_light(self, piece: ReadingPiece) -> bool:
        person = piece.requester.person
        return not (piece.long or self._busy[person]) and self.spent(person) < LIGHT_SECONDS
