"""The desk: all runs of this server, whoever asked for them and whoever watches.

A run is a task of its own, independent of any connection: it is started, stopped, answered and
resumed by its key, and its events go to its event log. Runs that a previous server left unfinished
are resumed from their journals by the next one.

A model is opened by the first question that names it and stays open; there is one researcher for
each way to answer. With a server's model, the desk learns from its runs in the background,
otherwise when asked to. Runs of another model are left to `rubricem learn`, since a model reflects
on what it wrote itself.
"""

import asyncio
import gc
import json
import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from weakref import WeakValueDictionary

from fastapi import Depends, Request
from starlette.types import ASGIApp

from rubricem.agent.learning import lessons
from rubricem.agent.learning.scoring import score_run
from rubricem.agent.models.limits import PAYER, PERSON, Places
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.models.policy import Policy
from rubricem.agent.record.conversations import NOTHING, Background, Conversation, ConversationStore
from rubricem.agent.record.history import History
from rubricem.agent.research.deep.parts import Steering
from rubricem.agent.research.researcher import Researcher, new_thread
from rubricem.agent.research.setup import Setup, open_researcher, reserve, resolve_auto
from rubricem.agent.serve import feed, requests
from rubricem.agent.serve.requests import conflict, refuse_as, too_many
from rubricem.agent.serve.security import OWNER, USER
from rubricem.agent.settings import BUDGETS, Settings
from rubricem.agent.settings.door import budgets_of, setup_of
from rubricem.agent.settings.ledger import SpendingLedger
from rubricem.agent.settings.users import Granted
from rubricem.agent.sources.sandbox.pool import release
from rubricem.agent.sources.sandbox.turns import REQUESTER, Requester
from rubricem.agent.transcript.events import Event, Tell, hush, tell_to
from rubricem.agent.transcript.question import Ask, ShownPlan, check_question
from rubricem.memory.errors import RubricemError, StoreError
from rubricem.memory.schema import LocalModel, Status, Trajectory
from rubricem.memory.text import one_line

WorkState = Literal["waiting", "loading", "running", "asking", "ended"]
STATES: tuple[WorkState, ...] = ("waiting", "loading", "running", "asking")


KINDS = {"clarify": "clarify", "approve_plan": "plan", "permit": "permit"}
"""of questions to a person, as the page knows them"""


