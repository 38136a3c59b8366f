"""The research graph: recall, plan, research, tools, review, answer, verify, as LangGraph nodes.

Two more nodes contain only an interrupt, for runs in which a person takes part: `clarify` before
the plan, `approve` after it. LangGraph restarts an interrupted node from its beginning, so these
contain nothing else, and a decision is journaled before it takes effect: a run that is killed
afterwards does not ask again. What a person writes is appended as a note after the policy's text;
nothing that was sent to the model is changed. A run without a person whose position no saver
stores takes the same path without LangGraph (`walk`), which would cost a fifth of a run's time.

The nodes have little state of their own: a decoder writes the stages, a `Run` holds the transcript,
and the journal returns every finished call for free. LangGraph's state is the position alone: which
run, the nodes passed so far, the next query. If the run in memory is at another position, because
a saver resumes it in another process or because a node failed half-way, its transcript is rebuilt
by walking the same path again, with every call answered from the journal.

A run that is cut still ends with a report, without another call: an answer that was begun is
closed and says that it breaks off; if there is none, code quotes the passages that were found,
each with its citation, and claims nothing of its own.

The order below: state, steps, transitions, the graph, and how it is walked; then what steps use:
tools, a person's decisions, and the closing of a run that was cut.

Neither this module nor anything it imports may import the judge: the policy must not read its
rubric.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from pydantic import ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict

from rubricem.agent.models.policy import JournaledCalls
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.conversations import quote_conversation
from rubricem.agent.research.run import CallsBeside, Run, reply_of
from rubricem.agent.sources.fetch import addresses_in, normal
from rubricem.agent.sources.likeness import sketch
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.transcript.events import SourceProgress, StageStarted
from rubricem.agent.transcript.question import (
    MOST_REJECTED,
    OPEN_PAGE,
    Found,
    OutOfTime,
    PlanDecision,
    Reply,
    RunCut,
    ShownPlan,
    reason_of,
)
from rubricem.agent.transcript.scaffold import INSTRUCTION, answer_text, neutralise, parse, template
from rubricem.agent.transcript.words import closest_sentence, nearest
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Embedder,
    Passage,
    Sampling,
    ScaffoldedPrompt,
    Segment,
    Stage,
    Status,
    Trajectory,
    Usage,
    Value,
)
from rubricem.memory.text import fill, storable

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

END = "__end__"
"""LangGraph's name for it, repeated here since importing LangGraph takes a second"""
NODES = ("recall", "clarify", "plan", "approve", "tools", "research", "review", "answer", "verify")


@with_config(ConfigDict(extra="ignore"))
class ResearchLimits(TypedDict, total=False):
    """Limits that a caller of the graph may set per question; the rest is as configured."""

    tool_calls: Annotated[int, Field(ge=1, le=1000)]
    review_returns: Annotated[int, Field(ge=0, le=10)]
    approve_plan: bool
    clarify: bool
    max_seconds: Annotated[float, Field(ge=0)]
    max_total_tokens: Annotated[int, Field(ge=0)]
    max_cost: Annotated[float, Field(ge=0)]


class ResearchInput(TypedDict, total=False):
    """Input of a caller that only has a question: that, or a conversation that ends with it."""

    question: str
    answer_format: Literal["long", "short", "exact"]


class ResearchOutput(TypedDict, total=False):
    """What such a caller reads when the run has ended."""

    report: str
    status: str
    run: str


class Position(TypedDict, total=False):
    """The state that LangGraph keeps: small, and enough to find everything else."""

    question: str
    """input of a caller that only has a question; `recall` begins a new run for it"""
    answer_format: str
    run: str
    """the run's key in `Runs`"""
    path: list[str]
    """the nodes that finished, in order"""
    query: str | None
    """the next query to search"""
    report: str
    """output for a caller that gave a question: the cited report in Markdown"""
    status: str
    runs: list[str]
    """keys of the runs of a conversation that is driven by messages, the latest last"""
    messages: list[Any]
    """LangChain's messages, if the served graph has them: the last human one is the question"""


class Decoder(Protocol):
    """How the four stages are written: forced or free."""

    def system(self, run: Run) -> str: ...
    def message(self, run: Run) -> str: ...
    async def plan(self, run: Run) -> str: ...
    async def search(self, run: Run, query: str) -> Found:
        """What is shown of a search: by `Run.search`."""
        ...

    async def observe(self, run: Run, found: Found) -> None: ...
    async def research(self, run: Run) -> str | None: ...
    async def review(self, run: Run) -> str | None:
        """A query for what the review names as missing; None if no search is needed or allowed."""
        ...

    async def answer(self, run: Run) -> None: ...
    async def keep_cut(self, run: Run, cut: RunCut) -> None: ...


