"""Answers a question from beginning to end: runs the graph, journals it and saves the trajectory.

This is where a failure of the policy or of a store becomes a value (`Researcher.abandon`): a failed
run is a trajectory that says why, saved like any other; its journal lets it be continued later.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from rubricem.agent.models.policy import Policy
from rubricem.agent.models.tracing import trace_run
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.conversations import NOTHING, background_in
from rubricem.agent.research.graph import (
    Decoder,
    ResearchLimits,
    build_graph,
    recursion_limit,
    walk,
)
from rubricem.agent.research.recall import Recaller
from rubricem.agent.research.run import Run
from rubricem.agent.sources.fetch import addresses_in
from rubricem.agent.transcript.events import (
    BudgetSet,
    Event,
    Listener,
    PersonAsked,
    RunFinished,
    SourceProgress,
    StageStarted,
    ignore,
)
from rubricem.agent.transcript.question import (
    Ask,
    Budgets,
    Nobody,
    Person,
    check_question,
)
from rubricem.memory.errors import RubricemError, SettingsError, StoreError, import_extra
from rubricem.memory.runs import CallJournal, Runs, RunStore
from rubricem.memory.schema import (
    NO_USAGE,
    AnswerFormat,
    Decoding,
    PageReader,
    SearchTool,
    Status,
    Trajectory,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.graph.state import CompiledStateGraph

# Runs that begin at the same time stay in step, and queue for one core at the end of every turn.
STARTING = 4
_PLACES = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()


@dataclass
class Researcher:
    """Answers many questions with one policy, one decoder and one source."""

    policy: Policy
    decoder: Decoder
    decoding: Decoding
    search_tool: SearchTool
    store: Runs
    template: Ask
    """the limits of questions that are asked without their own"""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """the settings that shape an answer, stored with each run so that it can be resumed"""
    journal: CallJournal | None = None
    """one journal for all runs, if many run at once; None: each run has its own"""
    recaller: Recaller | None = None
    """None: nothing from the bank is put before a question"""
    pages: PageReader | None = None
    """None: pages are never opened"""
    beyond: bool = False
    """whether the web is searched; if not, only pages that the question names can be opened"""
    verifier: AnswerVerifier | None = None
    """None: citations are not checked"""
    person: Person | None = None
    """who decides, if a run is to ask a person; None: plans are approved unseen"""
    saver: Any = None
    """LangGraph's checkpointer; None: runs that ask a person have one in memory, others none"""

    def __post_init__(self) -> None:
        self._runs: dict[str, Run] = {}

    async def ask(
        self,
        ask: Ask,
        thread: str | None = None,
        listener: Listener = ignore,
        stop: asyncio.Event | None = None,
        person: Person | None = None,
    ) -> Trajectory:
        """Answer a question; given the thread of an interrupted run, continue that run.

        Setting `stop` ends the run with what it has so far; `person` is asked instead of the
        researcher's own. If the policy or a store fails, the trajectory is FAILED with the reason.
        """

        def answer(listener: Listener) -> Awaitable[Trajectory]:
            return self._answer(ask, thread or new_thread(), listener, stop, person)

        return await trace_run(answer, self.policy.name, ask.question, listener)

    async def _answer(
        self,
        ask: Ask,
        thread: str,
        listener: Listener,
        stop: asyncio.Event | None,
        person: Person | None,
    ) -> Trajectory:
        ended: list[Trajectory] = []

        def tell(event: Event) -> None:
            if isinstance(event, StageStarted | PersonAsked):
                beginning.close()  # frees the place, so that the next run may begin
            elif isinstance(event, RunFinished):
                ended.append(event.trajectory)
            listener(event)

        # Shared by all researchers of the event loop: each `research()` makes its own.
        places = _PLACES.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(STARTING))
        await places.acquire()
        with ExitStack() as beginning:
            beginning.callback(places.release)
            await asyncio.to_thread(self.store.create, thread, request_of(ask, self.choices))
            run = await self._start(thread, ask, tell)
            run.spending.stop = stop
            run.watched = listener is not ignore
            phrases = ask.budgets.phrases()
            if self.policy.reader is not None:
                # A model in this process costs no money.
                phrases.pop("cost", None)
            elif "cost" in phrases and not self.policy.priced:
                phrases["cost"] += " (not counted: no price is known)"
            searches = f"{ask.tool_calls} search{'' if ask.tool_calls == 1 else 'es'}"
            listener(BudgetSet((searches, *phrases.values())))
            try:
                await self._through(run, person or self.person or Nobody())
            except RubricemError:
                # If the failed run was kept as a trajectory, that is returned.
                if not ended:
                    raise
            finally:
                if (left := self._runs.get(thread)) is not None:
                    self._release(left)
        return ended[0]

    async def _through(self, run: Run, person: Person) -> None:
        """Run the graph, asking the person at each of its interrupts."""
        if self.saver is None and not (run.ask.approve_plan or run.ask.clarify):
            await walk(self, run)
            return
        position: Any = {"run": run.thread, "path": []}
        config: Any = {
            "recursion_limit": recursion_limit(run.ask.tool_calls, run.ask.review_returns)
        }
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.types import Command

        graph = self.graph(self.saver or InMemorySaver())
        config["configurable"] = {"thread_id": run.thread}
        while pauses := (await graph.ainvoke(position, config)).get("__interrupt__"):
            run.listener(PersonAsked(waiting=True))
            run.spending.stand()
            try:
                decision = await person.decide(pauses[0].value)
            finally:
                run.listener(PersonAsked(waiting=False))
            position = Command(resume=decision)

    def graph(self, saver: Any = None) -> "CompiledStateGraph[Any, Any, Any, Any]":
        """The graph over this researcher's runs, for callers that drive it themselves."""

        async def own() -> Researcher:
            return self

        return build_graph(own, saver)

    async def begin(
        self,
        question: str,
        answer_format: AnswerFormat,
        limits: ResearchLimits,
        earlier: Sequence[str] = (),
    ) -> str:
        """Begin a run for a caller that drives the graph itself; returns its key.

        `earlier`: the earlier runs of its conversation.
        """
        ask = replace(self.template, question=check_question(question), answer_format=answer_format)
        ask = replace(_limit(ask, limits), earlier=tuple(earlier))
        thread = new_thread()
        await asyncio.to_thread(self.store.create, thread, request_of(ask, self.choices))
        await self._start(thread, ask, ignore)
        return thread

    async def at(self, key: str, path: Sequence[str]) -> Run:
        held = self._runs.get(key)
        if held is not None:
            if held.path == [*path]:
                return held
            self._release(held)
        request = await asyncio.to_thread(self.store.request, key)
        return await self._start(key, ask_of(request), held.listener if held else ignore)

    async def finish(self, run: Run) -> Trajectory:
        """Save the ended run in the data directory and release its resources."""
        trajectory = await self.keep(run.trajectory(uuid.uuid4().hex))
        self._release(run)
        run.listener(RunFinished(trajectory))
        return trajectory

    async def keep(self, trajectory: Trajectory) -> Trajectory:
        """Save an ended run, wherever it was executed, and record what it had recalled."""
        trajectory = await asyncio.to_thread(self._save, trajectory)
        if trajectory.status is not Status.FAILED:
            if trajectory.recalled and self.recaller is not None:
                await self.recaller.note_use(trajectory)
            if self.journal is not None:
                self.journal.forget(trajectory.thread)
        return trajectory

    async def abandon(self, run: Run, error: BaseException) -> None:
        """Release a run in which a node failed; it can be continued later from its journal.

        If the policy or a store failed, the run so far is saved with the reason, unless the store
        is the one shared by all runs: then they all fail.
        """
        self._release(run)
        everyones = isinstance(error, StoreError) and run.journal is self.journal
        if isinstance(error, RubricemError) and not everyones:
            run.usage += error.usage or NO_USAGE
            run.end_early(error.told(), Status.FAILED, by="failure")
            await self.finish(run)

    async def _start(self, thread: str, ask: Ask, listener: Listener) -> Run:
        if thread in self._runs:
            raise StoreError(
                f"the thread {thread!r} is being answered already",
                "Wait until it has ended, or ask under another thread name.",
            )
        journal = self.journal
        if journal is None:
            journal = await asyncio.to_thread(self.store.journal, thread)
        background = NOTHING
        if ask.earlier:
            assert isinstance(self.store, RunStore), "what follows other runs is kept beside them"
            background = await asyncio.to_thread(
                background_in, self.store.folder / thread, self.store, ask.earlier, keep=True
            )
        for note in background.notes:
            listener(SourceProgress(note))
        asked = "\n".join([*background.questions, ask.question])
        run = Run(
            ask,
            thread,
            self.decoding,
            self.policy,
            self.search_tool,
            journal,
            listener,
            self.recaller,
            self.pages if self.beyond or addresses_in(asked) else None,
            background,
            self.verifier,
        )
        self._runs[thread] = run
        return run

    def _save(self, trajectory: Trajectory) -> Trajectory:
        """Save the ended run; if it repeats the saved one word for word, it keeps that one's id."""
        # The saved run may be damaged, but is about to be replaced.
        with suppress(RubricemError):
            if self.store.has_ended(trajectory.thread):
                before = self.store.load(trajectory.thread)
                same = before.transcript() == trajectory.transcript()
                if same and before.status is trajectory.status:
                    trajectory = trajectory.model_copy(update={"id": before.id})
        self.store.save(trajectory)
        return trajectory

    def _release(self, run: Run) -> None:
        if self._runs.get(run.thread) is run:
            del self._runs[run.thread]
            if run.journal is not self.journal:
                run.journal.close()


