"""What long work needs: blocking work beside an event loop, and the time left."""

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
    """What the work gives; a cancellation calls `give_up` and waits for the work's end."""
    # No task around it: what is no Exception would leave a task's loop without passing its caller.
    working = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(working)
    finally:
        if not working.done():
            give_up()
            await asyncio.wait({working})


@dataclass
class Pace:
    """How fast work goes since this process began, and the time that is left of it."""

    done: int = 0
    """what was done before this process tells nothing of its speed"""
    of: int = 0
    clock: Callable[[], float] = time.monotonic
    fresh: int = 0

    def __post_init__(self) -> None:
        self._began = self._last = self.clock()

    def advance(self, done: int | None = None) -> None:
        self.done, self._last = self.done + 1 if done is None else done, self.clock()
        self.fresh += 1

    @property
    def left(self) -> float | None:
        """Seconds to the end at the speed so far; None: nothing was done yet."""
        if not self.fresh or not self.of:
            return None
        each = (self._last - self._began) / self.fresh
        return max(each * (self.of - self.done) - (self.clock() - self._last), 0.0)


def lasting(seconds: float) -> str:
    """A time that is left, in its two largest units."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