def decoder_of(
    decoding: Decoding,
    temperature: float,
    attempts: int,
    *,
    short: bool = False,
    embedder: Embedder | None = None,
) -> Decoder:
    """The decoder that leads the policy through the stages.

    `embedder` is used by forced decoding only; `temperature`, `attempts`, `short` by free decoding.
    """
    if decoding is Decoding.FORCED:
        from rubricem.agent.research.forced import ForcedDecoder

        return ForcedDecoder(embedder=embedder)
    from rubricem.agent.research.free import FreeDecoder

    return FreeDecoder(Sampling(temperature=temperature), attempts, short=short)


class LiveRuns(Protocol):
    """The runs in progress, by key: the part of a `Researcher` that the nodes use.

    `Researcher` imports this module, so it cannot be named here.
    """

    @property
    def decoder(self) -> Decoder: ...
    async def begin(
        self,
        question: str,
        answer_format: AnswerFormat,
        limits: ResearchLimits,
        earlier: Sequence[str],
    ) -> str: ...
    async def at(self, key: str, path: Sequence[str]) -> Run:
        """The run after these nodes; if the run in memory is not there, one at its beginning.

        It is not there in a process other than the one that began it, and after a failed node.
        """
        ...

    async def finish(self, run: Run) -> Trajectory: ...
    async def abandon(self, run: Run, error: BaseException) -> None: ...


WhoseRuns = Callable[[], Awaitable[LiveRuns]]
"""called by every node: a graph can be built before its researcher exists, or for several"""

Step = Callable[[Run, Decoder, str | None], Awaitable[str | None]]


async def recall(run: Run, decoder: Decoder, query: str | None) -> None:
    """Write the system prompt, what earlier runs taught, the conversation and the question."""
    if run.equipped:
        for said in await run.equipped.look_again():
            run.listener(SourceProgress(said))
    taught = await run.recall()
    before, shown = await quote_conversation(
        run.evidence.background, run.policy, run.ask.passage_words
    )
    # The sources shown with the conversation can be cited without being found again.
    run.evidence.take_up(shown)
    system, message = decoder.system(run), taught + before + decoder.message(run)
    if text := run.ask.scaffold:
        bare = await run.policy.render(system, message)
        run.scaffold = ScaffoldedPrompt(text=text, shown=run.ask.criteria_shown, bare_ids=bare)
    await run.open(system + text, message)
    if run.ask.clarify:
        run.doubt = await doubt_of(run)


async def clarify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Only the interrupt: a person answers the policy's clarifying question, if it has one."""
    if not run.doubt:
        return
    asked = {"ask": "clarify", "question": run.ask.question, "doubt": run.doubt}
    reply = (await decide(run, Reply, asked)).text.strip()
    if reply:
        note = f"Asked in return: {neutralise(run.doubt)}\nThe person answered: {neutralise(reply)}"
        await run.prompt(Stage.PLAN, f"\n\n{note}\n\n")


async def plan(run: Run, decoder: Decoder, query: str | None) -> str:
    run.turn = 1
    run.listener(StageStarted(Stage.PLAN))
    return await decoder.plan(run)


async def approve(run: Run, decoder: Decoder, query: str | None) -> str | None:
    """Only the interrupt: a person decides on the plan. None: another plan must be written."""
    if not run.ask.approve_plan:
        return query
    plan = ShownPlan.of(run.text, query or "")
    asked = {"ask": "approve_plan", "question": run.ask.question, **plan.model_dump(mode="json")}
    decision = await decide(run, PlanDecision, asked)
    if decision.verdict == "approve":
        return plan.query
    if decision.verdict == "edit":
        await run.prompt(Stage.PLAN, decision.plan.note())
        return decision.plan.query.strip() or plan.query
    if run.path.count("plan") >= MOST_REJECTED:
        raise RunCut("interrupt", Stage.PLAN)
    why = neutralise(decision.reason.strip())
    said = f"The person who asked rejected this plan{f': {why}' if why else '.'}"
    await run.prompt(Stage.PLAN, f"\n\n{said}\nWrite another plan and another first search.\n")
    return None


async def tools(run: Run, decoder: Decoder, query: str | None) -> None:
    action = query or run.evidence.alone(run.ask.question)
    await decoder.observe(run, await act(run, decoder, action))


