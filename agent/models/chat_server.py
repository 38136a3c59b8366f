"""The chat completions of a model server, asked for without what it refuses to be asked.

A `ChatModel` over any OpenAI-compatible server.

Import this module only where such a server is used: aiohttp takes a fifth of a second.
The end of a text is found by the caller's predicate, never by the server's `stop`; the stream
is then closed.

The body of a chat completion request, as far as this server understands it.

OpenAI-compatible servers differ in what they accept. Everything useful is asked for first;
what a server refuses by name is left out from then on, or given its other name.

A reply as far as it has arrived, and where it ends.

Every piece is looked at once: the caller's predicate sees the text so far and names the offset
at which the turn is over; endless repetition is looked for every 64 characters, in the text as
in the reasoning. What comes after the end is counted but not kept.

One event of a streamed chat completion.

Thinking that a server leaves in the reply's text, told apart from the text.

Only for models whose chat format thinks in `<think>` before every reply, and only where the
caller asks for it: the scaffold's own turns begin with a `<think>` that is part of them.
"""

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rubricem.agent.models.http import EventStream, Listener, ModelServer, ServerRefused
from rubricem.agent.models.limits import AttemptError, Endpoint, Limiter, Retry, Server, Tries
from rubricem.agent.models.llama import CHECK_EVERY, looping
from rubricem.agent.models.prices import Prices, cost
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.interfaces import (
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
    StopReason,
)
from rubricem.memory.schema import Usage

log = logging.getLogger(__name__)

NEEDED = frozenset({"model", "messages", "stream"})
SCHEMA_WORDS = frozenset({"response_format", "json_schema", "schema", "grammar", "guided"})
RENAMED = {"max_tokens": "max_completion_tokens"}

# A complaint about a parameter itself, unlike one about its value.
_UNKNOWN = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra|permitted|not allowed", re.IGNORECASE
)
_OUT_OF_RANGE = re.compile(r"at most|too (large|long|many)|maximum|less than|greater than|between")


@dataclass(slots=True)
class Dialect:
    """What one server has refused so far."""

    model: str
    refused: set[str] = field(default_factory=set)

    def body(self, messages: Sequence[Message], sampling: Sampling) -> dict[str, Any]:
        wished: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        wished |= _sampling_extras(sampling)
        for name in self.refused & wished.keys():
            value = wished.pop(name)
            if name in RENAMED:
                wished[RENAMED[name]] = value
        return wished

    def learn(self, body: dict[str, Any], complaint: str) -> None:
        """Leave out from now on what is in `body` and what the complaint says is unknown."""
        named = set(re.findall(r"\w+", complaint))
        # Servers know different parts of schemas; none is needed, so any complaint ends its use.
        if "response_format" in body and named & SCHEMA_WORDS:
            named.add("response_format")
        elif not _UNKNOWN.search(complaint) or _OUT_OF_RANGE.search(complaint):
            return
        if "include_usage" in named:
            named.add("stream_options")
        for name in (body.keys() & named) - NEEDED - self.refused:
            log.info("the server of %s does not accept %s", self.model, name)
            self.refused.add(name)


