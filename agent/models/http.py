"""One model server over HTTP, spoken with in JSON: opens streams, reads events, tells what failed.

Built on aiohttp alone. With 64 and more runs at once a call's own cost is what counts: the
`openai` package, whose models, clients and streams stood here before, took a quarter of a turn's
CPU time, and half a second to be imported.

The server-sent events of one reply, read from an HTTP response as they come.

Only what model servers send is read: the `data` of each event, which is JSON, and `[DONE]`
after the last one. Comments that keep a connection alive, and other fields, are passed over.

Listening to one reply: until it has ended, or its server falls silent or breaks off.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

import aiohttp

from rubricem.agent.models.limits import AttemptError, Endpoint, Server
from rubricem.memory.interfaces import StopReason
from rubricem.memory.schema import NO_USAGE, Usage

DONE = b"[DONE]"
REST_SECONDS = 0.1
"""after the last event; a response read to its end leaves its connection fit for the next call"""


class EventStream:
    """The events of a response; leaving it with `async with` frees the connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._rest = b""
        self._lines: list[bytes] = []
        """of the event that is being read"""
        self._events: deque[bytes] = deque()
        self._ended = False

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.release()

    async def following(self) -> Any:
        """The next event's value, or None after the last one.

        Raises ValueError for what is no JSON, and aiohttp's errors for a broken connection.
        """
        while not self._events and not self._ended:
            if chunk := await self._response.content.readany():
                self._take(chunk)
            else:
                self._take(b"\n\n")
                self._ended = True
        if not self._events:
            return None
        event = self._events.popleft()
        if not event.startswith(DONE):
            return json.loads(event)
        self._ended = True
        self._events.clear()
        await self._read_out()
        return None

    def _take(self, chunk: bytes) -> None:
        """Read the whole lines that have come; an empty one ends an event."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._lines.append(line[5:].strip())
            elif self._lines and not line.strip():
                self._events.append(b"\n".join(self._lines))
                self._lines = []

    async def _read_out(self) -> None:
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(REST_SECONDS):
                while await self._response.content.readany():
                    pass


Json = dict[str, Any]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""
MOST_CONNECTIONS = 1000
LONGEST_COMPLAINT = 100_000
"""bytes of what a server says when it refuses"""

UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class ServerRefused(Exception):
    """What a server said in place of a reply."""

    def __init__(self, status: int, complaint: str, headers: Mapping[str, str]) -> None:
        super().__init__(complaint)
        self.status = status
        self.complaint = complaint
        self.headers = headers


class ModelServer:
    """Paths stand under the server's address, or are whole; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        """what stands beside the OpenAI-compatible paths begins with this"""
        self._session: aiohttp.ClientSession | None = None
        self._headers = {"Content-Type": "application/json", **_authorization(server)}

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Any:
        return await self._aside("GET", path, None)

    async def beside(self, path: str, body: Json) -> Any:
        """The reply to a call under the root that writes nothing; raises AttemptError."""
        reply = await self._aside("POST", f"{self.root}{path}", body)
        if not isinstance(reply, dict):
            raise self.server.garbled()
        return reply

    async def stream(self, path: str, body: Json) -> EventStream:
        """The events of a reply that is being written."""
        try:
            return await self.begun(path, body)
        except ServerRefused as refused:
            raise self.refused(refused) from None

    async def begun(self, path: str, body: Json) -> EventStream:
        """As `stream`, but what the server refuses is raised as Refused."""
        try:
            return EventStream(await self._asked("POST", path, body))
        except aiohttp.ClientError as error:
            raise self._unanswered(error) from None

    async def event(self, stream: EventStream) -> Any:
        """The next event's JSON value, or None at the end of the stream."""
        try:
            event = await stream.following()
        except (ValueError, RecursionError):
            raise self.server.garbled() from None
        except aiohttp.ClientError:
            raise self.server.cut("") from None
        if isinstance(event, dict) and event.get("error"):
            raise self._told(event)
        return event

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server lists: at least an `id` for each model."""
        listed = await self.get("/models")
        try:
            return [dict(model) for model in listed["data"] if model["id"]]
        except (LookupError, TypeError, ValueError):
            raise self.server.garbled() from None

    def refused(self, refused: ServerRefused) -> AttemptError:
        return self.server.refused(refused.status, refused.complaint, refused.headers)

    async def _asked(
        self, method: str, path: str, body: Json | None, seconds: float | None = None
    ) -> aiohttp.ClientResponse:
        """The response, once it has begun well; raises Refused or aiohttp's errors."""
        url = path if "://" in path else f"{self.server.endpoint.url}{path}"
        written = None if body is None else json.dumps(body).encode()
        # Time-outs between pieces are the caller's: comments that keep a stream alive must not
        # count.
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        response = await self._opened().request(
            method, url, data=written, headers=self._headers, timeout=limits
        )
        if response.status < 400:
            return response
        async with response:
            said = await response.content.read(LONGEST_COMPLAINT)
        raise ServerRefused(response.status, complaint_of(_read(said)), response.headers)

    async def _aside(self, method: str, path: str, body: Json | None) -> Any:
        try:
            async with await self._asked(method, path, body, ASIDE_SECONDS) as response:
                return json.loads(await response.read())
        except ServerRefused as refused:
            raise self.refused(refused) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unanswered(error) from None
        except (ValueError, RecursionError):
            raise self.server.garbled() from None

    def _unanswered(self, error: Exception) -> AttemptError:
        """No response came: nobody listens there, or the connection broke."""
        if isinstance(error, UNCONNECTED):
            return self.server.unreachable()
        return self.server.cut("no response")

    def _told(self, event: Mapping[str, Any]) -> AttemptError:
        """An error that came as an event of a stream which had begun well."""
        complaint, error = complaint_of(event), event["error"]
        code = str(error.get("code") or "") if isinstance(error, Mapping) else ""
        if code.isdigit():
            return self.server.refused(int(code), complaint, {})
        failed = self.server.refused(400, complaint, {})
        return failed if "context" in str(failed) else self.server.cut(complaint)

    def _opened(self) -> aiohttp.ClientSession:
        """The session, which belongs to the event loop that it is first used in."""
        if self._session is None:
            self._session = _session(self.server.endpoint)
        return self._session