async def research(run: Run, decoder: Decoder, query: str | None) -> str | None:
    run.turn += 1
    run.listener(StageStarted(Stage.RESEARCH))
    return await decoder.research(run)


async def review(run: Run, decoder: Decoder, query: str | None) -> str | None:
    run.listener(StageStarted(Stage.REVIEW))
    missing = await decoder.review(run)
    run.returns += missing is not None
    return missing


async def answer(run: Run, decoder: Decoder, query: str | None) -> None:
    run.listener(StageStarted(Stage.ANSWER))
    await decoder.answer(run)
    if not run.sources:
        failed = f"the search failed: {run.search_error}" if run.search_error else ""
        run.end_early(failed or "nothing was found", Status.NO_EVIDENCE, by=run.ended_by)


async def verify(run: Run, decoder: Decoder, query: str | None) -> None:
    """Check every citation against the text of its source; the transcript is not changed.

    The model checks within the run's budgets; once one is spent, the rules check alone.
    """
    if run.verifier is None:
        return
    trajectory = run.trajectory("")
    by = run.ended_by if run.cut_in else run.spending.out()
    if not by:
        began, beside = run.spending.seconds, CallsBeside(run.spending)
        calls = JournaledCalls(run.journal, beside, beside.note)
        try:
            run.verification, _ = await run.spending.limit_time(
                run.verifier.verify(trajectory, calls, run.listener)
            )
        except OutOfTime as end:
            by = end.by
        run.count_spent(beside.used, run.spending.seconds - began, "verify")
    if by:
        why = f"no model checked the citations, since {reason_of(by, run.spending.budgets)}"
        run.verification = run.verifier.by_rules(trajectory, why)


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (recall, clarify, plan, approve, tools, research, review, answer, verify)
}


def recursion_limit(tool_calls: int, review_returns: int) -> int:
    """Most supersteps that a run can need: two per search, and one for each other node."""
    return 2 * (tool_calls + MOST_REJECTED) + 3 * review_returns + len(NODES) + 5


WAYS = {
    "recall": ("clarify",),
    "clarify": ("plan",),
    "plan": ("approve",),
    "approve": ("plan", "tools"),
    "tools": ("research",),
    "research": ("tools", "review"),
    "review": ("answer", "tools"),
    "answer": ("verify",),
    "verify": (END,),
}
"""node -> the nodes that may follow it"""


def following(step: str, query: str | None) -> str:
    """The node after a step that returned this query: another plan, another search, or the next."""
    if step == "approve" and query is None:
        return "plan"
    if step == "research":
        return "tools" if query else "review"
    if step == "review" and query:
        return "tools"
    return [*NODES, END][NODES.index(step) + 1]


def build_graph(
    whose: WhoseRuns,
    checkpointer: Any = None,
    *,
    state: type = Position,
    sent: type | None = None,
    received: type | None = None,
) -> "CompiledStateGraph[Any, Any, Any, Any]":
    """Compile the graph over runs that are looked up by key; takes 15 ms of CPU.

    `state` is `Position`, or a subclass with messages; `sent` and `received` are the input and
    output schemas for outside callers, None: all of `state`.
    """
    from langgraph.graph import START, StateGraph

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(
        state, ResearchLimits, input_schema=sent, output_schema=received
    )
    graph.add_edge(START, "recall")
    for name, after in WAYS.items():
        graph.add_node(name, _node(name, whose), input_schema=state)
        if len(after) == 1:
            graph.add_edge(name, *after)
        else:
            graph.add_conditional_edges(name, _after, [*after])
    return graph.compile(checkpointer=checkpointer)


async def _after(state: Position) -> str:
    # Async, since LangGraph runs a plain function in another thread.
    return following(state["path"][-1], state.get("query"))


class _Node(Protocol):
    async def __call__(self, state: Position) -> Position: ...


def _node(name: str, whose: WhoseRuns) -> _Node:
    from langgraph.errors import GraphBubbleUp

    first = name == NODES[0]

    async def node(state: Position) -> Position:
        runs = await whose()
        path = [] if first else state.get("path", [])
        question = _question(state) if first else ""
        began: Position = {}
        if question or "run" not in state:
            key = await _begin(runs, state, question)
            began = {"runs": [*state.get("runs", ()), key]} if state.get("messages") else {}
        else:
            key = state["run"]
        run = await runs.at(key, path)
        try:
            ahead = [*path[len(run.path) :], name]
            query = await _walk(run, runs.decoder, ahead, state.get("query"))
            position: Position = {**began, "run": key, "path": [*run.path], "query": query}
            if run.path[-1] != NODES[-1]:
                return {**position, "report": "", "status": ""}
            trajectory = await runs.finish(run)
            # A caller that drives the graph itself gets its answer only through the state.
            talks = state.get("messages")
            report = markdown(trajectory) if talks or "question" in state else ""
            if talks:
                # The message above already holds the question, so the report has no heading.
                reply = markdown(trajectory, titled=False)
                position["messages"] = [{"role": "assistant", "content": reply, "id": run.thread}]
            return {**position, "report": report, "status": trajectory.status}
        except GraphBubbleUp:
            # A person is asked; the run stays as it is until the node is run again.
            raise
        except BaseException as error:
            await runs.abandon(run, error)
            raise

    return node


