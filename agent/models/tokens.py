"""A `TokenPolicy` over a server that takes token ids and gives them back, and opening one.

What comes is checked before it is believed: the ids must decode to the text that came with them.
Where they do not, or none came, the text is encoded anew and its segments are marked
`retokenised`, so that no ratio is formed of them; where log-probabilities are missing, the ids
stand without. Both are counted and logged.

A server says what it is in `/v1/models` (`owned_by`), or by answering at a path of its own. One
that is none of these kinds, or does not tokenise, is asked as a chat server.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

import httpx2
from openai import APIStatusError

from rubricem.agent.models.dialects import (
    VLLM,
    LlamaServer,
    MakeDialect,
    Reader,
    ServedModel,
    SGLang,
    TokenDialect,
)
from rubricem.agent.models.limits import AttemptError, Limiter, Retry, Tries
from rubricem.agent.models.openai_client import UNREADABLE, Json, ModelServer
from rubricem.agent.models.prices import Price, cost
from rubricem.agent.models.reading import PART, Piece, TokenReading, aligned
from rubricem.memory.errors import PolicyError
from rubricem.memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from rubricem.memory.schema import Usage

log = logging.getLogger(__name__)

BESIDE_AT_ONCE = 64
"""calls that only count tokens, which say nothing of how many completions a server bears"""
T = TypeVar("T")


class TokenServer:
    """One model on one server, spoken with in token ids; close it when done."""

    def __init__(
        self,
        http: ModelServer,
        dialect: TokenDialect,
        served: ServedModel,
        *,
        context_tokens: int,
        limiter: Limiter,
        price: Price | None = None,
        timeout: float = 120.0,
        retry: Retry | None = None,
    ) -> None:
        self.name = f"{http.server.model}@{http.server.endpoint.host}"
        self.version = served.version
        self.context_tokens = context_tokens
        self.price = price
        self.mismatched = 0
        """replies whose ids did not decode to their text"""
        self.unknown = 0
        """replies without all log-probabilities"""
        self._http = http
        self._dialect = dialect
        self._timeout = timeout
        self._tries = Tries(limiter, retry)
        self._beside = Tries(Limiter(BESIDE_AT_ONCE), retry)

    def __repr__(self) -> str:
        return f"TokenServer({self.name!r})"

    async def aclose(self) -> None:
        await self._http.aclose()

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._aside(lambda: self._dialect.render(messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text. Servers read special tokens in it as such: neutralise it before."""
        return await self._aside(lambda: self._dialect.encode(text)) if text else ()

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """What the model writes after the prefix; usage includes the failed tries'.

        `on_text` has already been given the pieces of a try that failed later. Raises
        PolicyError.
        """
        body = self._dialect.body(prefix, sampling)

        async def attempt() -> TokenReading:
            reading, read = TokenReading(stop, on_text), self._dialect.reader()
            try:
                await self._http.hear(
                    reading,
                    self._stream(body),
                    lambda event: self._read(read, event),
                    self._timeout,
                )
            except AttemptError as failed:
                if reading.begun:
                    failed.usage = self._usage(len(prefix), reading)
                raise
            return reading

        reading, spent = await self._tries.call(attempt)
        return await self._checked(reading, spent + self._usage(len(prefix), reading))

    async def _stream(self, body: Json) -> httpx2.Response:
        try:
            return await self._http.stream(self._dialect.path, body)
        except APIStatusError as refused:
            raise self._http.refused(refused) from None

    def _read(self, read: Reader, event: Any) -> Piece:
        try:
            return read(event)
        except UNREADABLE as error:
            raise self._http.server.unexpected(error) from None

    def _usage(self, prompt: int, reading: TokenReading) -> Usage:
        used = Usage(
            prompt_tokens=prompt,
            cached_tokens=min(reading.cached, prompt),
            completion_tokens=len(reading.ids),
            calls=1,
        )
        return used.model_copy(update={"cost": cost(used, self.price)})

    async def _checked(self, reading: TokenReading, usage: Usage) -> Completion:
        """The reply with ids that are sure to be its text's."""
        reply = reading.completion(usage)
        if reading.text and not await self._decodes(reply.token_ids or (), reading):
            self.mismatched += 1
            log.warning("%s: a reply's ids are not its text's; it is retokenised", self.name)
            return await self._retokenise(reply)
        if reply.logprobs is None:
            self.unknown += 1
            log.warning("%s: a reply came without all log-probabilities", self.name)
        return reply

    async def _decodes(self, ids: Sequence[int], reading: TokenReading) -> bool:
        """Whether the ids are the text's, by the server's tokeniser or what it said of each."""
        if not ids:
            return False
        try:
            decoded = await self._aside(lambda: self._dialect.decode(ids))
        except PolicyError as error:
            if error.away:
                raise
            told = None if reading.parts is None else aligned(reading.parts, reading.raw)
            return told is not None
        return _same(decoded, reading.text, cut=reading.ended is not None)

    async def _retokenise(self, reply: Completion) -> Completion:
        """The text with ids of its own; none reaches over a tag, at which stages may end."""
        pieces = [piece for piece in re.split(r"(?=<)|(?<=>)", reply.text) if piece]
        encoded = await asyncio.gather(*(self.encode(piece) for piece in pieces))
        ids: list[int] = []
        ends: list[int] = []
        at = 0
        for piece, own in zip(pieces, encoded, strict=True):
            ends += [at] * (len(own) - 1) + [at + len(piece)] * bool(own)
            ids += own
            at += len(piece)
        return replace(
            reply, token_ids=tuple(ids), token_ends=tuple(ends), logprobs=None, retokenised=True
        )

    async def _aside(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            try:
                return await asyncio.wait_for(ask(), self._timeout)
            except TimeoutError:
                raise self._http.server.silent(self._timeout) from None
            except AttemptError:
                raise
            except UNREADABLE as error:
                raise self._http.server.unexpected(error) from None

        return (await self._beside.call(attempt))[0]


def _same(decoded: str, text: str, *, cut: bool) -> bool:
    """Whether the decoded ids are the text, but for a last token that was cut inside.

    A tokeniser may drop the space that its first token begins with.
    """
    plain = decoded if decoded.startswith(text[:1]) else f" {decoded}"
    return plain.startswith(text) if cut else plain.rstrip(PART) == text.rstrip(PART)


Kind = Literal["vllm", "sglang", "llama.cpp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAKES: Mapping[Kind, MakeDialect] = {"vllm": VLLM, "sglang": SGLang, "llama.cpp": LlamaServer}
OWNERS: Mapping[str, Kind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
SIGNS: Mapping[Kind, tuple[str, str]] = {
    "sglang": ("/get_model_info", "model_path"),
    "llama.cpp": ("/props", "default_generation_settings"),
    "vllm": ("/version", "version"),
}
"""a path under the root, and a field that only this kind's reply has"""


async def kind_of(http: ModelServer) -> Kind | None:
    """What the server is, or None. Raises AttemptError where nobody answers."""
    try:
        owners = {str(model.get("owned_by", "")) for model in await http.models()}
    except AttemptError as failed:
        _unless_away(failed)
        owners = set()
    for owner, kind in OWNERS.items():
        if owner in owners:
            return kind
    for kind, (path, sign) in SIGNS.items():
        try:
            reply = await http.get(f"{http.root}{path}")
        except AttemptError as failed:
            _unless_away(failed)
            continue
        if isinstance(reply, dict) and sign in reply:
            return kind
    return None


async def open_tokens(
    http: ModelServer,
    kind: Kind | None,
    *,
    context_tokens: int,
    limiter: Limiter,
    price: Price | None,
    timeout: float,
    tell: Callable[[str], None] = lambda line: None,
    retry: Retry | None = None,
) -> TokenServer | None:
    """The server as a policy of tokens; None where it is none and no kind was named.

    `context_tokens` counts where the server does not tell its own. Raises PolicyError where
    nobody answers, or the server is not of the kind that was named.
    """
    url = http.server.endpoint.url
    try:
        if (found := kind or await kind_of(http)) is None:
            return None
        dialect = MAKES[found](http, http.server.model)
        served = await _served(http, dialect)
    except AttemptError as failed:
        if kind is not None or failed.away:
            raise PolicyError(str(failed), failed.remedy) from None
        tell(f"{url} is asked as a chat server, since it gives no token ids: {failed}")
        return None
    tell(f"{url} is asked in token ids, as {found} takes them")
    return TokenServer(
        http,
        dialect,
        served,
        context_tokens=served.context_tokens or context_tokens,
        limiter=limiter,
        price=price,
        timeout=timeout,
        retry=retry,
    )


async def _served(http: ModelServer, dialect: TokenDialect) -> ServedModel:
    """What the server says of its model, once it has shown that it tokenises."""
    try:
        await dialect.render([Message("user", "?")])
        return await dialect.facts()
    except UNREADABLE as error:
        raise http.server.unexpected(error) from None


def _unless_away(failed: AttemptError) -> None:
    """A path that a server does not know tells what it is not; one that is away tells nothing."""
    if failed.away:
        raise failed