def request_of(ask: Ask, choices: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a question so that another process can continue it."""
    asked = asdict(ask)
    budgets = asked.pop("budgets")
    asked["earlier"] = list(ask.earlier)
    return {"ask": asked, "choices": dict(choices), "budgets": budgets}


def ask_of(request: Mapping[str, Any]) -> Ask:
    """The question of a stored request; one from before budgets existed has none."""
    fields = dict(request["ask"])
    fields["answer_format"] = AnswerFormat(fields["answer_format"])
    fields["earlier"] = tuple(fields.get("earlier", ()))
    fields.pop("branch", None)  # of earlier versions
    return Ask(**fields, budgets=Budgets(**request.get("budgets", {})))


def _limit(ask: Ask, limits: ResearchLimits) -> Ask:
    """The question under these limits; raises SettingsError if one of them is invalid."""
    try:
        given: dict[str, Any] = {**TypeAdapter(ResearchLimits).validate_python(limits)}
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}.", "Correct it in the context."
        ) from error
    names = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
    spent = {name: given.pop(key) or None for name, key in names.items() if key in given}
    return replace(ask, **given, budgets=replace(ask.budgets, **spent))


def new_thread() -> str:
    return uuid.uuid4().hex[:12]


SCHEMES = ("postgresql://", "postgres://")


@asynccontextmanager
async def open_saver(address: str) -> "AsyncIterator[AsyncPostgresSaver]":
    """A saver over the database at the address; missing tables are created.

    Raises SettingsError if the address is not PostgreSQL's or the driver is missing, StoreError if
    the database cannot be used.
    """
    if not address.startswith(SCHEMES):
        raise SettingsError(
            "checkpoints names no PostgreSQL database.",
            "Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        )
    Error = import_extra("psycopg", "postgres", "A database of checkpoints").Error
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    # Otherwise anyone who can write to the database could have this process call what they name.
    plain = JsonPlusSerializer(allowed_msgpack_modules=None)
    opening = AsyncPostgresSaver.from_conn_string(address, serde=plain)
    try:
        saver = await opening.__aenter__()
        await saver.setup()
    except Error as cause:
        # The driver's message may contain the address with its password.
        raise StoreError(
            f"the database of the checkpoints cannot be used ({type(cause).__name__}).",
            "See that it runs, that the address is right and that the user may create tables.",
        ) from cause
    try:
        yield saver
    finally:
        await opening.__aexit__(None, None, None)