def complaint_of(body: Any) -> str:
    """The server's words, with the code and the parameter that it names."""
    error = body.get("error") or body if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    words = error.get("message") or error.get("detail") or dict(error)
    code = str(error.get("code") or "")
    parts = (words, "" if code.isdigit() else code, error.get("param"))
    return " ".join(str(part) for part in parts if part)


def _read(said: bytes) -> Any:
    """A refusal's body, as JSON or else as text."""
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said.decode("utf-8", "replace").strip()


def _authorization(server: Server) -> dict[str, str]:
    if server.endpoint.basic:
        return {"Authorization": server.endpoint.basic}
    return {"Authorization": f"Bearer {server.key}"} if server.key else {}


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS)
    if endpoint.url.startswith("https:"):
        # As most clients in Python do it: the certificates that come with one of them, unless
        # the environment names others.
        import httpx

        connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS, ssl=httpx.create_ssl_context())
    # A proxy meant for the network cannot reach this machine's own servers.
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=not endpoint.loopback,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


LATE_SECONDS = 0.25
"""how long a model that was not cut off may take to end a text that has ended"""

EXACTNESS = 1 / 16
"""of the time-out by which a silence may be found too early; a timer for each piece costs more"""

Event = TypeVar("Event")
Heard = TypeVar("Heard", contravariant=True)


class StreamReading(Protocol[Heard]):
    """What is made of the events of one reply."""

    @property
    def ended(self) -> StopReason | None: ...
    @property
    def complete(self) -> bool:
        """Whether a whole reply has arrived."""
        ...

    @property
    def overdue(self) -> bool:
        """Whether the model goes on writing although the text has ended."""
        ...

    def take(self, event: Heard) -> None: ...


@dataclass(frozen=True, slots=True)
class Listener:
    """Hears the replies of one server; `timeout`, in seconds, is for each silence."""

    server: Server
    timeout: float

    async def hear(
        self,
        reading: StreamReading[Event],
        opened: Callable[[], Awaitable[EventStream]],
        following: Callable[[EventStream], Awaitable[Event | None]],
        usage: Callable[[], Usage],
    ) -> None:
        """Fill a reading with one reply.

        Raises AttemptError, with what it cost, where none has arrived.
        """
        begun = False
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                async with await opened() as stream:
                    begun = True
                    await self._read(stream, reading, following, deadline)
            if not reading.complete:
                raise self.server.cut("")
        except TimeoutError:
            if not reading.complete:
                failed = self.server.silent(self.timeout)
                failed.usage = usage() if begun else NO_USAGE
                raise failed from None
        except AttemptError as failed:
            failed.usage = usage() if begun else NO_USAGE
            raise

    async def _read(
        self,
        stream: EventStream,
        reading: StreamReading[Event],
        following: Callable[[EventStream], Awaitable[Event | None]],
        deadline: asyncio.Timeout,
    ) -> None:
        """Read to the end, or until a text that has ended goes on all the same."""
        now = asyncio.get_running_loop().time
        due = 0.0
        while not reading.overdue:
            ended = reading.ended
            try:
                event = await following(stream)
            except AttemptError:
                if reading.complete:
                    return
                raise
            if event is None:
                return
            reading.take(event)
            if reading.ended and not ended:
                deadline.reschedule(now() + LATE_SECONDS)
            elif not ended and now() + self.timeout > due + self.timeout * EXACTNESS:
                due = now() + self.timeout
                deadline.reschedule(due)
