"""A `ChatModel` over any OpenAI-compatible server, adapted to what the server accepts.

OpenAI-compatible servers differ in what they accept. All useful parameters are sent at first; one
that a server refuses by name is left out from then on, or sent under its other name. The end of a
text is determined by the caller's predicate, never by the server's `stop`; the stream is then
closed.
"""

import hashlib
import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import httpx2

from rubricem.agent.models.limits import (
    AttemptError,
    Endpoint,
    Fault,
    Limiter,
    OwnPrices,
    Retry,
    Server,
    Tries,
    is_no_model,
    is_too_long,
    paid,
    price_of,
    priced,
)
from rubricem.agent.models.model_server import ModelServer
from rubricem.agent.models.replies import Delta, ReplyReading
from rubricem.agent.transcript.scaffold import parse
from rubricem.memory.schema import Completion, Message, OnText, Sampling, StopPredicate, Usage

log = logging.getLogger(__name__)

NEEDED = frozenset({"model", "messages", "stream"})
SCHEMA_WORDS = frozenset({"response_format", "json_schema", "schema", "grammar", "guided"})
TOOL_WORDS = frozenset({"tool", "tools", "tool_choice", "tool_calls", "functions", "template"})
RENAMED = {"max_tokens": "max_completion_tokens"}
LIMITS = ("max_tokens", "max_completion_tokens")
LEAST_ROOM, SPARE = 256, 32
"""tokens of a reply below which a request is not made to fit; tokens kept free beside it"""
LIKELY = (0.4, 2.5)
"""a number in a complaint can be that of the prompt's tokens, if it is so near to our estimate"""

# A complaint about a parameter itself, unlike one about its value.
_UNKNOWN = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra|permitted|not allowed|cannot both"
    r"|deprecated",
    re.IGNORECASE,
)
_OUT_OF_RANGE = re.compile(r"at most|too (large|long|many)|maximum|less than|greater than|between")