@dataclass(eq=False)
class Work:
    """A run that waits, is in progress, or asks a person; all of it is used on one event loop.

    It is the run's listener, and its `Person`: the person who asked is behind a page, so they are
    asked by an event and answer by a request. The first answer counts; later ones, from another
    tab, are told so.
    """

    run: str
    conversation: str | None
    log: feed.EventLog
    began: datetime
    """when the question was asked"""
    places: Places = field(repr=False)
    """limits simultaneous runs"""
    model: PolicyChoice
    granted: Granted
    """reserved of a user's daily budget until the run has ended"""
    leads: bool
    attended: bool = False
    """whether a person watches, who may be asked before something reaches beyond reading"""
    state: WorkState = "waiting"
    task: asyncio.Task[None] | None = None
    trajectory: Trajectory | None = None
    outcome: dict[str, Any] = field(default_factory=dict)
    """`status` and `reason`, once it has ended"""

    def __post_init__(self) -> None:
        self.stop = asyncio.Event()
        self.steering = Steering(self.hear)
        self._placed: str | None = None
        self._asked: tuple[str, str, asyncio.Future[dict[str, Any]]] | None = None
        """the current question to a person: its id, its kind, and the future of the decision"""
        self.telling = feed.Telling(self.run, self._tell)
        self._loops_thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()

    @property
    def seconds(self) -> float:
        return (datetime.now(UTC) - self.began).total_seconds()

    def begin(self, again: bool) -> None:
        """Report that it waits; `again`: earlier reports of it are repeated."""
        if again:
            self._tell(feed.RESTART, {})
        self.be("waiting")
        self.log.flush()  # a server that comes after this one finds that it was begun

    def be(self, state: WorkState) -> None:
        self.state = state
        self._tell("state", {"state": state})

    async def go(self) -> None:
        self._placed = await self.places.acquire()
        self.be("loading")

    def leave(self) -> None:
        if self._placed is not None:
            self.places.release(self._placed)
            self._placed = None

    def hear(self, event: Event) -> None:
        if threading.get_ident() == self._loops_thread:
            self.telling.hear(event)
        else:
            self._loop.call_soon_threadsafe(self.telling.hear, event)

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a watcher; meanwhile another run may take its place."""
        self.state = "asking"
        self.leave()
        identifier, kind = uuid.uuid4().hex[:12], KINDS[asked["ask"]]
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._asked = identifier, kind, answer
        shown = {"text": asked.get("doubt", "")}
        if kind == "permit":
            shown = {name: asked[name] for name in ("what", "to", "text", "choices")}
        if kind == "plan":
            plan = ShownPlan.model_validate(asked)
            shown = {"text": plan.text(), **plan.model_dump(mode="json")}
        self._tell("ask", {"id": identifier, "kind": kind, **shown})
        try:
            decision = await answer
        finally:
            self._asked = None
        self.be("waiting")
        await self.go()
        self.be("running")
        return decision

    def answer(self, answered: requests.Answered) -> None:
        """Accept a person's answer; raises Refused (409) if nothing waits for it."""
        if self._asked is None or self._asked[0] != answered.id or self._asked[2].done():
            raise conflict(
                "This was answered already, or is no longer asked.",
                "Reload the run to see what happened since.",
            )
        _, kind, answer = self._asked
        answer.set_result(answered.resume_value(kind))
        self._tell("answered", {"id": answered.id, "decision": answered.decision})

    def conclude(self, said: list[feed.SaidEvent]) -> None:
        for name, data in said:
            self._tell(name, data)
        self.log.flush()
        self.outcome = said[-1][1]

    def end(self) -> None:
        self.state = "ended"
        self._tell(feed.END, {})
        self.log.flush()

    def _tell(self, name: str, data: dict[str, Any]) -> None:
        self.log.put(name, {"t": round(self.seconds, 3), **data})
        if self.log.lost:
            # Whoever deleted its folder does not want it to go on.
            self.stop.set()


CURRENT: ContextVar[Tell] = ContextVar("CURRENT", default=hush)
"""receives messages for the run that this task works on"""


def tell_current(line: str) -> None:
    CURRENT.get()(line)


Opened = TypeVar("Opened")


@dataclass
class _Held:
    """What is open, what closes it, and how many use it now."""

    value: Any
    stack: AsyncExitStack
    users: int = 0


class OpenPool:
    """Keeps open what is used, and the latest of what is not."""

    def __init__(self, most: int) -> None:
        """`most`: kept while nobody uses them."""
        self.most = most
        self.held: dict[object, _Held] = {}
        self._opening: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def use(
        self, key: object, opening: Callable[[], AbstractAsyncContextManager[Opened]]
    ) -> AsyncIterator[Opened]:
        """What is open under a key. Raises whatever opening raises; the next caller tries again."""
        # One for each: a folder that takes long to read holds up nobody who searches another.
        async with self._opening.setdefault(key, asyncio.Lock()):
            if key not in self.held:
                stack = AsyncExitStack()
                self.held[key] = _Held(await stack.enter_async_context(opening()), stack)
            held = self.held[key] = self.held.pop(key)  # now the latest
            held.users += 1
        try:
            yield held.value
        finally:
            held.users -= 1
            await self.trim()

    async def trim(self) -> None:
        idle = [key for key, each in self.held.items() if not each.users]
        for key in idle[: max(len(idle) - self.most, 0)]:
            await self.held.pop(key).stack.aclose()


def _which(model: PolicyChoice) -> tuple[object, ...]:
    """What tells a model from others: two servers may call theirs the same."""
    return model.embedded, model.name, getattr(model, "base_url", ""), getattr(model, "api_key", "")


@asynccontextmanager
async def _loaded(model: PolicyChoice) -> AsyncIterator[Policy]:
    async with model.open_policy(tell_current) as policy:
        # What is loaded by now stays. Looked through for garbage again and again, it holds
        # everything up for a quarter of a second each time.
        gc.freeze()
        yield policy


