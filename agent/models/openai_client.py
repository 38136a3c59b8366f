"""One model server, spoken with over aiohttp: requests sent, replies heard, failures told.

The events of a reply are read here, as plain JSON values. With 64 and more runs at once a call's
own cost is what counts, and of a turn in 20 pieces the `openai` package's objects took 3 ms of CPU,
its reader 0.4 ms beyond ours, and what it does for each request as long as sending it. Each call
is tried once: who waits, and whom a refusal makes wait as well, is the limiter's affair
(`limits.Tries`). What is not OpenAI's, for servers that take token ids, is sent the same way.

Import this module only where a server is used.
"""

import asyncio
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from rubricem.agent.models.limits import AttemptError, Endpoint, Server, connector, shared_client
from rubricem.agent.models.replies import Reading

Json = dict[str, Any]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""
MOST_CONNECTIONS = 5000
"""to one server; how many calls are in flight is the limiter's affair"""
IDLE_SECONDS = 5.0
"""after which a connection is used no more; many servers end theirs then"""
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
_FAILURES = (aiohttp.ClientError, ValueError, RecursionError)
_UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


@dataclass(eq=False)
class StatusError(Exception):
    """What a server refuses: an HTTP status that is no success."""

    status: int
    body: Any
    """a value of JSON, or text"""
    headers: Mapping[str, str]


