"""One run while this process works on it: its state, who is asked, and what is told of it."""

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.events import BudgetSet, Event
from agent.serve.event_log import RESTART, EventLog
from agent.serve.heard import Heard
from agent.serve.pacing import Pacer
from agent.serve.person import DeskPerson
from agent.serve.telling import Said, Telling
from memory.schema import Trajectory

State = Literal["waiting", "running", "asking", "ended"]


@dataclass(frozen=True, slots=True)
class Place:
    """A place among the runs that go on at once; held or not."""

    places: asyncio.Semaphore
    held: list[bool] = field(default_factory=list)

    async def take(self) -> None:
        await self.places.acquire()
        self.held.append(True)

    def leave(self) -> None:
        """Give it up, if it is held."""
        if self.held:
            self.held.clear()
            self.places.release()


class Work:
    """A run that waits, goes on, or asks somebody; everything here is used on one loop."""

    def __init__(
        self, run: str, conversation: str | None, log: EventLog, began: float, place: Place
    ) -> None:
        """`began`: when it was asked, in seconds of the system's clock."""
        self.run = run
        self.conversation = conversation
        self.log = log
        self.began = began
        self.place = place
        self.state: State = "waiting"
        self.stop = asyncio.Event()
        self.telling = Telling()
        self.heard = Heard()
        self.limits: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.trajectory: Trajectory | None = None
        """the run, once it has come to an end"""
        self._pacer = Pacer(self._tell)
        self._person = DeskPerson(self._pacer.put)
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()

    @property
    def seconds(self) -> float:
        return time.time() - self.began

    @property
    def person(self) -> DeskPerson:
        return self._person

    def begin(self, again: bool) -> None:
        """Tell that it waits; `again`: what was told of it before is told once more."""
        if again:
            self._pacer.put(RESTART, {})
        self._pacer.put("note", {"message": "waiting for its turn"})

    def hear(self, event: Event) -> None:
        """The listener of the run, for any thread."""
        if threading.get_ident() == self._thread:
            self._hear(event)
        else:
            self._loop.call_soon_threadsafe(self._hear, event)

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask whoever watches; meanwhile another run may go on in its place."""
        self.state = "asking"
        self.place.leave()
        decision = await self._person.decide(asked)
        self.state = "waiting"
        await self.place.take()
        self.state = "running"
        return decision

    async def end(self, said: list[Said]) -> None:
        """Tell the last events; returns once they are in the file."""
        self.heard.end(said)
        for name, data in [*said, ("end", {})]:
            self._pacer.put(name, data)
        await self._pacer.drained()
        await self.log.written()

    def _hear(self, event: Event) -> None:
        if isinstance(event, BudgetSet):
            self.limits = list(event.limits)
        for said in self.telling.of(event):
            self.heard.add(said)
            self._pacer.put(*said)

    def _tell(self, name: str, data: dict[str, Any]) -> None:
        self.log.append(name, {"t": round(self.seconds, 3), **data})
        if self.log.lost:
            # Whoever deleted its folder does not want it to go on.
            self.stop.set()
