"""Clients of a scripted server, with waits short enough for tests.

Fakes behind the seams: a policy that writes by script, and a source with fixed passages.

A researcher over real HTTP, and the turns that a scripted server writes for it.

Runs that open pages: a web of a search's results and a loopback site, without a model server.

A small run's turns, as the tests of the scaffold read them.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter, Retry
from rubricem.agent.models.policy import ChatWriter, Policy
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.recall import Recall
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.events import Listener, ignore
from rubricem.agent.transcript.question import Ask
from rubricem.agent.transcript.scaffold import ScaffoldDocument
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import Journal, RunStore
from rubricem.memory.schema import (
    Completion,
    Decoding,
    Message,
    OnText,
    PageReader,
    Passage,
    Recollection,
    Sampling,
    SearchTool,
    Segment,
    StopPredicate,
    StopReason,
    Trajectory,
    Usage,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import PATIENCE

ASKED = [Message("system", "Be brief."), Message("user", "What is evicted first?")]
SAMPLING = Sampling(max_tokens=64, temperature=0.5)
QUICK = Retry(tries=4, first=0.01, longest=0.05, total=5.0)
KEY = "sk-very-secret-0123456789"


@asynccontextmanager
async def client(base_url: str, **options: Any) -> AsyncIterator[OpenAIChat]:
    """An OpenAIChat with the model name `scripted`."""
    defaults: dict[str, Any] = {
        "api_key": KEY,
        "limiter": Limiter(8),
        "timeout": PATIENCE,
        "retry": QUICK,
    }
    yield OpenAIChat("scripted", base_url, **(defaults | options))


@asynccontextmanager
async def chatting(script: Any) -> AsyncIterator[tuple[OpenAIChat, ScriptedServer]]:
    """Such a chat, and the server that answers it by a script."""
    with ScriptedServer(script) as server:
        async with client(server.base_url) as chat:
            yield chat, server


PASSAGES = [
    Passage("functools.lru_cache(maxsize=128)", "python:functools", "functools.lru_cache",
            "Least-recently-used cache. If maxsize is None the cache can grow without bound."),
    Passage("functools.cache(f)", "python:functools", "functools.cache",
            "Simple lightweight unbounded function cache."),
    Passage("heapq", "python:heapq", "heapq", "The smallest element is always heap[0]."),
]  # fmt: skip


class FixedSearch:
    """Answers every query with the same passages, and remembers the queries."""

    name = "search"

    def __init__(self, passages: Sequence[Passage] = PASSAGES, error: str = "") -> None:
        self.passages = list(passages)
        self.error = error
        self.queries: list[str] = []

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        self.queries.append(query)
        if self.error:
            raise SourceError(self.error)
        return self.passages[:limit]


class ScriptedPolicy(Policy):
    """A `Policy` with one token per character that continues by script.

    The script is a list of texts, or a function of the transcript's text and the sampling.
    """

    name = "scripted"
    version = "1"

    def __init__(
        self,
        script: Sequence[str] | Callable[[str, Sampling], str],
        context_tokens: int | None = None,
    ) -> None:
        self.script = script
        self.context_tokens = context_tokens
        self.calls: list[tuple[str, Sampling]] = []

    async def render(self, system: str, question: str) -> tuple[int, ...]:
        return tuple(map(ord, system + question))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def encode_response(self, text: str) -> tuple[int, ...]:
        return await self.encode(text)

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        before = "".join(segment.text for segment in transcript[1:])
        self.calls.append((before, sampling))
        text = (
            self.script(before, sampling)
            if callable(self.script)
            else self.script[len(self.calls) - 1]
        )
        reason: StopReason = "eos"
        for at in range(1, len(text) + 1):
            if stop and (end := stop(text[:at])) is not None:
                text, reason = text[:end], "stop"
                break
        if reason == "eos" and len(text) >= sampling.max_tokens:
            text, reason = text[: sampling.max_tokens], "length"
        return Completion(
            text=text,
            stop_reason=reason,
            token_ids=tuple(map(ord, text)),
            logprobs=(-0.5,) * len(text),
            token_ends=tuple(range(1, len(text) + 1)),
            usage=Usage(prompt_tokens=len(before), completion_tokens=len(text), calls=1),
        )


class Returned:
    """A `PageReader` that returns one passage, or fails with a reason."""

    def __init__(self, passage: Passage | None = None, reason: str = "") -> None:
        self.passage, self.reason = passage, reason
        self.asked: list[str] = []

    async def read(self, address: str) -> list[Passage]:
        self.asked.append(address)
        if self.passage is None:
            raise SourceError(self.reason)
        return [self.passage]


class FixedRecaller:
    """A `Recaller` that gives blocks by script, and remembers what it was asked."""

    def __init__(self, *blocks: str) -> None:
        self.blocks = list(blocks)
        self.asked: list[str] = []
        self.told: list[str] = []

    async def recall(self, question: str) -> Recall:
        self.asked.append(question)
        given = Recollection(id="r1", question="What is kept?", own=True, score=0.8)
        return Recall(items=(given,), block=self.blocks[len(self.asked) - 1])

    async def note_use(self, trajectory: Trajectory) -> None:
        self.told.append(trajectory.id)


QUESTION = "What does functools.lru_cache do with maxsize=None?"


def new_run(
    tmp_path: Path,
    policy: ScriptedPolicy,
    search: FixedSearch | None = None,
    decoding: Decoding = Decoding.FREE,
    **limits: object,
) -> Run:
    """A run over fakes, with a journal in a temporary directory."""
    ask = Ask(QUESTION, **limits)  # type: ignore[arg-type]
    journal = Journal(tmp_path / "journal.jsonl")
    return Run(ask, "thread", decoding, policy, search or FixedSearch(), journal)


Opening = Callable[..., Awaitable[Run]]
"""the fixture `run_of`: the parts and limits of a run over fakes -> the run in its first turn"""


def plan(query: str = "lru_cache maxsize None") -> str:
    return (
        "<think>Look it up.</think>\n<structured_plan>\n<deep_analysis>Simple.</deep_analysis>\n"
        "<rubric>\n- Says what happens to the size\n- Says what is evicted\n</rubric>\n"
        "<research_plan>Read the documentation.</research_plan>\n</structured_plan>\n"
        f'<call_tool name="search">{query}</call_tool>'
    )


def search(query: str) -> str:
    return (
        "<think>More is needed.</think>\n<state_evaluation>Size is open.</state_evaluation>\n"
        f'<call_tool name="search">{query}</call_tool>'
    )


def answer(text: str = 'It is <cite id="S1">an unbounded cache</cite>.') -> str:
    return (
        "<think>Enough.</think>\n<state_evaluation>All is settled by S1.</state_evaluation>\n"
        "<review>\n<rubric_review>Both items: S1.</rubric_review>\n"
        "<writing_plan>The size, then eviction.</writing_plan>\n</review>\n"
        f"<answer>{text}</answer>"
    )


RETURNED = (
    "<think>Enough?</think>\n<state_evaluation>Eviction is open.</state_evaluation>\n"
    "<review>\n<rubric_review>\n- Says what happens to the size [met: S1]\n"
    "- Says what is evicted [missing]\n</rubric_review>\n"
    "<writing_plan>The size.</writing_plan>\n</review>"
)
"""a turn that ends at its review, since it marks something as missing"""
SENT_BACK = (plan(), f"{RETURNED}\n<answer>It", search("eviction"), answer())
RUN = (plan(), search("functools.cache unbounded"), answer())
SUPPORTED = json.dumps(
    {"verdicts": [{"number": 1, "reason": "It says so.", "verdict": "supported"}]}
)
"""the reply to the check of the one citation in `RUN`"""


@asynccontextmanager
async def researching(
    base_url: str,
    data_dir: Path,
    source: SearchTool | None = None,
    journal: Journal | None = None,
    chat: dict[str, Any] | None = None,
    **limits: Any,
) -> AsyncIterator[Researcher]:
    """The parts that `rubricem ask` puts together for a server, with a source of choice."""
    async with client(base_url, **(chat or {})) as model:
        yield Researcher(
            policy=ChatWriter(model),
            decoder=FreeDecoder(),
            decoding=Decoding.FREE,
            search_tool=source or FixedSearch(),
            store=RunStore(data_dir),
            template=Ask("", **limits),
            journal=journal,
        )


async def asked(
    base_url: str,
    data_dir: Path,
    question: str = QUESTION,
    thread: str = "t",
    listener: Listener = ignore,
    **options: Any,
) -> Trajectory:
    async with researching(base_url, data_dir, **options) as researcher:
        return await researcher.ask(
            replace(researcher.template, question=question), thread, listener
        )


async def ran(folder: Path, script: Any, **options: Any) -> Trajectory:
    """The run of a question on a server that replies by script."""
    with ScriptedServer(script) as server:
        return await asked(server.base_url, folder, **options)


def contents(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The messages of a recorded request."""
    return [(message["role"], message["content"]) for message in body["messages"]]


