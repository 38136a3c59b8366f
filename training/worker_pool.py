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

    def __init__(self, hire: Hire, size: int, tell: Callable[[str], None]) -> None:
        self._hire = hire
        self._tell = tell
        self._load: dict[Worker, int] = {}
        """rollouts in progress of each worker that is ready"""
        self._numbers: dict[Worker, int] = {}
        self._hiring: set[asyncio.Task[None]] = set()
        self._fault: RubricemError | None = None
        for number in range(1, size + 1):
            self._replace(number)

    async def take(self) -> Worker:
        """The least busy worker, to be given back; raises RubricemError where none will come."""
        while not self._load:
            if not self._hiring:
                assert self._fault is not None
                raise self._fault
            await asyncio.wait(self._hiring, return_when=asyncio.FIRST_COMPLETED)
        worker = min(self._load, key=self._load.__getitem__)
        self._load[worker] += 1
        return worker

    def give_back(self, worker: Worker) -> None:
        if worker in self._load:
            self._load[worker] -= 1

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
        for task in self._hiring:
            task.cancel()
        await asyncio.gather(*self._hiring, return_exceptions=True)

    def _replace(self, number: int) -> None:
        task = asyncio.create_task(self._hired(number))
        self._hiring.add(task)
        task.add_done_callback(self._hiring.discard)

    async def _hired(self, number: int) -> None:
        try:
            worker = await self._hire()
        except WorkerLost as lost:
            self._failed(number, PolicyError(f"it ended while it began: {lost}"))
        except RubricemError as error:
            self._failed(number, error)
        else:
            self._load[worker], self._numbers[worker] = 0, number

    def _failed(self, number: int, why: RubricemError) -> None:
        """A worker that cannot begin is missed; the others go on."""
        self._tell(f"worker {number} cannot begin: {why}")
        remedy = why.remedy or "Mend that and run the same command again."
        self._fault = type(why)(f"No worker could begin. The last: {why}", remedy)
