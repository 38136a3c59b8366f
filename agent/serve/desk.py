"""The desk: every run that this server works on, whoever asked for it and whoever watches.

A run is a task of its own. Nobody's connection is part of it: it is started, stopped, answered
and resumed by its key, and what happens in it is told through its event log. Runs beyond those
that go on at once wait for a place. What a server that ended had not finished goes on when the
next one starts, from the journals: nothing that had finished is done again.

Runs that have ended, as those who look at them over HTTP name them.

What is asked over HTTP, and the settings under which it is answered.

A source is one that the server was started with, a built-in one, or an uploaded folder: nobody
reads another folder of this machine, or has an address searched, by naming it in a request.

One run while this process works on it: its state, who is asked, and what is told of it.

The person who asked, somewhere behind a page: asked by an event, answered by a request.

The first answer counts; whoever comes later, from another tab, is told so.

The settings that a run of before goes on with: what shaped its answer stays as it was.

The researchers of a server: one model for all, one researcher for each way to answer.

The model is opened by the first question and stays; sources are opened once for each set of
them. What they have to say while they work goes to the run that is being worked on.

What a server learns from its runs: behind the answers with a server's model, else when asked to.

Runs wait in their folders, as those of `rubricem ask` do. Those of another model are left to
`rubricem learn`: a model reflects on what it wrote itself.
"""

