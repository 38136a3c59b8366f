"""A `TokenPolicy` over vLLM, which takes and returns token ids, and opening one.

A policy is trained on exactly the ids that it sampled. Replies are verified: if the ids do not
decode to the text that came with them, the text is encoded again and its segments are marked
`retokenised`, so that no ratio is formed of them. All sampling parameters are given, since a ratio
needs samples from the model's own distribution.

The server is recognised by `owned_by` in `/v1/models`. Any other, and one that does not tokenise,
is used as a chat server.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from rubricem.agent.models.limits import (
    AttemptError,
    Fault,
    Limiter,
    Price,
    Retry,
    Tries,
    note_spent,
    paid,
    priced,
)
from rubricem.agent.models.model_server import UNREADABLE, Json, ModelServer, context_in
from rubricem.agent.models.policy import before_thought, learn_markers
from rubricem.agent.models.replies import PART, Piece, TokenReading
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import (
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
    StopReason,
    Usage,
)

log = logging.getLogger(__name__)

FINISHED: Mapping[Any, StopReason | None] = {None: None, "stop": "eos", "length": "length"}
BESIDE_AT_ONCE = 64
"""simultaneous calls that only tokenise, which do not count against the limit on completions"""
T = TypeVar("T")


def ids_in(value: Any) -> tuple[int, ...]:
    """Token ids of a reply. Raises ValueError if it is no list of them."""
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("not a list of token ids")
    return tuple(value)


def numbers_in(value: Any) -> tuple[float, ...] | None:
    """Log-probabilities; None if one of them is missing or no number."""
    if not isinstance(value, list) or not all(isinstance(one, int | float) for one in value):
        return None
    return tuple(map(float, value))


def piece_of(event: Any) -> Piece:
    """What an event of `/v1/completions` adds. Raises one of `UNREADABLE` if it is none.

    The last id is that of the end of the turn, without text.
    """
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    if not event["choices"]:
        return Piece(cached=cached)
    choice = event["choices"][0]
    told = choice.get("logprobs") or {}
    parts = told.get("tokens")
    if not isinstance(choice["text"], str):
        raise ValueError("not a text")
    return Piece(
        text=choice["text"],
        ids=ids_in(choice.get("token_ids") or []),
        logprobs=numbers_in(told.get("token_logprobs")),
        parts=tuple(map(str, parts)) if parts else None,
        finish=FINISHED[choice.get("finish_reason")],
        cached=cached,
    )


class TokenServer:
    """One model on one server, called with token ids."""

    version = ""
    context_tokens = 0

    def __init__(
        self,
        http: ModelServer,
        *,
        limiter: Limiter,
        price: Price | None = None,
        timeout: float = 300.0,
        retry: Retry | None = None,
    ) -> None:
        self._model = http.server.model
        self.name = f"{self._model}@{http.server.endpoint.host}"
        self.price = price
        self._http = http
        self._timeout = timeout
        self._tries = Tries(limiter, retry)
        self._tokenising = Tries(Limiter(BESIDE_AT_ONCE), retry)
        self._opened: tuple[int, ...] = ()
        """the thinking that its template opens, or leaves empty, before a reply"""

    async def learn(self, context_tokens: int) -> None:
        """Ask for version and context length, and how a prompt ends. Raises AttemptError.

        `context_tokens` is used if the server does not state its own.
        """
        asked = await self._render([Message("user", "?")])  # who renders has shown it tokenises
        with suppress(AttemptError, *UNREADABLE):  # some tokenise, and give no text back
            text = await self._decode(asked)
            await learn_markers(text, self._encode)
            if thought := text[len(before_thought(text)) :]:
                self._opened = await self._encode(thought)
        listed = await self._http.models()
        found = next((m for m in listed if m["id"] == self._model), {})
        parent = next((m for m in listed if m["id"] == found.get("parent")), {})
        self.version = str(found.get("root") or self._model)
        # The context of an adapter is its base model's.
        self.context_tokens = context_in(found) or context_in(parent) or context_tokens

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """As `before_thought` leaves it."""
        ids = await self._aside(lambda: self._render(messages))
        end = len(ids) - len(self._opened)
        return ids[:end] if ids[end:] == self._opened else ids

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text. Servers parse special tokens in it: neutralise it before."""
        return await self._aside(lambda: self._encode(text)) if text else ()

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """What the model writes after the prefix; usage includes failed tries.

        `on_text` has by then also received the pieces of tries that failed. Raises PolicyError.
        """
        body, size = self._body(prefix, sampling), len(prefix)

        async def fill(reading: TokenReading) -> None:
            stream = self._http.send("/completions", body)
            await self._http.read_reply(reading, stream, piece_of, self._timeout)

        most = priced(Usage(prompt_tokens=size, completion_tokens=sampling.max_tokens), self.price)
        begin = partial(TokenReading, stop, on_text, most_tokens=sampling.max_tokens)
        used = partial(self._usage, size)
        reading, usage = await self._tries.read(begin, fill, used, most)
        try:
            return await self._check_reply(reading, usage)
        except (PolicyError, asyncio.CancelledError) as error:
            note_spent(error, usage)  # what tells ids and text costs nothing, the reply was paid
            raise

    def _body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        body: Json = {
            "model": self._model,
            "prompt": list(prefix),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "logprobs": 1,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        return body if sampling.seed is None else body | {"seed": sampling.seed}

    def _usage(self, prompt: int, reading: TokenReading) -> Usage:
        used = Usage(
            prompt_tokens=prompt,
            cached_tokens=max(0, min(reading.cached, prompt)),
            completion_tokens=len(reading.ids),
            calls=1,
        )
        return paid(priced(used, self.price))

    async def _check_reply(self, reading: TokenReading, usage: Usage) -> Completion:
        """The reply, with ids that certainly belong to its text."""
        reply = reading.completion(usage)
        if reading.text and not await self._decodes(reply.token_ids or (), reading):
            log.warning("%s: a reply's ids are not its text's; it is retokenised", self.name)
            return await self._retokenise(reply)
        if reply.logprobs is None:
            log.warning("%s: a reply came without all log-probabilities", self.name)
        return reply

    async def _decodes(self, ids: Sequence[int], reading: TokenReading) -> bool:
        """Whether the ids are the text's, by the server's tokeniser."""
        if not ids:
            return False
        try:
            decoded = await self._aside(lambda: self._decode(ids))
        except PolicyError as error:
            if error.away:
                raise
            return reading.spelled
        # A tokeniser may drop the space that its first token begins with.
        text = reading.text
        plain = decoded if decoded.startswith(text[:1]) else f" {decoded}"
        # A last token may have been cut inside, or be part of a character.
        return plain.startswith(text) if reading.ended else plain.rstrip(PART) == text.rstrip(PART)

    async def _retokenise(self, reply: Completion) -> Completion:
        """The text encoded again: no id spans the edge of a tag, where stages may end."""
        pieces = [piece for piece in re.split(r"(?=<)|(?<=>)", reply.text) if piece]
        ids: list[int] = []
        ends: list[int] = []
        at = 0
        for piece, own in zip(pieces, await asyncio.gather(*map(self.encode, pieces)), strict=True):
            ends += [at] * (len(own) - 1) + [at + len(piece)] * bool(own)
            ids += own
            at += len(piece)
        return replace(
            reply, token_ids=tuple(ids), token_ends=tuple(ends), logprobs=None, retokenised=True
        )

    async def _render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        said = [asdict(message) for message in messages]
        return await self._tokens({"messages": said, "add_generation_prompt": True})

    async def _encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens({"prompt": text, "add_special_tokens": False})

    async def _tokens(self, asked: Json) -> tuple[int, ...]:
        return ids_in((await self._beside("/tokenize", asked))["tokens"])

    async def _decode(self, ids: Sequence[int]) -> str:
        return str((await self._beside("/detokenize", {"tokens": list(ids)}))["prompt"])

    async def _beside(self, path: str, asked: Json) -> Any:
        return await self._http.get(f"{self._http.root}{path}", {"model": self._model, **asked})

    async def _aside(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            try:
                return await asyncio.wait_for(ask(), self._timeout)
            except TimeoutError:
                raise self._http.server.failed(Fault.SILENT, seconds=self._timeout) from None
            except UNREADABLE:
                raise self._http.server.failed(Fault.GARBLED) from None

        return (await self._tokenising.call(attempt))[0]


async def open_tokens(
    http: ModelServer,
    *,
    context_tokens: int,
    tell: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> TokenServer | None:
    """The server as a policy of tokens, with the `options` of `TokenServer`; None if it is none.

    `context_tokens` is used if the server does not state its own. Raises PolicyError if nobody
    answers.
    """
    url = http.server.endpoint.url
    found = TokenServer(http, **options)
    try:
        if all(model.get("owned_by") != "vllm" for model in await http.models()):
            return None
        await found.learn(context_tokens)
    except (AttemptError, *UNREADABLE) as failed:
        if isinstance(failed, AttemptError) and failed.away:
            raise
        tell(f"{url} is asked as a chat server, since it gives no token ids: {failed}")
        return None
    tell(f"{url} is asked in token ids")
    return found