def _sampling_extras(sampling: Sampling) -> dict[str, Any]:
    """What is asked for only when it is set, since hosted servers know none of it."""
    extras: dict[str, Any] = {}
    if sampling.seed is not None:
        extras["seed"] = sampling.seed
    if sampling.min_p > 0:
        extras["min_p"] = sampling.min_p
    if sampling.json_schema is not None:
        form = {"name": "reply", "schema": json.loads(sampling.json_schema)}
        extras["response_format"] = {"type": "json_schema", "json_schema": form}
    if sampling.grammar is not None:
        extras["grammar"] = sampling.grammar
    if sampling.dry:
        extras |= {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 4}
    return extras


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds to the reply."""

    content: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None


def delta_of(event: Any) -> Delta:
    """Raises ValueError if the event is no chunk of a chat completion."""
    try:
        choices = event.get("choices") or ()
        usage = event.get("usage")
        if not choices:
            return Delta(usage=usage)
        choice = choices[0]
        delta = choice.get("delta") or {}
        return Delta(
            content=delta.get("content") or "",
            reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
            finish=choice.get("finish_reason"),
            usage=usage,
        )
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a chunk of a chat completion: {error}") from error


class ChatServer(ModelServer):
    """One server as one chat model's client sees it."""

    def __init__(self, server: Server, dialect: Dialect) -> None:
        super().__init__(server)
        self._dialect = dialect

    async def open(self, messages: Sequence[Message], sampling: Sampling) -> EventStream:
        """The reply's stream."""
        while True:
            body = self._dialect.body(messages, sampling)
            try:
                return await self.begun("/chat/completions", body)
            except ServerRefused as refused:
                if refused.status == 404:
                    raise self.server.no_model(await self._known_models()) from None
                if refused.status in (400, 422):
                    self._dialect.learn(body, refused.complaint)
                if self._dialect.body(messages, sampling) == body:
                    raise self.refused(refused) from None

    async def next(self, stream: EventStream) -> Delta | None:
        """The next event's delta, or None at the end of the stream."""
        event = await self.event(stream)
        try:
            return None if event is None else delta_of(event)
        except ValueError:
            raise self.server.garbled() from None

    async def _known_models(self) -> list[str]:
        try:
            return [str(model["id"]) for model in await self.models()]
        except AttemptError:
            return []


OPEN, CLOSE = "<think>", "</think>"


def split_thinking(raw: str) -> tuple[str, str]:
    """(reasoning, text) of a reply, whole or as far as it has arrived.

    Thinking stands at the very start. Its opening tag may be missing, since some chat formats
    write that tag at the end of the prompt; without a closing tag an opened thought is all.
    """
    begun = raw.lstrip()
    if not begun.startswith(OPEN):
        # The first characters may still grow into the tag.
        if OPEN.startswith(begun):
            return "", ""
        thought, closed, text = raw.partition(CLOSE)
        return (thought.strip(), text.lstrip()) if closed else ("", raw)
    thought, _, text = begun.removeprefix(OPEN).partition(CLOSE)
    return thought.strip(), text.lstrip()


# A model that ends its turn by itself sends its usage at once, and a stream read to its end
# leaves the connection fit for the next turn. One that goes on writing is cut off.
LATE_PIECES = 3
BYTES_A_TOKEN = 3
"""of UTF-8; most texts have more"""


@dataclass(slots=True)
class ReplyReading:
    """One attempt's reply; `ended` once nothing that follows is wanted."""

    stop: StopPredicate | None = None
    on_text: OnText | None = None
    think_is_reasoning: bool = False
    raw: str = ""
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    ended: StopReason | None = None
    after_end: int = 0
    """pieces that came although the text had ended"""
    _thought: str = ""
    _shown: int = 0
    _unchecked: int = 0

    @property
    def complete(self) -> bool:
        return self.ended is not None or self.finish is not None

    @property
    def overdue(self) -> bool:
        """Whether the model goes on writing although the text has ended."""
        return self.ended == "repetition" or self.after_end >= LATE_PIECES

    def take(self, delta: Delta) -> None:
        self.usage = delta.usage or self.usage
        self.finish = delta.finish or self.finish
        if self.ended:
            self.after_end += bool(delta.content or delta.reasoning)
            return
        self.reasoning += delta.reasoning
        if delta.content:
            self._write(delta.content)
        self._watch(len(delta.content) + len(delta.reasoning))

    def _write(self, piece: str) -> None:
        self.raw += piece
        if self.think_is_reasoning:
            self._thought, self.text = split_thinking(self.raw)
            # A closing tag without an opening one turns text that was shown into reasoning.
            self._shown = min(self._shown, len(self.text))
        else:
            self.text = self.raw
        if self.stop and (end := self.stop(self.text)) is not None:
            self.text, self.ended = self.text[:end], "stop"
        if self.on_text and len(self.text) > self._shown:
            self.on_text(self.text[self._shown :])
        self._shown = len(self.text)

    def _watch(self, new: int) -> None:
        self._unchecked += new
        if self.ended or self._unchecked < CHECK_EVERY:
            return
        self._unchecked = 0
        if looping(self.raw or self.reasoning):
            self.ended = "repetition"

    def completion(self, usage: Usage) -> Completion:
        return Completion(
            text=self.text,
            stop_reason=self.ended or ("length" if self.finish == "length" else "eos"),
            reasoning="\n".join(filter(None, (self.reasoning.strip(), self._thought))),
            usage=usage,
        )


