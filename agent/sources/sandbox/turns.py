"""Whose reading comes next: people in turns, and the runs of each in turns.

A process that is free takes a piece of work of whoever has the fewest processes now, then of who
had the least of their time within the hour. What is read for a run ends with it.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

HOUR = 3600.0
PERSONS_SECONDS = 1800.0
"""of reading that a user of a server has within an hour; whoever runs it has no limit"""
LIGHT_SECONDS = 30.0
"""within the hour, up to which somebody's work may go to the process for short work"""


@dataclass(eq=False)
class Requester:
    """For whom something is read: a person in one of their runs; "": whoever runs the program."""

    person: str = ""
    ended: bool = False
    """its run: nothing is read for it any more"""
    served: float = field(default_factory=time.monotonic)
    """when it last got a process"""


REQUESTER: ContextVar[Requester] = ContextVar("REQUESTER", default=Requester())  # noqa: B039


class Waiting(Protocol):
    """A piece of work."""

    requester: Requester
    long: bool
    """it was more than the process for short work does"""


T = TypeVar("T", bound=Waiting)


class Turns(Generic[T]):
    """What waits; used under its pool's lock."""

    def __init__(self) -> None:
        self._waiting: dict[Requester, deque[T]] = {}
        self._busy: Counter[str] = Counter()
        self._spent: dict[str, deque[tuple[float, int]]] = {}
        self._sums: Counter[str] = Counter()
        """milliseconds of what is spent"""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, tasks: Sequence[T]) -> None:
        for task in tasks:
            self._waiting.setdefault(task.requester, deque()).append(task)

    def take(self, short: bool) -> T | None:
        """The next one; `short`: for the process that is kept for short work of others."""
        able = [r for r, held in self._waiting.items() if not short or self._is_light(r, held[0])]
        if not able:
            return None
        person = min(able, key=lambda r: (self._busy[r.person], self.spent(r.person))).person
        first = min((r for r in able if r.person == person), key=lambda r: r.served)
        first.served = time.monotonic()
        self._busy[person] += 1
        held = self._waiting[first]
        task = held.popleft()
        if not held:
            del self._waiting[first]
        return task

    def give_back(self, task: T, seconds: float) -> None:
        """A task that was taken is no longer worked on; it took so long."""
        person = task.requester.person
        self._busy[person] -= 1
        self._spent.setdefault(person, deque()).append((time.monotonic(), round(1000 * seconds)))
        self._sums[person] += round(1000 * seconds)

    def spent(self, person: str) -> float:
        """Seconds of processes within the hour."""
        spent = self._spent.get(person, deque())
        while spent and spent[0][0] < time.monotonic() - HOUR:
            self._sums[person] -= spent.popleft()[1]
        return self._sums[person] / 1000

    def persons(self) -> int:
        """How many people have work here, waiting or being done."""
        busy = {person for person, number in self._busy.items() if number}
        return len(busy | {requester.person for requester in self._waiting})

    def drop(self, requester: Requester) -> Iterator[T]:
        with suppress(KeyError):
            yield from self._waiting.pop(requester)

    def _is_light(self, requester: Requester, task: T) -> bool:
        person = requester.person
        return not (task.long or self._busy[person]) and self.spent(person) < LIGHT_SECONDS
