"""The research graph: recall, plan, research, tools, review, answer, verify, as LangGraph nodes.

Two more nodes hold only an interrupt, for runs that a person takes part in: `clarify` before the
plan, `approve` after it. An interrupted node runs again from its start, so these hold nothing
else, and a decision is in the run's journal before it takes effect: a run that is killed
afterwards does not ask again. What a person writes is put behind the policy's text as a note;
nothing that was sent to the model is changed. In runs that nobody takes part in a node goes on
with the steps behind it that lead nowhere else, since each superstep costs.

The nodes hold no logic of their own: a decoder writes the stages, a `Run` holds the transcript,
and the journal makes every finished call repeatable for free. LangGraph's state is position
only: which run, the way through the nodes so far, the query to be searched next. Where the run
in memory stands elsewhere, because a saver brings it back in another process or because a node
failed half-way, its transcript is rebuilt by walking that way again, the journal answering
every call.

A run that is broken off still becomes a report, without another call: an answer that was begun is
closed and says that it breaks off; where there is none, code quotes the passages that were found,
each with its citation, and claims nothing of its own.

Nothing here, or imported from here, may know the judge: the policy must not read its rubric. Above
600 lines, since the steps between the nodes are read with them.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, TypeVar

from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import ValidationError

from rubricem.agent.models.policy import JournaledCalls, Policy
from rubricem.agent.reports.report import markdown
from rubricem.agent.research.act import act, look_again
from rubricem.agent.research.events import StageStarted, UsageCounted
from rubricem.agent.research.question import Found, OutOfTime, RunCut, excerpt, reason_of
from rubricem.agent.research.run import Run
from rubricem.agent.research.scaffold import (
    INSTRUCTION,
    ScaffoldDocument,
    answer_text,
    neutralise,
    parse,
    rubric_items,
    template,
)
from rubricem.agent.research.threads import Background, EarlierTurn
from rubricem.agent.research.words import closest_sentence
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import Sampling
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    ScaffoldedPrompt,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    Usage,
    Value,
)
from rubricem.memory.text import cut, fill, one_line, storable

QUOTED = 5
"""passages quoted at most, the first found first"""
QUOTE_CHARACTERS = 400


class KeepsCut(Protocol):
    """A decoder that knows what of a turn in flight is worth keeping."""

    async def keep_cut(self, run: Run, cut: RunCut) -> None: ...


def without_evidence(run: Run) -> str:
    """Why a run has nothing to answer from."""
    if run.search_error:
        return f"the search failed: {run.search_error}"
    return "nothing was found"


async def close(run: Run, decoder: KeepsCut, cut: RunCut) -> None:
    """Note what broke the run off, and leave an answer that can be read."""
    run.cut_in = cut.stage
    await decoder.keep_cut(run, cut)
    run.attempt = 0
    # Whatever went wrong before, this is what ended it.
    run.status, run.ended_by = Status.PARTIAL, cut.by
    run.reason = reason_of(cut.by, run.spending.budgets)
    if answer_text(parse(run.text)):
        await _break_off(run)
    else:
        await _quote(run)


async def _break_off(run: Run) -> None:
    """Close an answer in progress; one that its author had closed stands as it is."""
    answer = [block for block in parse(run.text).blocks if block.tag == "answer"][-1]
    if answer.closed:
        return
    within = "</cite>" if answer.children and not answer.children[-1].closed else ""
    await run.prompt(Stage.ANSWER, f"{within}\n\n(The answer breaks off here.)\n</answer>\n")


async def _quote(run: Run) -> None:
    found = run.evidence.own[:QUOTED]
    said = "This is what had been found by then, quoted:" if found else "Nothing had been found."
    await run.prompt(Stage.ANSWER, f"\n<answer>\nNo answer was written. {said}\n")
    for source in found:
        quote = _quotation(run.ask.question, source)
        await run.prompt(Stage.ANSWER, f'\n- <cite id="{source.id}">{quote}</cite>')
    await run.prompt(Stage.ANSWER, "\n</answer>\n")


def _quotation(question: str, source: Source) -> str:
    """The sentence nearest to the question, or the passage's beginning, on one line."""
    text = closest_sentence(question, source.text) or source.text or source.title
    return neutralise(" ".join(text.split())[:QUOTE_CHARACTERS])


MOST_REJECTED = 5
"""plans that a person may reject before the run ends"""
DOUBT_TOKENS = 120
"""a question back is one sentence"""
_NONE = "none"
V = TypeVar("V", bound=Value)


class ShownPlan(Value):
    """What a person is shown of a plan, and may change."""

    rubric: tuple[str, ...] = ()
    research_plan: str = ""
    query: str = ""
    """the first search"""


