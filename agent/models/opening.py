"""The choice of a model, and how it is opened: in this process, or behind a server.

A choice holds everything needed to open it: as a `Policy` with which the graph writes, as a judge,
or as a model that continues token ids. No code above this folder asks which of the two kinds it is.
Heavy packages are imported only if they are chosen.

Several servers of one model form one token policy (`TokenPool`). All must serve the same version,
which is checked again and again; a server that is away or serves another version is left out, and
taken back once it serves that version again.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from rubricem.agent.models.limits import (
    AttemptError,
    Endpoint,
    Retry,
    Server,
    price_of,
    shared_limiter,
)
from rubricem.agent.models.policy import ChatWriter, Policy, TokenWriter
from rubricem.agent.models.tracing import trace_model
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.agent.weights.checkpoints import is_checkpoint, note_of
from rubricem.memory.errors import PolicyError, SettingsError, import_extra
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import (
    Completion,
    Embedder,
    LocalModel,
    Message,
    OnText,
    Sampling,
    StopPredicate,
)

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

        import_extra("xllamacpp", "local", "The embedded model", SERVER)
        store = WeightsStore(self.weights_dir, shares_told(tell))
        files = await store.model_files(self.model_name)
        tell(f"loading {files.path.name}")
        folder = files.path.parent
        states = folder if await asyncio.to_thread(os.access, folder, os.W_OK) else None
        config = LlamaConfig(self.context_tokens, self.threads, self.slots, files.adapter, states)
        model = await LlamaPolicy.load(files.path, files.name, files.version, config)
        try:
            yield trace_model(model, self.tracing)
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
    more: tuple[str, ...] = ()
    """the addresses of other servers of the same model, which share its calls in token ids"""

    @property
    def name(self) -> str:
        return self.model or ""

    @property
    def at_once(self) -> int:
        """Runs that it serves well at the same time."""
        return self.concurrency * (1 + len(self.more))

    def anywhere(self) -> "ServerChoice":
        """The same for a process that starts in another folder."""
        return self

    @asynccontextmanager
    async def open_chat(self, *, think_is_reasoning: bool = False) -> AsyncIterator[Any]:
        """The `OpenAIChat`."""
        from rubricem.agent.models.chat_server import OpenAIChat

        chat = OpenAIChat(
            await self.resolve_model(),
            self.base_url,
            self.api_key,
            limiter=shared_limiter(self.base_url, self.concurrency),
            prices=self.prices,
            timeout=self.timeout,
            think_is_reasoning=think_is_reasoning,
        )
        yield trace_model(chat, self.tracing)

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
        async with self._tokens(tell) as served:
            if served is None:
                raise SettingsError(
                    f"{self.base_url} returns no token ids, without which no ratio can be formed.",
                    "Sample from vLLM, SGLang or llama.cpp's server, or from the embedded model.",
                )
            yield served

    @asynccontextmanager
    async def open_policy(self, tell: Tell = hush) -> AsyncIterator[Policy]:
        """The model behind the graph's seam."""
        async with self._tokens(tell) as served:
            if served is not None:
                yield TokenWriter(served)
                return
        async with self.open_chat() as chat:
            yield ChatWriter(chat)

    @asynccontextmanager
    async def _tokens(self, tell: Tell) -> AsyncIterator[Any]:
        """The `TokenServer` or the pool of them, or None where it is asked as a chat server."""
        if self.dialect in (None, "openai"):
            if self.more:
                raise SettingsError(
                    "Several servers share calls in token ids, and this model is asked by "
                    "messages.",
                    'Set dialect to "auto", or leave out more_servers.',
                )
            yield None
        elif not self.more:
            served = await self.token_server(tell)
            yield None if served is None else trace_model(served, self.tracing)
        else:
            addresses = dict.fromkeys((self.base_url, *self.more))
            patience = Retry(tries=2, first=0.2)
            seats = {url: replace(self, base_url=url, more=()) for url in addresses}

            def open_server(choice: ServerChoice) -> Awaitable[Any]:
                return choice.token_server(hush, patience)

            async with TokenPool.open(seats, open_server, tell) as pool:
                yield trace_model(pool, self.tracing)

    async def token_server(self, tell: Tell, retry: Retry | None = None) -> Any:
        """The one `TokenServer`, or None where it gives no token ids."""
        from rubricem.agent.models.tokens import KINDS, open_tokens

        model = await self.resolve_model()
        http, host = self._http(model), Endpoint.parse(self.base_url).host
        return await open_tokens(
            http,
            next((kind for kind in KINDS if kind == self.dialect), None),
            context_tokens=self.context_tokens,
            limiter=shared_limiter(self.base_url, self.concurrency),
            price=price_of(model, host, self.prices),
            timeout=self.timeout,
            tell=tell,
            retry=retry,
        )

    async def resolve_model(self) -> str:
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
            f"{http.server.endpoint.url} lists {len(known) or 'no'} models{listed}",
            "Name one of them (--model)." if known else "Name its model (--model).",
        )

    def _http(self, model: str) -> Any:
        """The open `ModelServer`."""
        from rubricem.agent.models.openai_client import ModelServer

        key = self.api_key or ""
        return ModelServer(Server(Endpoint.parse(self.base_url), model, "OPENAI_API_KEY", key))


