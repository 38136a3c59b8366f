"""Listening to one reply: until it has ended, or its server falls silent or breaks off."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agent.servers.event_stream import EventStream
from agent.servers.retrying import AttemptError
from agent.servers.server_errors import Server
from memory.interfaces import StopReason
from memory.schema import NO_USAGE, Usage

LATE_SECONDS = 0.25
"""how long a model that was not cut off may take to end a text that has ended"""

EXACTNESS = 1 / 16
"""of the time-out by which a silence may be found too early; a timer for each piece costs more"""

Event = TypeVar("Event")
Heard = TypeVar("Heard", contravariant=True)


class Reading(Protocol[Heard]):
    """What is made of the events of one reply."""

    @property
    def ended(self) -> StopReason | None: ...
    @property
    def complete(self) -> bool:
        """Whether a whole reply has arrived."""
        ...

    @property
    def overdue(self) -> bool:
        """Whether the model goes on writing although the text has ended."""
        ...

    def take(self, event: Heard) -> None: ...


@dataclass(frozen=True, slots=True)
class Listener:
    """Hears the replies of one server; `timeout`, in seconds, is for each silence."""

    server: Server
    timeout: float

    async def hear(
        self,
        reading: Reading[Event],
        opened: Callable[[], Awaitable[EventStream]],
        following: Callable[[EventStream], Awaitable[Event | None]],
        usage: Callable[[], Usage],
    ) -> None:
        """Fill a reading with one reply.

        Raises AttemptError, with what it cost, where none has arrived.
        """
        begun = False
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                async with await opened() as stream:
                    begun = True
                    await self._read(stream, reading, following, deadline)
            if not reading.complete:
                raise self.server.cut("")
        except TimeoutError:
            if not reading.complete:
                failed = self.server.silent(self.timeout)
                failed.usage = usage() if begun else NO_USAGE
                raise failed from None
        except AttemptError as failed:
            failed.usage = usage() if begun else NO_USAGE
            raise

    async def _read(
        self,
        stream: EventStream,
        reading: Reading[Event],
        following: Callable[[EventStream], Awaitable[Event | None]],
        deadline: asyncio.Timeout,
    ) -> None:
        """Read to the end, or until a text that has ended goes on all the same."""
        now = asyncio.get_running_loop().time
        due = 0.0
        while not reading.overdue:
            ended = reading.ended
            try:
                event = await following(stream)
            except AttemptError:
                if reading.complete:
                    return
                raise
            if event is None:
                return
            reading.take(event)
            if reading.ended and not ended:
                deadline.reschedule(now() + LATE_SECONDS)
            elif not ended and now() + self.timeout > due + self.timeout * EXACTNESS:
                due = now() + self.timeout
                deadline.reschedule(due)
