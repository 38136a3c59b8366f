"""The desk: every run that this server works on, whoever asked for it and whoever watches.

A run is a task of its own. Nobody's connection is part of it: it is started, stopped, answered
and resumed by its key, and what happens in it is told through its event log. Runs beyond those
that go on at once wait for a place. What a server that ended had not finished goes on when the
next one starts, from the journals: nothing that had finished is done again.

The model is opened by the first question and stays; there is one researcher for each way to
answer, and sources are opened once for each set of them. What they have to say while they work
goes to the run that is being worked on. What a server learns from its runs it learns behind the
answers with a server's model, else when asked to: runs wait in their folders, as those of
`rubricem ask` do, and those of another model are left to `rubricem learn`, since a model reflects
on what it wrote itself.

Above 600 lines since the desk owns runs, researchers and lessons, which begin and end together.
"""

import asyncio
import gc
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from rubricem.agent.learning.lessons import (
    LearningQueue,
    Lesson,
    RunLearner,
    enter,
    failed,
    learn,
    models_of,
    open_learner,
    queued,
)
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.models.policy import Policy
from rubricem.agent.research.events import BudgetSet, Event, Listener, SourceProgress, ignore
from rubricem.agent.research.question import Ask, checked
from rubricem.agent.research.researcher import Researcher, new_thread
from rubricem.agent.research.setup import (
    Setup,
    open_researcher,
    reserve,
    settle,
    telling,
)
from rubricem.agent.research.threads import Conversation, ConversationStore
from rubricem.agent.serve.feed import (
    END,
    RESTART,
    EventLog,
    Heard,
    Logs,
    Pacer,
    SaidEvent,
    Telling,
    Told,
    ended,
    finished,
)
from rubricem.agent.serve.refusals import conflict, too_many, unknown_run, unknown_thread
from rubricem.agent.serve.requests import (
    Answered,
    BudgetsAsked,
    DeskPerson,
    RunAsked,
    asked_before,
    settings_for,
)
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Status, Trajectory
from rubricem.memory.text import one_line

