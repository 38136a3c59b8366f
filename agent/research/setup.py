"""What a question is answered with, as one value, and a researcher opened from it.

A `Setup` is resolved once, from settings or from whatever else; each command, page, tool server and
trainer opens its researcher here, with clients that are built once and closed at the end. Heavy
parts are imported where they are chosen: an answer from a server loads neither llama.cpp nor,
without a folder or library source, an index.

What `--source auto` stands for is settled before anything is asked: the web where it answers soon
enough, else `python`. It is kept with the run by the name of what it took, so that a resume
searches the same.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx

from rubricem.agent.models.opening import PolicyChoice, Tell, embedder_in
from rubricem.agent.models.policy import Policy
from rubricem.agent.pages.read import open_pages
from rubricem.agent.research.events import Listener, SourceProgress, ignore
from rubricem.agent.research.graph import Decoder
from rubricem.agent.research.question import Ask, Budgets, Person
from rubricem.agent.research.recall import CHARACTERS, MORE_CHARACTERS, BankRecaller
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.sources.choice import AUTO, PYTHON, WEB, is_beyond
from rubricem.agent.tracing import traced_researcher
from rubricem.agent.verify.verifier import verifier_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.embedder import CountedEmbedder
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.interfaces import Embedder, Sampling, SearchTool
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Decoding, Trajectory

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    from rubricem.agent.mcp.tool_server import ToolServer

SOON = 0.5
"""seconds in which a source that cannot be used mostly shows it"""
PROBED = ("https://duckduckgo.com/", "https://www.wikipedia.org/")
"""two of the services that the web search asks; one that answers is enough"""
SECONDS = 2.0

Answers = Callable[[], Awaitable[bool]]
"""whether the web answers; never takes longer than `SECONDS`"""


@dataclass(frozen=True, slots=True)
class Stores:
    """Where everything is kept."""

    data_dir: Path
    """runs, bank, indexes, pages and uploads"""
    weights_dir: Path
    embedder: str
    """of the bank and of hybrid retrieval"""
    bank_server: str | None = None
    """a Chroma server that holds the bank's vectors; None: a folder of the data directory"""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is searched and read."""

    names: tuple[str, ...]
    retrieval: str = "lexical"
    scholar_key: str | None = field(default=None, repr=False)
    tool_servers: Mapping[str, "ToolServer"] = field(default_factory=dict, repr=False)
    """whose tools may be called beside the search"""
    private_hosts: tuple[str, ...] = ()
    """whose pages may be read although they are private"""


@dataclass(frozen=True, slots=True)
class Setup:
    """All that shapes an answer, but for the question."""

    model: PolicyChoice
    decoding: Decoding
    temperature: float
    """of free decoding"""
    attempts: int
    """tries of a turn in free mode that breaks the scaffold"""
    template: Ask
    """the limits of every question, without budgets: those who collect have none"""
    budgets: Budgets
    """of a question that a person asks"""
    sources: Sources
    stores: Stores
    memory: Literal["on", "off", "read-only"]
    similarity_floor: float | None
    least_reflection_score: float | None
    verify: Literal["off", "mark", "repair"]
    checker: Literal["auto", "lexical"]
    checkpoints: str | None = field(repr=False)
    """a PostgreSQL address that keeps the graph's positions; None: the journal alone"""
    tracing: bool
    choices: Mapping[str, Any]
    """what of it is kept with a run, so that a resume has it again"""

    def searching(self, names: Sequence[str], kept: Sequence[str]) -> "Setup":
        """The same over other sources, which are kept with a run by their whole names."""
        sources = replace(self.sources, names=tuple(names))
        return replace(self, sources=sources, choices={**self.choices, "source": [*kept]})

    def anywhere(self) -> "Setup":
        """The same for a process that starts in another folder."""
        names = self.choices["source"]
        return replace(self.searching(names, names), model=self.model.anywhere())


def telling(listener: Listener) -> Tell:
    """Has the listener hear sentences as progress."""
    return lambda line: listener(SourceProgress(line))


def open_bank(
    stores: Stores,
    listener: Listener = ignore,
    on_embedded: Callable[[int], None] | None = None,
) -> RubricBank:
    """The data directory's bank; its embedding model is fetched when it is first needed.

    `on_embedded` is called with the number of texts that were embedded so far.
    """

    async def open_embedder() -> Embedder:
        embedder = await embedder_in(stores.weights_dir, telling(listener), stores.embedder)
        return CountedEmbedder(embedder, on_embedded) if on_embedded else embedder

    return RubricBank(stores.data_dir, open_embedder, stores.bank_server)


