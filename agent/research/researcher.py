"""Answers a question from beginning to end: drives the graph, journals it, saves the trajectory.

LangGraph runs every run: the nodes are those of `graph`, and its state is the position alone. A
run that asks a person has a saver in memory, from which LangGraph goes on after the answer; what
survives a kill is the run's journal.

This is where a failure of the policy or of a store becomes a value (`Researcher.abandon`): a failed
run is a trajectory that says why, saved like any other; its journal lets it be continued later.
"""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from rubricem.agent.models.policy import Policy
from rubricem.agent.models.tracing import trace_run
from rubricem.agent.record.conversations import NOTHING, background_in
from rubricem.agent.record.history import usual_cost
from rubricem.agent.reports.report import markdown
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.deep.lead import LeadDecoder
from rubricem.agent.research.deep.parts import (
    Answer,
    Inquiry,
    Steering,
    ask_of_part,
    asked_in,
    must_go_on,
)
from rubricem.agent.research.graph import (
    MOST_STEPS,
    NODES,
    WAYS,
    Decoder,
    actions_of,
    following,
    take_step,
)
from rubricem.agent.research.outlet import Outlet
from rubricem.agent.research.recall import Recaller
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import about, reading_of
from rubricem.agent.sources.fetch import addresses_in
from rubricem.agent.sources.index import of_kind, services
from rubricem.agent.transcript.events import (
    BudgetSet,
    Event,
    InvestigationEvent,
    Listener,
    PersonAsked,
    RunFinished,
    SourceProgress,
    TextWritten,
    UsageCounted,
    ignore,
    line_of,
)
from rubricem.agent.transcript.question import (
    INVESTIGATE,
    PRIVATE,
    PUBLIC,
    Ask,
    Nobody,
    OutOfTime,
    Person,
    ShownPlan,
    check_question,
)
from rubricem.memory.errors import RubricemError, SourceError, StoreError
from rubricem.memory.runs import Journal, RunStore
from rubricem.memory.schema import (
    NO_USAGE,
    Decoding,
    PageReader,
    SearchTool,
    Status,
    Trajectory,
)

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

# Runs that begin at the same time stay in step, and queue for one core at the end of every turn.
STARTING = 4
_PLACES = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()


class Position(TypedDict, total=False):
    """The state that LangGraph keeps: small, and enough to find everything else."""

    run: str
    query: str | None
    beside: int
    """of an investigation: how many are begun with it, itself included"""
    question: str
    """input of a caller that drives the graph itself: a new run begins with it"""
    research_plan: str
    rubric: tuple[str, ...]
    sources: tuple[dict[str, str], ...]
    """updates for such a caller: id, title and location of what was found so far"""
    report: str
    """output for such a caller: the cited report in Markdown"""
    status: str


