"""A run whose rollouts are written by workers in this process, which can be killed.

What passes between them is pickled on the way, as it is between processes.
"""

import asyncio
import json
import math
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from agent.policy import Policy
from memory.errors import RubricemError
from tests.collected import Opened
from training.collecting import Collector
from training.exporting import run_rows
from training.remote_lines import Begin, Said
from training.remote_rollouts import RemoteRollouts
from training.remote_worker import RolloutWorker
from training.run_directory import RunDirectory
from training.worker_pool import WorkerLost, WorkerPool

OWN = {"id", "started_at", "seconds"}
"""fields of a trajectory that no two runs share"""


class NearWorker:
    """A `Worker`; one that is killed lets go of its calls and answers nobody any more."""

    def __init__(self, worker: RolloutWorker) -> None:
        self._worker = worker
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: list[Begin] = []

    async def begin(self, rollout: Begin) -> Said:
        self.begun.append(rollout)
        return await self._passed(self._worker.begin, rollout)

    async def go_on(self, thread: str, answer: Any) -> Said:
        return await self._passed(self._worker.go_on, thread, answer)

    def kill(self) -> None:
        if not self._death.done():
            self._death.set_result(None)
        for _, writing in self._worker._rollouts.values():
            writing.cancel()

    async def _passed(self, call: Callable[..., Awaitable[Said]], *arguments: Any) -> Said:
        if self._death.done():
            raise WorkerLost("killed")
        work = asyncio.ensure_future(call(*pickle.loads(pickle.dumps(arguments))))
        # Nobody may wait any more for what a worker says after its run has ended.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({work, self._death}, return_when=asyncio.FIRST_COMPLETED)
        if self._death.done():
            work.cancel()
            raise WorkerLost("killed")
        said: Said = pickle.loads(pickle.dumps(work.result()))
        return said


class Remote:
    """A collector of an opened run, its rollouts written by two workers."""

    def __init__(
        self,
        opened: Opened,
        policy: Policy,
        *,
        recalls: bool = False,
        cannot: Callable[[int], RubricemError | None] = lambda number: None,
        coming: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
        **options: Any,
    ) -> None:
        """`cannot`: what the so many-th worker raises; `coming`: how all but the first come."""
        self.hired: list[NearWorker] = []
        self._opened, self._policy, self._recalls = opened, policy, recalls
        self._cannot, self._coming, self._asked = cannot, coming, 0
        self.collector: Collector = opened.collector(**options)
        self.researcher = self.collector.rollouts
        share = math.ceil(self.collector.at_once / 2)
        self.pool = WorkerPool(self._hire, 2, share, opened.lines.append)
        self.collector.rollouts = RemoteRollouts(
            self.researcher, opened.journal, opened.flow, self.pool
        )

    async def _hire(self) -> NearWorker:
        self._asked = number = self._asked + 1
        if number > 1:
            await self._coming()
        if error := self._cannot(number):
            raise error
        own = replace(self.researcher, policy=self._policy, journal=None)
        self.hired.append(NearWorker(RolloutWorker(own, recalls=self._recalls)))
        return self.hired[-1]


@asynccontextmanager
async def remote(opened: Opened, policy: Policy, **options: Any) -> AsyncIterator[Remote]:
    made = Remote(opened, policy, **options)
    try:
        yield made
    finally:
        await made.pool.close()
        for worker in made.hired:
            worker.kill()


async def left(run: RunDirectory) -> dict[str, Any]:
    """All that a run leaves, rows included, without what no two runs share."""
    trajectories = list(run.trajectories())
    fields = [json.loads(t.model_dump_json(exclude=OWN)) for t in trajectories]
    rows = (await run_rows(run)).rows
    written = json.dumps([json.loads(row.model_dump_json()) for row in rows])
    groups = "\n".join(group.model_dump_json() for group in run.groups())
    for trajectory in trajectories:
        written = written.replace(trajectory.id, trajectory.thread)
        groups = groups.replace(trajectory.id, trajectory.thread)
    return {"trajectories": fields, "rows": written, "groups": groups}
