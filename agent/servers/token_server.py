"""A `TokenPolicy` over a server that takes token ids and gives them back.

What comes is checked before it is believed: the ids must decode to the text that came with them.
Where they do not, or none came, the text is encoded anew and its segments are marked
`retokenised`, so that no ratio is formed of them; where log-probabilities are missing, the ids
stand without. Both are counted and logged.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from agent.servers.dialects import Piece, ServedModel, TokenDialect
from agent.servers.event_stream import EventStream
from agent.servers.limiter import Limiter
from agent.servers.listening import Listener
from agent.servers.model_server import ModelServer
from agent.servers.prices import Price, cost
from agent.servers.retrying import AttemptError, Retry
from agent.servers.token_reading import PART, TokenReading, aligned
from agent.servers.trying import Tries
from memory.errors import PolicyError
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from memory.schema import Usage

log = logging.getLogger(__name__)

BESIDE_AT_ONCE = 64
"""calls that only count tokens, which say nothing of how many completions a server bears"""
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
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
        self._listener = Listener(http.server, timeout)
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
            await self._listener.hear(
                reading,
                lambda: self._http.stream(self._dialect.path, body),
                lambda stream: self._next(stream, read),
                lambda: self._usage(len(prefix), reading),
            )
            return reading

        reading, spent = await self._tries.call(attempt)
        return await self._checked(reading, spent + self._usage(len(prefix), reading))

    async def _next(self, stream: EventStream, read: Callable[[Any], Piece]) -> Piece | None:
        event = await self._http.event(stream)
        try:
            return None if event is None else read(event)
        except _UNREADABLE as error:
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
        plain = Completion(reading.text, reading.reason, usage=usage)
        ids, ends = _kept(reading)
        if reading.text and not await self._decodes(ids, reading):
            self.mismatched += 1
            log.warning("%s: a reply's ids are not its text's; it is retokenised", self.name)
            return await self._retokenised(plain)
        logprobs = reading.logprobs
        if logprobs is None:
            self.unknown += 1
            log.warning("%s: a reply came without all log-probabilities", self.name)
        return replace(
            plain,
            token_ids=tuple(ids),
            logprobs=None if logprobs is None else tuple(logprobs[: len(ids)]),
            token_ends=tuple(min(end, len(reading.text)) for end in ends),
        )

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

    async def _retokenised(self, plain: Completion) -> Completion:
        """The text with ids of its own; none reaches over a tag, at which stages may end."""
        pieces = [piece for piece in re.split(r"(?=<)|(?<=>)", plain.text) if piece]
        encoded = await asyncio.gather(*(self.encode(piece) for piece in pieces))
        ids: list[int] = []
        ends: list[int] = []
        at = 0
        for piece, own in zip(pieces, encoded, strict=True):
            ends += [at] * (len(own) - 1) + [at + len(piece)] * bool(own)
            ids += own
            at += len(piece)
        return replace(plain, token_ids=tuple(ids), token_ends=tuple(ends), retokenised=True)

    async def _aside(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            try:
                return await asyncio.wait_for(ask(), self._listener.timeout)
            except TimeoutError:
                raise self._http.server.silent(self._listener.timeout) from None
            except AttemptError:
                raise
            except _UNREADABLE as error:
                raise self._http.server.unexpected(error) from None

        return (await self._beside.call(attempt))[0]


def _kept(reading: TokenReading) -> tuple[list[int], list[int]]:
    """The ids that begin before the text ends, and their ends.

    The id of the end of the turn is none of them: it has no text.
    """
    ends = reading.ends()
    count = sum(start < len(reading.text) for start in [0, *ends][: len(ends)])
    return reading.ids[:count], ends[:count]


def _same(decoded: str, text: str, *, cut: bool) -> bool:
    """Whether the decoded ids are the text, but for a last token that was cut inside.

    A tokeniser may drop the space that its first token begins with.
    """
    plain = decoded if decoded.startswith(text[:1]) else f" {decoded}"
    return plain.startswith(text) if cut else plain.rstrip(PART) == text.rstrip(PART)
