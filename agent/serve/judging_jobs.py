"""Judging that was asked for: one run after another, in the background, each with its state."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from agent.serve.refusals import too_many
from memory.errors import RubricemError

State = Literal["none", "waiting", "running", "done", "failed"]
MOST = 32
"""runs that wait to be judged, or are judged"""
KEPT = 200
"""states of ended judgings that are kept"""


@dataclass(slots=True)
class Job:
    """Judging of one run."""

    state: State = "waiting"
    error: str = ""
    remedy: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ("none", "done", "failed")

    def as_json(self) -> dict[str, Any]:
        return {"state": self.state, "error": self.error, "remedy": self.remedy}


class JudgingJobs:
    """Jobs by the run that is judged; used on one event loop."""

    def __init__(self, judge: Callable[[str], Awaitable[None]]) -> None:
        """`judge` judges the run of a key and keeps what it gave; it raises RubricemError."""
        self._judge = judge
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(1)

    def start(self, run: str) -> Job:
        """The job of this run: the one that goes on, or a new one. Refused (429) for too many."""
        job = self.of(run)
        if not job.ended:
            return job
        if len(self._tasks) >= MOST:
            raise too_many(f"{MOST} runs wait to be judged already.", "Wait until some are.")
        self._jobs.pop(run, None)
        job = self._jobs[run] = Job()
        task = asyncio.create_task(self._work(run, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def of(self, run: str) -> Job:
        return self._jobs.get(run, Job("none"))

    async def aclose(self) -> None:
        """Break off what goes on; replies that a model gave are kept, and not asked for again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, run: str, job: Job) -> None:
        async with self._turn:
            job.state = "running"
            try:
                await self._judge(run)
            except RubricemError as error:
                job.error, job.remedy = str(error), error.remedy
            except Exception as error:
                # Nobody awaits this task: a fault that is not told here is told nowhere.
                job.error = f"rubricem itself failed: {error!r}"
            job.state = "failed" if job.error else "done"
        self._forget()

    def _forget(self) -> None:
        """The oldest of the jobs that ended, beyond those that are kept."""
        ended = [run for run, job in self._jobs.items() if job.ended]
        for run in ended[: max(0, len(ended) - KEPT)]:
            del self._jobs[run]
