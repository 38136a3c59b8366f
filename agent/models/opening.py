"""The choice of a model, and how it is opened: in this process, or behind a server.

A choice holds everything needed to open it: as a `Policy` with which the graph writes, as a judge,
or as a model that continues token ids. No code above this folder asks which of the two kinds it is.
Heavy packages are imported only if they are chosen.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, ClassVar

from rubricem.agent.models.limits import (
    AttemptError,
    Endpoint,
    Limiter,
    Retry,
    Server,
    price_of,
    shared_limiter,
)
from rubricem.agent.models.policy import ChatWriter, Policy, TokenWriter
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.agent.weights.checkpoints import is_checkpoint, note_of
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import Embedder, LocalModel

OpenPolicy = Callable[[], Awaitable[Policy]]


UNTOLD_CONTEXT = 32_768
"""tokens that a server's model is taken to have where neither server nor settings say more"""
SERVER = "or name a model server: --base-url URL"
LANGCHAIN = "LangChain"  # in the place of a server's address
OWN = "own:"
GIVEN: ContextVar[Mapping[str, Any]] = ContextVar("GIVEN", default=MappingProxyType({}))
"""objects of the program that asks, by the names `own:NAME` that stand for them in settings"""


def by_name(value: Any, objects: dict[str, Any]) -> Any:
    """A setting's value with a name for each object of the program's own, noted in `objects`."""
    if isinstance(value, list | tuple):
        return [by_name(each, objects) for each in value]
    if isinstance(value, PurePath):
        return str(value)
    if not any(hasattr(value, part) for part in ("astream", "ainvoke", "search", "check")):
        return value
    if isinstance(value, type):
        raise SettingsError(f"{value.__name__} is a class.", f"Pass one of it: {value.__name__}().")
    name = f"{OWN}{type(value).__name__}"
    while objects.setdefault(name, value) is not value:
        name += "'"
    return name


def given(name: str) -> Any:
    """The object that a name stands for. Raises SettingsError in another program."""
    if (found := GIVEN.get().get(name)) is None:
        said = f"{name!r} stands for an object of the program that asked."
        raise SettingsError(said, "Go on from there: research(..., thread=NAME).")
    return found