def _question(state: Position) -> str:
    """What is asked now: the last message if it is a person's, else the question."""
    *_, last = state.get("messages") or [None]
    return str(last.text) if last and last.type == "human" else state.get("question", "")


async def _begin(runs: LiveRuns, state: Position, question: str) -> str:
    from langgraph.runtime import get_runtime

    form = AnswerFormat(state.get("answer_format") or AnswerFormat.LONG)
    limits = get_runtime(ResearchLimits).context or ResearchLimits()
    return await runs.begin(question, form, limits, state.get("runs", ()))


async def walk(runs: LiveRuns, run: Run) -> None:
    """Take a run through all nodes without LangGraph, and finish it.

    For a run that asks no person and whose position no saver stores.
    """
    try:
        await _walk(run, runs.decoder, [NODES[0]], None, on=True)
        await runs.finish(run)
    except BaseException as error:
        await runs.abandon(run, error)
        raise


async def _walk(
    run: Run, decoder: Decoder, ahead: list[str], query: str | None, *, on: bool = False
) -> str | None:
    """Run the nodes in `ahead`, if `on` also all after them; return the last one's query.

    Calls that finished before are answered from the journal. A run that is cut passes through the
    remaining nodes without another call.
    """
    while ahead:
        name = ahead.pop(0)
        if run.cut_in is None or name == "verify":
            try:
                query = await STEPS[name](run, decoder, query)
            except RunCut as cut:
                await close(run, decoder, cut)
                query = ""  # after `approve`, None would ask for another plan
        run.path.append(name)
        if on and not ahead and (after := following(name, query)) != END:
            ahead.append(after)
    return query


PAGES_WORTH = 2
"""passages shown of a page or a tool's result, for each passage that a search may show"""


async def act(run: Run, decoder: Decoder, action: str) -> Found:
    """Do what one line of the policy asks for; a line that names no tool is a query."""
    name, _, written = action.partition(" ")
    if name == OPEN_PAGE and written.strip():
        return await _open_page(run, written.strip())
    if run.equipped and name in run.equipped.allowed:
        return await _call_tool(run, run.equipped, name, written.strip())
    return await decoder.search(run, action)


async def _open_page(run: Run, wanted: str) -> Found:
    """Open a page, given as a source's id or an address, followed by words to look for.

    Counts as a tool call even if it is refused. Of a long page the passages nearest to the words
    and to the question are shown.
    """
    name, _, sought = wanted.partition(" ")
    address, refusal = _permit(run, name)

    def look_over(passages: Sequence[Passage]) -> tuple[list[int], list[Passage]]:
        most = PAGES_WORTH * run.ask.passages
        drawn = list(sketch(passage.text for passage in passages))
        return drawn, nearest(passages, sought, run.ask.question, most)

    async def read() -> dict[str, Any]:
        if run.pages is None or not address:
            raise SourceError(refusal or "There is no tool open_page in this run.")
        passages = await run.pages.read(address)
        # In a thread: sketch and ranking take a moment if the page is a book.
        drawn, shown = await asyncio.to_thread(look_over, passages)
        if other := run.evidence.page_like(address, drawn):
            note = f"This page holds the same text as {other}; the two count as one source."
            return reply_of([], note=note, copy_of=other)
        cut = f"These {len(shown)} of the page's {len(passages)} passages are nearest to the"
        note = f"{cut} question." if len(shown) < len(passages) else ""
        return reply_of(shown, note=note, page=address, sketch=drawn)

    asked = " ".join([address or name, *sought.split()])
    failed = "The page was not opened."
    return await run.use(OPEN_PAGE, asked, "opening the page", read, note=failed)


