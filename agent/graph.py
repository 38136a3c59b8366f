"""The research graph: recall, plan, research, tools, review, answer, verify, as LangGraph nodes.

Two more nodes hold only an interrupt, for runs that a person takes part in: `clarify` before the
plan, `approve` after it. Runs that nobody takes part in go through a graph whose nodes take
several steps each: with a superstep for each step, LangGraph took a quarter of a turn's CPU time.

The nodes hold no logic of their own: a decoder writes the stages, a `Run` holds the transcript,
and the journal makes every finished call repeatable for free. LangGraph's state is position
only: which run, the way through the nodes so far, the query to be searched next. Where the run
in memory stands elsewhere, because a saver brings it back in another process or because a node
failed half-way, its transcript is rebuilt by walking that way again, the journal answering
every call.

Nothing here, or imported from here, may know the judge: the policy must not read its rubric.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypedDict

from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from agent.acting import act
from agent.approval import MOST_REJECTED, approved, clarified, doubt_of
from agent.budgets import RunCut
from agent.closing import close, without_evidence
from agent.conversations.so_far import thread_so_far
from agent.events import StageStarted
from agent.mcp_tools.using import look_again
from agent.reports.report import markdown
from agent.run import Found, Run
from agent.verifying.stage import verify_run
from memory.schema import AnswerFormat, ScaffoldedPrompt, Stage, Status, Trajectory

NODES = ("recall", "clarify", "plan", "approve", "tools", "research", "review", "answer", "verify")

NOTHING = ""
"""the query of a run that was broken off, while it passes through the nodes that are left"""


class Position(TypedDict, total=False):
    """The state LangGraph keeps: small, and enough to find everything else."""

    question: str
    """input of a caller that only has a question; `recall` opens a new run for it"""
    answer_format: str
    run: str
    """the run's key in `Runs`"""
    path: list[str]
    """the nodes that finished, in order"""
    query: str | None
    """what is to be searched next"""
    report: str
    """output for a caller that gave a question: the cited report in Markdown"""
    status: str


class Decoder(Protocol):
    """How the four stages get written: forced or free."""

    def system(self, run: Run) -> str: ...
    def message(self, run: Run) -> str: ...
    async def plan(self, run: Run) -> str: ...
    async def observe(self, run: Run, found: Found) -> None: ...
    async def research(self, run: Run) -> str | None: ...
    async def review(self, run: Run) -> None: ...
    async def answer(self, run: Run) -> None: ...
    async def keep_cut(self, run: Run, cut: RunCut) -> None: ...


class Runs(Protocol):
    """Where nodes find the run they work on and the decoder that writes it."""

    @property
    def decoder(self) -> Decoder: ...
    async def begin(self, question: str, answer_format: AnswerFormat) -> str: ...
    async def find(self, key: str) -> Run | None: ...
    async def open(self, key: str) -> Run: ...
    async def finish(self, run: Run) -> Trajectory: ...
    async def abandon(self, run: Run, error: BaseException) -> None: ...


Step = Callable[[Run, Decoder, str | None], Awaitable[str | None]]


async def recall(run: Run, decoder: Decoder, query: str | None) -> None:
    """Put the system prompt, what earlier runs taught, the thread and the question down."""
    await look_again(run)
    before = await run.recall() + await thread_so_far(run)
    system, message = decoder.system(run), before + decoder.message(run)
    if text := run.ask.scaffold:
        bare = await run.policy.open(system, message)
        run.scaffold = ScaffoldedPrompt(text=text, shown=run.ask.criteria_shown, bare_ids=bare)
    await run.open(system + text, message)
    if run.ask.clarify:
        run.doubt = await doubt_of(run)


async def clarify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Nothing but a person's answer to the policy's question back, where it has one."""
    await clarified(run)


async def plan(run: Run, decoder: Decoder, query: str | None) -> str:
    run.turn = 1
    run.listener(StageStarted(Stage.PLAN))
    return await decoder.plan(run)


async def approve(run: Run, decoder: Decoder, query: str | None) -> str | None:
    """Nothing but a person's decision on the plan; None: another plan is to be written."""
    return await approved(run, query or "") if run.ask.approve_plan else query


async def tools(run: Run, decoder: Decoder, query: str | None) -> None:
    await decoder.observe(run, await act(run, query or run.evidence.alone(run.ask.question)))


async def research(run: Run, decoder: Decoder, query: str | None) -> str | None:
    run.turn += 1
    run.listener(StageStarted(Stage.RESEARCH))
    return await decoder.research(run)