PolicyChoice = EmbeddedChoice | ServerChoice


def in_tokens(choice: PolicyChoice) -> PolicyChoice:
    """The same, but a server is asked in token ids, which whoever forms ratios needs."""
    return replace(choice, dialect="auto") if isinstance(choice, ServerChoice) else choice


BLOCK = 256
"""tokens by which what a server has read is remembered"""
MOST_BLOCKS = 50_000
"""that are remembered of a server"""
SLACK = 4
"""calls more than the least busy server has, at which one that has read the beginning is taken"""
ASKED_AGAIN = 5.0
"""seconds from one asking of a server's version to the next: engines take longer to begin anew"""
T = TypeVar("T")


@dataclass(eq=False)
class _Seat:
    """One server of a pool."""

    choice: ServerChoice
    served: Any = None
    """its `TokenServer`; None: it is left out"""
    calls: int = 0
    """in flight"""
    read: OrderedDict[int, None] = field(default_factory=OrderedDict)
    """the beginnings that it has read, what it read last at the end"""

    @property
    def url(self) -> str:
        return Endpoint.parse(self.choice.base_url).url

    def count_shared(self, beginnings: Sequence[int]) -> int:
        """How many blocks of a prefix it has read."""
        return next(
            (n for n, key in enumerate(beginnings) if key not in self.read), len(beginnings)
        )

    def remember(self, beginnings: Sequence[int]) -> None:
        for key in beginnings:
            self.read[key] = None
            self.read.move_to_end(key)
        while len(self.read) > MOST_BLOCKS:
            self.read.popitem(last=False)


