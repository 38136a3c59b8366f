"""The model that somebody chose, and how it is opened: in this process, or behind a server.

A choice is all that opening it needs. It is opened as what the graph writes with (a `Policy`), as
what judges, or as what continues token ids; whoever opens it asks the choice, and nobody above
this folder asks which of the two kinds it is. Heavy parts are imported where they are chosen.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from rubricem.agent.models.limits import (
    AttemptError,
    Endpoint,
    Server,
    price_of,
    shared_limiter,
)
from rubricem.agent.models.policy import ChatWriter, Policy, TokenWriter
from rubricem.agent.models.tracing import traced_model
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.agent.weights.checkpoints import is_checkpoint, note_of
from rubricem.memory.errors import PolicyError, SettingsError, needed
from rubricem.memory.parts import offered, own_part
from rubricem.memory.schema import Embedder, LocalModel

OpenPolicy = Callable[[], Awaitable[Policy]]
"""gives a model that is open already"""


SERVER = "or name a model server: --base-url URL"


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

    @property
    def chain(self) -> Literal["full", "no-types", "no-rubric"] | None:
        """The form of reasoning that the model was trained to judge in; None: in none.

        Raises WeightsError for a checkpoint whose note cannot be read.
        """
        return note_of(self.checkpoint).judge if self.checkpoint else None

    def anywhere(self) -> "EmbeddedChoice":
        """The same for a process that starts in another folder."""
        return replace(self, model_name=whole_name(self.model_name))

    @asynccontextmanager
    async def open_tokens(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The `LlamaPolicy`, its weights fetched if need be; freed at the end."""
        from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
        from rubricem.agent.weights.store import WeightsStore

        needed("xllamacpp", "local", "The embedded model", SERVER)
        store = WeightsStore(self.weights_dir, shares_told(tell))
        files = await store.model_files(self.model_name)
        tell(f"loading {files.path.name}")
        states = files.path.parent if os.access(files.path.parent, os.W_OK) else None
        config = LlamaConfig(self.context_tokens, self.threads, self.slots, files.adapter, states)
        model = await LlamaPolicy.load(files.path, files.name, files.version, config)
        try:
            yield traced_model(model, self.tracing)
        finally:
            await model.aclose()

    @asynccontextmanager
    async def open_judge(
        self, tell: Tell = hush, shared: LocalModel | None = None
    ) -> AsyncIterator[Any]:
        """The model as it judges; `shared` is open already, and its weights are in memory once."""
        if shared is not None:
            yield shared
            return
        async with self.open_tokens(tell) as model:
            yield model

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
    chain: ClassVar[None] = None
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
        """The `OpenAIChat`."""
        from rubricem.agent.models.chat_server import OpenAIChat

        chat = OpenAIChat(
            await self._named(),
            self.base_url,
            self.api_key,
            limiter=shared_limiter(self.base_url, self.concurrency),
            prices=self.prices,
            timeout=self.timeout,
            think_is_reasoning=think_is_reasoning,
        )
        yield traced_model(chat, self.tracing)

    @asynccontextmanager
    async def open_judge(
        self, tell: Tell = hush, shared: LocalModel | None = None
    ) -> AsyncIterator[Any]:
        """The model as it judges: by messages, what it thinks kept apart; never a shared one."""
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
        from rubricem.agent.models.tokens import KINDS, open_tokens

        model = await self._named()
        http, host = self._http(model), Endpoint.parse(self.base_url).host
        served = await open_tokens(
            http,
            next((kind for kind in KINDS if kind == self.dialect), None),
            context_tokens=self.context_tokens,
            limiter=shared_limiter(self.base_url, self.concurrency),
            price=price_of(model, host, self.prices),
            timeout=self.timeout,
            tell=tell,
        )
        yield None if served is None else traced_model(served, self.tracing)

    async def _named(self) -> str:
        """The model, or the only one that the server lists.

        Raises SettingsError if it lists another number of them, PolicyError if it does not answer.
        """
        if self.model:
            return self.model
        http = self._http("")
        try:
            known: list[str] = await http.model_names()
        except AttemptError as failed:
            raise PolicyError(str(failed), failed.remedy) from None
        if len(known) == 1:
            return known[0]
        listed = f": {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}" if known else ""
        raise SettingsError(
            f"{http.server.endpoint.url} lists {len(known)} models{listed}",
            "Name one of them (--model).",
        )

    def _http(self, model: str) -> Any:
        """The open `ModelServer`."""
        from rubricem.agent.models.openai_client import ModelServer

        key = self.api_key or ""
        return ModelServer(Server(Endpoint.parse(self.base_url), model, "OPENAI_API_KEY", key))


PolicyChoice = EmbeddedChoice | ServerChoice


async def embedder_in(
    weights_dir: Path, tell: Tell = hush, name: str = DEFAULT_EMBEDDER
) -> Embedder:
    """The embedder of a name: a package's own, or one that is fetched where it is not on disk.

    It is loaded when first used.
    """
    if name in offered("embedders"):
        own: Embedder = await asyncio.to_thread(own_part, "embedders", name)
        return own
    from rubricem.agent.weights.store import WeightsStore

    return await WeightsStore(weights_dir, shares_told(tell)).embedder(name)


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