class PlanDecision(Value):
    """What a person says of a plan; `plan` is theirs where they edited it."""

    verdict: Literal["approve", "edit", "reject"]
    plan: ShownPlan = ShownPlan()
    reason: str = ""


class Reply(Value):
    """A person's answer to a question back; "" where they had none."""

    text: str = ""


async def approved(run: Run, query: str) -> str | None:
    """Have the plan approved: the first query as it now stands, or None for another plan."""
    plan = plan_of(run.text, query)
    asked = {"ask": "approve_plan", "question": run.ask.question, **plan.model_dump(mode="json")}
    decision = _read(PlanDecision, await decided(run, asked))
    if decision.verdict == "approve":
        return query
    if decision.verdict == "edit":
        await run.prompt(Stage.PLAN, _edited(decision.plan))
        return decision.plan.query.strip() or query
    if run.path.count("plan") >= MOST_REJECTED:
        raise RunCut("interrupt", Stage.PLAN)
    why = neutralise(decision.reason.strip())
    said = f"The person who asked rejected this plan{f': {why}' if why else '.'}"
    await run.prompt(Stage.PLAN, f"\n\n{said}\nWrite another plan and another first search.\n")
    return None


async def clarified(run: Run) -> None:
    """Ask the person what the policy wants to know before it plans."""
    if not run.doubt:
        return
    asked = {"ask": "clarify", "question": run.ask.question, "doubt": run.doubt}
    reply = _read(Reply, await decided(run, asked)).text.strip()
    if reply:
        note = f"Asked in return: {neutralise(run.doubt)}\nThe person answered: {neutralise(reply)}"
        await run.prompt(Stage.PLAN, f"\n\n{note}\n\n")


async def decided(run: Run, asked: dict[str, Any]) -> dict[str, Any]:
    """A person's decision, from the journal or by an interrupt of the graph."""
    key = run.key(f"person\0{asked['ask']}")
    if (kept := run.journal.find(key)) is not None:
        return kept
    from langgraph.types import interrupt

    decision = interrupt(asked)
    kept = decision if isinstance(decision, dict) else {"text": str(decision)}
    await run.journal.append(key, kept)
    return kept


def plan_of(text: str, query: str) -> ShownPlan:
    """The last plan of a transcript."""
    document = parse(text)
    rubric, research = (_last(document, tag) for tag in ("rubric", "research_plan"))
    return ShownPlan(
        rubric=tuple(rubric_items(rubric)), research_plan=research.strip(), query=query
    )


async def doubt_of(run: Run) -> str:
    """The policy's question back, outside the transcript; "" where it has none."""
    system = template("clarify")
    message = fill(
        template("clarify_question"),
        {
            "question": neutralise(run.ask.question),
            "format": INSTRUCTION[run.ask.answer_format],
        },
    )
    said = await _aside(run, system, message)
    line = next((line.strip() for line in said.splitlines() if line.strip()), "")
    asks = "?" in line and not line.casefold().startswith(_NONE)
    return line if asks else ""


async def _aside(run: Run, system: str, message: str) -> str:
    """What the policy says to a message that is no part of the transcript; journaled like it."""
    sampling = Sampling(max_tokens=DOUBT_TOKENS, temperature=0.0)

    async def call() -> dict[str, Any]:
        ids = await run.policy.open(system, message)
        head = Segment(author=Author.PROMPT, text=message, token_ids=ids)
        said = await run.policy.write(system, [head], sampling, None, None)
        return {"text": storable(said.text), "usage": said.usage.model_dump(mode="json")}

    reply = await run.calls.write(
        run.key(f"aside\0{message}"), run.key("cut"), Stage.PLAN, call, []
    )
    run.count(Usage.model_validate(reply["usage"]), reply.get("took", 0.0))
    text: str = reply["text"]
    return text


def _last(document: ScaffoldDocument, tag: str) -> str:
    blocks = document.find(tag)
    return document.inner(blocks[-1]) if blocks else ""


def _edited(plan: ShownPlan) -> str:
    items = "\n".join(f"- {neutralise(item)}" for item in plan.rubric)
    first = f"\nThe first search is for: {neutralise(plan.query)}\n" if plan.query else "\n"
    return (
        "\n\nThe person who asked has changed the plan. What follows holds now.\n"
        f"<structured_plan>\n<rubric>\n{items}\n</rubric>\n"
        f"<research_plan>{neutralise(plan.research_plan)}</research_plan>\n</structured_plan>"
        f"{first}"
    )


def _read(kind: type[V], decision: dict[str, Any]) -> V:
    try:
        return kind.model_validate(decision)
    except ValidationError as error:
        raise SettingsError(
            f"the decision of the person who asked cannot be read: {error.errors()[0]['msg']}",
            'Send {"verdict": "approve"}, "reject" or "edit" with a plan; or {"text": "..."}.',
        ) from error


