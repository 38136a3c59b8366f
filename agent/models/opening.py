"""The model that somebody chose, and how it is opened: in this process, or behind a server.

A choice is all that opening it needs. It is opened as what the graph writes with (a `Policy`), as
what judges, or as what continues token ids; whoever opens it asks the choice, and nobody above
this folder asks which of the two kinds it is. Heavy parts are imported where they are chosen.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from rubricem.agent.models.limits import Endpoint
from rubricem.agent.models.policy import ChatWriter, Policy, TokenWriter
from rubricem.agent.tracing import traced_model
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.agent.weights.checkpoints import is_checkpoint
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import Embedder

Tell = Callable[[str], None]
"""hears a sentence on what is being done"""


def hush(line: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class EmbeddedChoice:
    """A model in this process: a catalogue name, a GGUF file, a hub name or a checkpoint."""

    embedded: ClassVar[bool] = True
    model_name: str
    weights_dir: Path | None = None
    """None: the platform's place"""
    context_tokens: int = 8192
    threads: int | None = None
    """None: the physical cores that nothing else keeps busy"""
    slots: int = 1
    tracing: bool = False

    @property
    def name(self) -> str:
        return self.model_name

    @property
    def at_once(self) -> int:
        """Runs that it serves well at the same time."""
        return self.slots

    @property
    def checkpoint(self) -> Path | None:
        """The folder of a trained policy, where that is what was named."""
        return Path(self.model_name).expanduser() if is_checkpoint(self.model_name) else None

    def anywhere(self) -> "EmbeddedChoice":
        """The same for a process that starts in another folder."""
        return replace(self, model_name=whole_name(self.model_name))

    @asynccontextmanager
    async def open_tokens(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The `LlamaPolicy`, its weights fetched if need be; freed at the end."""
        from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy, free_cores
        from rubricem.agent.weights.resolve import resolve_files

        files = await resolve_files(
            self.model_name, directory=self.weights_dir, on_progress=shares_told(tell)
        )
        tell(f"loading {files.path.name}")
        free = await asyncio.to_thread(free_cores)
        config = LlamaConfig(self.context_tokens, self.threads or free, self.slots, files.adapter)
        model = await LlamaPolicy.load(files.path, files.name, files.version, config)
        try:
            yield traced_model(model, self.tracing)
        finally:
            await model.aclose()

    open_judge = open_tokens

    @asynccontextmanager
    async def open_policy(self, tell: Tell = hush) -> AsyncIterator[Policy]:
        """The model behind the graph's seam."""
        async with self.open_tokens(tell) as model:
            yield TokenWriter(model)


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """A model behind an OpenAI-compatible server; `model` None: the only one it lists."""

    embedded: ClassVar[bool] = False
    checkpoint: ClassVar[None] = None
    model: str | None
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    dialect: str | None = None
    """how it is asked: by messages (None, `openai`), or in token ids"""
    context_tokens: int = 8192
    concurrency: int = 64
    """calls in flight"""
    timeout: float = 120.0
    """seconds that it may stay silent"""
    prices: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    tracing: bool = False

    @property
    def name(self) -> str:
        return self.model or ""

    @property
    def at_once(self) -> int:
        """Runs that it serves well at the same time."""
        return self.concurrency

    def anywhere(self) -> "ServerChoice":
        """The same for a process that starts in another folder."""
        return self

    @asynccontextmanager
    async def open_chat(self, *, think_is_reasoning: bool = False) -> AsyncIterator[Any]:
        """The `OpenAIChat`, closed at the end."""
        from rubricem.agent.models.chat_server import OpenAIChat, only_model
        from rubricem.agent.models.limits import shared_limiters
        from rubricem.agent.models.prices import Prices

        chat = OpenAIChat(
            self.model or await only_model(self.base_url, self.api_key),
            self.base_url,
            self.api_key,
            limiter=shared_limiters().of(self.base_url, self.concurrency),
            prices=Prices(self.prices),
            timeout=self.timeout,
            think_is_reasoning=think_is_reasoning,
        )
        try:
            yield traced_model(chat, self.tracing)
        finally:
            await chat.aclose()

    @asynccontextmanager
    async def open_judge(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The model as it judges: by messages, what it thinks kept apart."""
        async with self.open_chat(think_is_reasoning=True) as chat:
            yield chat

    @asynccontextmanager
    async def open_tokens(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The `TokenServer`. Raises SettingsError where it is asked as a chat server."""
        async with self._token_server(tell) as served:
            if served is None:
                raise SettingsError(
                    f"{self.base_url} gives no token ids, and without them no ratio can be formed.",
                    "Sample from vLLM, SGLang or llama.cpp's server, or from the embedded model.",
                )
            yield served

    @asynccontextmanager
    async def open_policy(self, tell: Tell = hush) -> AsyncIterator[Policy]:
        """The model behind the graph's seam."""
        async with self._token_server(tell) as served:
            if served is not None:
                yield TokenWriter(served)
                return
        async with self.open_chat() as chat:
            yield ChatWriter(chat)

    @asynccontextmanager
    async def _token_server(self, tell: Tell) -> AsyncIterator[Any]:
        """The `TokenServer`, or None where it is asked as a chat server."""
        if self.dialect in (None, "openai"):
            yield None
            return
        from rubricem.agent.models.chat_server import only_model
        from rubricem.agent.models.limits import Server, shared_limiters
        from rubricem.agent.models.openai_client import ModelServer
        from rubricem.agent.models.prices import Prices
        from rubricem.agent.models.tokens import KINDS, open_tokens

        model = self.model or await only_model(self.base_url, self.api_key)
        endpoint = Endpoint.parse(self.base_url)
        http = ModelServer(Server(endpoint, model, "OPENAI_API_KEY", self.api_key or ""))
        try:
            served = await open_tokens(
                http,
                next((kind for kind in KINDS if kind == self.dialect), None),
                context_tokens=self.context_tokens,
                limiter=shared_limiters().of(self.base_url, self.concurrency),
                price=Prices(self.prices).of(model, endpoint.host),
                timeout=self.timeout,
                tell=tell,
            )
            yield None if served is None else traced_model(served, self.tracing)
        finally:
            await http.aclose()


PolicyChoice = EmbeddedChoice | ServerChoice


async def embedder_in(
    weights_dir: Path, tell: Tell = hush, name: str = DEFAULT_EMBEDDER
) -> Embedder:
    """The embedder of a name, fetched where it is not on disk and loaded when first used."""
    from rubricem.agent.weights.resolve import open_embedder

    return await open_embedder(name, directory=weights_dir, on_progress=shares_told(tell))


def shares_told(tell: Tell) -> Callable[[int, int, str], None]:
    """Says what is fetched, and how far it is."""

    def progress(done: int, total: int, doing: str) -> None:
        share = f" {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        tell(f"{doing}{share}")

    return progress


def whole_name(model: str) -> str:
    """A model's name; a path is whole, so that it means the same in another folder."""
    path = Path(model).expanduser()
    named = model.lower().endswith(".gguf") or is_checkpoint(model)
    return str(path.absolute()) if named and path.exists() else model
