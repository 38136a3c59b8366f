"""The server-sent events of one reply, read from an HTTP response as they come.

Only what model servers send is read: the `data` of each event, which is JSON, and `[DONE]`
after the last one. Comments that keep a connection alive, and other fields, are passed over.
"""

import asyncio
import json
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any

import aiohttp

DONE = b"[DONE]"
REST_SECONDS = 0.1
"""after the last event; a response read to its end leaves its connection fit for the next call"""


class EventStream:
    """The events of a response; leaving it with `async with` frees the connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._rest = b""
        self._lines: list[bytes] = []
        """of the event that is being read"""
        self._events: deque[bytes] = deque()
        self._ended = False

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.release()

    async def following(self) -> Any:
        """The next event's value, or None after the last one.

        Raises ValueError for what is no JSON, and aiohttp's errors for a broken connection.
        """
        while not self._events and not self._ended:
            if chunk := await self._response.content.readany():
                self._take(chunk)
            else:
                self._take(b"\n\n")
                self._ended = True
        if not self._events:
            return None
        event = self._events.popleft()
        if not event.startswith(DONE):
            return json.loads(event)
        self._ended = True
        self._events.clear()
        await self._read_out()
        return None

    def _take(self, chunk: bytes) -> None:
        """Read the whole lines that have come; an empty one ends an event."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._lines.append(line[5:].strip())
            elif self._lines and not line.strip():
                self._events.append(b"\n".join(self._lines))
                self._lines = []

    async def _read_out(self) -> None:
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(REST_SECONDS):
                while await self._response.content.readany():
                    pass