SHARE = 1 / 8
"""of the context, where it is known"""
MOST_TOKENS = 6000
CHARACTERS_A_TOKEN = 3
"""where nobody counts them; a token of English has about four"""
FIRST_BLOCK = 0.4
"""share of the tokens that the first block of the latest report is cut to, if it is longer"""

_ID = re.compile(r"\[(S\d+)(?::[^\]\n]*)?\]")
_MORE = "[...]"


@dataclass
class _Shown:
    """What fits: the blocks of each turn, and the passages."""

    left: int
    blocks: dict[int, list[str]] = field(default_factory=dict)
    passages: dict[str, str] = field(default_factory=dict)


async def thread_so_far(run: Run) -> str:
    """What stands before the question of a run in a thread; "" for one that is asked alone.

    The passages shown are at hand from now on: they can be cited without being found again.
    """
    background = run.evidence.background
    if not background.turns:
        return ""
    shown = await _chosen(background, run.policy, run.ask.passage_words)
    run.evidence.take_up(sorted(shown.passages, key=lambda each: (len(each), each)))
    turns = (_turn(at, turn, shown.blocks.get(at)) for at, turn in enumerate(background.turns))
    passages = [shown.passages[source.id] for source in run.sources.values()]
    quoted = "".join([*filter(None, turns), *passages])
    return f"{template('thread')}\n<tool_output>\n{quoted}</tool_output>\n\n"


async def _chosen(background: Background, policy: Policy, words: int) -> _Shown:
    context = policy.context_tokens
    most = MOST_TOKENS if context is None else min(MOST_TOKENS, int(context * SHARE))
    shown = _Shown(most)
    for at in reversed(range(len(background.turns))):
        # The question is shown even where nothing of its report is.
        for number, block in enumerate(["", *_blocks(background.turns[at])]):
            first = number == 1 and at == len(background.turns) - 1
            block = cut(block, int(most * FIRST_BLOCK * CHARACTERS_A_TOKEN)) if first else block
            new = {
                i: _snippet(background, i, words)
                for i in dict.fromkeys(_ID.findall(block))
                if i in background.by_id and i not in shown.passages
            }
            text = block or _asked(background.turns[at])
            cost = await _tokens(policy, "".join([text, *new.values()]))
            if cost > shown.left:
                return shown
            shown.left -= cost
            shown.passages |= new
            shown.blocks.setdefault(at, []).extend([block] if block else [])
    return shown


def _blocks(turn: EarlierTurn) -> Iterator[str]:
    """The paragraphs of a report, or its lines where it has but one."""
    blocks = re.split(r"\n[ \t]*\n", turn.report)
    blocks = blocks if len(blocks) > 1 else turn.report.splitlines()
    return (neutralise(block.strip("\n")) for block in blocks if block.strip())


def _turn(at: int, turn: EarlierTurn, blocks: list[str] | None) -> str:
    if blocks is None:
        return ""
    whole = len(blocks) == len(list(_blocks(turn)))
    report = "\n\n".join([*blocks, *([] if whole else [_MORE])]) or "No report was written."
    return f"Question {at + 1}: {_asked(turn)}\nReport {at + 1}:\n{report}\n\n"


def _asked(turn: EarlierTurn) -> str:
    return neutralise(" ".join(turn.question.split())[:1000])


def _snippet(background: Background, identifier: str, words: int) -> str:
    source = background.by_id[identifier]
    body = neutralise("\n".join(filter(None, (source.title, excerpt(source.text, words)))))
    return f'<snippet id="{identifier}">\n{body}\n</snippet>\n'


async def _tokens(policy: Policy, text: str) -> int:
    ids = await policy.encode(text)
    return math.ceil(len(text) / CHARACTERS_A_TOKEN) if ids is None else len(ids)


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
    together: bool
    """nobody is asked and no saver keeps the position: nodes take several steps at once"""
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


class OpenRuns(Protocol):
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
    """Every citation against the text it names; the transcript stays as it was written.

    It is done within the run's budgets, and by rules alone where one of them is spent.
    """
    if run.verifier is None:
        return
    trajectory = run.trajectory("")
    by = run.ended_by if run.cut_in else run.spending.out()
    if not by:
        began = run.spending.seconds
        verifying = run.verifier.verify(trajectory, JournaledCalls(run.journal), run.listener)
        try:
            run.verification, used = await run.spending.bounded(verifying)
        except OutOfTime as end:
            by = end.by
        else:
            run.usage += used
            run.spending.count(used, run.spending.seconds - began)
            run.listener(UsageCounted(run.usage))
    if by:
        why = f"no model checked the citations, since {reason_of(by, run.spending.budgets)}"
        run.verification = run.verifier.by_rules(trajectory, why)


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (recall, clarify, plan, approve, tools, research, review, answer, verify)
}


