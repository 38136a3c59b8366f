"""The one policy seam of the graph, the two kinds of model behind it, and their journaled calls.

`TokenPolicy` models continue the transcript as token ids: one growing assistant turn after the
chat prompt, so that the cached prefix always fits. `ChatModel` servers get the same transcript
as messages: what the policy wrote as assistant messages, tool output and notes as user ones;
their segments are marked `retokenised`, whatever ids the server returns, because the prefix
they were sampled under is the server's own rendering.

Runs journal what they write and search. What verifies, judges and reflects does not know of a
run: its models are wrapped here, so that a killed run never asks again. A call is named by the
scope it is made in, by what is asked, and by how often the same was asked there before, since
whoever got an unusable reply asks again.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import groupby
from typing import Any, Protocol

from pydantic import TypeAdapter

from rubricem.memory.interfaces import (
    ChatModel,
    ChoiceReader,
    Completion,
    LocalModel,
    Message,
    OnText,
    Sampling,
    StopPredicate,
    TokenPolicy,
)
from rubricem.memory.journal import CallJournal, CallKey, identity
from rubricem.memory.schema import Author, Segment
from rubricem.memory.text import storable

Ids = tuple[int, ...] | None


class Policy(Protocol):
    """What writes the policy's part of a transcript."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def retokenised(self) -> bool: ...
    @property
    def context_tokens(self) -> int | None:
        """Tokens that fit, or None where only the server knows."""
        ...

    @property
    def reader(self) -> LocalModel | None:
        """The model itself where it also weighs choices: it then judges and checks, too."""
        ...

    @property
    def chat(self) -> ChatModel | None:
        """The model itself where it answers messages."""
        ...

    async def open(self, system: str, question: str) -> Ids: ...
    async def encode(self, text: str) -> Ids: ...

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion: ...


class TokenWriter:
    """A `Policy` over a `TokenPolicy`: every segment of the transcript carries its ids."""

    retokenised = False
    chat = None

    def __init__(self, model: TokenPolicy) -> None:
        self.model = model

    @property
    def reader(self) -> LocalModel | None:
        return self.model if isinstance(self.model, LocalModel) else None

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def version(self) -> str:
        return self.model.version

    @property
    def context_tokens(self) -> int:
        return self.model.context_tokens

    async def open(self, system: str, question: str) -> tuple[int, ...]:
        return await self.model.render([Message("system", system), Message("user", question)])

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.model.encode(text)

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        prefix = [token for segment in transcript for token in segment.token_ids or ()]
        return await self.model.complete(prefix, sampling, stop, on_text)


