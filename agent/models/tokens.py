"""A `TokenPolicy` over a server that takes and returns token ids, and opening one.

A policy is trained on exactly the ids that it sampled. Replies are verified: if the ids do not
decode to the text that came with them, the text is encoded again and its segments are marked
`retokenised`, so that no ratio is formed of them.

Each kind of server (vLLM, llama.cpp) has a dialect, which knows its paths, bodies and events; it is
recognised by `owned_by` in `/v1/models`. All sampling parameters are given, since a ratio needs
samples from the model's own distribution. A server of no known kind, or one that does not tokenise,
is used as a chat server.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, TypeVar

from rubricem.agent.models.limits import (
    AttemptError,
    Limiter,
    Price,
    Retry,
    Tries,
    cost,
    note_spent,
    paid,
)
from rubricem.agent.models.llama import completion_request
from rubricem.agent.models.openai_client import UNREADABLE, Json, ModelServer
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


def text_in(value: Any) -> str:
    """The value as a string. Raises ValueError if it is none."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def ids_in(value: Any) -> tuple[int, ...]:
    """Token ids of a reply. Raises ValueError if it is no list of them."""
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("not a list of token ids")
    return tuple(value)


def numbers_in(value: Any) -> tuple[float, ...] | None:
    """Log-probabilities; None if one of them is missing or no number."""
    if not isinstance(value, list):
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return tuple(known) if len(known) == len(value) else None


def context_in(model: Mapping[str, Any]) -> int | None:
    """The context length in an entry of `/v1/models`, if the server states it."""
    length = model.get("max_model_len") or model.get("context_length")
    return length if isinstance(length, int) and length > 0 else None


VLLM_FINISHED: dict[Any, StopReason | None] = {None: None, "stop": "eos", "length": "length"}


UNVERSIONED = "default"
"""the engine's version of weights that were never updated"""


class VLLM:
    """vLLM, `/v1/completions`; the last id is that of the end of the turn, without text."""

    path = "/completions"

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http, self._model = http, model

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
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

    async def facts(self) -> tuple[str, int | None]:
        """The model's or adapter's path, with the version of updated weights.

        The context length of an adapter is its base model's.
        """
        listed = await self._http.models()
        found = next((m for m in listed if m["id"] == self._model), {})
        parent = next((m for m in listed if m["id"] == found.get("parent")), {})
        try:  # of servers in vLLM's development mode alone
            told = await self._http.get(f"{self._http.root}/weight_info")
        except AttemptError as failed:
            if failed.away:
                raise
            told = {}
        version = told.get("weight_version") if isinstance(told, dict) else None
        parts = (found.get("root") or self._model, version if version != UNVERSIONED else None)
        return "@".join(map(str, filter(None, parts))), context_in(found) or context_in(parent)

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self._tokens(
            {"messages": [asdict(m) for m in messages], "add_generation_prompt": True}
        )

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens({"prompt": text, "add_special_tokens": False})

    async def decode(self, ids: Sequence[int]) -> str:
        asked = {"model": self._model, "tokens": list(ids)}
        return str((await self._http.beside("/detokenize", asked))["prompt"])

    async def _tokens(self, asked: Json) -> tuple[int, ...]:
        reply = await self._http.beside("/tokenize", {"model": self._model, **asked})
        return ids_in(reply["tokens"])

    @staticmethod
    def piece(event: Any) -> Piece:
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = int(details.get("cached_tokens") or 0)
        if not event["choices"]:
            return Piece(cached=cached)
        choice = event["choices"][0]
        told = choice.get("logprobs") or {}
        parts = told.get("tokens")
        return Piece(
            text=text_in(choice["text"]),
            ids=ids_in(choice.get("token_ids") or []),
            logprobs=numbers_in(told.get("token_logprobs")),
            parts=tuple(map(str, parts)) if parts else None,
            finish=VLLM_FINISHED[choice.get("finish_reason")],
            cached=cached,
        )


LLAMA_FINISHED: dict[str, StopReason] = {"eos": "eos", "limit": "length"}


