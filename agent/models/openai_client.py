"""Calls to one model server through the `openai` package: reading replies, translating failures.

The events of a reply are read here, as plain JSON values. With 64 and more runs at once the cost of
a call itself matters: for a turn in 20 pieces the package's objects were measured at 3 ms of CPU,
its reader at 0.4 ms more than ours, and the client itself at 0.5 ms. The client tries each call
once: who waits, and for whom else a refusal means waiting, is decided by the limiter
(`limits.Tries`), which retries of the client would bypass. Requests beyond OpenAI's interface, for
servers that take token ids, are sent through the same client.

Import this module only if a server is used: the package takes a second.
"""

import asyncio
import json
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
import httpx2
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAioHttpClient,
    omit,
)

from rubricem.agent.models.limits import AttemptError, Server, connector, shared_client
from rubricem.agent.models.replies import Reading

Json = dict[str, Any]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""
MOST_CONNECTIONS = 5000
"""to one server; how many calls are in flight is the limiter's affair"""
LATE_SECONDS = 0.25
"""how long a model that was not cut off may take to end a text that has ended"""
EXACTNESS = 1 / 16
"""of the time-out by which a silence may be found too early; a timer for each piece costs more"""
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
"""what reading a value raises that is not what it should be"""
MOST_IDLE = 20_000
"""events one after another that bring nothing; they come faster than a silence is found"""
MOST_BYTES = 8_000_000
"""of one event, or of a reply that is none: read here, they cost others their time"""
REST_SECONDS = 0.1
"""after the last event; a response read to its end leaves its connection fit for the next call"""
_STREAM = AsyncStream[object]
_BROKEN = (APIConnectionError, httpx2.RequestError, aiohttp.ClientError)
_FAILURES = (APIError, *_BROKEN, ValueError, RecursionError)
_UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class ModelServer:
    """Paths stand under the server's address, or are whole; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        """what stands beside the OpenAI-compatible paths begins with this"""
        own = f"Bearer {server.key}" if server.key else omit
        self._headers = {"Authorization": server.endpoint.basic or own}
        self._aside, self._written = self._options(ASIDE_SECONDS), self._options(None)

    async def get(self, path: str, body: Json | None = None) -> Any:
        """The JSON value at a path; with a body, the reply to a call which writes nothing."""
        try:
            if body is None:
                reply = await (await self._client()).get(
                    path, cast_to=httpx2.Response, options=self._aside
                )
            else:
                reply = await (await self._client()).post(
                    path, cast_to=httpx2.Response, body=body, options=self._aside
                )
            return json.loads(reply.content)
        except _FAILURES as error:
            raise self._failure(error) from None

    async def beside(self, path: str, body: Json) -> Json:
        """The reply to a call under the root that writes nothing."""
        value = await self.get(f"{self.root}{path}", body)
        if not isinstance(value, dict):
            raise self.server.garbled_reply()
        return value

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server lists: at least an `id` for each model."""
        listed = await self.get("/models")
        try:
            return [dict(model) for model in listed["data"] if model["id"]]
        except UNREADABLE:
            raise self.server.garbled_reply() from None

    async def model_names(self) -> list[str]:
        return [str(model["id"]) for model in await self.models()]

    async def stream(self, path: str, body: Json) -> httpx2.Response:
        """A reply that is being written.

        What the server refuses is raised as it is, an APIStatusError, since some refusals can be
        answered; `hear` tells the others.
        """
        try:
            opened: Any = await (await self._client()).post(
                path,
                cast_to=httpx2.Response,
                body=body,
                options=self._written,
                stream=True,
                stream_cls=_STREAM,
            )
            # What is cast to a response is one, although the signature tells of a stream.
            response: httpx2.Response = opened
            return response
        except _BROKEN as error:
            raise self._failure(error) from None

    async def hear(
        self,
        reading: Reading,
        opened: Awaitable[httpx2.Response],
        read: Callable[[Any], Any],
        timeout: float,
    ) -> None:
        """Fill a reading with one reply; `timeout`, in seconds, is for each silence.

        `read` makes of an event's JSON value what the reading takes, and raises AttemptError
        where it cannot. A text that has ended needs no more than its end. A refusal to begin is
        an AttemptError as well.
        """
        patience = None
        try:
            async with asyncio.timeout(timeout) as deadline:
                async with aclosing(await opened) as response:
                    reading.begun = True
                    patience = _Patience(deadline, timeout)
                    await self._listen(_arriving(response), reading, read, patience)
            if not reading.complete:
                raise self.server.cut("")
        except APIStatusError as refused:
            raise self._failure(refused) from None
        except TimeoutError:
            if not reading.complete:
                idle = patience is not None and patience.idle
                raise (self.server.idle() if idle else self.server.silent(timeout)) from None

    async def _listen(
        self,
        arriving: Callable[[], Awaitable[bytes]],
        reading: Reading,
        read: Callable[[Any], Any],
        patience: "_Patience",
    ) -> None:
        """Take events to the end, or until a text that has ended goes on all the same."""
        events = _Events()
        while not reading.overdue:
            ended, before = reading.ended, reading.progress
            try:
                while not events.whole:
                    if events.over or not (piece := await arriving()):
                        return await _rest(arriving, reading, patience)
                    events.add(piece)
                event = events.next()
                if isinstance(event, dict) and event.get("error"):
                    raise self._broken_by(event)
                event = read(event)
            except (*_FAILURES, AttemptError) as error:
                if reading.complete:
                    return None
                told = error if isinstance(error, AttemptError) else self._failure(error, "")
                raise told from None
            reading.take(event)
            patience.idle = 0 if reading.progress > before else patience.idle + 1
            if patience.idle > MOST_IDLE:
                if reading.complete:
                    return None
                raise self.server.idle()
            if not ended and (reading.ended or not patience.idle):
                patience.renew(late=reading.ended is not None)
        return None

    def _failure(self, error: Exception, broke_off: str = "no response") -> AttemptError:
        """What one of `_FAILURES` stands for; `broke_off` says where a connection broke."""
        if isinstance(error, APIStatusError):
            return self.server.refusal(
                error.status_code, complaint_of(error.body), error.response.headers
            )
        if isinstance(error, _BROKEN):
            # The transport's own error says what openai's does not: whether anybody listens.
            causes = (error, error.__cause__, error.__cause__ and error.__cause__.__cause__)
            away = any(isinstance(cause, _UNCONNECTED) for cause in causes)
            return self.server.unreachable() if away else self.server.cut(broke_off)
        return self.server.garbled_reply()

    def _broken_by(self, event: Mapping[str, Any]) -> AttemptError:
        """An error that came as an event of a stream which had begun well."""
        complaint, error = complaint_of(event), event["error"]
        code = str(error.get("code") or "") if isinstance(error, Mapping) else ""
        if code.isdigit():
            return self.server.refusal(int(code), complaint, {})
        failed = self.server.refusal(400, complaint, {})
        return failed if "context" in str(failed) else self.server.cut(complaint)

    def _options(self, seconds: float | None) -> Any:
        """For one request. A stream's silences are timed here: comments that keep it alive count
        as bytes, and nothing less than a piece is to count.
        """
        return {"headers": self._headers, "timeout": _limits(seconds)}

    async def _client(self) -> AsyncOpenAI:
        """The service's, whoever asks it: what differs stands in the headers of each call."""
        url, loopback = self.server.endpoint.url, self.server.endpoint.loopback

        def open_client() -> _Client:
            return _Client(
                base_url=url,
                api_key="in the headers of each request",
                max_retries=0,
                http_client=_Http(
                    limits=httpx2.Limits(max_connections=MOST_CONNECTIONS),
                    # A proxy meant for the network cannot reach this machine's own servers.
                    trust_env=not loopback,
                    verify=_ssl_context(trust_env=not loopback),
                    # What nobody asked for packed cannot hold a thousand times its size.
                    headers={"Accept-Encoding": "identity"},
                    event_hooks={"response": [_bound_whole]},
                ),
            )

        return await shared_client(f"model {url}", open_client)