@dataclass(frozen=True, slots=True)
class EmbeddedChoice:
    """A model in this process: a catalogue name, a GGUF file or a checkpoint."""

    embedded: ClassVar[bool] = True
    server: ClassVar[str] = ""
    """what its prompts are sent to: nothing"""
    prices: ClassVar[Mapping[str, tuple[float, float, float]]] = MappingProxyType({})
    name: str
    weights_dir: Path | None = None
    """None: the platform's place"""
    context_tokens: int = 8192
    at_once: int = 1
    """runs that it serves well at the same time"""

    @property
    def checkpoint(self) -> Path | None:
        """The folder of a trained policy, where that is what was named."""
        return Path(self.name).expanduser() if is_checkpoint(self.name) else None

    @property
    def chain(self) -> bool:
        """Whether the model was trained to write its reasoning as a judge.

        Raises WeightsError for a checkpoint whose note cannot be read.
        """
        return bool(self.checkpoint and note_of(self.checkpoint).judge)

    def absolute(self) -> "EmbeddedChoice":
        """The same for a process that starts in another folder."""
        return replace(self, name=absolute_name(self.name))

    @asynccontextmanager
    async def open_tokens(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The `LlamaPolicy`, its weights fetched if need be; freed at the end."""
        from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
        from rubricem.agent.weights.store import WeightsStore

        import_extra("xllamacpp", "local", "The embedded model", SERVER)
        store = WeightsStore(self.weights_dir, report_progress(tell))
        files = await store.model_files(self.name)
        tell(f"loading {files.path.name}")
        folder = files.path.parent
        states = folder if await asyncio.to_thread(os.access, folder, os.W_OK) else None
        config = LlamaConfig(
            self.context_tokens, slots=self.at_once, adapter=files.adapter, states=states
        )
        model = await LlamaPolicy.load(files.path, files.name, files.version, config)
        try:
            yield model
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
    """A model of LangChain, or behind an OpenAI-compatible server; None: the only one it lists."""

    embedded: ClassVar[bool] = False
    checkpoint: ClassVar[None] = None
    chain: ClassVar[bool] = False
    model: str | None
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    in_tokens: bool = False
    """it is asked in token ids, if it takes them; else by messages"""
    context_tokens: int = 8192
    at_once: int = 64
    """calls that it serves well at the same time"""
    prices: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """sent with every message, beside the usual"""

    @property
    def name(self) -> str:
        return self.model or ""

    @property
    def server(self) -> str:
        """What its prompts are sent to: an address without a password, or a provider."""
        if self.base_url == LANGCHAIN:
            return self.name.partition(":")[0]
        return Endpoint.parse(self.base_url).url

    def absolute(self) -> "ServerChoice":
        """The same for a process that starts in another folder."""
        return self

    @asynccontextmanager
    async def open_chat(
        self, *, think_is_reasoning: bool = False, retry: Retry | None = None
    ) -> AsyncIterator[Any]:
        """The `OpenAIChat`."""
        from rubricem.agent.models.chat_server import OpenAIChat

        name, here = await self.resolve_model(), self.base_url
        options: dict[str, Any] = {"prices": self.prices, "retry": retry}
        options["think_is_reasoning"] = think_is_reasoning
        if here == LANGCHAIN:
            from rubricem.agent.models.langchain import LangChainChat, open_by_name

            own = given(name) if name.startswith(OWN) else open_by_name(name, self.extra_body)
            yield LangChainChat(own, limiter=Limiter(self.at_once), **options)
            return
        options["limiter"] = shared_limiter(here, self.at_once)
        yield OpenAIChat(name, here, self.api_key, extra_body=self.extra_body, **options)

    @asynccontextmanager
    async def open_judge(
        self, tell: Tell = hush, shared: LocalModel | None = None
    ) -> AsyncIterator[Any]:
        """The model as it judges: by messages, what it thinks kept apart; never a shared one."""
        async with self.open_chat(think_is_reasoning=True) as chat:
            told = None
            if self.base_url != LANGCHAIN:
                _, told = await self._http(chat.model).facts()
            chat.context_tokens = told or max(self.context_tokens, UNTOLD_CONTEXT)
            yield chat

    @asynccontextmanager
    async def open_policy(self, tell: Tell = hush) -> AsyncIterator[Policy]:
        """The model behind the graph's seam."""
        if self.in_tokens and (served := await self._token_server(tell)) is not None:
            yield TokenWriter(served)
            return
        async with self.open_chat() as chat:
            yield ChatWriter(chat)

    @asynccontextmanager
    async def open_tokens(self, tell: Tell = hush) -> AsyncIterator[Any]:
        """The `TokenServer`. Raises SettingsError for a server that gives no token ids."""
        if (served := await self._token_server(tell)) is None:
            raise SettingsError(
                f"{self.base_url} returns no token ids, without which no ratio can be formed.",
                "Sample from vLLM, or from the embedded model.",
            )
        yield served

    async def _token_server(self, tell: Tell) -> Any:
        """The `TokenServer`; None where it gives no token ids."""
        from rubricem.agent.models.tokens import open_tokens

        model = await self.resolve_model()
        return await open_tokens(
            self._http(model),
            context_tokens=self.context_tokens,
            limiter=shared_limiter(self.base_url, self.at_once),
            price=price_of(model, self.prices),
            tell=tell,
        )

    async def resolve_model(self) -> str:
        """The model, or the only one that the server lists.

        Raises SettingsError if it lists another number of them, PolicyError if it does not answer.
        """
        if self.model:
            return self.model
        known = await self.model_names()
        if len(known) == 1:
            return known[0]
        listed = f": {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}" if known else ""
        raise SettingsError(
            f"{Endpoint.parse(self.base_url).url} lists {len(known) or 'no'} models{listed}",
            "Name one of them (--model)." if known else "Name its model (--model).",
        )

    async def model_names(self) -> list[str]:
        """What the server lists, if it does. Raises PolicyError if it does not answer."""
        if self.base_url == LANGCHAIN:
            async with self.open_chat() as chat:
                return [chat.model]
        try:
            known: list[str] = await self._http("").model_names()
        except AttemptError as failed:
            if failed.status != 404:
                raise
            return []
        return known

    def _http(self, model: str) -> Any:
        """The open `ModelServer`."""
        from rubricem.agent.models.model_server import ModelServer

        key = self.api_key or ""
        return ModelServer(Server(Endpoint.parse(self.base_url), model, key))


PolicyChoice = EmbeddedChoice | ServerChoice


def in_tokens(choice: PolicyChoice) -> PolicyChoice:
    """The same model, asked in token ids if its server takes them."""
    if not isinstance(choice, ServerChoice) or choice.base_url == LANGCHAIN:
        return choice
    return replace(choice, in_tokens=True)


async def embedder_in(
    weights_dir: Path, tell: Tell = hush, name: str = DEFAULT_EMBEDDER
) -> Embedder:
    """The embedder of a name: a package's own, or one that is fetched where it is not on disk.

    It is loaded when first used.
    """
    if name in parts_of("embedders"):
        own: Embedder = await asyncio.to_thread(own_part, "embedders", name)
        return own
    from rubricem.agent.weights.store import WeightsStore

    return await WeightsStore(weights_dir, report_progress(tell)).embedder(name)


def report_progress(tell: Tell) -> Callable[[int, int, str], None]:
    """Says what is fetched, and how far it is."""

    def progress(done: int, total: int, doing: str) -> None:
        share = f": {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        tell(f"model weights, {doing}{share}")

    return progress


def absolute_name(model: str) -> str:
    """A model's name; a path is whole, so that it means the same in another folder."""
    path = Path(model).expanduser()
    named = model.lower().endswith(".gguf") or is_checkpoint(model)
    return str(path.absolute()) if named and path.exists() else model
