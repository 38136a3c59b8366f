"""The bank as the settings name it, and what of it is recalled before a question.

From settings to a researcher: the clients are built once, here, and closed here.

Heavy parts are imported where they are chosen: an answer from a server loads neither llama.cpp
nor, without a folder or library source, an index.

A researcher put together from its parts: once for a command, several over one model to serve.

Nothing is opened here but what costs nothing: the policy and the sources are handed in.

From settings to what is searched: every source that they name, as one.

What `--source auto` stands for: the web where it answers soon enough, else `python`.

`auto` is the default where a server answers the questions, since a large model knows what to do
with the web; the embedded model keeps to the installed libraries. It is settled before anything
is asked and kept with the run by the name of what it took, so that a resume searches the same.

The graph for `langgraph dev` and LangGraph servers: `langgraph.json` names it.

The server brings its own checkpointer and hands in a question; the clients are built at the
first one, from the same settings as on the command line, and live as long as the process.

LangGraph's checkpoints in PostgreSQL, for positions that outlive this machine.

They hold where a run stands, not what it wrote: the transcript comes from the run's journal. The
extra `postgres` brings the driver.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from rubricem.agent.models.limits import Endpoint
from rubricem.agent.models.policy import ChatWriter, Policy, TokenWriter
from rubricem.agent.pages.read import open_pages
from rubricem.agent.research.events import Listener, SourceProgress, ignore
from rubricem.agent.research.graph import Decoder, build_graph
from rubricem.agent.research.question import Ask, Budgets
from rubricem.agent.research.recall import CHARACTERS, MORE_CHARACTERS, BankRecaller
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.run import Run
from rubricem.agent.settings import EmbeddedChoice, ServerChoice, Settings, choose_policy
from rubricem.agent.sources.choice import AUTO, PYTHON, WEB, is_beyond, kept_name
from rubricem.agent.tracing import traced_model, traced_researcher
from rubricem.agent.verify.verifier import verifier_of
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.agent.weights.checkpoints import is_checkpoint
from rubricem.memory.bank import RubricBank
from rubricem.memory.embedder import CountedEmbedder
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.interfaces import Embedder, Sampling, SearchTool
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import AnswerFormat, Decoding, Trajectory

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver


def open_bank(
    settings: Settings,
    listener: Listener = ignore,
    on_embedded: Callable[[int], None] | None = None,
) -> RubricBank:
    """The data directory's bank; its embedding model is fetched when it is first needed.

    `on_embedded` is called with the number of texts that were embedded so far.
    """

    async def open_embedder() -> Embedder:
        embedder = await embedder_in(settings.weights_dir, listener, settings.embedder)
        return CountedEmbedder(embedder, on_embedded) if on_embedded else embedder

    return RubricBank(settings.data_dir, open_embedder, settings.bank_server)


async def embedder_in(
    weights_dir: Path, listener: Listener = ignore, name: str = DEFAULT_EMBEDDER
) -> Embedder:
    """The embedder of a name, fetched where it is not on disk and loaded when first used."""
    from rubricem.agent.weights.resolve import open_embedder

    def tell(done: int, total: int, doing: str) -> None:
        share = f" {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        listener(SourceProgress(f"{doing}{share}"))

    return await open_embedder(name, directory=weights_dir, on_progress=tell)


def recaller_of(
    settings: Settings,
    context_tokens: int | None,
    listener: Listener = ignore,
    generation: int | None = None,
) -> BankRecaller | None:
    """What `--memory` says: None where it is off. A small context is shown less."""
    if settings.memory == "off":
        return None
    characters = MORE_CHARACTERS if context_tokens is None else CHARACTERS
    return BankRecaller(
        open_bank(settings, listener),
        floor=settings.similarity_floor,
        characters=characters,
        generation=generation,
        listener=listener,
    )


def built(
    settings: Settings,
    policy: Policy,
    decoding: Decoding,
    search_tool: SearchTool,
    template: Ask,
    choices: dict[str, Any],
    listener: Listener,
) -> Researcher:
    """The researcher of these settings over a policy and sources that its caller closes."""
    researcher = Researcher(
        policy=policy,
        decoder=decoder_of(settings, decoding),
        decoding=decoding,
        search_tool=search_tool,
        store=RunStore(settings.data_dir),
        template=template,
        choices=choices,
        recaller=recaller_of(settings, policy.context_tokens, listener),
        pages=open_pages(settings.data_dir / "pages", settings.allow_hosts),
        beyond=any(map(is_beyond, settings.source)),
        verifier=verifier_of(settings, policy),
    )
    return traced_researcher(researcher, settings.tracing)


def decoder_of(settings: Settings, decoding: Decoding) -> Decoder:
    """What leads the policy through the stages."""
    if decoding is Decoding.FORCED:
        from rubricem.agent.research.forced import ForcedDecoder

        return ForcedDecoder()
    from rubricem.agent.research.free import FreeDecoder

    temperature = 1.0 if settings.temperature is None else settings.temperature
    return FreeDecoder(Sampling(temperature=temperature), settings.attempts)


async def open_sources(settings: Settings, listener: Listener) -> SearchTool:
    """The named sources; folders and libraries are indexed by their first search."""
    embedder = None
    if settings.retrieval == "hybrid":
        embedder = await embedder_in(settings.weights_dir, listener, settings.embedder)
    tool = await asyncio.to_thread(_combined, settings, embedder, listener)
    if not settings.mcp_servers:
        return tool
    from rubricem.agent.mcp.client import Equipped

    return Equipped(tool, settings.mcp_servers)


async def close_sources(tool: SearchTool) -> None:
    """Let go of what the sources hold open: connections to MCP servers, and their programs."""
    from rubricem.agent.mcp.client import Equipped

    if isinstance(tool, Equipped):
        await tool.aclose()


def _combined(settings: Settings, embedder: Embedder | None, listener: Listener) -> SearchTool:
    from rubricem.agent.sources.choice import Combined, open_source

    def tell(done: int, total: int, doing: str) -> None:
        # Without the name of what is read, so that a log gets one line of it.
        listener(SourceProgress(f"reading documents: {done} of {total}" if total else doing))

    cache = settings.data_dir / "indexes"
    key = settings.scholar_key.get_secret_value() if settings.scholar_key else None
    tools = [
        open_source(name, cache, settings.retrieval, embedder, tell, key)
        for name in settings.source
    ]
    if len(tools) == 1:
        return tools[0]
    return Combined(tools, lambda problem: listener(SourceProgress(problem)))


PROBED = ("https://duckduckgo.com/", "https://www.wikipedia.org/")
"""two of the services that the web search asks; one that answers is enough"""
SECONDS = 2.0

Answers = Callable[[], Awaitable[bool]]
"""whether the web answers; never takes longer than `SECONDS`"""


def with_default_source(settings: Settings) -> Settings:
    """The settings with `auto` as their source where a server is named and no source is."""
    if "source" in settings.model_fields_set:
        return settings
    server = isinstance(choose_policy(settings), ServerChoice)
    return settings.model_copy(update={"source": (AUTO,)}) if server else settings


async def settled(
    settings: Settings,
    thread: str | None = None,
    listener: Listener = ignore,
    answers: Answers | None = None,
) -> Settings:
    """The settings with a source in the place of `auto`, which the listener is told.

    A thread that was begun goes on with what it took then, and nothing is probed.
    """
    if AUTO not in settings.source:
        return settings
    store = RunStore(settings.data_dir)
    if thread is not None and await asyncio.to_thread(store.holds, thread):
        request = await asyncio.to_thread(store.request, thread)
        return settings.model_copy(update={"source": tuple(request["choices"]["source"])})
    began = time.monotonic()
    found = await (answers or web_answers)()
    seconds = time.monotonic() - began
    listener(SourceProgress(_told(found, seconds)))
    taken = WEB if found else PYTHON
    names = dict.fromkeys(taken if name == AUTO else name for name in settings.source)
    return settings.model_copy(update={"source": tuple(names)})


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


CHOICES = (
    "model",
    "base_url",
    "source",
    "decoding",
    "retrieval",
    "temperature",
    "attempts",
    "memory",
    "verify",
    "checker",
)
"""the settings that shape an answer and are kept with a run, so that a resume has them again"""
SOON = 0.5
"""seconds in which a source that cannot be used mostly shows it"""


@asynccontextmanager
async def open_researcher(
    settings: Settings, listener: Listener = ignore
) -> AsyncIterator[Researcher]:
    """A researcher as the settings want it; its model is freed at the end."""
    choice = choose_policy(settings)
    decoding = decoding_of(settings, choice)
    settings = await settled(settings, listener=listener)
    search_tool = await open_sources(settings, listener)
    choices = await asyncio.to_thread(choices_of, settings)
    async with _prepared(search_tool, listener) as ready:
        # An empty folder is told before a gigabyte of weights is fetched for it.
        await asyncio.wait([ready], timeout=SOON)
        if ready.done():
            await ready
        async with open_policy(settings, choice, listener) as policy:
            # Not beside a model that writes: on few cores an index being built would starve it.
            await ready
            template = template_of(settings)
            yield built(settings, policy, decoding, search_tool, template, choices, listener)


@asynccontextmanager
async def _prepared(tool: SearchTool, listener: Listener) -> AsyncIterator[asyncio.Task[None]]:
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
        await close_sources(tool)


@asynccontextmanager
async def open_policy(
    settings: Settings, choice: EmbeddedChoice | ServerChoice, listener: Listener = ignore
) -> AsyncIterator[Policy]:
    """The chosen model behind the graph's seam."""
    if isinstance(choice, EmbeddedChoice):
        model = await load_embedded(settings, choice, listener)
        try:
            yield TokenWriter(model)
        finally:
            await model.aclose()
    elif (served := await connect_tokens(settings, choice, listener)) is not None:
        try:
            yield TokenWriter(served)
        finally:
            await served.aclose()
    else:
        chat = await connect(settings, choice)
        try:
            yield ChatWriter(chat)
        finally:
            await chat.aclose()


