"""The seams: what the rooms ask of a model, a search tool and an embedder.

A model is asked through one of two seams. `TokenPolicy` continues a list of token ids and is
what training needs (token in, token out). `ChatModel` answers messages; a chat-only server
used as the policy is adapted, and its segments are marked `retokenised`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.schema import NO_USAGE, Usage

StopPredicate = Callable[[str], int | None]
"""Text so far -> the offset at which it ends, or None to go on. Called as text arrives."""

OnText = Callable[[str], None]
"""Called with each new piece of text, for showing it live."""

StopReason = Literal["stop", "eos", "length", "repetition"]
"""`stop`: the predicate; `eos`: the model ended; `length`: max_tokens; `repetition`: it looped."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. `dry` and `grammar` (GBNF) are honoured by llama.cpp alone.

    `dry`: tokens that may be repeated from anywhere before the repetition is made unlikely
    (DRY sampling); None: no such rule. `json_schema` (as JSON) is honoured by some servers.
    """

    max_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    dry: int | None = None
    grammar: str | None = None
    seed: int | None = None
    json_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote.

    `token_ids`, `logprobs` and `token_ends` have one entry per token, or are all None where
    the server does not return them. `token_ends[i]` is the offset in `text` after token i.
    `reasoning` is thinking that the server kept apart from the text (or `<think>` was split
    off by the client); it is never part of `text`.
    """

    text: str
    stop_reason: StopReason
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    token_ends: tuple[int, ...] | None = None
    retokenised: bool = False
    """the ids are a tokeniser's own: those that came with the text do not decode to it"""
    reasoning: str = ""
    usage: Usage = NO_USAGE


class TokenReader(Protocol):
    """A model that reads token ids."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def context_tokens(self) -> int: ...

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the messages in the model's chat template, open for the assistant's text."""
        ...

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; special tokens written in it stay text."""
        ...


class TokenPolicy(TokenReader, Protocol):
    """A model that continues token ids."""

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion: ...


class ChoiceReader(TokenReader, Protocol):
    """A model whose opinion is read from its probabilities, not from what it writes."""

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        """Probability of each option as the next token, over the options alone: sums to 1.

        Options differ in their first token. Raises PolicyError when they have no probability.
        """
        ...


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: it weighs options, and it continues tokens."""


class ChatModel(Protocol):
    """A model that answers messages. Raises PolicyError when no reply could be had."""

    @property
    def name(self) -> str: ...

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: enough to quote it and to find it again."""

    title: str
    location: str
    """url or path"""
    place: str
    """symbol, heading, page or lines inside it"""
    text: str


class SearchTool(Protocol):
    """Finds passages. An empty list means that nothing matched; failure raises SourceError."""

    @property
    def name(self) -> str: ...

    async def prepare(self) -> tuple[str, ...]:
        """Do now what the first search would have to wait for, such as reading documents.

        Returns a sentence for each thing that could not be read; the rest is searched.
        """
        ...

    async def search(self, query: str, limit: int) -> list[Passage]: ...


class PageReader(Protocol):
    """Reads whole pages of the web. Raises SourceError, in one sentence, where one cannot be."""

    async def read(self, address: str) -> list[Passage]: ...


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(n, d) float32, each row of length 1.

        `query`: the texts are what is looked for, which some models read under an instruction
        of their own; else they are what is kept and found.
        """
        ...
