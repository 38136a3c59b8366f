"""How many calls one server gets at a time, and when it gets none.

All clients of a server share its `Limiter`, so that a server which asks for a pause gets it
from every caller: of many questions in flight only the first runs into the limit.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from agent.servers.endpoint import Endpoint


class Limiter:
    """At most `limit` calls in flight, and none begun while the server wants a pause."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} calls in flight lets none through")
        self._free = asyncio.Semaphore(limit)
        self._resumes_at = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One call's place; waits until one is free and no pause is on."""
        async with self._free:
            # A pause may be prolonged while it is waited out.
            while (seconds := self._resumes_at - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            yield

    def pause(self, seconds: float) -> None:
        """Begin no call for so long; a pause never shortens one that is on."""
        self._resumes_at = max(self._resumes_at, time.monotonic() + seconds)


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
