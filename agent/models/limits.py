"""A model server's limits: calls at a time, what its failures mean, what its tokens cost.

All clients of a server share its `Limiter`: where the server asks to be left alone, none of many
questions in flight begins another call.

Calls are retried here and nowhere else: exponential back-off with jitter, and the server's own
`Retry-After`. A server's words are quoted cut short and without the API key. Prices are the user's
own, in US dollars per million tokens; an unknown price is None, never 0.
"""

import asyncio
import base64
import ipaddress
import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import httpx2

from rubricem.agent.models.replies import Reading
from rubricem.memory.asking import usage_of_error
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import NO_USAGE, Usage
from rubricem.memory.text import one_line

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Reading)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is. `url` and `host` can be shown: they contain no credentials."""

    url: str
    """scheme, host, port and path, without a trailing slash"""
    host: str
    loopback: bool
    basic: str | None = field(default=None, repr=False)
    """the Authorization header for a user name and password in the address"""

    @classmethod
    def parse(cls, base_url: str) -> "Endpoint":
        """Raises SettingsError, without repeating the address, if it is no http(s) address."""
        try:
            url = httpx2.URL(base_url.strip())
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
            raise SettingsError(
                "the address of the model server is not an http or https address",
                "Write it like http://localhost:8080/v1.",
            )
        basic, place = None, url.netloc.decode()
        if url.username:
            pair = f"{url.username}:{url.password}"
            basic = "Basic " + base64.b64encode(pair.encode()).decode()
        try:
            loopback = ipaddress.ip_address(url.host).is_loopback
        except ValueError:
            loopback = url.host == "localhost" or url.host.endswith(".localhost")
        path = url.raw_path.decode().partition("?")[0].rstrip("/")
        return cls(f"{url.scheme}://{place}{path}", place, loopback, basic)


RETRIED_STATUSES = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long one call is tried; times in seconds."""

    tries: int = 5
    first: float = 0.5
    longest: float = 30.0
    total: float = 180.0
    """all waits of one call together"""

    def wait(self, tried: int, asked: float | None, chance: float) -> float:
        """Seconds before the next try, after `tried` failed ones; `chance` is in [0, 1).

        Half to all of `first * 2 ** (tried - 1)`, at most `longest`; a wait that the server asked
        for is never shortened, only extended by up to a tenth.
        """
        if asked is not None:
            return asked * (1 + chance / 10)
        full = min(self.longest, self.first * 2.0 ** (tried - 1))
        return full * (1 + chance) / 2


class AttemptError(PolicyError):
    """One failed try, and whether to try `again`."""

    again = False
    asked: float | None = None
    """seconds for which the server asked to be left alone"""
    crowded = False
    """the server limits its callers, so all of them should wait"""
    status = 0
    complaint = ""
    """of a refusal by HTTP: the server's words"""


def note_spent(failed: BaseException, usage: Usage) -> None:
    """Record on an exception what the call had cost nevertheless."""
    failed.usage = usage  # type: ignore[attr-defined]


def is_transient(status: int) -> bool:
    return status in RETRIED_STATUSES or status >= 500


_AGAIN_IN = re.compile(
    r"(?:retry|try again) in (\d+(?:\.\d+)?) ?(m?)s(?:econds?)?\b", re.IGNORECASE
)


def parse_wait(headers: Mapping[str, str], complaint: str = "") -> float | None:
    """Seconds that the headers, else the words, ask to wait; None if they say nothing usable."""
    for name, a_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            if math.isfinite(asked := float(headers.get(name, "")) / a_second):
                return max(0.0, asked)
    if said := _AGAIN_IN.search(complaint):  # Gemini sends no header
        return float(said[1]) / (1000 if said[2] else 1)
    return None


PERSON: ContextVar[str] = ContextVar("PERSON", default="")
"""for whom this context works: a user of a server; "": whoever runs the program"""