class ModelServer:
    """Paths stand under the server's address, or are whole; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        """what stands beside the OpenAI-compatible paths begins with this"""
        own = f"Bearer {server.key}" if server.key else ""
        self._headers = {
            "Accept": "application/json",
            # What nobody asked for packed cannot hold a thousand times its size.
            "Accept-Encoding": "identity",
            "User-Agent": "rubricem (research agent)",
        }
        if key := server.endpoint.basic or own:
            self._headers["Authorization"] = key

    async def get(self, path: str, body: Json | None = None) -> Any:
        """The JSON value at a path; with a body, the reply to a call which writes nothing."""
        try:
            async with await self._asked(path, body, _limits(ASIDE_SECONDS)) as reply:
                return json.loads(await _whole(reply))
        except (StatusError, *_FAILURES) as error:
            raise self._failure(error) from None

    async def beside(self, path: str, body: Json) -> Json:
        """The reply to a call under the root that writes nothing."""
        value = await self.get(f"{self.root}{path}", body)
        if not isinstance(value, dict):
            raise self.server.garbled()
        return value

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server lists: at least an `id` for each model."""
        listed = await self.get("/models")
        try:
            return [dict(model) for model in listed["data"] if model["id"]]
        except UNREADABLE:
            raise self.server.garbled() from None

    async def model_names(self) -> list[str]:
        return [str(model["id"]) for model in await self.models()]

    async def stream(self, path: str, body: Json) -> aiohttp.ClientResponse:
        """A reply that is being written.

        What the server refuses is raised as it is, a StatusError, since some refusals can be
        answered; `hear` tells the others.
        """
        try:
            # Its silences are timed here: comments that keep it alive count as bytes, and nothing
            # less than a piece is to count.
            return await self._asked(path, body, _limits(None))
        except aiohttp.ClientError as error:
            raise self._failure(error) from None

    async def _asked(
        self, path: str, body: Json | None, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """A reply whose head has come. Raises StatusError, aiohttp.ClientError and ValueError."""
        url = path if "://" in path else f"{self.server.endpoint.url}{path}"
        http = (await self._connections()).http
        if body is None:
            reply = await http.get(url, headers=self._headers, timeout=limits)
        else:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers = {**self._headers, "Content-Type": "application/json"}
            reply = await http.post(url, data=data, headers=headers, timeout=limits)
        if 200 <= reply.status < 300:
            return reply
        async with reply:
            told: Any = (await _whole(reply)).decode(errors="replace").strip()
        with suppress(ValueError, RecursionError):
            told = json.loads(told)
        raise StatusError(reply.status, told, reply.headers)

    async def hear(
        self,
        reading: Reading,
        opened: Awaitable[aiohttp.ClientResponse],
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
                async with await opened as response:
                    reading.begun = True
                    patience = _Patience(deadline, timeout)
                    await self._listen(events_of(response), reading, read, patience)
            if not reading.complete:
                raise self.server.cut("")
        except StatusError as refused:
            raise self._failure(refused) from None
        except TimeoutError:
            if not reading.complete:
                idle = patience is not None and patience.idle
                raise (self.server.idle() if idle else self.server.silent(timeout)) from None

    async def _listen(
        self,
        events: AsyncIterator[Any],
        reading: Reading,
        read: Callable[[Any], Any],
        patience: "_Patience",
    ) -> None:
        """Take events to the end, or until a text that has ended goes on all the same."""
        while not reading.overdue:
            ended, before = reading.ended, reading.progress
            try:
                event = await anext(events)
                if isinstance(event, dict) and event.get("error"):
                    raise self._broken_by(event)
                event = read(event)
            except StopAsyncIteration:
                return
            except (*_FAILURES, AttemptError) as error:
                if reading.complete:
                    return
                told = error if isinstance(error, AttemptError) else self._failure(error, "")
                raise told from None
            reading.take(event)
            patience.idle = 0 if reading.progress > before else patience.idle + 1
            if patience.idle > MOST_IDLE:
                if reading.complete:
                    return
                raise self.server.idle()
            if not ended and (reading.ended or not patience.idle):
                patience.renew(late=reading.ended is not None)

    def _failure(self, error: Exception, broke_off: str = "no response") -> AttemptError:
        """What a failure stands for; `broke_off` says where a connection broke."""
        if isinstance(error, StatusError):
            return self.server.refused(error.status, complaint_of(error.body), error.headers)
        if isinstance(error, _UNCONNECTED):
            return self.server.unreachable()
        if isinstance(error, aiohttp.ClientError):
            return self.server.cut(broke_off)
        return self.server.garbled()

    def _broken_by(self, event: Mapping[str, Any]) -> AttemptError:
        """An error that came as an event of a stream which had begun well."""
        complaint, error = complaint_of(event), event["error"]
        code = str(error.get("code") or "") if isinstance(error, Mapping) else ""
        if code.isdigit():
            return self.server.refused(int(code), complaint, {})
        failed = self.server.refused(400, complaint, {})
        return failed if "context" in str(failed) else self.server.cut(complaint)

    async def _connections(self) -> "_Connections":
        endpoint = self.server.endpoint
        return await shared_client(f"model {endpoint.url}", lambda: _Connections(endpoint))


class _Connections:
    """Those to one server, whoever asks it: what differs stands in the headers of each call."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.http = aiohttp.ClientSession(
            connector=connector(
                ssl=_trusted() if endpoint.url.startswith("https:") else True,
                limit=MOST_CONNECTIONS,
                keepalive_timeout=IDLE_SECONDS,
            ),
            # Those of a server that is named by its number as well.
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            auto_decompress=False,
            # A proxy meant for the network cannot reach this machine's own servers.
            proxy=None if endpoint.loopback else _proxy(endpoint.url),
        )

    async def aclose(self) -> None:
        await self.http.close()


def _proxy(url: str) -> str | None:
    """What the environment names for an address; aiohttp would look for it at each request."""
    parts, proxies = urlsplit(url), getproxies()
    if proxy_bypass(parts.hostname or ""):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


@cache
def _limits(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=seconds)


@cache
def _trusted() -> ssl.SSLContext:
    """Whom a connection trusts; reading it takes 20 ms of CPU."""
    from httpx import create_ssl_context

    return create_ssl_context()


def _is_packed(reply: aiohttp.ClientResponse) -> bool:
    return reply.headers.get("Content-Encoding", "identity") != "identity"


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    """What a reply holds. Raises aiohttp.ClientPayloadError for one that is packed or too large."""
    content = bytearray()
    async for piece in reply.content.iter_any():
        content += piece
        if _is_packed(reply) or len(content) > MOST_BYTES:
            raise aiohttp.ClientPayloadError("the reply is packed or too large")
    return bytes(content)


async def _unpacked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What some send packed, though nobody asked for it. Raises ValueError for what is not."""
    reader = zlib.decompressobj(wbits=47)  # gzip or deflate
    async for piece in pieces:
        try:
            yield reader.decompress(piece, MOST_BYTES)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if reader.unconsumed_tail:
            raise ValueError("an event is too large")


async def events_of(reply: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """The JSON values of the server-sent events that model servers send, up to `[DONE]`.

    Raises ValueError for what is no JSON, or too large an event.
    """
    arriving = aiter(reply.content.iter_any())
    chunks = _unpacked(arriving) if _is_packed(reply) else arriving
    rest, lines, size = b"", [], 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise ValueError("an event is too large")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.startswith(b"data:"):
                lines.append(line[5:].strip())
            elif lines and not line.strip():
                event = b"\n".join(lines)
                lines.clear()
                size = len(chunk)
                if event.startswith(b"[DONE]"):
                    with suppress(TimeoutError, aiohttp.ClientError):
                        async with asyncio.timeout(REST_SECONDS):
                            async for _ in chunks:
                                pass
                    return
                yield json.loads(event.decode(errors="surrogatepass"))


class _Patience:
    """How long a server may still be silent; a piece that comes renews it."""

    idle = 0
    """events that have brought nothing since the last that brought something"""

    def __init__(self, deadline: asyncio.Timeout, seconds: float) -> None:
        self._deadline, self._seconds = deadline, seconds
        self._now = asyncio.get_running_loop().time
        self._until = 0.0

    def renew(self, *, late: bool) -> None:
        now = self._now()
        if late:
            self._deadline.reschedule(now + LATE_SECONDS)
        elif now + self._seconds > self._until + self._seconds * EXACTNESS:
            self._until = now + self._seconds
            self._deadline.reschedule(self._until)


def complaint_of(body: Any) -> str:
    """The server's words, with the code and the parameter that it names."""
    error = body.get("error") or body if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    words = error.get("message") or error.get("detail") or dict(error)
    code = str(error.get("code") or "")
    parts = (words, "" if code.isdigit() else code, error.get("param"))
    return " ".join(str(part) for part in parts if part)