def recaller_of(
    setup: Setup,
    context_tokens: int | None,
    listener: Listener = ignore,
    generation: int | None = None,
) -> BankRecaller | None:
    """What `--memory` says: None where it is off. A small context is shown less."""
    if setup.memory == "off":
        return None
    return BankRecaller(
        open_bank(setup.stores, listener),
        floor=setup.similarity_floor,
        characters=MORE_CHARACTERS if context_tokens is None else CHARACTERS,
        generation=generation,
        listener=listener,
    )


@asynccontextmanager
async def open_sources(
    sources: Sources, stores: Stores, listener: Listener = ignore
) -> AsyncIterator[SearchTool]:
    """The named sources as one; folders and libraries are indexed by their first search."""
    embedder = None
    if sources.retrieval == "hybrid":
        embedder = await embedder_in(stores.weights_dir, telling(listener), stores.embedder)
    tool = await asyncio.to_thread(_combine, sources, stores.data_dir, embedder, listener)
    if not sources.tool_servers:
        yield tool
        return
    from rubricem.agent.mcp.client import Equipped

    equipped = Equipped(tool, sources.tool_servers)
    try:
        yield equipped
    finally:
        await equipped.aclose()


def _combine(
    sources: Sources, data_dir: Path, embedder: Embedder | None, listener: Listener
) -> SearchTool:
    from rubricem.agent.sources.choice import Combined, open_source

    def tell(done: int, total: int, doing: str) -> None:
        # Without the name of what is read, so that a log gets one line of it.
        listener(SourceProgress(f"reading documents: {done} of {total}" if total else doing))

    cache, key = data_dir / "indexes", sources.scholar_key
    tools = [
        open_source(name, cache, sources.retrieval, embedder, tell, key) for name in sources.names
    ]
    return tools[0] if len(tools) == 1 else Combined(tools, telling(listener))


async def settle(
    setup: Setup,
    thread: str | None = None,
    listener: Listener = ignore,
    answers: Answers | None = None,
) -> Setup:
    """The setup with a source in the place of `auto`, which the listener is told.

    A thread that was begun goes on with what it took then, and nothing is probed.
    """
    if AUTO not in setup.sources.names:
        return setup
    store = RunStore(setup.stores.data_dir)
    if thread is not None and await asyncio.to_thread(store.holds, thread):
        request = await asyncio.to_thread(store.request, thread)
        names = request["choices"]["source"]
        return setup.searching(names, names)
    began = time.monotonic()
    found = await (answers or web_answers)()
    listener(SourceProgress(_told(found, time.monotonic() - began)))
    taken = {AUTO: WEB if found else PYTHON}

    def named(names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(taken.get(name, name) for name in names))

    return setup.searching(named(setup.sources.names), named(setup.choices["source"]))


def _told(found: bool, seconds: float) -> str:
    if found:
        return f"source: the web, which answered in {seconds:.1f} s"
    return (
        f"source: the Python libraries installed here, since the web did not answer in "
        f"{seconds:.1f} s; name another with --source"
    )


async def web_answers(addresses: Sequence[str] = PROBED, seconds: float = SECONDS) -> bool:
    """Whether any of the addresses answers without an error within so many seconds."""
    async with httpx.AsyncClient(timeout=seconds) as http:
        tries = [asyncio.create_task(_answers(http, address)) for address in addresses]
        try:
            for first in asyncio.as_completed(tries, timeout=seconds):
                if await first:
                    return True
        except TimeoutError:
            pass
        finally:
            for task in tries:
                task.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
    return False


async def _answers(http: httpx.AsyncClient, address: str) -> bool:
    try:
        reply = await http.head(address)
    except httpx.HTTPError:
        return False
    return reply.is_success or reply.is_redirect


def reserve(
    setup: Setup, thread: str, question: str, earlier: tuple[str, ...] | None = None
) -> Ask:
    """Write down what is asked under a name, and after which runs, before any work is done for it.

    `earlier`: None means those that it was asked after before, where the name is known. Raises
    what cannot be asked: a thread that holds another question, a bad data directory.
    """
    store = RunStore(setup.stores.data_dir)
    if earlier is None:
        known = store.request(thread).get("ask", {}) if store.holds(thread) else {}
        earlier = tuple(known.get("earlier", ()))
    ask = replace(setup.template, question=question, earlier=earlier, budgets=setup.budgets)
    store.create(thread, request_of(ask, setup.choices))
    return ask


