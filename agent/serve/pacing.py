"""At most five events a second of one run: text is joined, counts and messages replace themselves.

Order is kept. An event that is not text waits only where five were told within the last second.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Data = dict[str, Any]
Tell = Callable[[str, Data], None]

MOST = 5
"""events in any second"""
TEXT_EVERY = 0.35
"""seconds between two pieces of text, so that room is left for what happens beside it"""
_LATEST = ("usage", "note", "rubric")
"""the last of them says it all"""


class Pacer:
    """Takes events as they come and tells them in their order, at the pace of a reader."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._queue: deque[tuple[str, Data]] = deque()
        self._times: deque[float] = deque(maxlen=MOST)
        self._text_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, name: str, data: Data) -> None:
        if not self._joined(name, data):
            self._queue.append((name, data))
        self._empty.clear()
        self._go()

    async def drained(self) -> None:
        """Return once everything was told."""
        await self._empty.wait()

    def _joined(self, name: str, data: Data) -> bool:
        if not self._queue:
            return False
        last, held = self._queue[-1]
        if name == last == "text" and held["stage"] == data["stage"]:
            held["text"] += data["text"]
            return True
        if name in _LATEST and name == last:
            self._queue[-1] = (name, data)
            return True
        return False

    def _go(self) -> None:
        """Tell what may be told now, and come back when the next may be."""
        now = asyncio.get_running_loop().time()
        while self._queue and self._due() <= now:
            name, data = self._queue.popleft()
            self._times.append(now)
            self._text_at = now if name == "text" else self._text_at
            self._tell(name, data)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue:
            self._timer = asyncio.get_running_loop().call_at(self._due(), self._go)
        else:
            self._empty.set()

    def _due(self) -> float:
        """When the first in the queue may be told."""
        free = self._times[0] + 1.0 if len(self._times) == MOST else float("-inf")
        alone = len(self._queue) == 1 and self._queue[0][0] == "text"
        return max(free, self._text_at + TEXT_EVERY) if alone else free