def journalled(data_dir: Path, thread: str = "t") -> int:
    """Calls that finished; the day on which a run began is none."""
    lines = (data_dir / "runs" / thread / "journal.jsonl").read_text().splitlines()
    return sum("today" not in json.loads(line)["reply"] for line in lines)


BROWSED = "What was the revenue of Acme in 2023?"


def opening(wanted: str) -> str:
    """A turn that opens a page."""
    return (
        "<think>The snippet breaks off.</think>\n<state_evaluation>Revenue is open."
        f'</state_evaluation>\n<call_tool name="open_page">{wanted}</call_tool>'
    )


def result(address: str, text: str = "Acme reports its revenue for 2023 here.") -> Passage:
    """A row that a search of the web returns."""
    return Passage("Acme results", address, "", text)


async def browsed(
    folder: Path,
    script: Sequence[str] | Callable[[str, Sampling], str],
    results: Sequence[Passage],
    pages: PageReader | None,
    question: str = BROWSED,
    source: SearchTool | None = None,
    **limits: int,
) -> Trajectory:
    """One question, answered by a script over what a search and pages bring."""
    researcher = Researcher(
        policy=ScriptedPolicy(script),
        decoder=FreeDecoder(),
        decoding=Decoding.FREE,
        search_tool=source or FixedSearch(results),
        store=RunStore(folder),
        template=Ask(""),
        pages=pages,
        beyond=pages is not None,
    )
    return await researcher.ask(Ask(question, **limits), "t")