async def answer(
    setup: Setup,
    question: str,
    thread: str,
    listener: Listener = ignore,
    stopping: AbstractContextManager[asyncio.Event | None] | None = None,
    person: Person | None = None,
) -> Trajectory:
    """One question from its setup to its trajectory, with clients of its own.

    `stopping` is entered once the run begins; its event ends the run with what there is. `person`
    is asked where the run is to ask somebody.
    """
    setup = await settle(setup, thread, listener)
    ask = await asyncio.to_thread(reserve, setup, thread, question)
    async with AsyncExitStack() as stack:
        researcher = await stack.enter_async_context(open_researcher(setup, listener))
        if setup.checkpoints:
            researcher.saver = await stack.enter_async_context(open_saver(setup.checkpoints))
        stop = stack.enter_context(stopping) if stopping else None
        return await researcher.ask(ask, thread, listener, stop, person)


@asynccontextmanager
async def open_researcher(
    setup: Setup,
    listener: Listener = ignore,
    *,
    policy: Callable[[], Awaitable[Policy]] | None = None,
    search_tool: SearchTool | None = None,
) -> AsyncIterator[Researcher]:
    """A researcher as the setup wants it; what it opened is closed at the end.

    `policy` gives a model, and `search_tool` is what is searched, that are open already and stay
    so: where several researchers share them.
    """
    setup = await settle(setup, listener=listener)
    async with AsyncExitStack() as stack:
        tool = search_tool
        if tool is None:
            opening = open_sources(setup.sources, setup.stores, listener)
            tool = await stack.enter_async_context(opening)
        # An empty folder is told before a gigabyte of weights is fetched for it.
        ready = await stack.enter_async_context(_prepare(tool, listener))
        await asyncio.wait([ready], timeout=SOON)
        if ready.done():
            await ready
        if policy is None:
            model = await stack.enter_async_context(setup.model.open_policy(telling(listener)))
        else:
            model = await policy()
        # Not beside a model that writes: on few cores an index being built would starve it.
        await ready
        yield _build(setup, model, tool, listener)


@asynccontextmanager
async def _prepare(tool: SearchTool, listener: Listener) -> AsyncIterator[asyncio.Task[None]]:
    """Documents are read and indexed while weights are fetched and loaded."""

    async def prepare() -> None:
        for problem in await tool.prepare():
            listener(SourceProgress(problem))

    task = asyncio.create_task(prepare())
    try:
        yield task
    finally:
        task.cancel()
        # What it raised is told where it is awaited; here something else already went wrong.
        await asyncio.gather(task, return_exceptions=True)


def _build(setup: Setup, policy: Policy, search_tool: SearchTool, listener: Listener) -> Researcher:
    data_dir = setup.stores.data_dir
    researcher = Researcher(
        policy=policy,
        decoder=_decoder(setup),
        decoding=setup.decoding,
        search_tool=search_tool,
        store=RunStore(data_dir),
        template=setup.template,
        choices=setup.choices,
        recaller=recaller_of(setup, policy.context_tokens, listener),
        pages=open_pages(data_dir / "pages", setup.sources.private_hosts),
        beyond=any(map(is_beyond, setup.sources.names)),
        verifier=verifier_of(policy, setup.verify, setup.checker),
    )
    return traced_researcher(researcher, setup.tracing)


def _decoder(setup: Setup) -> Decoder:
    """What leads the policy through the stages."""
    if setup.decoding is Decoding.FORCED:
        from rubricem.agent.research.forced import ForcedDecoder

        return ForcedDecoder()
    from rubricem.agent.research.free import FreeDecoder

    return FreeDecoder(Sampling(temperature=setup.temperature), setup.attempts)


SCHEMES = ("postgresql://", "postgres://")


@asynccontextmanager
async def open_saver(address: str) -> "AsyncIterator[AsyncPostgresSaver]":
    """A saver over the database at the address; its tables are made where they are missing.

    Raises SettingsError where the address or the driver will not do, StoreError where the
    database does not answer.
    """
    if not address.startswith(SCHEMES):
        raise SettingsError(
            "checkpoints names no PostgreSQL database.",
            "Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        )
    try:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg import Error
    except ImportError as cause:
        raise SettingsError(
            "Checkpoints in PostgreSQL need the extra `postgres`.",
            'Install it: pip install "rubricem[postgres]"',
        ) from cause
    opening = AsyncPostgresSaver.from_conn_string(address)
    try:
        saver = await opening.__aenter__()
        await saver.setup()
    except Error as cause:
        # The driver's words may hold the address with its password.
        raise StoreError(
            f"the database of the checkpoints cannot be used ({type(cause).__name__}).",
            "See that it runs, that the address is right and that the user may create tables.",
        ) from cause
    try:
        yield saver
    finally:
        await opening.__aexit__(None, None, None)