class Places:
    """At most `limit` at once: the next one is of whoever has the fewest.

    Of several places a user of a server has half at most, so that one is soon left for others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._had = Counter[str]()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    async def acquire(self) -> str:
        """Whose place it is, once there is one; to be given back by `release`."""
        person, turn = PERSON.get(), asyncio.get_running_loop().create_future()
        self._waiting.append((person, turn))
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given in the same moment
                self.release(person)
            raise
        return person

    def release(self, person: str) -> None:
        self._had[person] -= 1
        self._give()

    def _give(self) -> None:
        self._waiting = [each for each in self._waiting if not each[1].done()]
        most = max(self._limit // 2, 1)
        able = [each for each in self._waiting if not each[0] or self._had[each[0]] < most]
        if able and self._had.total() < self._limit:
            person, turn = min(able, key=lambda each: self._had[each[0]])
            self._had[person] += 1
            turn.set_result(None)
            self._give()


class Limiter:
    """At most `limit` calls in flight, and none begun while the server wants a pause."""

    def __init__(self, limit: int) -> None:
        self._places = Places(limit)
        self._resumes_at = -math.inf

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place for one call; waits until one is free and no pause is in force."""
        person = await self._places.acquire()
        try:
            # A pause may be prolonged while it is waited out.
            while (seconds := self._resumes_at - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            yield
        finally:
            self._places.release(person)

    def pause(self, seconds: float) -> None:
        """Begin no call for so long; a pause never shortens a current one."""
        self._resumes_at = max(self._resumes_at, time.monotonic() + seconds)


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Any]] = WeakKeyDictionary()
"""what all callers of a running event loop share, by its name"""


def shared_limiter(base_url: str, limit: int = 64) -> Limiter:
    """A server's limiter, for the running event loop: policy and judge of one process share it.

    The first caller sets its limit; spelling, credentials and a trailing slash of the address do
    not matter.
    """
    held = _OF_LOOP.setdefault(asyncio.get_running_loop(), {})
    limiter: Limiter = held.setdefault(f"limiter {Endpoint.parse(base_url).url}", Limiter(limit))
    return limiter


async def shared_client(
    name: str, opening: Callable[[], T], close: Callable[[T], Awaitable[None]]
) -> T:
    """A service's client, for the running event loop: its connections outlive a question.

    The first caller opens it. It is closed when the loop's asynchronous generators end, as by
    `asyncio.run`.
    """
    held = _OF_LOOP.setdefault(asyncio.get_running_loop(), {})
    if name not in held:
        client = opening()

        async def until_the_end() -> AsyncGenerator[None]:
            try:
                yield
            finally:
                del held[name]
                await close(client)

        held[name] = client, until_the_end()
        # A generator is known to the loop once it has begun.
        await anext(held[name][1])
    found: T = held[name][0]
    return found


class Payer(Protocol):
    """Somebody's account."""

    def call(self, most: Usage) -> AbstractAsyncContextManager[None]:
        """Sets aside what a call may use at most, while it is made.

        Raises PolicyError, before it, if nothing is left for it.
        """

    def pay(self, usage: Usage) -> None:
        """A call was made."""


PAYER: ContextVar[Payer | None] = ContextVar("PAYER", default=None)
"""who pays for the calls of this context; None: whoever runs the program"""


def paying(most: Usage | None) -> AbstractAsyncContextManager[None]:
    """While a call is made that uses at most so much; None: it costs nothing.

    Raises PolicyError if nothing may be spent.
    """
    payer = PAYER.get()
    return nullcontext() if payer is None or most is None else payer.call(most)


def paid(usage: Usage) -> Usage:
    """What one call used, entered in the account of who pays for it."""
    if payer := PAYER.get():
        payer.pay(usage)
    return usage