class LlamaServer:
    """llama-server, `/completion`; `stop` is never sent: its tokens come without probabilities."""

    def __init__(self, http: ModelServer, model: str) -> None:
        self._http, self._model = http, model
        self.path = f"{http.root}/completion"

    def body(self, prefix: Sequence[int], sampling: Sampling) -> Json:
        return completion_request(prefix, sampling) | {"return_tokens": True, "model": self._model}

    async def facts(self) -> tuple[str, int | None]:
        props = await self._http.get(f"{self._http.root}/props")
        context = (props.get("default_generation_settings") or {}).get("n_ctx")
        return str(props.get("model_path") or self._model), context

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        asked: Json = {"messages": [asdict(m) for m in messages]}
        rendered = await self._http.beside("/apply-template", asked)
        return await self._tokens(rendered["prompt"], special=True)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._tokens(text, special=False)

    async def decode(self, ids: Sequence[int]) -> str:
        return str((await self._http.beside("/detokenize", {"tokens": list(ids)}))["content"])

    async def _tokens(self, text: str, *, special: bool) -> tuple[int, ...]:
        asked = {"content": text, "parse_special": special, "add_special": special}
        return ids_in((await self._http.beside("/tokenize", asked))["tokens"])

    @staticmethod
    def piece(event: Any) -> Piece:
        entries = event.get("completion_probabilities") or []
        parts = [bytes(entry["bytes"]).decode("utf-8", "replace") for entry in entries]
        finish = LLAMA_FINISHED[event["stop_type"]] if event["stop"] else None
        return Piece(
            text=text_in(event["content"]),
            ids=ids_in(event["tokens"]),
            logprobs=numbers_in([entry["logprob"] for entry in entries]),
            parts=tuple(parts),
            finish=finish,
            cached=int((event.get("timings") or {}).get("cache_n") or 0),
        )


TokenDialect = VLLM | LlamaServer
"""One kind of server; methods raise AttemptError if a call fails. `piece` tells what an event adds,
and raises one of `UNREADABLE` if it is not as the dialect expects."""
BESIDE_AT_ONCE = 64
"""simultaneous calls that only tokenise, which do not count against the limit on completions"""
T = TypeVar("T")


