"""What a server learns from its runs: behind the answers with a server's model, else when asked to.

Runs wait in their folders, as those of `rubricem ask` do. Those of another model are left to
`rubricem learn`: a model reflects on what it wrote itself.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from agent.banking import open_bank
from agent.choice import ServerChoice, choose_policy
from agent.clients import choices_of
from agent.events import Event, SourceProgress
from agent.judging import open_judge_model
from agent.learnable import enter, models_of, queued
from agent.learning import Learner, learn, local_model
from agent.learning_queue import LearningQueue
from agent.lessons import Lesson, failed
from agent.reports.printable import one_line
from agent.serve.researchers import CURRENT, Researchers
from agent.settings import Settings
from memory.errors import RubricemError
from memory.runs import RunStore
from memory.schema import Trajectory

SHOWN = 120
"""characters of a question that is learnt from"""


class Lessons:
    """Learning of one server; use it while its researchers are open."""

    def __init__(self, settings: Settings, researchers: Researchers) -> None:
        self._settings = settings
        self._store = RunStore(settings.data_dir)
        self._researchers = researchers
        self._queue = LearningQueue()
        self._stack = AsyncExitStack()
        self._learner: Learner | None = None
        self._doing = ""

    @property
    def at_once(self) -> bool:
        """Whether runs asked with memory on are learnt from as soon as they have ended."""
        server = isinstance(choose_policy(self._settings), ServerChoice)
        return server and self._settings.memory == "on"

    async def after(self, trajectory: Trajectory) -> None:
        """A run with memory on has ended: it waits, and its turn comes where models are served."""
        try:
            why = await asyncio.to_thread(enter, self._store, trajectory)
        except RubricemError as error:
            self._queue.lessons.append(failed(trajectory.thread, error))
            return
        if not why and self.at_once:
            self._put(trajectory.thread)

    async def begin(self) -> None:
        """Learn from every run that waits and that this model was asked."""
        own, _ = await asyncio.to_thread(self._waiting)
        for run in own:
            self._put(run)

    async def stop(self) -> None:
        """Break off; the runs wait again."""
        await self._queue.stop()

    async def aclose(self) -> None:
        while self._queue.working:
            await self._queue.stop()
        await self._stack.aclose()

    async def state(self) -> dict[str, Any]:
        """What waits, what is being done, and what came of it so far, the latest first."""
        own, others = await asyncio.to_thread(self._waiting)
        now = None
        if self._queue.working and (run := self._queue.current):
            question = await asyncio.to_thread(self._question, run)
            left = self._queue.waiting
            now = {"run": run, "question": question, "doing": self._doing, "left": left}
        lessons = list(self._queue.lessons)[::-1]
        return {
            "at_once": self.at_once,
            "waiting": len(own),
            "others": len(others),
            "now": now,
            "lessons": [await asyncio.to_thread(self._told, lesson) for lesson in lessons],
        }

    def _put(self, run: str) -> None:
        self._queue.put(run, partial(self._learn, run))

    async def _learn(self, run: str) -> Lesson:
        CURRENT.set(self._hear)
        self._doing = "getting ready"
        return await learn(await self._opened(), run)

    async def _opened(self) -> Learner:
        if self._learner is None:
            policy = await self._researchers.opened()
            opening = open_judge_model(self._settings, local_model(policy), self._hear)
            model = await self._stack.enter_async_context(opening)
            bank = open_bank(self._settings, self._hear)
            self._learner = Learner(self._settings, policy, model, bank, self._hear)
        return self._learner

    def _hear(self, event: Event) -> None:
        if isinstance(event, SourceProgress):
            self._doing = one_line(event.message)

    def _waiting(self) -> tuple[list[str], list[str]]:
        """Runs that wait: those of this model, and the others."""
        choices = choices_of(self._settings)
        ours = choices.get("model") or "", choices.get("base_url") or ""
        waiting = queued(self._store)
        own = [run for run in waiting if models_of(self._store, run) == ours]
        return own, [run for run in waiting if run not in set(own)]

    def _question(self, run: str) -> str:
        try:
            return one_line(str(self._store.request(run)["ask"]["question"]), SHOWN)
        except (RubricemError, LookupError, TypeError):
            return ""

    def _told(self, lesson: Lesson) -> dict[str, Any]:
        said = lesson.model_dump(mode="json", exclude={"thread"})
        return {"run": lesson.thread, "question": self._question(lesson.thread), **said}