class Researchers:
    """Opens what runs need; a model stays open once a run has needed it."""

    def __init__(self, model: PolicyChoice, shared: "Researchers | None" = None) -> None:
        """`shared`: researchers whose models are used instead of own ones."""
        self._model, self._own = model, OpenPool(8)
        self._models: OpenPool = shared._models if shared else OpenPool(1000)
        self._pools = [self._own] if shared else [self._own, self._models]

    @property
    def policy(self) -> Policy | None:
        """The server's own model, once it is open."""
        return self.find_open(self._model)

    def find_open(self, model: PolicyChoice) -> Policy | None:
        held = self._models.held.get(_which(model))
        return held.value if held else None

    @property
    def reader(self) -> LocalModel | None:
        """The embedded model that answers, so that others can judge with it, once it is open."""
        return self.policy.reader if self.policy else None

    def of(self, setup: Setup) -> AbstractAsyncContextManager[Researcher]:
        """The researcher for this setup, which has one of the server's models."""
        key = json.dumps(setup.choices, sort_keys=True)
        return self._own.use(key, partial(self._open, setup))

    def model(self, model: PolicyChoice | None = None) -> AbstractAsyncContextManager[Policy]:
        """A model, by default the server's own."""
        wanted = model or self._model
        return self._models.use(_which(wanted), partial(_loaded, wanted))

    @asynccontextmanager
    async def _open(self, setup: Setup) -> AsyncIterator[Researcher]:
        async with AsyncExitStack() as stack:

            async def policy() -> Policy:
                return await stack.enter_async_context(self.model(setup.model))

            async with open_researcher(setup, tell_current, policy=policy) as researcher:
                yield researcher

    async def retire(self) -> None:
        """Close what is open once nobody uses it."""
        for pool in self._pools:
            pool.most = 0
            await pool.trim()


SHOWN = 120


class Lessons:
    """Learning on one server; use it while its researchers are open."""

    def __init__(self, setup: Setup, researchers: Researchers) -> None:
        self._setup = setup
        self._store = setup.stores.runs
        self._researchers = researchers
        self._queue = lessons.LearningQueue()
        self._settled: dict[str, int] = {}
        self._stack = AsyncExitStack()
        self._learner: lessons.RunLearner | None = None
        self._doing = ""

    @property
    def at_once(self) -> bool:
        """Whether runs asked with memory on are learnt from as soon as they end."""
        return not self._setup.reflecting.embedded and self._setup.memory == "on"

    async def after(self, trajectory: Trajectory) -> None:
        """Queue a run that ended with memory on; learn from it now if the model is a server's."""
        run = trajectory.thread
        try:
            why = await asyncio.to_thread(lessons.enter, self._store, trajectory)
            if not why and self.at_once and self._is_ours(run):
                self._queue.put(run, partial(self._learn, run))
        except RubricemError as error:
            self._queue.lessons.append(lessons.failed_lesson(run, error))

    async def adopt(self, setup: Setup, researchers: Researchers) -> None:
        """Learn by these from now on; what is being learnt is left to wait."""
        await self.aclose()
        self._setup, self._researchers, self._learner = setup, researchers, None
        self._settled.clear()

    async def begin(self) -> dict[str, Any]:
        """Learn from all waiting runs; those already queued keep their places.

        Refused (429) if they are too many, of which the first are learnt from.
        """
        own, _ = await asyncio.to_thread(self._waiting)
        for run in own:
            try:
                self._queue.put(run, partial(self._learn, run))
            except RubricemError as error:
                raise too_many(str(error), error.remedy) from error
        return await self.state()

    async def stop(self) -> dict[str, Any]:
        await self._queue.stop()
        return await self.state()

    async def aclose(self) -> None:
        while self._queue.working:
            await self._queue.stop()
        await self._stack.aclose()

    async def state(self) -> dict[str, Any]:
        """What waits, what is in progress, and the results so far, the latest first."""
        return await asyncio.to_thread(self._state)

    def _state(self) -> dict[str, Any]:
        (own, others), queue, now = self._waiting(), self._queue, None
        if queue.working and (run := queue.current):
            now = self._named(run) | {"doing": self._doing, "left": queue.waiting}
        told = [
            self._named(lesson.thread) | lesson.model_dump(mode="json", exclude={"thread"})
            for lesson in list(queue.lessons)[::-1]
        ]
        counts = {"waiting": len(own), "others": len(others)}
        return {"at_once": self.at_once, **counts, "now": now, "lessons": told}

    def _named(self, run: str) -> dict[str, Any]:
        return {"run": run, "question": one_line(self._store.question(run), SHOWN)}

    async def _learn(self, run: str) -> lessons.Lesson:
        CURRENT.set(self._hear)
        self._doing = "getting ready"
        if self._learner is None:
            policy = await self._stack.enter_async_context(self._researchers.model())
            opening = lessons.open_learner(self._setup, self._hear, policy)
            self._learner = await self._stack.enter_async_context(opening)
        return await lessons.learn(self._learner, run)

    def _hear(self, line: str) -> None:
        self._doing = one_line(line)

    def _waiting(self) -> tuple[list[str], list[str]]:
        """Waiting runs: those of this model, and the others."""
        waiting = lessons.find_queued(self._store, settled=self._settled)
        own = [run for run in waiting if self._is_ours(run)]
        return own, [run for run in waiting if run not in set(own)]

    def _is_ours(self, run: str) -> bool:
        choices = self._setup.choices
        ours = choices.get("model") or "", choices.get("base_url") or ""
        with suppress(StoreError):
            return lessons.models_of(self._store, run) == ours
        return False