class TokenPool:
    """Several servers of one version of a model, as one `TokenPolicy`.

    A call goes to the server that has read most of its prefix among those with about the least to
    do, so that the rollouts of one question, and the turns of one rollout, find their beginning
    cached. A call that fails where its server turns out to be away, or to serve something else, is
    made again on another one.
    """

    def __init__(
        self,
        seats: Sequence[_Seat],
        open_one: Callable[[ServerChoice], Awaitable[Any]],
        tell: Tell,
    ) -> None:
        """Of `seats` one at least is open; the first that is says the version."""
        first = next(seat.served for seat in seats if seat.served is not None)
        self._seats, self._open_one, self._tell = seats, open_one, tell
        self.version: str = first.version
        # Not of one host: a run goes on with whichever of its servers are there.
        self.name, self.price = first.name.rpartition("@")[0], first.price

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        choices: Mapping[str, ServerChoice],
        open_one: Callable[[ServerChoice], Awaitable[Any]],
        tell: Tell,
    ) -> AsyncIterator["TokenPool"]:
        """The pool of all servers, of which those that cannot be used now are left out.

        Raises what the first one raises, where none can.
        """
        seats = [_Seat(choice) for choice in choices.values()]
        tries = await asyncio.gather(
            *(open_one(seat.choice) for seat in seats), return_exceptions=True
        )
        for seat, found in zip(seats, tries, strict=True):
            if isinstance(found, BaseException):
                if not isinstance(found, PolicyError | SettingsError):
                    raise found
            else:
                seat.served = found
        if not any(seat.served is not None for seat in seats):
            error = tries[0]
            raise (
                error
                if isinstance(error, BaseException)
                else SettingsError(
                    f"None of {len(seats)} servers takes token ids.",
                    "Name servers of vLLM, SGLang or llama.cpp.",
                )
            )
        pool = cls(seats, open_one, tell)
        for seat, found in zip(seats, tries, strict=True):
            if seat.served is None:
                pool._leave(seat, str(found) if found else "it takes no token ids")
            elif seat.served.version != pool.version:
                pool._leave(seat, f"it serves {seat.served.version}, and not {pool.version}")
        tell(f"{len(pool._live)} of {len(seats)} servers share the calls for {pool.version}")
        async with AsyncExitStack() as stack:
            asking = asyncio.create_task(pool._ask_again())
            stack.callback(asking.cancel)
            yield pool

    @property
    def context_tokens(self) -> int:
        return min(int(seat.served.context_tokens) for seat in self._live)

    @property
    def mismatched(self) -> int:
        return sum(seat.served.mismatched for seat in self._live)

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._on_one((), lambda served: served.render(messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._on_one((), lambda served: served.encode(text)) if text else ()

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """As `TokenServer.complete`, by one of the servers."""
        return await self._on_one(
            _beginnings(prefix), lambda served: served.complete(prefix, sampling, stop, on_text)
        )

    @property
    def _live(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.served is not None]

    async def _on_one(self, beginnings: Sequence[int], ask: Callable[[Any], Awaitable[T]]) -> T:
        """What one server answers; each is asked once, and the last one's error is raised."""
        asked = set[_Seat]()
        while True:
            seat = self._choose_seat(beginnings, asked)
            served = seat.served
            asked.add(seat)
            seat.calls += 1
            try:
                return await ask(served)
            except PolicyError as error:
                # One that limits its callers is not gone.
                gone = await self._has_changed(seat, served)
                if (error.away or gone) and not asked.issuperset(self._live):
                    if gone:
                        self._leave(seat, str(error), served)
                    continue
                raise
            finally:
                seat.calls -= 1

    def _choose_seat(self, beginnings: Sequence[int], asked: Collection[_Seat] = ()) -> _Seat:
        live = [seat for seat in self._live if seat not in asked]
        least = min(seat.calls for seat in live)
        near = [seat for seat in live if seat.calls <= least + max(SLACK, least // 8)]
        # A call that waits for a place there waits for as long as another one is written.
        near = [seat for seat in near if seat.calls < seat.served.places] or near
        # Of those that have read as much, the one with the least to do.
        seat = max(near, key=lambda seat: (seat.count_shared(beginnings), -seat.calls))
        seat.remember(beginnings)
        return seat

    def _leave(self, seat: _Seat, why: str, served: Any = None) -> None:
        """Leave a server out; nothing where it was done, or it was taken back, since `served`."""
        if served is None or seat.served is served:
            seat.served = None
            seat.read.clear()
            self._tell(f"{seat.url} is left out: {why}")

    async def _has_changed(self, seat: _Seat, served: Any) -> bool:
        """Whether the server cannot say that it serves the pool's version."""
        try:
            return bool(await served.serves() != self.version)
        except PolicyError:
            return True

    async def _ask_again(self) -> None:
        while True:
            await asyncio.sleep(ASKED_AGAIN)
            await asyncio.gather(*(self._look(seat) for seat in self._seats))

    async def _look(self, seat: _Seat) -> None:
        """Leave a server out that serves something else, and take one back that serves this."""
        if (served := seat.served) is not None:
            # The last one stays: its own calls fail, and are waited with.
            if await self._has_changed(seat, served) and len(self._live) > 1:
                self._leave(seat, f"it does not serve {self.version} any more", served)
            return
        try:
            served = await self._open_one(seat.choice)
        except (PolicyError, SettingsError):
            return
        if served is not None and served.version == self.version:
            seat.served = served
            self._tell(f"{seat.url} is taken back")


def _beginnings(prefix: Sequence[int]) -> list[int]:
    """A key for each beginning of whole blocks, the shortest first."""
    found, key = list[int](), 0
    for end in range(BLOCK, len(prefix) + 1, BLOCK):
        key = hash((key, *prefix[end - BLOCK : end]))
        found.append(key)
    return found


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

    return await WeightsStore(weights_dir, shares_told(tell)).embedder(name)


def shares_told(tell: Tell) -> Callable[[int, int, str], None]:
    """Says what is fetched, and how far it is."""

    def progress(done: int, total: int, doing: str) -> None:
        share = f": {done / total:.0%} of {total / 1e6:,.0f} MB" if total else ""
        tell(f"model weights, {doing}{share}")

    return progress


def whole_name(model: str) -> str:
    """A model's name; a path is whole, so that it means the same in another folder."""
    path = Path(model).expanduser()
    named = model.lower().endswith(".gguf") or is_checkpoint(model)
    return str(path.absolute()) if named and path.exists() else model
