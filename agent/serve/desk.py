"""The desk: every run that this server works on, whoever asked for it and whoever watches.

A run is a task of its own. Nobody's connection is part of it: it is started, stopped, answered
and resumed by its key, and what happens in it is told through its event log. Runs beyond those
that go on at once wait for a place. What a server that ended had not finished goes on when the
next one starts, from the journals: nothing that had finished is done again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent.asking import Ask
from agent.auto_source import settled
from agent.choice import EmbeddedChoice, choose_policy
from agent.clients import reserve
from agent.conversations.store import Conversation, ConversationStore
from agent.question import checked
from agent.researcher import new_thread
from agent.serve.asked import Answered, BudgetsAsked, RunAsked, settings_for
from agent.serve.event_log import END, EventLog, Told
from agent.serve.lessons import Lessons
from agent.serve.logs import Logs
from agent.serve.refusals import conflict, too_many, unknown_run, unknown_thread
from agent.serve.researchers import CURRENT, Researchers
from agent.serve.resuming import asked_before
from agent.serve.telling import Said, ended, finished
from agent.serve.work import Place, Work
from agent.settings import Settings
from memory.errors import RubricemError, StoreError
from memory.runs import RunStore
from memory.schema import Status

HEARTBEAT = 15.0
"""seconds after which a watcher of a quiet run is told that the connection stands"""
STOPPED = "it was stopped before anything was found; resume it to go on"
DELETED = "The folder of this run was deleted while it went on; nothing of it is kept."
_OVER = (Status.FINISHED, Status.NO_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much is done at once."""

    running: int
    waiting: int = 200
    """further questions that may wait for a place, or for a person"""

    @classmethod
    def of(cls, settings: Settings) -> "Capacity":
        """As many as the model serves well."""
        embedded = isinstance(choose_policy(settings), EmbeddedChoice)
        return cls(settings.slots if embedded else min(settings.concurrency, 64))