@dataclass
class Researcher:
    """Answers many questions with one policy, one decoder and one source."""

    policy: Policy
    decoder: Decoder
    decoding: Decoding
    search_tool: SearchTool
    store: RunStore
    template: Ask
    """the limits of questions that are asked without their own"""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """the settings that shape an answer, stored with each run so that it can be resumed"""
    journal: Journal | None = None
    """one journal for all runs, if many run at once; None: each run has its own"""
    recaller: Recaller | None = None
    """None: nothing from the bank is put before a question"""
    pages: PageReader | None = None
    """None: pages are never opened"""
    beyond: bool = False
    """whether the web is searched; if not, only pages that the question names can be opened"""
    verifier: AnswerVerifier | None = None
    """None: citations are not checked"""
    outlet: Outlet | None = None
    """of an investigation: what it knows from its lead"""
    runs: dict[str, Run] = field(default_factory=dict, init=False, repr=False)
    """those that go on, by their names"""

    async def ask(
        self,
        ask: Ask,
        thread: str | None = None,
        listener: Listener = ignore,
        stop: asyncio.Event | None = None,
        person: Person | None = None,
        steering: Steering | None = None,
    ) -> Trajectory:
        """Answer a question; given the thread of an interrupted run, continue that run.

        Setting `stop` ends the run with what it has so far. `person` decides where the run asks;
        None: plans are approved unseen; `steering` has what they tell a lead meanwhile. If the
        policy or a store fails, the trajectory is FAILED with the reason.
        """

        async def answer() -> Trajectory:
            run = await self._start(thread or new_thread(), ask, listener, stop)
            run.consents.attended = person is not None and not isinstance(person, Nobody)
            try:
                if ask.leads and steering:
                    run.parts.steering = steering
                await run.parts.steering.open(run.parts, run.journal, listener)
                await self._drive(run, person or Nobody())
            except RubricemError:
                # If the failed run was kept as a trajectory, that is returned.
                if run.ended is None:
                    raise
            finally:
                self._release(run)
            assert run.ended is not None, "the graph ends with a node that keeps it"
            return run.ended

        return await trace_run(answer, self.policy.name)

    async def _drive(self, run: Run, person: Person) -> None:
        """Run the graph, asking the person at each of its interrupts."""
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.types import Command

        asks = run.ask.approve_plan or run.ask.clarify or run.consents.attended
        graph = self.graph(InMemorySaver()) if asks else self._graph
        position: Any = {"run": run.thread}
        config: Any = {
            "recursion_limit": MOST_STEPS,
            "configurable": {"thread_id": run.thread},
        }
        while pauses := (await graph.ainvoke(position, config)).get("__interrupt__"):
            run.listener(PersonAsked(waiting=True))
            run.spending.pause()
            try:
                asked = person.decide(pauses[0].value)
                decision = await run.spending.limit_time(asked, timed=False)
            except OutOfTime:
                decision = {}
            finally:
                run.listener(PersonAsked(waiting=False))
            # LangGraph takes what is empty for no decision at all.
            position = Command(resume=decision or {"text": ""})

    @cached_property
    def _graph(self) -> "CompiledStateGraph[Any, Any, Any, Any]":
        return self.graph()

    def graph(self, saver: Any = None) -> "CompiledStateGraph[Any, Any, Any, Any]":
        """The graph over this researcher's runs, compiled, which takes 5 ms of CPU.

        A caller that drives it itself gives a `question`, and reads `report` and `status`.
        """
        from langgraph.graph import START, StateGraph

        graph: StateGraph[Any, Any, Any, Any] = StateGraph(Position)
        graph.add_edge(START, NODES[0])
        graph.add_node(INVESTIGATE, self._investigate)
        graph.add_edge(INVESTIGATE, "tools")
        for name, after in WAYS.items():
            # LangGraph would look through the code of a function for graphs, for 2 ms.
            graph.add_node(name, partial(self._take, name))
            if len(after) == 1:
                graph.add_edge(name, *after)
            else:
                asked = [INVESTIGATE] * ("tools" in after)
                graph.add_conditional_edges(name, self._way_from(name), [*after, *asked])
        return graph.compile(checkpointer=saver)

    def _way_from(self, name: str) -> Any:
        from langgraph.types import Send

        async def way(state: Position) -> Any:
            # Async, since LangGraph runs a plain function in another thread.
            after, run = following(name, state.get("query")), self.runs.get(state["run"])
            if name == "consent" and run is not None and run.asking:
                return name
            done = run is None or run.answered or run.cut_in is not None
            if run is None or done or after != "tools" or not run.ask.leads:
                return after
            actions = actions_of(run, state.get("query"))
            new = run.parts.expect(actions, run.ask.calls - run.tool_calls)
            share = {"run": run.thread, "beside": len(new)}
            return [Send(INVESTIGATE, {**share, "query": each}) for each in new] or after

        return way

    async def _investigate(self, state: Position) -> None:
        """One investigation of a lead, which LangGraph has worked on beside the others."""
        run = self._held(state["run"])
        part = run.parts.by_name[asked_in(state.get("query") or "").name]
        left, stop = run.spending.left(), run.spending.stop
        ask = ask_of_part(run.ask, part, left, state.get("beside", 1), run.text)
        ask = replace(ask, earlier=run.parts.before(part))

        def hear(event: Event) -> None:
            run.listener(event)
            if isinstance(event, InvestigationEvent) and isinstance(event.event, UsageCounted):
                run.tell_usage()

        if part.asked.kind == PUBLIC:
            told = tuple(item for item in ask.serves if not run.outlet.strange(item))
            ask = replace(ask, serves=told)
        await run.parts.work(part, ask, self._answer_part(run, part), hear, stop)

    def _answer_part(self, run: Run, part: Inquiry) -> Answer:
        """Answers below the lead's run; one that ended already, in a run before, is read back."""
        assert isinstance(self.store, RunStore), "what is collected is not led"
        assert isinstance(self.decoder, LeadDecoder), "nothing else leads"
        store = self.store.below(run.thread)
        question, kind = part.asked.question, part.asked.kind if run.parts.mixed else ""
        tool = of_kind(self.search_tool, kind)
        below = replace(
            self,
            decoder=self.decoder.investigator,
            search_tool=tool,
            pages=None if kind == PRIVATE else self.pages,
            store=store,
            recaller=None,
            outlet=run.outlet.below(question, services(tool)),
            verifier=self.verifier and AnswerVerifier("mark", None),
        )

        async def answer(
            ask: Ask, thread: str, listener: Listener, stop: asyncio.Event
        ) -> Trajectory:
            if await asyncio.to_thread(store.has_ended, thread):
                ended = await asyncio.to_thread(store.load, thread)
                if stop.is_set() or not must_go_on(ended):
                    listener(RunFinished(ended))
                    return ended
            if why := run.outlet.refusal(question, services(tool)):
                raise SourceError(why)
            run.spending.live()
            return await below.ask(ask, thread, listener, stop)

        return answer

    async def _take(self, name: str, state: Position) -> Position:
        """The node of this name."""
        from langgraph.errors import GraphBubbleUp

        question = state.get("question")
        if name == NODES[0] and (question or "run" not in state):
            ask = replace(self.template, question=check_question(question or ""))
            run = await self._start(new_thread(), ask, ignore)
        else:
            run = self._held(state["run"])
        if question:
            run.listener = _streaming()
        try:
            query = await take_step(run, self.decoder, name, state.get("query"))
            position: Position = {"run": run.thread, "query": query}
            if name != NODES[-1]:
                return position | _shown(run) if question else position
            trajectory = await self.finish(run)
            report = markdown(trajectory) if question else ""
            return {**position, "report": report, "status": trajectory.status}
        except GraphBubbleUp:
            # A person is asked; the run stays as it is until the node is run again.
            raise
        except BaseException as error:
            await self.abandon(run, error)
            raise

    def _held(self, key: str) -> Run:
        if key not in self.runs:
            raise StoreError(
                f"The run {key!r} is not open in this process.",
                f"Go on with it by: rubricem ask --resume {key}",
            )
        return self.runs[key]

    async def finish(self, run: Run) -> Trajectory:
        """Save the ended run in the data directory and release its resources."""
        reading = {"reading": reading_of(self.search_tool)}
        run.ended = await self.keep(run.trajectory(uuid.uuid4().hex).model_copy(update=reading))
        self._release(run)
        run.listener(RunFinished(run.ended))
        return run.ended

    async def keep(self, trajectory: Trajectory) -> Trajectory:
        """Save an ended run, wherever it was executed, and record what it had recalled."""
        trajectory = await asyncio.to_thread(self._save, trajectory)
        if not trajectory.failed:
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
            run.spending.usage += error.usage or NO_USAGE
            run.end_early(error.told(), Status.FAILED, by="failure")
            await self.finish(run)

    async def _start(
        self, thread: str, ask: Ask, listener: Listener, stop: asyncio.Event | None = None
    ) -> Run:
        """Store what is asked, and open a run for it."""
        if thread in self.runs:
            raise StoreError(
                f"the thread {thread!r} is being answered already",
                "Wait until it has ended, or ask under another thread name.",
            )
        # Shared by all researchers of the event loop: each `research()` makes its own.
        places = _PLACES.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(STARTING))
        with ExitStack() as failing:
            async with places:
                await asyncio.to_thread(self.store.create, thread, request_of(ask, self.choices))
                if (journal := self.journal) is None:
                    journal = await asyncio.to_thread(self.store.journal, thread)
                    failing.callback(journal.close)
                run = await self._open(thread, ask, listener, journal)
            run.spending.stop = stop
            # A model in this process costs no money.
            limits = ask.limits(self.policy.priced if self.policy.reader is None else None)
            usual = None
            if listener is not ignore and self.journal is None and not ask.whole:  # somebody reads
                usual = await asyncio.to_thread(usual_cost, self.store, self.choices, ask)
            listener(BudgetSet(limits, ask.budgets, usual))
            failing.pop_all()
        self.runs[thread] = run
        return run

    async def _open(self, thread: str, ask: Ask, listener: Listener, journal: Journal) -> Run:
        background = NOTHING
        if isinstance(self.store, RunStore):  # what is collected follows nothing
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
            outlet=self.outlet or Outlet(),
            restored=await asyncio.to_thread(self.store.is_restored, thread),
        )
        if run.parts.mixed:
            private = "; ".join(about(of_kind(self.search_tool, PRIVATE)))
            told = f"what is read in {private} is kept out of queries to public services"
            listener(SourceProgress(f"private and public sources: {told}"))
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
        if self.runs.get(run.thread) is run:
            del self.runs[run.thread]
            if run.journal is not self.journal:
                run.journal.close()


def _streaming() -> Listener:
    """Gives a caller of the graph what is written and done, in the `custom` mode of its stream."""
    from langgraph.config import get_stream_writer

    write = get_stream_writer()

    def hear(event: Event) -> None:
        if isinstance(event, TextWritten):
            write({"text": event.text})
        elif line := line_of(event):
            write({"doing": line})

    return hear


def _shown(run: Run) -> Position:
    """What a caller of the graph is told after each step."""
    plan = ShownPlan.of(run.text, "")
    sources = (s.model_dump(include={"id", "title", "location"}) for s in run.sources.values())
    return {"research_plan": plan.research_plan, "rubric": plan.rubric, "sources": tuple(sources)}


_ASK = TypeAdapter(Ask)


def request_of(ask: Ask, choices: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a question so that another process can continue it."""
    asked = _ASK.dump_python(ask, mode="json")
    return {"budgets": asked.pop("budgets"), "ask": asked, "choices": dict(choices)}


def ask_of(request: Mapping[str, Any]) -> Ask:
    """The question of a stored request; one from before budgets existed has none."""
    return _ASK.validate_python({**request["ask"], "budgets": request.get("budgets", {})})


def new_thread() -> str:
    return uuid.uuid4().hex[:12]