def turns(*middle: str, last: str = 'It was <cite id="S1">reported</cite>.') -> list[str]:
    """A plan, the turns between, an answer."""
    return [plan("Acme revenue 2023"), *middle, answer(last)]


def tool_texts(trajectory: Trajectory) -> list[str]:
    """What the tools brought, in order, as the policy read it."""
    return [s.text.strip() for s in trajectory.segments if s.author == "tool" and s.kept]


PLAN = (
    "<think>eviction</think>\n<structured_plan><deep_analysis>simple</deep_analysis>"
    "<rubric>- order</rubric><research_plan>1. search</research_plan></structured_plan>\n"
)
CALL = '<call_tool name="search">q</call_tool>'
FIRST = PLAN + '<call_tool name="search">lru_cache eviction</call_tool>'
OUTPUT = '\n<tool_output><snippet id="S1">least recently used</snippet></tool_output>\n'
EVALUATION = "<think>enough</think><state_evaluation>order known</state_evaluation>"
REVIEW = (
    "<review><rubric_review>order: S1</rubric_review><writing_plan>one line</writing_plan></review>"
)
ANSWER = '<answer>It evicts <cite id="S1">the oldest</cite>.</answer>'
LAST = EVALUATION + REVIEW + ANSWER


def shape(document: ScaffoldDocument) -> list[tuple[str, str]]:
    """Tag and inner text of every block, in order."""
    return [(b.tag, document.inner(b)) for b in document.root.walk() if b is not document.root]
