"""The policy interface of the graph, the two kinds of model behind it, and their journaled calls.

`TokenPolicy` models continue the transcript as token ids, which only grow, so that the prefix cache
always hits. `ChatModel` servers get it as messages; their segments are `retokenised`, since they
were sampled under the server's own rendering of the prefix. Both read the same conversation: what
answers a turn of the policy is a user's turn in the form of a tool's response (`as_response`).

Verifiers, judges and reflectors know of no run: their models are wrapped here, so that after a kill
no finished call is made again. A call is keyed in a journal by its scope, by what is asked, and by
how often the same was asked there before; outside of runs by what is asked alone, and an unusable
reply is then forgotten.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter

from rubricem.agent.transcript.scaffold import own_markers
from rubricem.memory.asking import read_usage
from rubricem.memory.runs import CallKey, Journal, ReplyStore, identity
from rubricem.memory.schema import (
    Author,
    ChatModel,
    Completion,
    LocalModel,
    Message,
    OnText,
    Sampling,
    Segment,
    StopPredicate,
    TokenPolicy,
)
from rubricem.memory.text import digest_of, know_markers, storable

Ids = tuple[int, ...] | None


class Policy:
    """Writes the policy's part of a transcript. There are no ids where a model takes messages."""

    name: str
    version: str = ""
    retokenised: bool = False
    context_tokens: int | None = None
    """the context size; None if only the server knows it"""
    reader: LocalModel | None = None
    """the model itself if it also weighs choices, so that it can judge and check, too"""
    chat: ChatModel | None = None
    """the model itself if it answers messages"""
    priced: bool = False
    """whether it is known what its calls cost"""

    async def render(self, system: str, question: str) -> Ids:
        """The ids with which a transcript begins."""
        return None

    async def encode(self, text: str) -> Ids:
        return None

    async def encode_response(self, text: str) -> Ids:
        """The ids from the end of the policy's turn to the beginning of its next one."""
        return None

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        raise NotImplementedError


class Renders(Protocol):
    """The half of a `TokenPolicy` that turns text into its ids."""

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]: ...
    async def encode(self, text: str) -> tuple[int, ...]: ...


def as_response(text: str) -> str:
    """What answers a turn of the policy, as Qwen's chat templates write the message of a tool.

    Behind any other message of a user, Qwen3's leaves out the thinking of all turns before.
    """
    return f"<tool_response>\n{text.strip()}\n</tool_response>"


_OPENED = re.compile(r"(?:<think>\s*)?(?:</think>\s*)?\Z")


def before_thought(prompt: str) -> str:
    """A prompt without the thinking that its chat template opens at the end, or leaves empty there.

    A transcript opens its own: so it has one form however the template's switch stands.
    """
    return _OPENED.sub("", prompt, count=1)


async def response_ids(model: Renders, text: str) -> tuple[int, ...]:
    """From the end of the policy's turn, with its token, to the beginning of the next one.

    All of it is by the model's chat template; where that has no such turns, it is the text alone.
    """
    asked = Message("user", "?")
    before = (*await model.render([asked]), *await model.encode("A"))
    said = [asked, Message("assistant", "A"), Message("user", as_response(text))]
    whole = await model.render(said)
    return whole[len(before) :] if whole[: len(before)] == before else await model.encode(text)


async def end_of_turn(model: Renders) -> tuple[int, ...]:
    """The id that the chat template puts after an assistant's text; empty if none is found."""
    found = await response_ids(model, "?")
    return () if found == await model.encode("?") else found[:1]


class TokenWriter(Policy):
    """A `Policy` over a `TokenPolicy`: every segment of the transcript carries its ids."""

    def __init__(self, model: TokenPolicy) -> None:
        self.model = model
        self.name, self.version = model.name, model.version
        self.context_tokens = model.context_tokens
        self.reader = model if isinstance(model, LocalModel) else None
        self.priced = getattr(model, "price", None) is not None

    async def render(self, system: str, question: str) -> tuple[int, ...]:
        messages = [Message("system", system), Message("user", question)]
        return await self.model.render(messages)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.model.encode(text)

    async def encode_response(self, text: str) -> tuple[int, ...]:
        return await response_ids(self.model, text)

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