def decoding_of(settings: Settings, choice: EmbeddedChoice | ServerChoice) -> Decoding:
    """Forced on the embedded model, free elsewhere, unless the user says otherwise."""
    embedded = isinstance(choice, EmbeddedChoice)
    if settings.decoding == "forced" and not embedded:
        raise SettingsError(
            "A chat server cannot be led slot by slot: it continues messages, not tokens.",
            "Use --decoding free with it, or the embedded model.",
        )
    if settings.decoding == "auto":
        return Decoding.FORCED if embedded else Decoding.FREE
    return Decoding(settings.decoding)


def template_of(settings: Settings) -> Ask:
    """The limits of a question under these settings; a small model reads less of each passage."""
    embedded = isinstance(choose_policy(settings), EmbeddedChoice)
    ask = Ask(
        question="",
        answer_format=settings.answer_format,
        tool_calls=settings.tool_calls,
        max_tokens=settings.max_tokens,
        seed=settings.seed,
        approve_plan=settings.approve_plan,
        clarify=settings.clarify,
    )
    return replace(ask, passages=3, passage_words=110) if embedded else ask


def budgets_of(settings: Settings) -> Budgets:
    """What one question may spend; 0 in the settings is no limit."""
    return Budgets(
        tokens=settings.max_total_tokens or None,
        seconds=settings.max_seconds or None,
        cost=settings.max_cost or None,
    )