async def review(run: Run, decoder: Decoder, query: str | None) -> None:
    run.listener(StageStarted(Stage.REVIEW))
    await decoder.review(run)


async def answer(run: Run, decoder: Decoder, query: str | None) -> None:
    run.listener(StageStarted(Stage.ANSWER))
    await decoder.answer(run)
    if not run.sources:
        run.end_early(without_evidence(run), Status.NO_EVIDENCE, by=run.ended_by)


async def verify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Every citation against the text it names; the transcript stays as it was written."""
    await verify_run(run)


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (recall, clarify, plan, approve, tools, research, review, answer, verify)
}


def recursion_limit(tool_calls: int) -> int:
    """Supersteps a run can need: two for each search, and one for each other node."""
    return 2 * (tool_calls + MOST_REJECTED) + len(NODES) + 5


def build_graph(runs: Runs, checkpointer: Any = None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The compiled graph over runs that are found by their key, each step a node of its own."""
    graph = StateGraph(Position)
    for name in NODES:
        graph.add_node(name, _node((name,), runs))
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "clarify")
    graph.add_edge("clarify", "plan")
    graph.add_edge("plan", "approve")
    graph.add_conditional_edges("approve", _after_approve, ["plan", "tools"])
    graph.add_edge("tools", "research")
    graph.add_conditional_edges("research", _after_research, ["tools", "review"])
    graph.add_edge("review", "answer")
    graph.add_edge("answer", "verify")
    graph.add_edge("verify", END)
    return graph.compile(checkpointer=checkpointer)


def build_unattended_graph(runs: Runs) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The same way for runs that ask nobody, and whose position no saver keeps."""
    graph = StateGraph(Position)
    graph.add_node("plan", _node(("recall", "plan"), runs))
    graph.add_node("research", _node(("tools", "research"), runs))
    graph.add_node("answer", _node(("review", "answer", "verify"), runs))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "research")
    graph.add_conditional_edges(
        "research", _after_research, {"tools": "research", "review": "answer"}
    )
    graph.add_edge("answer", END)
    return graph.compile()


async def _after_research(state: Position) -> str:
    # Async, since LangGraph sends a plain function to another thread.
    return "tools" if state.get("query") else "review"


async def _after_approve(state: Position) -> str:
    return "plan" if state.get("query") is None else "tools"


class _Node(Protocol):
    async def __call__(self, state: Position) -> Position: ...


def _node(steps: Sequence[str], runs: Runs) -> _Node:
    first, ended = steps[0] == NODES[0], steps[-1] == NODES[-1]

    async def node(state: Position) -> Position:
        path = [] if first else state.get("path", [])
        key = await _begun(runs, state) if first else state["run"]
        run = await runs.find(key)
        if run is None or run.path != path:
            run = await runs.open(key)
        try:
            ahead = [*path[len(run.path) :], *steps]
            query = await _walk(run, runs.decoder, ahead, state.get("query"))
            return await _position(run, runs, query, state, ended=ended)
        except GraphBubbleUp:
            # A person is asked; the run stays as it is until the node begins again.
            raise
        except BaseException as error:
            await runs.abandon(run, error)
            raise

    return node


async def _begun(runs: Runs, state: Position) -> str:
    """The run of the state. A question that is asked anew begins a run of its own."""
    question = state.get("question", "")
    if "run" in state and not question:
        return state["run"]
    return await runs.begin(question, AnswerFormat(state.get("answer_format") or AnswerFormat.LONG))


async def _walk(run: Run, decoder: Decoder, names: list[str], query: str | None) -> str | None:
    """Through the nodes named; those that finished before are answered by the journal.

    A run that is broken off passes through what is left without another call.
    """
    for name in names:
        if run.cut_in is None or name == "verify":
            try:
                query = await STEPS[name](run, decoder, query)
            except RunCut as cut:
                await close(run, decoder, cut)
                query = NOTHING
        run.path.append(name)
    return query


async def _position(
    run: Run, runs: Runs, query: str | None, state: Position, *, ended: bool
) -> Position:
    position: Position = {"run": run.thread, "path": list(run.path), "query": query}
    if ended:
        trajectory = await runs.finish(run)
        # A caller that drives the graph itself gets its answer in the state alone.
        report = markdown(trajectory) if "question" in state else ""
        return {**position, "report": report, "status": trajectory.status}
    return {**position, "report": "", "status": ""}
