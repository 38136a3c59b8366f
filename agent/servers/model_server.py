"""One model server over HTTP, spoken with in JSON: opens streams, reads events, tells what failed.

Built on aiohttp alone. With 64 and more runs at once a call's own cost is what counts: the
`openai` package, whose models, clients and streams stood here before, took a quarter of a turn's
CPU time, and half a second to be imported.
"""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from agent.servers.endpoint import Endpoint
from agent.servers.event_stream import EventStream
from agent.servers.retrying import AttemptError
from agent.servers.server_errors import Server

Json = dict[str, Any]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""
MOST_CONNECTIONS = 1000
LONGEST_COMPLAINT = 100_000
"""bytes of what a server says when it refuses"""

UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Refused(Exception):
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
        except Refused as refused:
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

    def refused(self, refused: Refused) -> AttemptError:
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
        raise Refused(response.status, complaint_of(_read(said)), response.headers)

    async def _aside(self, method: str, path: str, body: Json | None) -> Any:
        try:
            async with await self._asked(method, path, body, ASIDE_SECONDS) as response:
                return json.loads(await response.read())
        except Refused as refused:
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