class BesidePolicy:
    """What a `Policy` that stands before another one passes on; it writes in its own way."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name, self.version = policy.name, policy.version
        self.retokenised, self.context_tokens = policy.retokenised, policy.context_tokens
        self.reader, self.chat = policy.reader, policy.chat

    async def open(self, system: str, question: str) -> Ids:
        return await self._policy.open(system, question)

    async def encode(self, text: str) -> Ids:
        return await self._policy.encode(text)


class ChatWriter:
    """A `Policy` over a `ChatModel`."""

    retokenised = True
    version = ""
    context_tokens = None
    reader = None

    def __init__(self, model: ChatModel) -> None:
        self.model = self.chat = model

    @property
    def name(self) -> str:
        return self.model.name

    async def open(self, system: str, question: str) -> None:
        return None

    async def encode(self, text: str) -> None:
        return None

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        messages = [Message("system", system), *as_messages(transcript)]
        completion = await self.model.chat(messages, sampling, stop, on_text)
        # Reasoning that a server keeps apart is its own; it is not part of the transcript.
        return replace(completion, token_ids=None, logprobs=None, token_ends=None)


def as_messages(transcript: Sequence[Segment]) -> list[Message]:
    """Neighbouring segments of one side of the conversation joined into one message each."""
    sides = groupby(transcript, key=lambda s: s.author is Author.POLICY)
    return [
        Message("assistant" if policy else "user", "".join(s.text for s in side))
        for policy, side in sides
    ]


def tokens_between(
    completion: Completion, start: int, end: int
) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """Ids and log-probabilities of a part of the text; a token belongs where it begins."""
    if completion.token_ids is None or completion.token_ends is None:
        return None, None
    starts = (0, *completion.token_ends[:-1])
    chosen = [i for i, at in enumerate(starts) if start <= at < end]
    ids = tuple(completion.token_ids[i] for i in chosen)
    if completion.logprobs is None:
        return ids, None
    return ids, tuple(completion.logprobs[i] for i in chosen)


_COMPLETION = TypeAdapter(Completion)
_scope: ContextVar[tuple[str, Counter[str]]] = ContextVar("scope")
"""its name, and how often each call was asked in it"""

MakeCall = Callable[[], Awaitable[dict[str, Any]]]


async def at_once(call: MakeCall) -> dict[str, Any]:
    return await call()


class JournaledCalls:
    """The calls that are made beside the transcripts of runs.

    `gate` makes each call that the journal does not hold, when it sees fit; what it is given
    asks and keeps the reply.
    """

    def __init__(
        self, journal: CallJournal, gate: Callable[[MakeCall], Awaitable[dict[str, Any]]] = at_once
    ) -> None:
        self._journal = journal
        self._gate = gate

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Calls made inside belong to `name`; a scope that is entered again begins anew."""
        token = _scope.set((name, Counter()))
        try:
            yield
        finally:
            _scope.reset(token)

    def forget(self, name: str) -> None:
        """Drop a finished scope's replies from memory."""
        self._journal.forget(name)

    async def once(self, call: str, ask: MakeCall) -> dict[str, Any]:
        """The journal's reply to a call, or a new one, which is on disk when this returns."""
        scope, asked = _scope.get()
        digest = hashlib.sha256(storable(call).encode()).hexdigest()[:32]
        key = CallKey(scope, 0, asked[digest], digest)
        asked[digest] += 1

        async def kept() -> dict[str, Any]:
            reply = await ask()
            await self._journal.append(key, reply)
            return reply

        if (reply := self._journal.find(key)) is not None:
            return reply
        return await self._gate(kept)

    async def completion(self, call: str, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        async def asked() -> dict[str, Any]:
            dumped: dict[str, Any] = _COMPLETION.dump_python(await ask(), mode="json")
            return dumped

        return _COMPLETION.validate_python(await self.once(call, asked))


class JournaledPolicy(BesidePolicy):
    """A `Policy` that writes beside a transcript: a reflection, or a claim anew."""

    def __init__(self, policy: Policy, calls: JournaledCalls) -> None:
        super().__init__(policy)
        self._calls = calls

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        said = "\0".join(segment.text for segment in transcript)
        return await self._calls.completion(
            f"write\0{identity(self.name)}\0{self.version}\0{sampling}\0{system}\0{said}",
            lambda: self._policy.write(system, transcript, sampling, stop, on_text),
        )


class JournaledChat:
    """A `ChatModel` that verifies or judges."""

    def __init__(self, model: ChatModel, calls: JournaledCalls) -> None:
        self._model = model
        self._calls = calls
        self.name = model.name

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        return await self._calls.completion(
            f"chat\0{identity(self.name)}\0{sampling}\0{list(messages)}",
            lambda: self._model.chat(messages, sampling, stop, on_text),
        )


class JournaledReader:
    """A `ChoiceReader`, and a `TokenPolicy` where the model is both, that verifies or judges."""

    def __init__(self, reader: ChoiceReader, policy: TokenPolicy, calls: JournaledCalls) -> None:
        self._reader = reader
        self._policy = policy
        self._calls = calls
        self.name, self.version = reader.name, reader.version
        self.context_tokens = reader.context_tokens

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._reader.render(messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._reader.encode(text)

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        async def ask() -> dict[str, Any]:
            return {"weights": await self._reader.weigh(prefix, options)}

        call = f"weigh\0{identity(self.name)}\0{self.version}\0{list(options)}\0{list(prefix)}"
        return tuple((await self._calls.once(call, ask))["weights"])

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        return await self._calls.completion(
            f"complete\0{identity(self.name)}\0{self.version}\0{sampling}\0{list(prefix)}",
            lambda: self._policy.complete(prefix, sampling, stop, on_text),
        )


def journaled(model: Any, calls: JournaledCalls) -> Any:
    """The same model, its calls journaled; one in token ids stays one."""
    in_ids = hasattr(model, "complete")
    return JournaledReader(model, model, calls) if in_ids else JournaledChat(model, calls)