def reserve(
    settings: Settings, thread: str, question: str, earlier: tuple[str, ...] | None = None
) -> Ask:
    """Write down what is asked under a name, and after which runs, before any work is done for it.

    `earlier`: None means those that it was asked after before, where the name is known. Raises
    what cannot be asked: a thread that holds another question, a bad data directory.
    """
    decoding_of(settings, choose_policy(settings))
    store = RunStore(settings.data_dir)
    if earlier is None:
        known = store.request(thread).get("ask", {}) if store.holds(thread) else {}
        earlier = tuple(known.get("earlier", ()))
    ask = replace(
        template_of(settings), question=question, earlier=earlier, budgets=budgets_of(settings)
    )
    store.create(thread, request_of(ask, choices_of(settings)))
    return ask


def choices_of(settings: Settings) -> dict[str, Any]:
    """`CHOICES` as they are kept: paths are whole, since a resume may start elsewhere."""
    choices = settings.model_dump(mode="json", include=set(CHOICES))
    if settings.base_url:
        choices["base_url"] = Endpoint.parse(settings.base_url).url  # without a password in it
    choices["source"] = [kept_name(name) for name in settings.source]
    model = settings.model or ""
    if model.lower().endswith(".gguf") or is_checkpoint(model):
        choices["model"] = _whole(model)
    return choices