def _permit(run: Run, name: str) -> tuple[str, str]:
    """The address that a name refers to, and "" or the reason why it may not be opened.

    Only a page that a search returned or that the question names may be opened; an address that
    merely occurs in the text of a page may not, whatever that text says.
    """
    source = run.sources.get(name.strip("[].,").upper())
    if source is not None:
        address = normal(source.location)
        refusal = f"{source.id} is no page of the web: its text was shown."
        return address, "" if address else refusal
    known = set(addresses_in(run.ask.question))
    for source in run.sources.values():
        known |= {normal(location) for location in (source.location, *source.copies)}
    address = normal(name)
    if address and address in known:
        return address, ""
    return "", "Only a page that a search returned, or that the question names, can be opened."


async def _call_tool(run: Run, tools: Equipped, name: str, written: str) -> Found:
    """Call a tool of an MCP server, like a search; what it returns can be cited."""

    async def call() -> dict[str, Any]:
        passages, note = await tools.call(name, written)
        most = PAGES_WORTH * run.ask.passages
        shown = await asyncio.to_thread(nearest, passages, written, run.ask.question, most)
        return reply_of(shown, note=note)

    return await run.use(name, written, f"the tool {name}", call, note="The tool gave nothing.")


DOUBT_TOKENS = 120
"""a clarifying question is one sentence"""
V = TypeVar("V", bound=Value)


async def decide(run: Run, kind: type[V], asked: dict[str, Any]) -> V:
    """A person's decision, from the journal or through an interrupt of the graph."""
    key = run.key(f"person\0{asked['ask']}")
    if (kept := run.journal.find(key)) is None:
        from langgraph.types import interrupt

        decision = interrupt(asked)
        kept = decision if isinstance(decision, dict) else {"text": str(decision)}
        await run.journal.append(key, kept)
    try:
        return kind.model_validate(kept)
    except ValidationError as error:
        raise SettingsError(
            f"the decision of the person who asked cannot be read: {error.errors()[0]['msg']}",
            'Send {"verdict": "approve"}, "reject" or "edit" with a plan; or {"text": "..."}.',
        ) from error


async def doubt_of(run: Run) -> str:
    """The policy's clarifying question, journaled outside the transcript; "" if it has none."""
    system, question = template("clarify"), neutralise(run.ask.question)
    values = {"question": question, "format": INSTRUCTION[run.ask.answer_format]}
    message = fill(template("clarify_question"), values)
    sampling = Sampling(max_tokens=DOUBT_TOKENS, temperature=0.0)

    async def call() -> dict[str, Any]:
        ids = await run.policy.render(system, message)
        head = Segment(author=Author.PROMPT, text=message, token_ids=ids)
        said = await run.policy.write(system, [head], sampling, None, None)
        return {"text": storable(said.text), "usage": said.usage.model_dump(mode="json")}

    reply = await run.call(run.key(f"aside\0{message}"), Stage.PLAN, call, of_policy=True)
    run.count(Usage.model_validate(reply["usage"]), reply.get("took", 0.0), "clarify")
    line = next((line.strip() for line in reply["text"].splitlines() if line.strip()), "")
    return line if "?" in line and not line.casefold().startswith("none") else ""


QUOTED = 5
"""at most so many passages are quoted, in the order in which they were found"""
QUOTE_CHARACTERS = 400


async def close(run: Run, decoder: "Decoder", cut: RunCut) -> None:
    """Record what cut the run, and leave an answer that can be read."""
    run.cut_in = cut.stage
    await decoder.keep_cut(run, cut)
    run.attempt = 0
    # This ended the run, whatever went wrong before.
    run.status, run.ended_by = Status.PARTIAL, cut.by
    run.reason = reason_of(cut.by, run.spending.budgets)
    document = parse(run.text)
    if not answer_text(document):
        await _quote(run)
    elif not (answer := [b for b in document.blocks if b.tag == "answer"][-1]).closed:
        within = "</cite>" if answer.children and not answer.children[-1].closed else ""
        await run.prompt(Stage.ANSWER, f"{within}\n\n(The answer breaks off here.)\n</answer>\n")


async def _quote(run: Run) -> None:
    """In place of an answer, write each source's sentence that is nearest to the question."""
    found = run.evidence.own[:QUOTED]
    said = "This is what had been found by then, quoted:" if found else "Nothing had been found."
    await run.prompt(Stage.ANSWER, f"\n<answer>\nNo answer was written. {said}\n")
    for source in found:
        text = closest_sentence(run.ask.question, source.text) or source.text or source.title
        quote = neutralise(" ".join(text.split())[:QUOTE_CHARACTERS])
        await run.prompt(Stage.ANSWER, f'\n- <cite id="{source.id}">{quote}</cite>')
    await run.prompt(Stage.ANSWER, "\n</answer>\n")