class BesidePolicy(Policy):
    """Base of a `Policy` that wraps another: passes on everything except `write`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        for part in dir(Policy):
            if part[0] != "_" and part != "write":
                setattr(self, part, getattr(policy, part))
        self.name = policy.name


GO_ON = (
    "Your reply was cut off at its end. Go on exactly where it ends, in the middle of a word if "
    "need be: repeat nothing, begin nothing anew, and say nothing about it."
)


class ChatWriter(Policy):
    """A `Policy` over a `ChatModel`; adjacent segments of the same side form one message.

    A transcript that ends with the model's own text is one to be gone on with, which is said.
    """

    retokenised = True

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.model = self.chat = model
        self.priced = getattr(model, "price", None) is not None

    async def write(
        self,
        system: str,
        transcript: Sequence[Segment],
        sampling: Sampling,
        stop: StopPredicate | None,
        on_text: OnText | None,
    ) -> Completion:
        sides = groupby(transcript, key=lambda segment: segment.author is Author.POLICY)
        messages = [Message("system", system)]
        for policy, side in sides:
            said = "".join(segment.text for segment in side)
            if not policy:
                said = said if len(messages) == 1 else as_response(said)
            messages.append(Message("assistant" if policy else "user", said))
        if messages[-1].role == "assistant":
            messages.append(Message("user", GO_ON))
        completion = await self.model.chat(messages, sampling, stop, on_text)
        # Reasoning that a server returns apart is not part of the transcript.
        return replace(completion, token_ids=None, logprobs=None, token_ends=None)


async def learn_markers(rendered: str, encode: Callable[[str], Awaitable[Sequence[int]]]) -> None:
    """Register the special tokens of a rendered chat: markers that encode to a single id."""
    know_markers([one for one in own_markers(rendered) if len(await encode(one)) == 1])


_COMPLETION = TypeAdapter(Completion)


def dump_completion(said: Completion) -> dict[str, Any]:
    """What a model wrote, as journals keep it."""
    said = replace(said, text=storable(said.text), reasoning=storable(said.reasoning))
    return dict(_COMPLETION.dump_python(said, mode="json"))


def read_completion(reply: dict[str, Any]) -> Completion:
    return _COMPLETION.validate_python(reply)


_scope: ContextVar[tuple[str, Counter[str]]] = ContextVar("scope")
"""its name, and how often each call was made in it"""


@contextmanager
def call_scope(name: str) -> Iterator[None]:
    """Journaled calls made inside belong to the scope `name`, wherever they are made.

    A scope that is entered again counts anew: its first call finds the reply to the first one.
    """
    token = _scope.set((name, Counter()))
    try:
        yield
    finally:
        _scope.reset(token)


MakeCall = Callable[[], Awaitable[dict[str, Any]]]
Ask = Callable[[], Awaitable[Completion]]


def name_of_call(
    kind: Literal["write", "chat", "complete", "weigh"], model: str, *asked: object
) -> str:
    """A call's name in journals, which does not change if its server moves.

    `asked`: the model's version, if it has one, then the arguments.
    """
    return "\0".join([kind, identity(model), *map(str, asked)])


@dataclass(eq=False)
class JournaledCalls:
    """Journals the calls that are made outside the transcripts of runs."""

    journal: Journal
    gate: Callable[[MakeCall], Awaitable[dict[str, Any]]] | None = None
    """decides when a call is made that is not in the journal, and its reply journaled"""
    found: Callable[[dict[str, Any]], None] = lambda reply: None
    """gets each reply that the journal holds from before"""
    counted: set[CallKey] = field(default_factory=set)
    """calls that were made or found; two that share it tell of none twice"""

    async def once(self, call: str, ask: MakeCall) -> dict[str, Any]:
        """The journaled reply to a call, or a new one, which is on disk when this returns."""
        scope, asked = _scope.get()
        digest = digest_of(storable(call), 32)
        key = CallKey(scope, 0, asked[digest], digest)
        asked[digest] += 1

        async def ask_and_store() -> dict[str, Any]:
            reply = await ask()
            await self.journal.append(key, reply)
            self.counted.add(key)
            return reply

        if (reply := self.journal.find(key)) is not None:
            if key not in self.counted:
                self.counted.add(key)
                self.found(reply)
            return reply
        return await (self.gate(ask_and_store) if self.gate else ask_and_store())

    async def completion(self, call: str, ask: Ask) -> Completion:
        async def reply() -> dict[str, Any]:
            return dump_completion(await ask())

        return read_completion(await self.once(call, reply))

    async def drop(self, call: str) -> None:
        """Note that a reply was unusable: asking again is another call with its own key anyway."""


class KeptCalls(JournaledCalls):
    """Keeps replies on disk for whoever asks the same, in whatever scope, who has them for free."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store

    async def once(self, call: str, ask: MakeCall) -> dict[str, Any]:
        kept = await asyncio.to_thread(self._store.load, call)
        if kept and not {"stop_reason", "weights"}.isdisjoint(kept):
            return kept | {"usage": {}}
        reply = await ask()
        # A reply cut off by its length would look complete when read from the cache.
        if reply.get("stop_reason") != "length":
            await asyncio.to_thread(self._store.save, call, reply)
        return reply

    async def drop(self, call: str) -> None:
        await asyncio.to_thread(self._store.forget, call)