def _whole(name: str) -> str:
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else name


async def load_embedded(settings: Settings, choice: EmbeddedChoice, listener: Listener) -> Any:
    """The `LlamaPolicy` of the choice, its weights fetched if need be; the caller closes it."""
    from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy, free_cores
    from rubricem.agent.weights.resolve import resolve_files

    def tell(done: int, total: int, doing: str) -> None:
        share = f" {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        listener(SourceProgress(f"{doing}{share}"))

    files = await resolve_files(choice.model_name, directory=settings.weights_dir, on_progress=tell)
    listener(SourceProgress(f"loading {files.path.name}"))
    free = await asyncio.to_thread(free_cores)
    threads = settings.threads or free
    config = LlamaConfig(settings.context_tokens, threads, settings.slots, files.adapter)
    model = await LlamaPolicy.load(files.path, files.name, files.version, config)
    return traced_model(model, settings.tracing)


async def connect(
    settings: Settings, choice: ServerChoice, *, think_is_reasoning: bool = False
) -> Any:
    """The `OpenAIChat` of the choice; the caller closes it."""
    from rubricem.agent.models.chat_server import OpenAIChat, only_model
    from rubricem.agent.models.limits import shared_limiters
    from rubricem.agent.models.prices import Prices

    chat = OpenAIChat(
        choice.model or await only_model(choice.base_url, choice.api_key),
        choice.base_url,
        choice.api_key,
        limiter=shared_limiters().of(choice.base_url, settings.concurrency),
        prices=Prices(settings.prices),
        timeout=settings.timeout,
        think_is_reasoning=think_is_reasoning,
    )
    return traced_model(chat, settings.tracing)


async def connect_tokens(
    settings: Settings, choice: ServerChoice, listener: Listener = ignore
) -> Any:
    """The `TokenServer` of the choice, or None where it is asked as a chat server."""
    if settings.dialect in (None, "openai"):
        return None
    from rubricem.agent.models.chat_server import only_model
    from rubricem.agent.models.client import ModelServer
    from rubricem.agent.models.limits import Server, shared_limiters
    from rubricem.agent.models.prices import Prices
    from rubricem.agent.models.tokens import KINDS, open_tokens

    model = choice.model or await only_model(choice.base_url, choice.api_key)
    endpoint = Endpoint.parse(choice.base_url)
    http = ModelServer(Server(endpoint, model, "OPENAI_API_KEY", choice.api_key or ""))
    opened = None
    try:
        opened = await open_tokens(
            http,
            next((kind for kind in KINDS if kind == settings.dialect), None),
            context_tokens=settings.context_tokens,
            limiter=shared_limiters().of(choice.base_url, settings.concurrency),
            price=Prices(settings.prices).of(model, endpoint.host),
            timeout=settings.timeout,
            tell=lambda line: listener(SourceProgress(line)),
        )
        return traced_model(opened, settings.tracing)
    finally:
        if opened is None:
            await http.aclose()


class ServedRuns:
    """`Runs` of a researcher that is built when the first question arrives."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def begin(self, question: str, answer_format: AnswerFormat) -> str:
        return await (await self._researcher()).begin(question, answer_format)

    async def find(self, key: str) -> Run | None:
        return await (await self._researcher()).find(key)

    async def open(self, key: str) -> Run:
        return await (await self._researcher()).open(key)

    async def finish(self, run: Run) -> Trajectory:
        return await (await self._researcher()).finish(run)

    async def abandon(self, run: Run, error: BaseException) -> None:
        await (await self._researcher()).abandon(run, error)

    @property
    def decoder(self) -> Decoder:
        return self._built.decoder

    async def _researcher(self) -> Researcher:
        async with self._lock:
            if not hasattr(self, "_built"):
                from rubricem.agent.settings import load_settings

                settings = await asyncio.to_thread(lambda: with_default_source(load_settings()))
                built = await self._stack.enter_async_context(open_researcher(settings))
                built.template = replace(built.template, budgets=budgets_of(settings))
                self._built = built
        return self._built


graph = build_graph(ServedRuns())


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