@cache
def _limits(seconds: float | None) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=CONNECT_SECONDS, pool=None)


class _Client(AsyncOpenAI):
    """The package's client. Of requests that are alike but for their bodies it builds one.

    That takes a third of a call's time, and the next one only copies it.
    """

    aclose = AsyncOpenAI.close

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._built: dict[tuple[Any, ...], httpx2.Request] = {}

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        plain = isinstance(options.json_data, dict) and isinstance(options.timeout, httpx2.Timeout)
        plain = plain and not (options.params or options.extra_json)
        if not plain or retries_taken or self._client.cookies:
            return super()._build_request(options, retries_taken=retries_taken)
        seconds = options.timeout.read
        alike = options.method, options.url, seconds, *options.headers.items()
        if (first := self._built.get(alike)) is None:
            self._built[alike] = super()._build_request(options, retries_taken=retries_taken)
            return self._built[alike]
        body = json.dumps(options.json_data, ensure_ascii=False, separators=(",", ":")).encode()
        headers = first.headers.copy()
        headers["Content-Length"] = str(len(body))
        stream = httpx2.ByteStream(body)
        request = httpx2.Request(
            first.method, first.url, headers=headers, stream=stream, extensions=first.extensions
        )
        request.read()
        return request


class _Http(DefaultAioHttpClient):
    """The package's client over aiohttp, on connections that a reply cannot hold by its heads.

    What is sent to a server that sets no cookies and leads nowhere else passes its transport alone.
    """

    def __init__(self, most: float = math.inf, **named: Any) -> None:
        self._most = most
        super().__init__(**named)

    async def send(self, request: httpx2.Request, **named: Any) -> httpx2.Response:
        if self.cookies or named.keys() - {"stream"}:
            return await super().send(request, **named)
        response = await self._transport_for_url(request.url).handle_async_request(request)
        response.request = request
        if response.has_redirect_location:
            await response.aclose()
            return await super().send(request, **named)
        if "set-cookie" in response.headers:
            self.cookies.extract_cookies(response)
        try:
            for hook in self.event_hooks["response"]:
                await hook(response)
            if not named.get("stream"):
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    def _init_transport(self, *given: Any, **named: Any) -> Any:
        return self._over(super()._init_transport(*given, **named))

    def _init_proxy_transport(self, *given: Any, **named: Any) -> Any:
        return self._over(super()._init_proxy_transport(*given, **named))

    def _over(self, transport: Any) -> Any:
        def session() -> aiohttp.ClientSession:
            held = connector(
                self._most,
                ssl=transport.ssl_context,
                limit=transport.limits.max_connections,
                keepalive_timeout=transport.limits.keepalive_expiry,
            )
            # Cookies are kept above it.
            return aiohttp.ClientSession(connector=held, cookie_jar=aiohttp.DummyCookieJar())

        transport.client = session
        return transport