State = Literal["waiting", "running", "asking", "ended"]


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A place among the runs that go on at once; held or not."""

    places: asyncio.Semaphore
    held: list[bool] = field(default_factory=list)

    async def take(self) -> None:
        await self.places.acquire()
        self.held.append(True)

    def leave(self) -> None:
        """Give it up, if it is held."""
        if self.held:
            self.held.clear()
            self.places.release()


class Work:
    """A run that waits, goes on, or asks somebody; everything here is used on one loop."""

    def __init__(
        self, run: str, conversation: str | None, log: EventLog, began: float, place: RunPlace
    ) -> None:
        """`began`: when it was asked, in seconds of the system's clock."""
        self.run = run
        self.conversation = conversation
        self.log = log
        self.began = began
        self.place = place
        self.state: State = "waiting"
        self.stop = asyncio.Event()
        self.telling = Telling()
        self.heard = Heard()
        self.limits: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.trajectory: Trajectory | None = None
        """the run, once it has come to an end"""
        self._pacer = Pacer(self._tell)
        self._person = DeskPerson(self._pacer.put)
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()

    @property
    def seconds(self) -> float:
        return time.time() - self.began

    @property
    def person(self) -> DeskPerson:
        return self._person

    def begin(self, again: bool) -> None:
        """Tell that it waits; `again`: what was told of it before is told once more."""
        if again:
            self._pacer.put(RESTART, {})
        self._pacer.put("note", {"message": "waiting for its turn"})

    def hear(self, event: Event) -> None:
        """The listener of the run, for any thread."""
        if threading.get_ident() == self._thread:
            self._hear(event)
        else:
            self._loop.call_soon_threadsafe(self._hear, event)

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask whoever watches; meanwhile another run may go on in its place."""
        self.state = "asking"
        self.place.leave()
        decision = await self._person.decide(asked)
        self.state = "waiting"
        await self.place.take()
        self.state = "running"
        return decision

    async def end(self, said: list[SaidEvent]) -> None:
        """Tell the last events; returns once they are in the file."""
        self.heard.end(said)
        for name, data in [*said, ("end", {})]:
            self._pacer.put(name, data)
        await self._pacer.drained()
        await self.log.written()

    def _hear(self, event: Event) -> None:
        if isinstance(event, BudgetSet):
            self.limits = list(event.limits)
        for said in self.telling.of(event):
            self.heard.add(said)
            self._pacer.put(*said)

    def _tell(self, name: str, data: dict[str, Any]) -> None:
        self.log.append(name, {"t": round(self.seconds, 3), **data})
        if self.log.lost:
            # Whoever deleted its folder does not want it to go on.
            self.stop.set()


MOST = 8
"""researchers held; beyond, the one used least recently goes"""
CURRENT: ContextVar[Listener] = ContextVar("CURRENT", default=ignore)
"""the listener of the run that this task works on"""


def tell_current(event: Event) -> None:
    CURRENT.get()(event)


@dataclass
class _Held:
    """A researcher, what it opened, and how many runs use it now."""

    researcher: Researcher
    opened: AsyncExitStack
    users: int = 0


class Researchers:
    """Opens what runs need; close it once none goes on."""

    def __init__(self, model: PolicyChoice) -> None:
        self._model = model
        self._policy: Policy | None = None
        self._stack = AsyncExitStack()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._lock = asyncio.Lock()

    @property
    def model(self) -> str | None:
        """The name of the model that answers, once it is open."""
        return self._policy.name if self._policy else None

    @property
    def policy(self) -> Policy | None:
        """The model that answers, once it is open."""
        return self._policy

    @asynccontextmanager
    async def of(self, setup: Setup) -> AsyncIterator[Researcher]:
        """The researcher for this setup, which has the server's model.

        Raises what opening raises; the next that wants it tries again.
        """
        async with self._lock:
            held = await self._hold(json.dumps(setup.choices, sort_keys=True), setup)
        try:
            yield held.researcher
        finally:
            held.users -= 1

    async def opened(self) -> Policy:
        """The model that answers; the first that wants it opens it."""
        async with self._lock:
            return await self._opened_policy()

    async def aclose(self) -> None:
        for held in self._held.values():
            await held.opened.aclose()
        await self._stack.aclose()

    async def _hold(self, key: str, setup: Setup) -> _Held:
        if key not in self._held:
            opened = AsyncExitStack()
            opening = open_researcher(setup, tell_current, policy=self._opened_policy)
            self._held[key] = _Held(await opened.enter_async_context(opening), opened)
        held = self._held[key]
        held.users += 1
        self._held.move_to_end(key)
        idle = [name for name, each in self._held.items() if not each.users]
        for name in idle[: max(len(self._held) - MOST, 0)]:
            await self._held.pop(name).opened.aclose()
        return held

    async def _opened_policy(self) -> Policy:
        if self._policy is None:
            opening = self._model.open_policy(telling(tell_current))
            self._policy = await self._stack.enter_async_context(opening)
            # What is loaded by now stays. Looked through for garbage again and again, it holds
            # everything up for a quarter of a second each time.
            gc.freeze()
        return self._policy


SHOWN = 120
"""characters of a question that is learnt from"""


class Lessons:
    """Learning of one server; use it while its researchers are open."""

    def __init__(self, setup: Setup, researchers: Researchers) -> None:
        self._setup = setup
        self._store = RunStore(setup.stores.data_dir)
        self._researchers = researchers
        self._queue = LearningQueue()
        self._stack = AsyncExitStack()
        self._learner: RunLearner | None = None
        self._doing = ""

    @property
    def at_once(self) -> bool:
        """Whether runs asked with memory on are learnt from as soon as they have ended."""
        return not self._setup.model.embedded and self._setup.memory == "on"

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

    async def _opened(self) -> RunLearner:
        if self._learner is None:
            policy = await self._researchers.opened()
            opening = open_learner(self._setup, self._hear, policy)
            self._learner = await self._stack.enter_async_context(opening)
        return self._learner

    def _hear(self, event: Event) -> None:
        if isinstance(event, SourceProgress):
            self._doing = one_line(event.message)

    def _waiting(self) -> tuple[list[str], list[str]]:
        """Runs that wait: those of this model, and the others."""
        choices = self._setup.choices
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
    def of(cls, model: PolicyChoice) -> "Capacity":
        """As many as the model serves well."""
        return cls(min(model.at_once, 64))


class RunDesk:
    """Owns the model, the sources and the runs of one server; use it within `open`."""

    def __init__(self, settings: Settings, capacity: Capacity | None = None) -> None:
        self.settings = settings
        self.setup = setup_of(settings)
        self.capacity = capacity or Capacity.of(self.setup.model)
        self.store = RunStore(settings.data_dir)
        self.conversations = ConversationStore(settings.data_dir)
        self.researchers = Researchers(self.setup.model)
        self.lessons = Lessons(self.setup, self.researchers)
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
        setup = await asyncio.to_thread(setup_of, settings)
        self._see_room()
        name = asked.thread
        earlier = (await asyncio.to_thread(self.conversation, name)).runs if name else ()
        setup = await settle(setup)
        run = new_thread()
        ask = await asyncio.to_thread(reserve, setup, run, question, earlier)
        try:
            name = name or (await asyncio.to_thread(self.conversations.create)).id
            with unknown_thread():
                await asyncio.to_thread(self.conversations.add_run, name, run)
        except RubricemError:
            # Its thread was deleted meanwhile: the question would wait and never begin.
            await asyncio.to_thread(self.store.discard, run)
            raise
        return await self._begin(run, ask, setup, name)

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
        setup, ask = await asyncio.to_thread(asked_before, self.settings, request, budgets)
        thread = await asyncio.to_thread(self.conversations.of_run, run)
        return await self._begin(run, ask, setup, thread.id if thread else None, again=True)

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
                said = [finished(Status.FAILED.value, error.told())]
            log = await self.logs.of(run)
            for name, data in [*said, (END, {})]:
                log.append(name, data)
            await log.written()

    async def _begin(
        self, run: str, ask: Ask, setup: Setup, thread: str | None, again: bool = False
    ) -> Work:
        log = await self.logs.of(run)
        began = await asyncio.to_thread(self.store.asked_at, run)
        async with self._lock:
            if run in self.live:
                raise conflict("The run goes on already.", "Watch its events.")
            work = Work(run, thread, log, began.timestamp(), RunPlace(self._places))
            self.live[run] = work
        work.begin(again)
        work.task = asyncio.create_task(self._work(work, ask, setup))
        # Acknowledged only once a server that comes after this one would find it.
        await log.written()
        return work

    async def _work(self, work: Work, ask: Ask, setup: Setup) -> None:
        CURRENT.set(work.hear)
        try:
            said = await self._answered(work, ask, setup)
        except asyncio.CancelledError:
            if not work.stop.is_set():
                self.live.pop(work.run)
                raise
            said = [finished(Status.PARTIAL.value, STOPPED)]
        except RubricemError as error:
            said = [finished(Status.FAILED.value, error.told())]
        except Exception as error:
            # Nobody awaits this task: a fault that is not told here is told nowhere.
            logging.getLogger(__name__).error("run %s", work.run, exc_info=error)
            said = [finished(Status.FAILED.value, f"rubricem itself failed: {error!r}")]
        finally:
            work.place.leave()
        await work.end(said)
        work.state = "ended"
        self.live.pop(work.run)
        if work.trajectory is not None and setup.memory == "on":
            await self.lessons.after(work.trajectory)

    async def _answered(self, work: Work, ask: Ask, setup: Setup) -> list[SaidEvent]:
        await work.place.take()
        async with self.researchers.of(setup) as researcher:
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


async def ended_run(store: RunStore, run: str) -> Trajectory:
    """The run of this key. Refused (404) where there is none, (409) where it has not ended."""
    return await asyncio.to_thread(_ended_run, store, run)


def _ended_run(store: RunStore, run: str) -> Trajectory:
    try:
        known, ended = store.holds(run), store.ended(run)
    except SettingsError as error:
        raise unknown_run(run) from error
    if not known:
        raise unknown_run(run)
    if not ended:
        raise conflict("The run has not ended.", "Wait for its end, or stop it.")
    return store.load(run)
