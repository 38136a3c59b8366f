"""At most five events a second of one run: text is joined, counts and messages replace themselves.

Order is kept. What comes seldom waits only where five were told within the last second.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Data = dict[str, Any]
Tell = Callable[[str, Data], None]

MOST, SECOND = 5, 1.02
"""events in any second, with room for clocks that round"""
EVERY = {"text": 0.35, "note": 1.0, "usage": 1.0}
"""seconds between two of a kind that comes often, so that room is left for what else happens"""
_LATEST = ("usage", "note", "rubric")
"""the last of them says it all"""


class Pacer:
    """Takes events as they come and tells them in their order, at the pace of a reader."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._queue: deque[tuple[str, Data]] = deque()
        self._times: deque[float] = deque(maxlen=MOST)
        self._told_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, name: str, data: Data) -> None:
        if self._joined(name, data):
            return
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
            self._told_at[name] = now
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
        free = self._times[0] + SECOND if len(self._times) == MOST else float("-inf")
        name, _ = self._queue[0]
        if len(self._queue) > 1 or name not in EVERY:
            return free
        return max(free, self._told_at.get(name, float("-inf")) + EVERY[name])
