"""The workers of a run: lent out evenly, and replaced when they die."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from memory.errors import PolicyError, RubricemError
from training.remote_lines import Begin, Said


class WorkerLost(Exception):
    """A worker's process has ended, or cannot be reached; says why."""


class Worker(Protocol):
    """A `RolloutWorker` in another process. Its calls raise WorkerLost."""

    async def begin(self, rollout: Begin) -> Said: ...
    async def go_on(self, thread: str, answer: Any) -> Said: ...


Hire = Callable[[], Awaitable[Worker]]
"""a new worker that is ready to write; raises RubricemError or WorkerLost"""


class WorkerPool:
    """So many workers, hired at the same time; rollouts begin as soon as there is one."""

    def __init__(self, hire: Hire, size: int, share: int, tell: Callable[[str], None]) -> None:
        """`share`: rollouts that one worker writes at the same time at most."""
        self._hire = hire
        self._share = share
        self._tell = tell
        self._load: dict[Worker, int] = {}
        """rollouts in progress of each worker that is ready"""
        self._numbers: dict[Worker, int] = {}
        self._hiring: dict[int, asyncio.Task[None]] = {}
        """by the number of the worker that is to come"""
        self._fault: RubricemError | None = None
        self._changed = asyncio.Event()
        for number in range(1, size + 1):
            self._replace(number)

    async def ready(self) -> None:
        """Return once a worker can write; raises RubricemError where none ever will."""
        while not self._load:
            if self._fault is not None and not self._hiring:
                raise self._fault
            await self._change()

    async def take(self) -> Worker:
        """The least busy worker, to be given back; raises as `ready` does."""
        while True:
            await self.ready()
            worker = min(self._load, key=self._load.__getitem__)
            if self._load[worker] < self._share:
                self._load[worker] += 1
                return worker
            await self._change()

    def give_back(self, worker: Worker) -> None:
        if worker in self._load:
            self._load[worker] -= 1
            self._changed.set()

    def lost(self, worker: Worker, why: WorkerLost) -> None:
        """Put another in the place of a worker that died; all who lost it may say so."""
        if self._load.pop(worker, None) is None:
            return
        number = self._numbers.pop(worker)
        self._tell(
            f"worker {number} ended: {why}. Another takes its place, "
            "and its rollouts go on from their finished calls"
        )
        self._replace(number)

    async def close(self) -> None:
        coming = list(self._hiring.values())
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _replace(self, number: int) -> None:
        self._hiring[number] = asyncio.create_task(self._hired(number))

    async def _hired(self, number: int) -> None:
        try:
            worker = await self._hire()
            self._load[worker], self._numbers[worker] = 0, number
        except WorkerLost as lost:
            self._missed(number, PolicyError(f"it ended while it began: {lost}"))
        except RubricemError as error:
            self._missed(number, error)
        finally:
            del self._hiring[number]
            self._changed.set()

    def _missed(self, number: int, why: RubricemError) -> None:
        """A worker that cannot begin is missed; the others go on."""
        self._tell(f"worker {number} cannot begin: {why}")
        remedy = why.remedy or "Mend that and run the same command again."
        self._fault = type(why)(f"No worker could begin. The last: {why}", remedy)
