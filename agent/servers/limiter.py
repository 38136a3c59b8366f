"""How many calls one server gets at a time, and when it gets none.

All clients of a server share its `Limiter`, so that a server which asks for a pause gets it
from every caller: of many questions in flight only the first runs into the limit. How many calls
a server bears shows itself: where it limits its callers or falls silent, half as many go on, and
for every so many that succeed one more is let through again, unless they take far longer than
they once did (additive increase, multiplicative decrease, as TCP does it).
"""

import asyncio
import math
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agent.servers.endpoint import Endpoint
from agent.servers.retrying import AttemptError

CROWDED = 2.0
"""times the best median time of a call, above which no more calls are let through"""


@dataclass(slots=True)
class Allowance:
    """How many calls at once a server is known to bear: never below 1 nor above `most`."""

    most: int
    now: int = field(init=False)
    _cut_at: float = -math.inf
    _best: float = math.inf
    _seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = self.most

    def failed(self, began: float) -> None:
        """A call that began then was refused for want of room, or never answered.

        Many calls in flight hear the same; only one that began after the last cut is news.
        """
        if began > self._cut_at:
            self.now = max(1, self.now // 2)
            self._cut_at = time.monotonic()
            self._seconds.clear()

    def succeeded(self, began: float, seconds: float) -> None:
        """A call took so long; a full window of them may let one more through."""
        if began <= self._cut_at:
            return
        self._seconds.append(seconds)
        if len(self._seconds) < self.now:
            return
        median = statistics.median(self._seconds)
        self._seconds.clear()
        self._best = min(self._best, median)
        if median <= CROWDED * self._best:
            self.now = min(self.now + 1, self.most)


class Limiter:
    """At most `limit` calls in flight, and none begun while the server wants a pause."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} calls in flight lets none through")
        self.allowance = Allowance(limit)
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._resumes_at = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One call's place; waits until one is free and no pause is on."""
        await self._enter()
        try:
            # A pause may be prolonged while it is waited out.
            while (seconds := self._resumes_at - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            began = time.monotonic()
            try:
                yield
            except AttemptError as failed:
                if failed.crowded or failed.silent:
                    self.allowance.failed(began)
                raise
            self.allowance.succeeded(began, time.monotonic() - began)
        finally:
            self._in_flight -= 1
            self._let_in()

    def pause(self, seconds: float) -> None:
        """Begin no call for so long; a pause never shortens one that is on."""
        self._resumes_at = max(self._resumes_at, time.monotonic() + seconds)

    async def _enter(self) -> None:
        """Take a place, in the order of asking."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._in_flight -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self._in_flight < self.allowance.now:
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                place.set_result(None)


class Limiters:
    """One limiter per server, for whoever builds the clients."""

    def __init__(self) -> None:
        self._by_server: dict[str, Limiter] = {}

    def of(self, base_url: str, limit: int = 64) -> Limiter:
        """The limiter of this server; spelling, credentials and a last slash do not matter.

        The first who asks for it sets its limit.
        """
        server = Endpoint.parse(base_url).url
        return self._by_server.setdefault(server, Limiter(limit))


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Limiters] = WeakKeyDictionary()


def shared_limiters() -> Limiters:
    """Those of the running event loop: policy and judge of one process share a server's places."""
    return _OF_LOOP.setdefault(asyncio.get_running_loop(), Limiters())