class Tries:
    """The calls of one client; the limiter is shared by all clients of its server."""

    def __init__(self, limiter: Limiter, retry: Retry | None = None) -> None:
        self._limiter = limiter
        self._retry = retry or Retry()

    async def read(
        self,
        begin: Callable[[], R],
        fill: Callable[[R], Awaitable[None]],
        used: Callable[[R], Usage],
        most: Usage,
    ) -> tuple[R, Usage]:
        """A reading that was filled, and what it and those that failed cost, as `call`.

        A try whose reading has begun costs what is `used`, even if it fails.
        """

        async def attempt() -> R:
            reading = begin()
            try:
                await fill(reading)
            except (AttemptError, asyncio.CancelledError) as failed:
                if reading.begun:
                    note_spent(failed, used(reading))
                raise
            return reading

        reading, spent = await self.call(attempt, most)
        return reading, spent + used(reading)

    async def call(
        self, attempt: Callable[[], Awaitable[T]], most: Usage | None = None
    ) -> tuple[T, Usage]:
        """The result of an attempt, after retries, and what the failed ones cost.

        `most`: what one uses at most; None: nothing. Raises PolicyError, with the cost, if there
        is no point in trying again.
        """
        spent, waited, tried, why = NO_USAGE, 0.0, 0, ""
        try:
            while True:
                tried += 1
                try:
                    async with paying(most), self._limiter.slot():
                        return await attempt(), spent
                except AttemptError as failed:
                    spent, why = spent + usage_of_error(failed), str(failed)
                    wait = self._wait(failed, tried, waited)
                await asyncio.sleep(wait)
                waited += wait
        except (PolicyError, asyncio.CancelledError) as end:
            note_spent(end, spent + usage_of_error(end))
            end.failed = why  # type: ignore[union-attr]
            raise

    def _wait(self, failed: AttemptError, tried: int, waited: float) -> float:
        """Seconds until the next try; raises PolicyError if there is none."""
        wait = self._retry.wait(tried, failed.asked, random.random())
        # A pause that no caller has the patience for would only hold them all up.
        if failed.crowded and wait <= self._retry.total:
            self._limiter.pause(wait)
        if not failed.again or tried >= self._retry.tries or waited + wait > self._retry.total:
            times = f", after {tried} tries" if tried > 1 else ""
            last = PolicyError(f"{failed}{times}", failed.remedy)
            last.away, last.kind = failed.away, failed.kind
            raise last from None
        log.info("%s; try %d follows in %.1f s", failed, tried + 1, wait)
        return wait


QUOTED_CHARACTERS = 300

_CONTEXT = re.compile(
    r"context[_ ]*(length|size|window|limit)|maximum context|exceeds? the .{0,30}context"
    r"|(prompt|input|request|conversation)( is|'s)? too (long|large)|too many input tokens"
    r"|input token count.{0,40}exceed|inputs?`? tokens \+ `?max_new_tokens"
    r"|reduce (the length of )?(the|your) (messages?|prompt|input|request)",
    re.IGNORECASE,
)
"""a request that never fits, in the words of OpenAI, vLLM, llama.cpp, Anthropic, Gemini, TGI,
Bedrock and Groq"""
_LASTING = re.compile(
    r"invalid|not[_ ](found|supported|allowed)|unsupported|unknown|unauthori|authenticat|permission"
    r"|denied|api[_ ]key|quota|balance|credit|billing|content",
    re.IGNORECASE,
)
"""an error that the same request meets again"""
_QUOTA = re.compile(
    r"insufficient[_ ](quota|balance|credit)|exceeded your current quota|credit balance"
    r"|budget has been exceeded|exceeded budget",
    re.IGNORECASE,
)
_NEVER = re.compile(r"\blimit: 0\b")
"""of a quota that no waiting brings back"""
_KEY = re.compile(r"api[_ ]key not valid|api_key_invalid|authorization header", re.IGNORECASE)
_FILTER = re.compile(r"content_filter|content management policy", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|not a valid model|invalid model name|model .{0,80}(does not exist|not found)",
    re.IGNORECASE,
)


def is_no_model(status: int, complaint: str) -> bool:
    """Whether the server has no such model, or no such address."""
    return status == 404 or (status == 400 and _NO_MODEL.search(complaint) is not None)


def is_too_long(status: int, complaint: str) -> bool:
    """Whether the server says that this one request can never pass, being too long."""
    return status == 413 or _CONTEXT.search(complaint) is not None