def reckoned(read: Iterable[str], written: str) -> Usage:
    """What a call must have used that its server says nothing of; rather too much."""
    prompt, completion = (
        math.ceil(len(text.encode(errors="replace")) / BYTES_A_TOKEN)
        for text in ("".join(read), written)
    )
    return Usage(prompt_tokens=prompt, completion_tokens=completion, calls=1)


def tokens_of(usage: Mapping[str, Any] | None) -> Usage:
    """What the server says one call used; a call without a word on it is still a call."""
    if not usage:
        return Usage(calls=1)
    prompt = int(usage.get("prompt_tokens") or 0)
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(int(cached), prompt),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        calls=1,
    )


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
        prices: Prices,
        timeout: float = 120.0,
        retry: Retry | None = None,
        think_is_reasoning: bool = False,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        endpoint = Endpoint.parse(base_url)
        self.model = model
        self.name = f"{model}@{endpoint.host}"
        self._server = Server(endpoint, model, key_variable, api_key or "")
        self.price = prices.of(model, endpoint.host)
        self._listener = Listener(self._server, timeout)
        self._tries = Tries(limiter, retry)
        self._http = ChatServer(self._server, Dialect(model))
        self._think_is_reasoning = think_is_reasoning

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r})"

    async def aclose(self) -> None:
        await self._http.aclose()

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

        async def attempt() -> ReplyReading:
            reading = ReplyReading(stop, on_text, self._think_is_reasoning)
            await self._listener.hear(
                reading,
                lambda: self._http.open(messages, sampling),
                self._http.next,
                lambda: self._usage(reading, messages),
            )
            try:
                self._check(reading, sampling)
            except AttemptError as failed:
                failed.usage = self._usage(reading, messages)
                raise
            return reading

        reading, spent = await self._tries.call(attempt)
        return reading.completion(spent + self._usage(reading, messages))

    def _check(self, reading: ReplyReading, sampling: Sampling) -> None:
        """Raises AttemptError unless there is something in the reply."""
        if reading.finish == "content_filter" and not reading.ended:
            raise self._server.filtered()
        if reading.text.strip() or reading.ended == "stop":
            return
        if reading.finish == "length":
            raise self._server.endless_thought(sampling.max_tokens)
        raise self._server.wordless()

    def _usage(self, reading: ReplyReading, messages: Sequence[Message]) -> Usage:
        """As the server tells it; what costs money and is not told is reckoned from the texts.

        Whoever keeps to a limit of money would else take a reply that was cut off for free.
        """
        used = tokens_of(reading.usage)
        if not reading.usage:
            if self.price is None:
                return used
            used = reckoned((m.content for m in messages), reading.reasoning + reading.raw)
        return used.model_copy(update={"cost": cost(used, self.price)})


async def only_model(base_url: str, api_key: str | None) -> str:
    """The id of the one model that a server lists.

    Raises SettingsError if it lists another number of them, PolicyError if it does not answer.
    """
    server = Server(Endpoint.parse(base_url), "", "OPENAI_API_KEY", api_key or "")
    http = ModelServer(server)
    try:
        known = [str(model["id"]) for model in await http.models()]
    except AttemptError as failed:
        raise PolicyError(str(failed), failed.remedy) from None
    finally:
        await http.aclose()
    if len(known) == 1:
        return known[0]
    listed = f": {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}" if known else ""
    raise SettingsError(
        f"{server.endpoint.url} lists {len(known)} models{listed}", "Name one of them (--model)."
    )