Judge = Callable[[str], Awaitable[object]]
"""judges the run of a key and stores the result; raises RubricemError"""
MOST_JUDGING = 32


class JudgingJobs:
    """Judges one run after another in the background; used on one event loop."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._tasks: dict[str, asyncio.Task[RubricemError | None]] = {}
        self._turn = asyncio.Lock()
        self._current = ""

    def start(self, run: str) -> dict[str, str]:
        """Have a run judged, unless it is already. Refused (429) if there are too many."""
        task = self._tasks.get(run)
        if task is None or task.done():
            if sum(not each.done() for each in self._tasks.values()) >= MOST_JUDGING:
                raise too_many(
                    f"{MOST_JUDGING} runs wait to be judged already.", "Wait until some are."
                )
            self._tasks[run] = asyncio.create_task(self._work(run))
        return self.state(run)

    def state(self, run: str) -> dict[str, str]:
        """`state` is none, waiting, running, done, or failed by an `error` with its `remedy`."""
        task, error = self._tasks.get(run), None
        if task is None:
            state = "none"
        elif not task.done():
            state = "running" if run == self._current else "waiting"
        else:
            error = task.result()
            state = "failed" if error else "done"
        return {"state": state, "error": str(error or ""), "remedy": error.remedy if error else ""}

    async def aclose(self) -> None:
        """Stop the current job; replies of the model are kept, and not requested again."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self, run: str) -> RubricemError | None:
        async with self._turn:
            self._current = run
            try:
                await self._judge(run)
            except RubricemError as error:
                return error
            except Exception as error:
                # Nobody awaits this task: a fault that is not told here is told nowhere.
                return RubricemError(f"rubricem itself failed: {error!r}")
            finally:
                self._current = ""
        return None