_SERVER = "the model server at {url}"
_CORRECT = "Correct what it names, or use another model or server."


class Fault(Enum):
    """What can go wrong with a call: the sentence, the remedy, and fields of `AttemptError`."""

    def __init__(self, said: str, remedy: str, more: Mapping[str, Any] = MappingProxyType({})):
        self.said, self.remedy, self.more = said, remedy, more

    UNREACHABLE = (
        "no model server answers at {url}",
        "Start the server, or correct its address (base_url).",
        {"again": True, "away": True},
    )
    NO_TLS = (
        "there is no TLS connection to {url}: {words}",
        "Correct the address (http:// for a server without TLS), or the server's certificate.",
        {"away": True},
    )
    SILENT = (
        f"{_SERVER} sent nothing for {{seconds:g}} s",
        "Check whether it is overloaded, or allow it a longer time-out.",
        {"again": True, "away": True},
    )
    CUT = (
        f"{_SERVER} broke off in the middle of a reply{{words}}",
        "Check the server's log, and ask again.",
        {"again": True},
    )
    GARBLED = (
        "what {url} sent is not an OpenAI-compatible completion{words}",
        "Correct the address (base_url); for most servers it ends in /v1. Or update the server.",
        {"again": True},
    )
    REJECTED = (f"{_SERVER} rejected the request ({{status}}): {{words}}", _CORRECT)
    COMPLAINED = (f"{_SERVER} sent an error in place of a reply: {{words}}", _CORRECT)
    WEB_PAGE = (
        "{url} sent a web page in place of a reply",
        "Correct the address (base_url); a proxy or a page to log in may stand before it.",
    )
    MOVED = (
        "{url} sends its callers on to another host, {words}",
        "Nothing was sent there. If it is meant, name its own address (base_url).",
    )
    FILTERED = (
        "the content filter of {url} withheld the reply",
        "Word the question differently, or use another model.",
    )
    WORDLESS = (
        "{model} at {url} sent an empty reply",
        "Ask again, or use another model.",
        {"again": True, "kind": "empty"},
    )
    ENDLESS_THOUGHT = (
        "{model} spent all its {tokens} tokens on thinking and wrote no reply",
        "Allow it more tokens (max_tokens), or let it think less (reasoning_effort).",
        {"kind": "thinking"},
    )
    NO_MODEL = (f"{_SERVER} has no model {{model!r}} ({{status}})", "{words}")
    TOO_LONG = (
        "the conversation no longer fits the context length of {model}: {words}",
        "Allow fewer tool calls, or use a model or an account with a longer context.",
        {"kind": "context"},
    )
    WRONG_KEY = (
        f"{_SERVER} refused the API key ({{status}})",
        "Give a key that is valid for this server and model, as api_key or RUBRICEM_API_KEY.",
    )
    NO_KEY = (
        f"{_SERVER} requires an API key and none is set ({{status}})",
        "Give a key of this server, as api_key or RUBRICEM_API_KEY.",
    )
    NO_ACCESS = (
        f"{_SERVER} refused access ({{status}}): {{words}}",
        "Give a key that may do this, or use another model or server.",
    )
    NO_QUOTA = (
        "the account at {url} has no quota left ({status})",
        "Add credit there, use another key, or use another model.",
    )
    CROWDED = (
        f"{_SERVER} limits its callers ({{status}}){{words}}",
        "Ask later, or let fewer calls run at once.",
        {"again": True, "away": True, "crowded": True},
    )
    BROKEN = (
        f"{_SERVER} failed: {{words}} ({{status}})",
        "Check the server's log.",
        {"again": True, "away": True},
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A server for messages: its address, the requested model, the key."""

    endpoint: Endpoint
    model: str
    key: str = field(default="", repr=False)

    def quote(self, words: str) -> str:
        """The server's words, printable, cut short, without key and address's password."""
        if words.lstrip().startswith("<"):
            words = re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]*>", " ", words)
        words = one_line(words)
        secrets = [self.key, (self.endpoint.basic or "").removeprefix("Basic ")]
        for secret in filter(None, secrets):
            words = words.replace(secret, "[key]")
        return words if len(words) <= QUOTED_CHARACTERS else words[:QUOTED_CHARACTERS] + " ..."

    def failed(self, fault: Fault, words: str = "", **told: Any) -> AttemptError:
        """The failure of a try. `words`: the server's own; `told`: what else the sentence says."""
        quoted = self.quote(words or "for no reason that it tells")
        if fault in (Fault.CUT, Fault.GARBLED, Fault.CROWDED):
            quoted = f": {quoted}" if words else ""
        fields = {"url": self.endpoint.url, "model": self.model, "words": quoted, **told}
        said, remedy = fault.said.format(**fields), fault.remedy.format(**fields)
        failed = AttemptError(said, remedy)
        vars(failed).update(fault.more)
        return failed

    def refusal(self, status: int, complaint: str, headers: Mapping[str, str]) -> AttemptError:
        """The failure for an HTTP status and the server's words."""
        failed = self._refusal(status, complaint, parse_wait(headers, complaint))
        failed.status, failed.complaint = status, complaint
        return failed

    def _refusal(self, status: int, complaint: str, asked: float | None) -> AttemptError:
        if status in (401, 403) and complaint.lstrip().startswith("<"):
            return self.failed(Fault.WEB_PAGE)
        if is_too_long(status, complaint):
            return self.failed(Fault.TOO_LONG, complaint)
        spent = _QUOTA.search(complaint) and (asked is None or _NEVER.search(complaint))
        if status == 402 or (spent and status in (400, 403, 429)):
            return self.failed(Fault.NO_QUOTA, status=status)
        if status in (401, 403) or (status == 400 and _KEY.search(complaint)):
            fault = Fault.NO_ACCESS if status == 403 else Fault.WRONG_KEY
            return self.failed(fault if self.key else Fault.NO_KEY, complaint, status=status)
        if status == 400 and _FILTER.search(complaint):
            return self.failed(Fault.FILTERED)
        if not is_transient(status):
            return self.failed(Fault.REJECTED, complaint, status=status)
        crowded = status == 429 or (status == 503 and asked is not None)
        failed = self.failed(Fault.CROWDED if crowded else Fault.BROKEN, complaint, status=status)
        failed.asked = asked
        return failed

    def complaint(self, words: str, *, begun: bool) -> AttemptError:
        """The failure for an error in the place of a reply, or in one that had `begun`."""
        if is_too_long(0, words):
            return self.failed(Fault.TOO_LONG, words)
        failed = self.failed(Fault.CUT if begun else Fault.COMPLAINED, words)
        failed.again = begun or not _LASTING.search(words)
        return failed

    def no_model(self, status: int, known: list[str]) -> AttemptError:
        """`known`: the ids that the server lists, of which the nearest are named; may be empty."""
        remedy = "Correct the model's name, or the address; for most servers it ends in /v1."
        if known:
            nearest = get_close_matches(self.model, known, 5, 0.0)
            remedy = f"It has: {', '.join(nearest)}{', ...' if len(known) > 5 else ''}."
        return self.failed(Fault.NO_MODEL, remedy, status=status)


class Price(NamedTuple):
    """US dollars per million tokens; `cached` is for prompt tokens read from a cache."""

    prompt: float
    cached: float
    completion: float


OwnPrices = Mapping[str, tuple[float, float, float]]
"""the user's own, by model name: the numbers of a `Price` each"""


def price_of(model: str, own: OwnPrices) -> Price | None:
    return Price(*own[model]) if model in own else None


def cost(usage: Usage, price: Price | None) -> float | None:
    """Cost of the tokens in US dollars; None without a price."""
    if price is None:
        return None
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (
        fresh * price.prompt
        + usage.cached_tokens * price.cached
        + usage.completion_tokens * price.completion
    ) / 1e6


def priced(usage: Usage, price: Price | None) -> Usage:
    """The same with its cost."""
    return usage.model_copy(update={"cost": cost(usage, price)})