import asyncio
import gc
import json
import logging
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.learning.lessons import (
    LearningQueue,
    Lesson,
    RunLearner,
    enter,
    failed,
    learn,
    local_model,
    models_of,
    queued,
)
from rubricem.agent.learning.scoring import open_judge_model
from rubricem.agent.models.policy import Policy
from rubricem.agent.research.events import BudgetSet, Event, Listener, SourceProgress, ignore
from rubricem.agent.research.graph import ShownPlan, as_text, from_text
from rubricem.agent.research.question import Ask, checked
from rubricem.agent.research.researcher import Researcher, ask_of, new_thread
from rubricem.agent.research.setup import (
    CHOICES,
    budgets_of,
    built,
    choices_of,
    close_sources,
    decoding_of,
    open_bank,
    open_policy,
    open_sources,
    reserve,
    settled,
    template_of,
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
from rubricem.agent.settings import EmbeddedChoice, ServerChoice, Settings, choose_policy
from rubricem.agent.sources.choice import AUTO, PYTHON, SCHOLAR, WEB, is_folder
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.interfaces import SearchTool
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Status, Trajectory
from rubricem.memory.text import one_line, storable

BUILT_IN = (PYTHON, WEB, SCHOLAR, AUTO)
UPLOADS = "uploads"
"""folder of the data directory whose folders can be named as sources"""
UPLOADED = "upload:"
"""prefix of such a source's name"""
MOST_SOURCES = 8


class BudgetsAsked(BaseModel):
    """Limits of one run; 0: no limit; None: those of the server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_seconds: float | None = Field(default=None, ge=0, le=10**7, allow_inf_nan=False)
    max_total_tokens: int | None = Field(default=None, ge=0, le=10**12)
    max_cost: float | None = Field(default=None, ge=0, le=10**6, allow_inf_nan=False)


class RunAsked(BudgetsAsked):
    """A question, and what shall differ from the server's settings; None: nothing."""

    question: str
    format: AnswerFormat | None = None
    source: tuple[Annotated[str, Field(max_length=1000)], ...] | None = Field(
        default=None, min_length=1, max_length=MOST_SOURCES
    )
    thread: str | None = Field(default=None, max_length=64)
    """a conversation that the question belongs to; None: a new one"""
    approve_plan: bool | None = None
    clarify: bool | None = None
    tool_calls: int | None = Field(default=None, ge=1, le=1000)
    verify: Literal["off", "mark", "repair"] | None = None


class Answered(BaseModel):
    """A person's answer to what a run asks them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(max_length=64)
    decision: Literal["approve", "reject", "edit", "answer"]
    text: str = Field(default="", max_length=20_000)
    plan: dict[str, Any] | None = None
    """an edited plan by its parts, in the place of its text"""


def settings_for(settings: Settings, asked: RunAsked) -> Settings:
    """The server's settings with what the question changes in them."""
    changed = asked.model_dump(
        exclude_none=True, exclude={"question", "thread", "format", "source"}
    )
    if asked.format is not None:
        changed["answer_format"] = asked.format
    if asked.source is not None:
        known = sources(settings)
        changed["source"] = tuple(dict.fromkeys(_known(name, known) for name in asked.source))
    return settings.model_copy(update=changed)


def sources(settings: Settings) -> dict[str, str]:
    """The names that a question may give as its sources, and what each stands for."""
    named = {shown_name(name): name for name in settings.source}
    folder = settings.data_dir / UPLOADS
    uploads = {
        UPLOADED + path.name: str(path)
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    }
    return {**named, **{name: name for name in BUILT_IN}, **uploads}


def shown_name(name: str) -> str:
    """The name of a source without the folders that it lies in, which concern nobody else."""
    return Path(os.path.abspath(os.path.expanduser(name))).name if is_folder(name) else name


def _known(name: str, known: dict[str, str]) -> str:
    if name not in known:
        raise SettingsError(
            f"There is no source {name!r} on this server.",
            f"Name one of {', '.join(known)}; more are given by rubricem serve --source.",
        )
    return known[name]


Tell = Callable[[str, dict[str, Any]], None]


class DeskPerson:
    """A `Person` of one run."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open: tuple[str, str, asyncio.Future[dict[str, Any]]] | None = None
        """what is being asked: its id, its kind, and where the decision is waited for"""

    @property
    def asked(self) -> bool:
        return self._open is not None

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        identifier, kind = uuid.uuid4().hex[:12], "clarify" if asked["ask"] == "clarify" else "plan"
        decision: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open = (identifier, kind, decision)
        self._tell("ask", {"id": identifier, "kind": kind, **_shown(asked)})
        try:
            return await decision
        finally:
            self._open = None

    def answer(self, answered: Answered) -> None:
        """Take an answer; raises Refused (409) where nothing waits for this one."""
        if self._open is None or self._open[0] != answered.id or self._open[2].done():
            raise conflict(
                "This was answered already, or is not asked any more.",
                "Reload the run to see how it went on.",
            )
        _, kind, decision = self._open
        decided = _reply(answered) if kind == "clarify" else _plan_decision(answered)
        decision.set_result(decided)
        self._tell("answered", {"id": answered.id, "decision": answered.decision})


def _shown(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The question back, or the plan: as text, and by its parts."""
    if asked["ask"] == "clarify":
        return {"text": asked["doubt"]}
    plan = ShownPlan.model_validate(asked)
    return {"text": as_text(plan), **plan.model_dump(mode="json")}


def _reply(answered: Answered) -> dict[str, Any]:
    if answered.decision != "answer":
        raise SettingsError(
            f"A question back cannot be decided by {answered.decision!r}.",
            'Send the decision "answer" with a text; an empty one passes it over.',
        )
    return {"text": storable(answered.text)}


def _plan_decision(answered: Answered) -> dict[str, Any]:
    if answered.decision == "approve":
        return {"verdict": "approve"}
    if answered.decision == "reject":
        return {"verdict": "reject", "reason": storable(answered.text)}
    if answered.decision == "edit":
        return {"verdict": "edit", "plan": _edited(answered).model_dump(mode="json")}
    raise SettingsError(
        "A plan is not a question to be answered.",
        'Send the decision "approve", "reject" or "edit".',
    )


def _edited(answered: Answered) -> ShownPlan:
    try:
        plan = (
            ShownPlan.model_validate(answered.plan) if answered.plan else from_text(answered.text)
        )
    except ValidationError as error:
        raise SettingsError(
            f"The edited plan cannot be read: {error.errors()[0]['msg']}.",
            "Send its rubric (a list), research_plan and query.",
        ) from error
    if not any(item.strip() for item in plan.rubric):
        raise SettingsError(
            "The edited plan has no rubric.", "Keep the line '## Rubric' and an item below it."
        )
    return ShownPlan.model_validate_json(storable(plan.model_dump_json()))


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


_OF_THE_MODEL = ("model", "base_url")
BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget of a run -> its setting"""


def asked_before(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> tuple[Settings, Ask]:
    """What a run was asked, and the settings that it goes on with.

    Raises StoreError for a request that is damaged, or written by a version that knows more.
    """
    try:
        settings = settings_of_run(settings, request, budgets)
        return settings, replace(ask_of(request), budgets=budgets_of(settings))
    except RubricemError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            "What the run was asked cannot be read.", "Ask the question anew."
        ) from error


def settings_of_run(
    settings: Settings, request: Mapping[str, Any], budgets: BudgetsAsked | None
) -> Settings:
    """The server's settings with those of the run in them; Refused (409) where they do not fit.

    Budgets are those of the run but where others are given.
    """
    choices = request["choices"]
    kept = {
        name: choices[name] for name in CHOICES if name in choices and name not in _OF_THE_MODEL
    }
    kept["source"] = tuple(kept.get("source", settings.source))
    given = budgets.model_dump(exclude_none=True) if budgets else {}
    settings = settings.model_copy(update={**kept, **limits_of(request), **given})
    now = choices_of(settings)
    if any(now.get(name) != value for name, value in choices.items()):
        raise conflict(
            "The run was asked of another model, or with settings that this server does not have.",
            "Go on with it by rubricem ask --resume and its name.",
        )
    return settings


def limits_of(request: Mapping[str, Any]) -> dict[str, float]:
    """What a run may spend, by setting; 0: no limit."""
    kept = request.get("budgets", {})
    return {BUDGETS[name]: value or 0 for name, value in kept.items() if name in BUDGETS}


MOST = 8
"""researchers held; beyond, the one used least recently goes"""
CURRENT: ContextVar[Listener] = ContextVar("CURRENT", default=ignore)
"""the listener of the run that this task works on"""


def tell_current(event: Event) -> None:
    CURRENT.get()(event)


@dataclass
class _Held:
    """A researcher, its sources, and how many runs use it now."""

    researcher: Researcher
    search_tool: SearchTool
    users: int = 0


class Researchers:
    """Opens what runs need; close it once none goes on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
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
    async def of(self, settings: Settings) -> AsyncIterator[Researcher]:
        """The researcher for these settings, which have the server's model.

        Raises what opening raises; the next that wants it tries again.
        """
        choices = await asyncio.to_thread(choices_of, settings)
        async with self._lock:
            held = await self._hold(json.dumps(choices, sort_keys=True), settings, choices)
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
            await close_sources(held.search_tool)
        await self._stack.aclose()

    async def _hold(self, key: str, settings: Settings, choices: dict[str, Any]) -> _Held:
        if key not in self._held:
            self._held[key] = await self._opened(settings, choices)
        held = self._held[key]
        held.users += 1
        self._held.move_to_end(key)
        idle = [name for name, each in self._held.items() if not each.users]
        for name in idle[: max(len(self._held) - MOST, 0)]:
            await close_sources(self._held.pop(name).search_tool)
        return held

    async def _opened(self, settings: Settings, choices: dict[str, Any]) -> _Held:
        decoding = decoding_of(settings, choose_policy(settings))
        # A folder that holds nothing is told before weights are fetched for it.
        tool = await open_sources(settings, tell_current)
        try:
            for problem in await tool.prepare():
                tell_current(SourceProgress(problem))
            policy = await self._opened_policy()
        except BaseException:
            await close_sources(tool)
            raise
        template = template_of(settings)
        return _Held(built(settings, policy, decoding, tool, template, choices, tell_current), tool)

    async def _opened_policy(self) -> Policy:
        if self._policy is None:
            opened = open_policy(self._settings, choose_policy(self._settings), tell_current)
            self._policy = await self._stack.enter_async_context(opened)
            # What is loaded by now stays. Looked through for garbage again and again, it holds
            # everything up for a quarter of a second each time.
            gc.freeze()
        return self._policy


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
        self._learner: RunLearner | None = None
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

    async def _opened(self) -> RunLearner:
        if self._learner is None:
            policy = await self._researchers.opened()
            opening = open_judge_model(self._settings, local_model(policy), self._hear)
            model = await self._stack.enter_async_context(opening)
            bank = open_bank(self._settings, self._hear)
            self._learner = RunLearner(self._settings, policy, model, bank, self._hear)
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
                said = [finished(Status.FAILED.value, error.told())]
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
            work = Work(run, thread, log, began.timestamp(), RunPlace(self._places))
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
        if work.trajectory is not None and settings.memory == "on":
            await self.lessons.after(work.trajectory)

    async def _answered(self, work: Work, ask: Ask, settings: Settings) -> list[SaidEvent]:
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
