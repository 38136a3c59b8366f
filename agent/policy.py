"""The one policy seam of the graph, and the two kinds of model behind it.

`TokenPolicy` models continue the transcript as token ids: one growing assistant turn after the
chat prompt, so that the cached prefix always fits. `ChatModel` servers get the same transcript
as messages: what the policy wrote as assistant messages, tool output and notes as user ones;
their segments are marked `retokenised`, whatever ids the server returns, because the prefix
they were sampled under is the server's own rendering.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol

from memory.interfaces import (
    ChatModel,
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
    TokenPolicy,
)
from memory.schema import Author, Segment

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

    def __init__(self, model: TokenPolicy) -> None:
        self.model = model

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

    async def open(self, system: str, question: str) -> Ids:
        return await self._policy.open(system, question)

    async def encode(self, text: str) -> Ids:
        return await self._policy.encode(text)


class ChatWriter:
    """A `Policy` over a `ChatModel`."""

    retokenised = True
    version = ""
    context_tokens = None

    def __init__(self, model: ChatModel) -> None:
        self.model = model

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
