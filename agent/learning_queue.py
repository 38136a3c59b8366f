"""Runs that are learnt from behind the answers of this process: one after another, bounded.

A run that finds no room here, or whose turn has not come when the process ends, waits in its
folder as it did before: `rubricem learn` finds it there. What fails is a lesson that says so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from agent.lessons import Lesson, failed
from memory.errors import RubricemError

MOST = 200
"""runs that wait here"""
KEPT = 20
"""lessons that are kept, the latest"""
Learn = Callable[[], Awaitable[Lesson]]


class LearningQueue:
    """Learns from one run at a time; used on one event loop."""

    def __init__(self, most: int = MOST) -> None:
        self.lessons: deque[Lesson] = deque(maxlen=KEPT)
        """what came of the runs so far, the latest last"""
        self.current = ""
        """the run that is learnt from now"""
        self._most = most
        self._waiting: dict[str, Learn] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Runs whose turn has not come."""
        return len(self._waiting)

    @property
    def working(self) -> bool:
        return self._task is not None

    def put(self, thread: str, learn: Learn) -> bool:
        """Have a run learnt from; False where there is no room for it, and it waits elsewhere."""
        if thread == self.current or thread in self._waiting:
            return True
        if len(self._waiting) >= self._most:
            return False
        self._waiting[thread] = learn
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return True

    async def idle(self) -> None:
        """Return once every run here has had its turn."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Break off; what a model has replied is kept, and is not asked for again."""
        self._waiting.clear()
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])  # and not for one that a run's end began meanwhile

    async def _work(self) -> None:
        try:
            while self._waiting:
                self.current = next(iter(self._waiting))
                self.lessons.append(await _lesson(self.current, self._waiting.pop(self.current)))
        finally:
            self.current, self._task = "", None


async def _lesson(thread: str, learn: Learn) -> Lesson:
    try:
        return await learn()
    except RubricemError as error:
        return failed(thread, error)
    except Exception as error:
        # Nobody awaits this: a fault that is not told here is told nowhere.
        logging.getLogger(__name__).error("learning from %s", thread, exc_info=error)
        return failed(thread, RubricemError(f"rubricem itself failed: {error!r}"))