class JournaledPolicy(BesidePolicy):
    """A `Policy` for writing outside a transcript: a reflection, or a rewritten claim."""

    def __init__(self, policy: Policy, calls: JournaledCalls) -> None:
        super().__init__(policy)
        self._calls = calls
        self.reader = policy.reader and JournaledReader(policy.reader, calls)
        self.chat = policy.chat and JournaledChat(policy.chat, calls)

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
            name_of_call("write", self.name, self.version, sampling, system, said),
            lambda: self._policy.write(system, transcript, sampling, stop, on_text),
        )


class JournaledChat:
    """A `ChatModel` that verifies or judges, with its calls stored."""

    def __init__(self, model: ChatModel, calls: JournaledCalls) -> None:
        self._model = model
        self._calls = calls
        self.name = model.name
        self.context_tokens: int | None = getattr(model, "context_tokens", None)

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        return await self._calls.completion(
            self._call(messages, sampling),
            lambda: self._model.chat(messages, sampling, stop, on_text),
        )

    async def forget(self, messages: Sequence[Message], sampling: Sampling) -> None:
        await self._calls.drop(self._call(messages, sampling))

    def _call(self, messages: Sequence[Message], sampling: Sampling) -> str:
        return name_of_call("chat", self.name, sampling, list(messages))


class JournaledReader:
    """A model in this process that verifies or judges, with its calls stored."""

    def __init__(self, model: LocalModel, calls: JournaledCalls) -> None:
        self._model = model
        self._calls = calls
        self.name, self.context_tokens = model.name, model.context_tokens
        self.render, self.encode = model.render, model.encode

    @property
    def version(self) -> str:
        return self._model.version

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        async def ask() -> dict[str, Any]:
            used = read_usage(prefix).model_dump(mode="json")
            return {"weights": await self._model.weigh(prefix, options), "usage": used}

        call = name_of_call("weigh", self.name, self.version, list(options), list(prefix))
        return tuple((await self._calls.once(call, ask))["weights"])

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        return await self._calls.completion(
            name_of_call("complete", self.name, self.version, sampling, list(prefix)),
            lambda: self._model.complete(prefix, sampling, stop, on_text),
        )


def journal_calls(model: Any, calls: JournaledCalls) -> Any:
    """The same policy, chat model or model in this process, with its calls stored."""
    if hasattr(model, "write"):
        return JournaledPolicy(model, calls)
    return (JournaledReader if hasattr(model, "complete") else JournaledChat)(model, calls)