class TokenServer:
    """One model on one server, called with token ids; has to be closed."""

    def __init__(
        self,
        http: ModelServer,
        dialect: TokenDialect,
        *,
        version: str,
        context_tokens: int,
        limiter: Limiter,
        price: Price | None = None,
        timeout: float = 300.0,
        retry: Retry | None = None,
        opened: tuple[int, ...] = (),
    ) -> None:
        """`opened`: the thinking that its template opens, or leaves empty, before a reply."""
        self.name = f"{http.server.model}@{http.server.endpoint.host}"
        self.version = version
        self.context_tokens = context_tokens
        self.price = price
        self._http, self._opened = http, opened
        self._dialect = dialect
        self._timeout = timeout
        self._tries = Tries(limiter, retry)
        self._beside = Tries(Limiter(BESIDE_AT_ONCE), retry)

    def __repr__(self) -> str:
        return f"TokenServer({self.name!r})"

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """As `before_thought` leaves it."""
        ids = await self._aside(lambda: self._dialect.render(messages))
        end = len(ids) - len(self._opened)
        return ids[:end] if ids[end:] == self._opened else ids

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text. Servers parse special tokens in it: neutralise it before."""
        return await self._aside(lambda: self._dialect.encode(text)) if text else ()

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
        body = self._dialect.body(prefix, sampling)

        async def attempt() -> TokenReading:
            reading = TokenReading(stop, on_text, most_tokens=sampling.max_tokens)

            def piece_of(event: Any) -> Piece:
                try:
                    return self._dialect.piece(event)
                except UNREADABLE as error:
                    raise self._http.server.unexpected_reply(error) from None

            try:
                stream = self._http.stream(self._dialect.path, body)
                await self._http.read_reply(reading, stream, piece_of, self._timeout)
            except (AttemptError, asyncio.CancelledError) as failed:
                if reading.begun:
                    note_spent(failed, self._usage(len(prefix), reading))
                raise
            return reading

        most = Usage(prompt_tokens=len(prefix), completion_tokens=sampling.max_tokens)
        most = most.model_copy(update={"cost": cost(most, self.price)})
        reading, spent = await self._tries.call(attempt, most)
        usage = spent + self._usage(len(prefix), reading)
        try:
            return await self._check_reply(reading, usage)
        except (PolicyError, asyncio.CancelledError) as error:
            note_spent(error, usage)  # what tells ids and text costs nothing, the reply was paid
            raise

    def _usage(self, prompt: int, reading: TokenReading) -> Usage:
        used = Usage(
            prompt_tokens=prompt,
            cached_tokens=max(0, min(reading.cached, prompt)),
            completion_tokens=len(reading.ids),
            calls=1,
        )
        return paid(used.model_copy(update={"cost": cost(used, self.price)}))

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
            decoded = await self._aside(lambda: self._dialect.decode(ids))
        except PolicyError as error:
            if error.away:
                raise
            return reading.locate_ends() is not None
        # A tokeniser may drop the space that its first token begins with.
        text = reading.text
        plain = decoded if decoded.startswith(text[:1]) else f" {decoded}"
        # A last token may have been cut inside, or be part of a character.
        return plain.startswith(text) if reading.ended else plain.rstrip(PART) == text.rstrip(PART)

    async def _retokenise(self, reply: Completion) -> Completion:
        """The text encoded again: no id spans the edge of a tag, where stages may end."""
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
            except UNREADABLE as error:
                raise self._http.server.unexpected_reply(error) from None

        return (await self._beside.call(attempt))[0]


DIALECTS: Mapping[str, Callable[[ModelServer, str], TokenDialect]] = {
    "vllm": VLLM,
    "llamacpp": LlamaServer,
}
"""by `owned_by` of the models that a server lists"""


async def find_dialect(http: ModelServer) -> TokenDialect | None:
    """The dialect of the server; None if it has none. Raises AttemptError if nobody answers."""
    try:
        owners = {str(model.get("owned_by", "")) for model in await http.models()}
    except AttemptError as failed:
        if failed.away:
            raise
        return None
    found = next((DIALECTS[owner] for owner in DIALECTS if owner in owners), None)
    return found and found(http, http.server.model)


async def open_tokens(
    http: ModelServer,
    *,
    context_tokens: int,
    limiter: Limiter,
    price: Price | None,
    timeout: float,
    tell: Callable[[str], None] = lambda line: None,
    retry: Retry | None = None,
) -> TokenServer | None:
    """The server as a policy of tokens; None if it is none.

    `context_tokens` is used if the server does not state its own. Raises PolicyError if nobody
    answers.
    """
    url = http.server.endpoint.url
    try:
        if (dialect := await find_dialect(http)) is None:
            return None
        opened: tuple[int, ...] = ()
        try:
            # A server that renders has shown that it tokenises.
            asked = await dialect.render([Message("user", "?")])
            with suppress(AttemptError, *UNREADABLE):  # some tokenise, and give no text back
                text = await dialect.decode(asked)
                await learn_markers(text, dialect.encode)
                if thought := text[len(before_thought(text)) :]:
                    opened = await dialect.encode(thought)
            version, length = await dialect.facts()
        except UNREADABLE as error:
            raise http.server.unexpected_reply(error) from None
    except AttemptError as failed:
        if failed.away:
            raise PolicyError(str(failed), failed.remedy) from None
        tell(f"{url} is asked as a chat server, since it gives no token ids: {failed}")
        return None
    tell(f"{url} is asked in token ids, as {type(dialect).__name__} takes them")
    return TokenServer(
        http,
        dialect,
        version=version,
        context_tokens=length or context_tokens,
        limiter=limiter,
        price=price,
        timeout=timeout,
        retry=retry,
        opened=opened,
    )