class RunDesk:
    """Owns the model, the sources and the runs of one server; use it within `open`."""

    def __init__(self, settings: Settings, capacity: Capacity | None = None) -> None:
        self.settings = settings
        self.capacity = capacity or Capacity.of(settings)
        self.store = RunStore(settings.data_dir)
        self.conversations = ConversationStore(settings.data_dir)
        self.researchers = Researchers(settings)
        self.lessons = Lessons(settings, self.researchers)
        self.logs = Logs(self.store.folder)
        self.live: dict[str, Work] = {}
        self.closing = asyncio.Event()
        """set when the server ends: whoever watches is let go"""
        self._places = asyncio.Semaphore(self.capacity.running)
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["RunDesk"]:
        """Take up what was left unfinished; at the end leave what goes on to the next server."""
        beating = asyncio.create_task(self._beat())
        try:
            await self._take_up()
            yield self
        finally:
            self.close()
            tasks = [work.task for work in self.live.values() if work.task] + [beating]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.lessons.aclose()
            await self.researchers.aclose()
            self.logs.close()

    def close(self) -> None:
        """Let every watcher go; runs go on."""
        self.closing.set()
        self._wake()

    def _wake(self) -> None:
        self.logs.wake()
        for work in self.live.values():
            work.heard.wake()

    async def start(self, asked: RunAsked) -> Work:
        """Begin a run, or have it wait; raises what cannot be asked, with nothing kept."""
        question, settings = checked(asked.question), settings_for(self.settings, asked)
        self._see_room()
        name = asked.thread
        earlier = (await asyncio.to_thread(self.conversation, name)).runs if name else ()
        settings = await settled(settings)
        run = new_thread()
        ask = await asyncio.to_thread(reserve, settings, run, question, earlier)
        try:
            name = name or (await asyncio.to_thread(self.conversations.create)).id
            with unknown_thread():
                await asyncio.to_thread(self.conversations.add_run, name, run)
        except RubricemError:
            # Its thread was deleted meanwhile: the question would wait and never begin.
            await asyncio.to_thread(self.store.discard, run)
            raise
        return await self._begin(run, ask, settings, name)

    async def resume(self, run: str, budgets: BudgetsAsked | None = None) -> Work:
        """Go on with a run that was interrupted, stopped or failed, or ran out of a budget."""
        await self.known(run)
        if run in self.live:
            raise conflict("The run goes on already.", "Watch its events.")
        self._see_room()
        if await asyncio.to_thread(self._is_over, run):
            raise conflict("The run has come to its end.", "Ask the question anew.")
        if await asyncio.to_thread(self.store.running, run):
            raise conflict("Another process works on the run.", "Wait until that has ended.")
        request = await asyncio.to_thread(self.store.request, run)
        settings, ask = await asyncio.to_thread(asked_before, self.settings, request, budgets)
        thread = await asyncio.to_thread(self.conversations.of_run, run)
        return await self._begin(run, ask, settings, thread.id if thread else None, again=True)

    async def stop(self, run: str) -> None:
        """End a run with what there is of it."""
        work = await self.at_work(run)
        work.stop.set()
        if work.state in ("waiting", "asking") and work.task is not None:
            work.task.cancel()

    async def answer(self, run: str, answered: Answered) -> None:
        """Hand over what a person answered; Refused (409) where it was answered before."""
        (await self.at_work(run)).person.answer(answered)

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[list[Told]]:
        """What is told of a run after an event, until its end; [] where nothing was for a while.

        Ends early where the server ends: whoever follows comes back with the last number.
        """
        log = await self.log(run)
        while not self.closing.is_set():
            told = await log.read(after)
            after = told[-1].id if told else after
            yield told
            if log.ended and after >= log.last:
                return
            await log.changed(after)

    async def log(self, run: str) -> EventLog:
        """The events of a run; Refused (404) where there is none."""
        await self.known(run)
        return await self.logs.of(run)

    async def at_work(self, run: str) -> Work:
        """A run that this process works on; Refused where it does not."""
        await self.known(run)
        if run not in self.live:
            raise conflict("The run does not go on.", "Look at its report, or resume it.")
        return self.live[run]

    async def known(self, run: str) -> None:
        """Raise Refused (404) where no run has this key."""
        if run in self.live:
            return
        try:
            held = await asyncio.to_thread(self.store.holds, run)
        except RubricemError as error:
            raise unknown_run(run) from error
        if not held:
            raise unknown_run(run)

    def conversation(self, identifier: str) -> Conversation:
        """The conversation of this name; Refused (404) where there is none. Reads files."""
        with unknown_thread():
            return self.conversations.get(identifier)

    def _see_room(self) -> None:
        if len(self.live) >= self.capacity.running + self.capacity.waiting:
            raise too_many(
                f"{len(self.live)} runs go on or wait already.", "Wait until some have ended."
            )

    def _is_over(self, run: str) -> bool:
        return self.store.ended(run) and self.store.load(run).status in _OVER

    async def _take_up(self) -> None:
        for run in await asyncio.to_thread(self.logs.unfinished):
            try:
                if await asyncio.to_thread(self.store.running, run):
                    # `rubricem ask --resume` goes on with it, and keeps its end.
                    continue
                if not await asyncio.to_thread(self._is_over, run):
                    await self.resume(run)
                    continue
                said = ended(await asyncio.to_thread(self.store.load, run))
            except RubricemError as error:
                # It stays as it is, and can be resumed by whoever wants it.
                said = [finished(Status.FAILED.value, f"{error} {error.remedy}".strip())]
            log = await self.logs.of(run)
            for name, data in [*said, (END, {})]:
                log.append(name, data)
            await log.written()

    async def _begin(
        self, run: str, ask: Ask, settings: Settings, thread: str | None, again: bool = False
    ) -> Work:
        log = await self.logs.of(run)
        began = await asyncio.to_thread(self.store.asked_at, run)
        async with self._lock:
            if run in self.live:
                raise conflict("The run goes on already.", "Watch its events.")
            work = Work(run, thread, log, began.timestamp(), Place(self._places))
            self.live[run] = work
        work.begin(again)
        work.task = asyncio.create_task(self._work(work, ask, settings))
        # Acknowledged only once a server that comes after this one would find it.
        await log.written()
        return work

    async def _work(self, work: Work, ask: Ask, settings: Settings) -> None:
        CURRENT.set(work.hear)
        try:
            said = await self._answered(work, ask, settings)
        except asyncio.CancelledError:
            if not work.stop.is_set():
                self.live.pop(work.run)
                raise
            said = [finished(Status.PARTIAL.value, STOPPED)]
        except RubricemError as error:
            said = [finished(Status.FAILED.value, f"{error} {error.remedy}".strip())]
        except Exception as error:
            # Nobody awaits this task: a fault that is not told here is told nowhere.
            logging.getLogger(__name__).error("run %s", work.run, exc_info=error)
            said = [finished(Status.FAILED.value, f"rubricem itself failed: {error!r}")]
        finally:
            work.place.leave()
        await work.end(said)
        work.state = "ended"
        self.live.pop(work.run)
        if work.trajectory is not None and settings.memory == "on":
            await self.lessons.after(work.trajectory)

    async def _answered(self, work: Work, ask: Ask, settings: Settings) -> list[Said]:
        await work.place.take()
        async with self.researchers.of(settings) as researcher:
            work.state = "running"
            trajectory = await researcher.ask(ask, work.run, work.hear, work.stop, work)
        if not await asyncio.to_thread(self.store.holds, work.run):
            await asyncio.to_thread(self.store.discard, work.run)
            raise StoreError(DELETED, "Ask the question anew.")
        work.trajectory = trajectory
        return await asyncio.to_thread(ended, trajectory)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            self._wake()