def network(most: float) -> httpx2.AsyncBaseTransport:
    """A way to servers, past proxies, of whose replies so many bytes are read at most."""
    http = _Http(most, trust_env=False, verify=_ssl_context(trust_env=False))
    return http._transport


@cache
def _ssl_context(trust_env: bool) -> ssl.SSLContext:
    """Whom a connection trusts; reading it takes 20 ms of CPU."""
    return httpx2.create_ssl_context(trust_env=trust_env)


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """What is read of a reply; a value of JSON is all of it, or one of its events."""

    most: int
    """bytes in all"""
    value: float = math.inf
    """bytes of a value"""
    marks: float = math.inf
    """of a value, whose parts cost more than its text: a comma or an opening bracket is one, within
    a string too, each end of a string four"""


class _Bounded(httpx2.AsyncByteStream):
    """A body that breaks off where it goes beyond its limits."""

    def __init__(self, body: httpx2.AsyncByteStream, limits: ReplyLimits, events: bool) -> None:
        self._body, self._limits, self._events = body, limits, events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        limits, whole, value, marks = self._limits, 0, 0, 0
        async for piece in self._body:
            whole, value, marks = whole + len(piece), value + len(piece), marks + _marks(piece)
            if whole > limits.most or value > limits.value or marks > limits.marks:
                raise httpx2.ReadError("the reply is too large")
            if self._events and (at := max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"))) >= 0:
                value, marks = len(piece) - at, _marks(piece[at:])
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def _marks(piece: bytes) -> int:
    ends = piece.count(b'"') - piece.count(b'\\"')  # those within a string are written so
    return 4 * ends + sum(map(piece.count, (b",", b"[", b"{")))


def bound_reply(response: httpx2.Response, limits: ReplyLimits) -> httpx2.Response:
    """The response, whose body breaks off beyond its limits.

    Raises httpx2.DecodingError where it is packed, which was not requested.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the reply is packed, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _Bounded(response.stream, limits, events)
    return response


async def _bound_whole(response: httpx2.Response) -> None:
    """Bound what is read whole: all but a reply that is being written."""
    # Whatever type a server declares: what is written is asked for without a time for each read.
    written = response.request.extensions["timeout"]["read"] is None
    if not (response.is_success and written):
        bound_reply(response, ReplyLimits(MOST_BYTES))


def _arriving(response: httpx2.Response) -> Callable[[], Awaitable[bytes]]:
    """Gives what comes next of a reply as it is being written, b"" at its end."""
    packed = "content-encoding" in response.headers
    # A stream as it arrives passes four layers fewer; what is packed needs them.
    arrived = None if packed else getattr(response.stream, "_aiohttp_response", None)
    if arrived is not None:
        read: Callable[[], Awaitable[bytes]] = arrived.content.readany
        return read
    pieces = response.aiter_bytes() if packed else response.aiter_raw()

    async def piece() -> bytes:
        return await anext(pieces, b"")

    return piece


async def _rest(
    arriving: Callable[[], Awaitable[bytes]], reading: Reading, patience: "_Patience"
) -> None:
    """Read what follows the last event of a whole reply; the connection is then as it was."""
    if reading.complete:
        patience.rest()
        with suppress(*_BROKEN):
            while await arriving():
                pass


class _Events:
    """The JSON values of the server-sent events that model servers send, up to `[DONE]`."""

    def __init__(self) -> None:
        self.whole: deque[bytes] = deque()
        """events that have come and were not read yet"""
        self.over = False
        """the last one has come"""
        self._rest, self._lines, self._size = b"", list[bytes](), 0

    def add(self, piece: bytes) -> None:
        """Take up the bytes that came next. Raises ValueError for too large an event."""
        self._size += len(piece)
        if self._size > MOST_BYTES:
            raise ValueError("an event is too large")
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            if line.startswith(b"data:"):
                self._lines.append(line[5:].strip())
            elif self._lines and not line.strip():
                event = b"\n".join(self._lines)
                self._lines.clear()
                self._size = len(piece)
                if event.startswith(b"[DONE]"):
                    self.over = True
                    return
                self.whole.append(event)

    def next(self) -> Any:
        """The first that was not read yet. Raises ValueError for what is no JSON."""
        return json.loads(self.whole.popleft().decode("utf-8", "surrogatepass"))


class _Patience:
    """How long a server may still be silent; a piece that comes renews it."""

    idle = 0
    """events that have brought nothing since the last that brought something"""

    def __init__(self, deadline: asyncio.Timeout, seconds: float) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._now = asyncio.get_running_loop().time
        self._until = deadline.when() or 0.0

    def renew(self, *, late: bool) -> None:
        now = self._now()
        if late:
            self._deadline.reschedule(now + LATE_SECONDS)
        elif now + self._seconds > self._until + self._seconds * EXACTNESS:
            self._until = now + self._seconds
            self._deadline.reschedule(self._until)

    def rest(self) -> None:
        """After the last event; a text that had ended before has its time."""
        now = self._now()
        if (self._deadline.when() or 0.0) > now + LATE_SECONDS:
            self._deadline.reschedule(now + REST_SECONDS)


def complaint_of(body: Any) -> str:
    """The server's words, with the code and the parameter that it names."""
    error = body.get("error") or body if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    words = error.get("message") or error.get("detail") or dict(error)
    code = str(error.get("code") or "")
    parts = (words, "" if code.isdigit() else code, error.get("param"))
    return " ".join(str(part) for part in parts if part)