def recursion_limit(tool_calls: int) -> int:
    """Supersteps a run can need: two for each search, and one for each other node."""
    return 2 * (tool_calls + MOST_REJECTED) + len(NODES) + 5


WAYS = {
    "recall": ("clarify", "tools"),
    "clarify": ("plan",),
    "plan": ("approve",),
    "approve": ("plan", "tools"),
    "tools": ("research", "tools", "review"),
    "research": ("tools", "review"),
    "review": ("answer", END),
    "answer": ("verify",),
    "verify": (END,),
}
"""node -> where it may lead; to other than its neighbours where it takes several steps itself"""
TOGETHER = {
    "recall": ("recall", "clarify", "plan", "approve"),
    "tools": ("tools", "research"),
    "review": ("review", "answer", "verify"),
}
"""the steps that a node takes in a run that asks nobody, and whose position no saver keeps: with a
superstep for each step LangGraph takes a quarter of a turn's CPU time"""


def build_graph(runs: OpenRuns, checkpointer: Any = None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The compiled graph over runs that are found by their key."""
    graph = StateGraph(Position)
    graph.add_edge(START, "recall")
    for name, following in WAYS.items():
        graph.add_node(name, _node(name, runs))
        if len(following) == 1:
            graph.add_edge(name, *following)
        else:
            graph.add_conditional_edges(name, _after, [*following])
    return graph.compile(checkpointer=checkpointer)


def _next(state: Position) -> str:
    """The node after the last step: another plan, another search, or the next in order."""
    step, query = state["path"][-1], state.get("query")
    if step == "approve" and query is None:
        return "plan"
    if step == "research" and query:
        return "tools"
    return "review" if step == "research" else NODES[NODES.index(step) + 1]


async def _after(state: Position) -> str:
    # Async, since LangGraph sends a plain function to another thread.
    return _next(state) if state["path"][-1] != NODES[-1] else END


class _Node(Protocol):
    async def __call__(self, state: Position) -> Position: ...


def _node(name: str, runs: OpenRuns) -> _Node:
    first = name == NODES[0]

    async def node(state: Position) -> Position:
        steps = TOGETHER[name] if state.get("together") else (name,)
        path = [] if first else state.get("path", [])
        key = await _begun(runs, state) if first else state["run"]
        run = await runs.find(key)
        if run is None or run.path != path:
            run = await runs.open(key)
        try:
            ahead = [*path[len(run.path) :], *steps]
            query = await _walk(run, runs.decoder, ahead, state.get("query"))
            return await _position(run, runs, query, state, ended=steps[-1] == NODES[-1])
        except GraphBubbleUp:
            # A person is asked; the run stays as it is until the node begins again.
            raise
        except BaseException as error:
            await runs.abandon(run, error)
            raise

    return node


async def _begun(runs: OpenRuns, state: Position) -> str:
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
    run: Run, runs: OpenRuns, query: str | None, state: Position, *, ended: bool
) -> Position:
    position: Position = {"run": run.thread, "path": list(run.path), "query": query}
    if ended:
        trajectory = await runs.finish(run)
        # A caller that drives the graph itself gets its answer in the state alone.
        report = markdown(trajectory) if "question" in state else ""
        return {**position, "report": report, "status": trajectory.status}
    return {**position, "report": "", "status": ""}


RUBRIC, RESEARCH, QUERY = "## Rubric", "## Research plan", "## First search"
_HEADINGS = (RUBRIC, RESEARCH, QUERY)


def as_text(plan: ShownPlan) -> str:
    """The plan as it is shown and edited."""
    items = "\n".join(f"- {one_line(item.lstrip('-* '))}" for item in plan.rubric)
    parts = (RUBRIC, f"{items}\n", RESEARCH, f"{plan.research_plan}\n", QUERY, one_line(plan.query))
    return "\n".join(parts) + "\n"


def from_text(text: str) -> ShownPlan:
    """The plan that such a text holds; a part whose heading is gone is empty."""
    parts: dict[str, list[str]] = {}
    at = ""
    for line in text.splitlines():
        if line.strip() in _HEADINGS:
            at = line.strip()
        else:
            parts.setdefault(at, []).append(line)
    rubric = (line.strip().lstrip("-*").strip() for line in parts.get(RUBRIC, []))
    return ShownPlan(
        rubric=tuple(item for item in rubric if item),
        research_plan="\n".join(parts.get(RESEARCH, [])).strip(),
        query=" ".join(" ".join(parts.get(QUERY, [])).split()),
    )
