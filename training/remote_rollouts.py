"""Rollouts written by workers in other processes, for a run in this one.

A worker that dies takes nothing finished with it: its rollouts go on on others from what the
journal holds, and only calls that were in flight are made again.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.asking import Ask
from agent.recalling import Recall
from agent.researcher import Researcher, request_of
from memory.errors import PolicyError, RubricemError
from memory.journal import Journal
from memory.schema import Trajectory
from training.flow import GO_ON, Flow
from training.remote_lines import Asked, Begin, Called, CallFailed, Ended, Keep, MayCall, Recalls
from training.worker_pool import Worker, WorkerLost, WorkerPool

LIVES = 3
"""workers that one rollout may lose"""


@dataclass
class RemoteRollouts:
    """`Rollouts` by workers; `researcher` writes none, but keeps and recalls."""

    researcher: Researcher
    journal: Journal
    flow: Flow
    pool: WorkerPool

    @property
    def template(self) -> Ask:
        return self.researcher.template

    async def ask(self, ask: Ask, thread: str) -> Trajectory:
        request = request_of(ask, self.researcher.choices)
        await asyncio.to_thread(self.researcher.store.create, thread, request)
        for _ in range(LIVES):
            with self.flow.parked():
                worker = await self.pool.take()
            try:
                written = await self._written(worker, ask, thread)
            except WorkerLost as lost:
                self.pool.lost(worker, lost)
            else:
                return await self.researcher.keep(written)
            finally:
                self.pool.give_back(worker)
        raise PolicyError(
            f"{LIVES} workers ended, one after another, while they wrote {thread}.",
            f"See that each has enough memory, or use fewer. {GO_ON}",
        )

    async def _written(self, worker: Worker, ask: Ask, thread: str) -> Trajectory:
        said = await worker.begin(Begin(thread, ask, self.journal.held(thread)))
        while not isinstance(said, Ended):
            said = await worker.go_on(thread, await self._answer(said, worker, thread))
        if isinstance(said.outcome, RubricemError):
            raise said.outcome
        return said.outcome

    async def _answer(
        self, asked: Asked, worker: Worker, thread: str
    ) -> Recall | RubricemError | None:
        try:
            match asked:
                case MayCall(server):
                    make = partial(self._made, worker, thread)
                    await self.flow.call(server, make, of_rollout=True)
                case Keep(key, reply):
                    await self.journal.append(key, reply)
                case Recalls(question):
                    recaller = self.researcher.recaller
                    return await recaller.recall(question) if recaller else Recall()
        except RubricemError as error:
            return error
        return None

    async def _made(self, worker: Worker, thread: str) -> Mapping[str, Any]:
        """Have the worker make its call; what it cost, or the error that it failed for."""
        said = await worker.go_on(thread, None)
        if isinstance(said, CallFailed):
            raise said.error
        assert isinstance(said, Called), said
        return {"usage": said.usage}