_NO_SYSTEM = re.compile(
    r"(system|developer).{0,3}(role|prompt|message|instruction)s?\b|\brole.{0,40}\bsystem\b"
    r"|roles? must alternate|only user and assistant",
    re.IGNORECASE,
)
_OF_REPLY = re.compile(
    r"max_(completion_|new_|output_)?tokens|max_gen_len|(completion|output|new) tokens",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Dialect:
    """What one server has refused so far, and what it is sent beside the usual.

    `extra` is added to every body. `most` is the longest reply that it allows, in tokens; `window`
    its context, of which a prompt takes `per_byte` tokens for each byte.
    """

    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    no_system: bool = False
    calls_tools: bool | None = None
    """whether tools are sent; None: the server was not asked yet"""
    most: int = sys.maxsize
    window: int | None = None
    per_byte: float = 0.25

    def body(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        wished: dict[str, Any] = {
            "model": self.model,
            "messages": self._messages(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": self._room(messages, sampling.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Hosted servers know none of these, so that they are named only where they are set.
            "seed": sampling.seed,
            "min_p": sampling.min_p or None,
            "grammar": sampling.grammar,
        }
        if sampling.json_schema is not None:
            form = {"name": "reply", "schema": json.loads(sampling.json_schema)}
            wished["response_format"] = {"type": "json_schema", "json_schema": form}
        if sampling.tools and self.calls_tools:
            wished["tools"] = json.loads(sampling.tools)
        if sampling.dry:
            wished |= {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 4}
        wished |= self.extra
        wished = {name: value for name, value in wished.items() if value is not None}
        for name in self.refused & wished.keys():
            value = wished.pop(name)
            if name in RENAMED:
                wished[RENAMED[name]] = value
        return wished

    def _messages(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        said = [{"role": m.role, "content": m.content} for m in messages]
        if self.no_system and len(said) > 1 and said[0]["role"] == "system":
            first, second, *rest = said
            whole = f"{first['content']}\n\n{second['content']}"
            return [second | {"content": whole}, *rest]
        return said

    def _room(self, messages: Sequence[Message], wanted: int) -> int:
        """As many of the tokens as this server allows beside the messages, so far as is known."""
        most = min(wanted, self.most)
        if self.window is None:
            return most
        left = self.window - math.ceil(_bytes_of(messages) * self.per_byte) - SPARE
        return min(most, max(left, LEAST_ROOM))

    def lower(self, body: Mapping[str, Any], messages: Sequence[Message], complaint: str) -> None:
        """Ask for a shorter reply from now on, where that is what the complaint is about.

        The numbers are told by what they can be, whatever the words around them: the prompt's
        tokens are near to our estimate, and window and prompt explain why the reply was too long.
        """
        asked = next((int(body[name]) for name in LIMITS if name in body), 0)
        of_reply, of_window = _OF_REPLY.search(complaint), is_too_long(0, complaint)
        if not asked or not (of_reply or of_window):
            return
        numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", complaint)]
        size = _bytes_of(messages)
        near = [n for n in numbers if LIKELY[0] <= n / max(size / 4, 1) <= LIKELY[1]]
        fits = [(w, p) for p in near for w in numbers if p < w < p + asked]
        if of_window and fits:
            self.window, prompt = max(fits)
            self.per_byte = prompt / size
        elif of_reply and not of_window and (less := [n for n in numbers if 0 < n < asked]):
            self.most = max(less)
        elif of_window and (less := [n for n in numbers if size / 4 < n < size / 4 + asked]):
            self.window = min(less)

    def learn(self, body: dict[str, Any], complaint: str) -> None:
        """Leave out from now on what is in `body` and what the complaint says is unknown."""
        first: Mapping[str, Any] = next(iter(body.get("messages", ())), {})
        if first.get("role") == "system" and _NO_SYSTEM.search(complaint):
            log.info("the server of %s takes no system message", self.model)
            self.no_system = True
            return
        named = set(re.findall(r"\w+", complaint))
        # Servers know different parts of schemas; none is needed, so any complaint ends its use.
        if "response_format" in body and named & SCHEMA_WORDS:
            named.add("response_format")
        elif "tools" in body and named & TOOL_WORDS:
            named.add("tools")
        elif not _UNKNOWN.search(complaint) or _OUT_OF_RANGE.search(complaint):
            return
        if {"temperature", "top_p"} <= named:  # Claude takes one of them
            named.discard("temperature")
        if "include_usage" in named:
            named.add("stream_options")
        for name in (body.keys() & named) - NEEDED - self.refused:
            log.info("the server of %s does not accept %s", self.model, name)
            self.refused.add(name)


def delta_of(event: Any) -> Delta:
    """Raises one of `UNREADABLE` if the event is no chunk of a chat completion."""
    choices = event.get("choices") or ()
    usage = event.get("usage")
    if not choices:
        return Delta(usage=usage)
    choice = choices[0]
    # A server that does not stream sends a whole message in one piece.
    whole = choice.get("message") or {}
    delta = choice.get("delta") or whole
    content, thought = text_of(delta.get("content") or delta.get("refusal"))
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    thought += "".join(text_of(reasoning))
    finish = choice.get("finish_reason") or ("stop" if whole else None)
    return Delta(content, thought, finish, usage, tuple(calls_in(delta)))


def text_of(content: Any) -> tuple[str, str]:
    """Text and thinking of a message's content, which may be a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if isinstance(content, Mapping):
        content = [content]
    text, thought = "", ""
    for part in content:
        kind = "text" if isinstance(part, str) else str(part.get("type") or "text")
        held = part if isinstance(part, str) else part.get("text") or part.get(kind) or ""
        written = "".join(text_of(held))
        if "think" in kind or "reason" in kind:
            thought += written
        elif "text" in kind:
            text += written
    return text, thought


def calls_in(delta: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Pieces of the server's own tool calls, as they are told today or were told first."""
    for place, call in enumerate(delta.get("tool_calls") or ()):
        told = call.get("function") or {}
        given = told.get("arguments")
        arguments = given if given is None or isinstance(given, str) else json.dumps(given)
        index = call.get("index")
        index = place if index is None else index
        yield {"index": index, "name": told.get("name"), "arguments": arguments}
    if told := delta.get("function_call"):
        yield {"index": 0, "name": told.get("name"), "arguments": told.get("arguments")}


BYTES_A_TOKEN = 3
"""of UTF-8; most texts have more: where a server counts nothing, rather too much is reckoned"""
MOST_TOKENS = 10**9


def count_in(usage: Any, *path: str) -> int | None:
    """A number of tokens that a server tells; None where it tells none that can be."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, Mapping) else None
    known = isinstance(usage, int | float) and 0 <= usage < MOST_TOKENS
    return int(usage) if known else None


def _bytes_of(messages: Sequence[Message]) -> int:
    return sum(len(m.content.encode(errors="replace")) for m in messages)


class OpenAIChat:
    """One model on one server. `timeout` is for the first token and between pieces, in seconds.

    `think_is_reasoning` takes `<think>` at the start of a reply as the model's own thinking;
    leave it off for a policy whose turns begin with that tag.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None,
        *,
        limiter: Limiter,
        prices: OwnPrices = MappingProxyType({}),
        timeout: float = 300.0,
        retry: Retry | None = None,
        think_is_reasoning: bool = False,
        extra_body: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`extra_body`: what is sent in every request beside the usual, or in its place."""
        endpoint = Endpoint.parse(base_url)
        self.model = model
        self.name = f"{model}@{endpoint.host}"
        self.context_tokens: int | None = None
        """as the server told it, or the settings; None: nobody did"""
        self._server = Server(endpoint, model, api_key or "")
        self.price = price_of(model, prices)
        self._timeout = timeout
        self._tries = Tries(limiter, retry)
        self._http = ModelServer(self._server)
        self._dialect = Dialect(model, extra_body)
        self._sent = SentBefore()
        self._think_is_reasoning = think_is_reasoning

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        """The reply, tried as often as `retry` allows; usage includes the failed tries'.

        `on_text` has already been given the pieces of a try that failed later. Raises
        PolicyError.
        """
        begin = partial(
            ReplyReading,
            stop,
            on_text,
            think_is_reasoning=self._think_is_reasoning,
            most_tokens=sampling.max_tokens,
        )

        async def fill(reading: ReplyReading) -> None:
            await self._read(reading, messages, sampling)
            self._check(reading, sampling)

        read = math.ceil(_bytes_of(messages) / BYTES_A_TOKEN)
        most = priced(Usage(prompt_tokens=read, completion_tokens=sampling.max_tokens), self.price)
        used = partial(self._usage, messages)
        reading, usage = await self._tries.read(begin, fill, used, most)
        self._sent.note(messages)
        return reading.completion(usage)

    async def _read(
        self, reading: ReplyReading, messages: Sequence[Message], sampling: Sampling
    ) -> None:
        """Fill the reading with one try's reply. Raises AttemptError."""
        if sampling.tools and self._dialect.calls_tools is None:
            self._dialect.calls_tools, _ = await self._http.facts()
        stream = self._stream(messages, sampling)
        await self._http.read_reply(reading, stream, delta_of, self._timeout)

    async def _stream(self, messages: Sequence[Message], sampling: Sampling) -> httpx2.Response:
        """The reply, asked for without what the server turns out to refuse."""
        lowered = False
        while True:
            body = self._dialect.body(messages, sampling)
            try:
                return await self._http.send("/chat/completions", body)
            except AttemptError as refused:
                if refused.status in (400, 422, 500):
                    self._dialect.learn(body, refused.complaint)
                if refused.status not in (0, 404, 500) and not lowered:
                    lowered = True
                    self._dialect.lower(body, messages, refused.complaint)
                if self._dialect.body(messages, sampling) != body:
                    continue
                if not is_no_model(refused.status, refused.complaint):
                    raise
                known: list[str] = []
                with suppress(AttemptError):
                    known = await self._http.model_names()
                if self.model in known:  # whatever is missing, it says itself
                    raise
                raise self._server.no_model(refused.status, known) from None

    def _check(self, reading: ReplyReading, sampling: Sampling) -> None:
        """Raises AttemptError unless there is something in the reply."""
        if reading.finish == "content_filter" and not reading.ended:
            raise self._server.failed(Fault.FILTERED)
        if reading.text.strip() or reading.called or reading.ended == "stop":
            return
        turn = parse(reading.reasoning)
        if any(block.closed for tag in ("call_tool", "answer") for block in turn.find(tag)):
            # A server that finds no end of the thinking takes the whole turn for it.
            reading.text = reading.reasoning
            return
        if reading.reason == "length":
            raise self._server.failed(Fault.ENDLESS_THOUGHT, tokens=sampling.max_tokens)
        raise self._server.failed(Fault.WORDLESS)

    def _usage(self, messages: Sequence[Message], reading: ReplyReading) -> Usage:
        """As the server tells it; what it does not tell is reckoned from the texts.

        Whoever keeps to a limit of tokens or money would else take such a reply for free. What was
        sent before counts as read from a cache, but costs as if it were not.
        """
        told, text = reading.usage, reading.reasoning + reading.raw
        prompt = count_in(told, "prompt_tokens") or math.ceil(_bytes_of(messages) / BYTES_A_TOKEN)
        written = len(text.encode(errors="replace"))
        # Gemini counts thinking in the whole alone.
        written_of_all = (count_in(told, "total_tokens") or 0) - prompt
        cached = count_in(told, "prompt_tokens_details", "cached_tokens")
        if cached is None:
            cached = count_in(told, "prompt_cache_hit_tokens")
        used = Usage(
            prompt_tokens=prompt,
            cached_tokens=min(cached or 0, prompt),
            completion_tokens=max(count_in(told, "completion_tokens") or 0, written_of_all)
            or math.ceil(written / BYTES_A_TOKEN),
            calls=1,
        )
        used = priced(used, self.price)
        if cached is None:
            before = int(prompt * self._sent.share(messages))
            used = used.model_copy(update={"cached_tokens": before})
        return paid(used)


MOST_BEGINNINGS = 10_000


class SentBefore:
    """Which beginnings of prompts a server was sent, and so mostly need not read again."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def share(self, messages: Sequence[Message]) -> float:
        """The share of the prompt's bytes, in [0, 1], in messages it began with before."""
        sizes = [len(m.content.encode(errors="replace")) for m in messages]
        known = sum(key in self._seen for key in _beginnings(messages))
        return sum(sizes[:known]) / max(sum(sizes), 1)

    def note(self, messages: Sequence[Message]) -> None:
        self._seen |= dict.fromkeys(_beginnings(messages))
        while len(self._seen) > MOST_BEGINNINGS:
            self._seen.pop(next(iter(self._seen)))


def _beginnings(messages: Sequence[Message]) -> Iterator[str]:
    """A digest of each, the shortest first."""
    said = hashlib.sha256()
    for message in messages:
        said.update(f"\0{message.role}\0{message.content}".encode(errors="replace"))
        yield said.hexdigest()[:24]
