"""From settings to a researcher: the clients are built once, here, and closed here.

Heavy parts are imported where they are chosen: an answer from a server loads neither llama.cpp
nor, without a folder or library source, an index.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.auto_source import settled
from agent.budgets import Budgets
from agent.building import built
from agent.choice import EmbeddedChoice, ServerChoice, choose_policy
from agent.events import Listener, SourceProgress, ignore
from agent.opened_sources import close_sources, open_sources
from agent.policy import ChatWriter, Policy, TokenWriter
from agent.researcher import Researcher, request_of
from agent.run import Ask
from agent.servers.endpoint import Endpoint
from agent.settings import Settings
from agent.sources.names import kept_name
from agent.tracing import traced_model
from agent.weights.checkpoints import is_checkpoint
from memory.errors import SettingsError
from memory.interfaces import SearchTool
from memory.runs import RunStore
from memory.schema import Decoding

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
    from agent.cores import free_cores
    from agent.llama import LlamaConfig, LlamaPolicy
    from agent.weights.resolving import resolve_files

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
    from agent.servers.limiter import shared_limiters
    from agent.servers.openai_chat import OpenAIChat, only_model
    from agent.servers.prices import Prices

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
    from agent.servers.finding import KINDS, open_tokens
    from agent.servers.limiter import shared_limiters
    from agent.servers.model_server import ModelServer
    from agent.servers.openai_chat import only_model
    from agent.servers.prices import Prices
    from agent.servers.server_errors import Server

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