STOPPED = "it was stopped before anything was found; resume it to go on"
DELETED = "The folder of this run was deleted while it went on; nothing of it is kept."


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much is done at the same time."""

    running: int
    waiting: int = 200
    """additional questions that may wait for a place, or for a person"""


class RunDesk:
    """Owns the model, the sources and the runs of one server; use it within `open`."""

    def __init__(
        self,
        settings: Settings,
        capacity: Capacity | None = None,
        *,
        shared: "RunDesk | None" = None,
        user: str = "",
        ledger: SpendingLedger | None = None,
    ) -> None:
        """`shared`: the desk whose model and places a user's desk uses; `ledger`: who pays."""
        self.settings = settings = requests.for_user(settings) if user else settings
        self.user = user
        self.users: list[RunDesk] = []
        """the desks that use this one's model"""
        self._ledger = ledger
        self._granting = asyncio.Lock()
        self.setup = setup_of(settings)
        self.capacity = capacity or Capacity(min(self.setup.model.at_once, 64))
        self.store = self.setup.stores.runs
        self.history = History(self.store)
        self.conversations = ConversationStore(settings.data_dir)
        self.researchers: Researchers = Researchers(
            self.setup.model, shared.researchers if shared else None
        )
        self.lessons = Lessons(self.setup, self.researchers)
        self.judging = JudgingJobs(self._judge)
        self.bank = self.setup.stores.open_bank()
        self.tools: ASGIApp | None = None
        """what serves MCP"""
        self.results: Sequence[Path] = ()
        """folders beside the data directory with collected or trained runs to show"""
        self.turns = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """by name, what is done for one request after another"""
        self.looking = threading.Lock()
        """held by the current scan of the runs: two at once would both take twice as long"""
        self.logs = feed.Logs(self.store)
        self.live: dict[str, Work] = {}
        self.closing = asyncio.Event()
        """set when the server ends, so that watchers are let go"""
        self.on_end: Callable[[str, str, Trajectory | None], None] = lambda *ended: None
        """called for each ended run with its key, its status, and its trajectory if there is one"""
        self._first = shared or self
        self._places = Places(self.capacity.running)
        if shared is not None:
            shared.users.append(self)
            self.on_end, self._places = shared.on_end, shared._places

    @asynccontextmanager
    async def open(self) -> AsyncIterator["RunDesk"]:
        """Resume unfinished runs; at the end leave those in progress to the next server."""

        async def read() -> None:
            # In turns, so that the server can end between two of them.
            with suppress(RubricemError):
                while await asyncio.to_thread(self.history.follow, seconds=1):
                    pass

        reading = asyncio.create_task(read())
        try:
            await self._take_up()
            yield self
        finally:
            self.close()
            tasks = [reading, *(work.task for work in self.live.values() if work.task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.judging.aclose()
            await self.lessons.aclose()
            await self.researchers.retire()

    async def _judge(self, run: str) -> None:
        await score_run(self.setup, run, self.researchers.reader)

    def close(self) -> None:
        for each in (self, *self.users):
            each.closing.set()
            each.logs.wake()

    def hides(self) -> requests.Hide:
        """What cuts the server's folders and keys out of a text for others than its owner."""
        return requests.hiding(self.settings, data=[self._first.settings.data_dir])

    def act(self) -> None:
        """What this context does from now on is done for the desk's user, who pays for it."""
        REQUESTER.set(Requester(self.user))
        PAYER.set(self._ledger)
        PERSON.set(self.user)

    async def adopt(self, settings: Settings) -> None:
        """Have other settings from the next question on, also for users; runs keep theirs."""
        first = Capacity(min(setup_of(settings).model.at_once, 64), self.capacity.waiting)
        if first != self.capacity:
            self.capacity, self._places = first, Places(first.running)
        former = [desk.researchers for desk in (self, *self.users)]
        for desk in (self, *self.users):
            own = settings.model_copy(update={"data_dir": desk.settings.data_dir})
            own = requests.for_user(own) if desk.user else own
            desk.settings, desk.setup = own, setup_of(own)
            desk.capacity, desk._places = self.capacity, self._places
            shared = None if desk is self else self.researchers
            desk.researchers = Researchers(desk.setup.model, shared)
            await desk.lessons.adopt(desk.setup, desk.researchers)
        for each in reversed(former):  # users', which share the first
            await each.retire()

    async def start(self, asked: requests.RunAsked, before: Background = NOTHING) -> Work:
        """Begin a run, or queue it; raises if it cannot be asked, with nothing stored.

        `before`: what was said elsewhere, unless it goes on with a conversation.
        """
        question, settings = check_question(asked.question), asked.change(self.settings)
        async with self._granting:
            setup = await asyncio.to_thread(setup_of, await self._within(settings))
            await asyncio.to_thread(setup.sources.check)
            self._see_room()
            name = asked.thread
            earlier = (await asyncio.to_thread(self.conversation, name)).runs if name else ()
            setup = await resolve_auto(setup)
            run = new_thread()
            ask = await asyncio.to_thread(reserve, setup, run, question, earlier)
            if before.turns and not earlier:
                await asyncio.to_thread(before.keep, self.store.folder_of(run))
            with refuse_as(HTTPStatus.NOT_FOUND):
                follows = await asyncio.to_thread(self.conversations.take_in, name, run, self.store)
            if self._ledger:
                await asyncio.to_thread(self._ledger.begin)
            return await self._begin(run, ask, setup, follows.id, attended=asked.attended)

    async def resume(
        self, run: str, budgets: requests.BudgetsAsked | None = None, attended: bool = False
    ) -> Work:
        """Continue a run that was interrupted, stopped, failed, or ran out of a budget."""
        await asyncio.to_thread(self.check_run, run)
        if requests.lead_of(self.store, run):
            raise conflict("This is a part of a larger research.", "Go on with the whole of it.")
        if run in self.live:
            raise conflict("The run is in progress already.", "Watch its events.")
        self._see_room()
        if await asyncio.to_thread(self.store.whole, run):
            raise conflict("The run has ended.", "Ask the question again.")
        if await asyncio.to_thread(self.store.running, run):
            raise conflict("Another process is working on the run.", "Wait until that has ended.")
        reading = partial(requests.read_request, self.settings, self.store, run, budgets)
        setup, ask = await asyncio.to_thread(reading)
        follows = await asyncio.to_thread(self.conversations.of_run, run)
        async with self._granting:
            wanted = {each: getattr(ask.budgets, name) or 0 for name, each in BUDGETS.items()}
            granted = await self._within(self.settings.model_copy(update=wanted))
            ask, thread = replace(ask, budgets=budgets_of(granted)), follows.id if follows else None
            return await self._begin(run, ask, setup, thread, again=True, attended=attended)

    async def _within(self, settings: Settings) -> Settings:
        """The settings within a user's remaining budget; Refused (429) if nothing is left."""
        if self._ledger is None:
            return settings
        live = [work.granted for work in self.live.values()]
        with refuse_as(HTTPStatus.TOO_MANY_REQUESTS):
            return await asyncio.to_thread(self._ledger.within, settings, live)

    async def see_budget(self) -> None:
        """Count another call of a model as a question of a user; Refused (429) if none is left."""
        async with self._granting:
            await self._within(self.settings)
            if self._ledger:
                await asyncio.to_thread(self._ledger.begin)

    def ahead(self, work: Work) -> int:
        """How many questions wait longer than one that waits, whoever asked them."""
        desks = (self._first, *self._first.users)
        others = (other for desk in desks for other in desk.live.values())
        return sum(other.state == "waiting" and other.began < work.began for other in others)

    async def stop(self, run: str) -> None:
        """End a run with what it has."""
        work = await self.at_work(run)
        work.stop.set()
        if work.state in ("waiting", "loading", "asking") and work.task is not None:
            work.task.cancel()

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[list[feed.LoggedEvent]]:
        """Events of a run after a given one, until its end; [] after a while without any.

        Ends early if the server ends: a client reconnects with the last number.
        """
        log = await self.log(run)
        while not self.closing.is_set():
            told = log.read(after)
            after = told[-1].id if told else after
            yield told
            if log.ended and after >= log.last:
                return
            await log.wait_for_news(after)

    async def log(self, run: str) -> feed.EventLog:
        """The events of a run; Refused (404) if there is none.

        One that ended elsewhere is told by its end; Refused (409) if it has not.
        """
        await asyncio.to_thread(self.check_run, run)
        log = await self.logs.of(run)
        if log.last == 0 and run not in self.live:
            if not await asyncio.to_thread(self.store.has_ended, run):
                raise conflict("This run has no events here.", "Resume it to continue it here.")
            ended = await asyncio.to_thread(self.store.load, run)
            said = await asyncio.to_thread(feed.last_events, ended)
            if log.last == 0:  # nobody else looked meanwhile
                log.end(said)
        return log

    async def at_work(self, run: str) -> Work:
        """A run that this process works on; Refused if it does not."""
        await asyncio.to_thread(self.check_run, run)
        if run not in self.live:
            raise conflict("The run is not in progress.", "Look at its report, or resume it.")
        return self.live[run]

    def check_run(self, run: str) -> None:
        """Raise Refused (404) if no run has this key. Reads files."""
        if run not in self.live:
            requests.check_known(self.store, run)

    def conversation(self, identifier: str) -> Conversation:
        """The conversation of this name; Refused (404) if there is none. Reads files."""
        with refuse_as(HTTPStatus.NOT_FOUND):
            return self.conversations.get(identifier)

    def _see_room(self) -> None:
        if len(self.live) >= self.capacity.running + self.capacity.waiting:
            raise too_many(
                f"{len(self.live)} runs are in progress or wait already.",
                "Wait until some have ended.",
            )

    async def _take_up(self) -> None:
        for run in await asyncio.to_thread(self.logs.find_unfinished):
            try:
                if await asyncio.to_thread(self.store.running, run):
                    # `rubricem ask --resume` goes on with it, and keeps its end.
                    continue
                if not await asyncio.to_thread(self.store.whole, run):
                    await self.resume(run)
                    continue
                said = feed.last_events(await asyncio.to_thread(self.store.load, run))
            except RubricemError as error:
                # It stays as it is, and can be resumed by whoever wants it.
                said = [feed.end_event(Status.FAILED.value, error.told())]
            (await self.logs.of(run)).end(said)

    async def _begin(
        self,
        run: str,
        ask: Ask,
        setup: Setup,
        conversation: str | None,
        *,
        again: bool = False,
        attended: bool = False,
    ) -> Work:
        log = await self.logs.of(run)
        began = await asyncio.to_thread(self.store.asked_at, run)
        if run in self.live:
            raise conflict("The run is in progress already.", "Watch its events.")
        budgets, model = ask.budgets, setup.model
        granted = Granted(budgets.tokens or 0, budgets.cost or 0.0, self._ledger)
        work = self.live[run] = Work(
            run, conversation, log, began, self._places, model, granted, ask.leads, attended
        )
        work.begin(again)
        work.task = asyncio.create_task(self._work(work, ask, setup))
        return work

    async def _work(self, work: Work, ask: Ask, setup: Setup) -> None:
        CURRENT.set(tell_to(work.hear))
        REQUESTER.set(requester := Requester(self.user))
        PERSON.set(self.user)
        PAYER.set(work.granted)
        try:
            said = await self._ask(work, ask, setup)
        except asyncio.CancelledError:
            if not work.stop.is_set():
                self.live.pop(work.run)
                raise
            said = [feed.end_event(Status.PARTIAL.value, STOPPED)]
        except RubricemError as error:
            said = [feed.end_event(Status.FAILED.value, error.told())]
        except Exception as error:
            # Nobody awaits this task: a fault that is not told here is told nowhere.
            logging.getLogger(__name__).error("run %s", work.run, exc_info=error)
            said = [feed.end_event(Status.FAILED.value, f"rubricem itself failed: {error!r}")]
        finally:
            work.leave()
            release(requester)
            self.act()
        work.conclude(said)
        # Before the end is told: whoever hears of it asks for the report at once.
        self.live.pop(work.run)
        work.end()
        self.on_end(work.run, str(work.outcome["status"]), work.trajectory)
        if work.trajectory is not None and setup.memory == "on":
            await self.lessons.after(work.trajectory)

    async def _ask(self, work: Work, ask: Ask, setup: Setup) -> list[feed.SaidEvent]:
        await work.go()
        person = work if work.attended or ask.approve_plan or ask.clarify else None
        async with self.researchers.of(setup) as researcher:
            work.be("running")
            trajectory = await researcher.ask(
                ask, work.run, work.hear, work.stop, person, work.steering
            )
        if not await asyncio.to_thread(self.store.holds, work.run):
            await asyncio.to_thread(self.store.discard, work.run)
            raise StoreError(DELETED, "Ask the question again.")
        work.trajectory = trajectory
        return await asyncio.to_thread(feed.last_events, trajectory)


async def desk_of(request: Request) -> RunDesk:
    """The desk of whoever asks, for whom this context goes on."""
    desk: RunDesk = await request.app.state.desks.of(request.scope.get(USER, OWNER))
    request.state.desk = desk
    desk.act()
    return desk


Desk = Annotated[RunDesk, Depends(desk_of)]
