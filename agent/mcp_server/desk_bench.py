"""The tools over the desk of a server: its runs and its model; no key of it is told."""

import asyncio
import logging

from agent.learning import local_model
from agent.mcp_server.workbench import Tell, Workbench
from agent.protocols.openai_runs import Runs
from agent.serve.asked import RunAsked
from agent.serve.desk import RunDesk
from agent.serve.exporting import for_others
from judge.building import LocalModel
from memory.errors import RubricemError
from memory.schema import AnswerFormat, Trajectory


class DeskBench(Workbench):
    """Research is a run of the desk: it waits for its place, and the page shows it like any other.

    One that its client gives up is stopped, and can be resumed.
    """

    def __init__(self, desk: RunDesk) -> None:
        super().__init__(desk.settings, logging.getLogger(__name__).warning)
        self._desk = desk
        self._runs = Runs(desk)

    async def research(self, question: str, answer_format: AnswerFormat, tell: Tell) -> Trajectory:
        asked = RunAsked(question=question, format=answer_format, approve_plan=False, clarify=False)
        work = await self._desk.start(asked)
        async with self._runs.held(work):
            async for line in self._runs.progress(work):
                tell(line)
        answer = await self._runs.answer(work.run, work.conversation)
        store = self._desk.store
        if not await asyncio.to_thread(store.ended, work.run):
            raise RubricemError(answer.reason)
        trajectory = await asyncio.to_thread(store.load, work.run)
        return await asyncio.to_thread(for_others, trajectory, self._desk.settings)

    def _shared_model(self) -> LocalModel | None:
        policy = self._desk.researchers.policy
        return local_model(policy) if policy else None
