"""One model server over HTTP, spoken with in JSON: opens streams, reads events, tells what failed.

Built on the `openai` package, with its own retries off, over aiohttp: httpx's own transport looks
at every idle connection on each call, which took a third of a turn's CPU time with 64 runs at
once. Events are taken as plain JSON values, not as the package's models, which halved it before.
"""

from collections.abc import Mapping
from typing import Any

import aiohttp
import openai

from agent.servers.endpoint import Endpoint
from agent.servers.retrying import AttemptError
from agent.servers.server_errors import Server

Stream = openai.AsyncStream[object]
Json = dict[str, Any]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""

# The package lets some of aiohttp's errors through as they are.
BROKEN = (openai.APIConnectionError, aiohttp.ClientError)
UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class ModelServer:
    """Paths stand under the server's address; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        """what stands beside the OpenAI-compatible paths begins with this"""
        self._client = _client(server.endpoint)
        self._headers = {"Authorization": _authorization(server)}

    async def aclose(self) -> None:
        await self._client.close()

    async def get(self, path: str) -> Any:
        return await self._aside("get", path, None)

    async def beside(self, path: str, body: Json) -> Any:
        """The reply to a call under the root that writes nothing; raises AttemptError."""
        reply = await self._aside("post", f"{self.root}{path}", body)
        if not isinstance(reply, dict):
            raise self.server.garbled()
        return reply

    async def stream(self, path: str, body: Json) -> Stream:
        """The events of a reply that is being written."""
        try:
            return await self.begun(path, body)
        except openai.APIStatusError as error:
            raise self.refused(error) from None

    async def begun(self, path: str, body: Json) -> Stream:
        """As `stream`, but what the server refuses is raised as the package's APIStatusError."""
        try:
            return await self._client.post(
                path,
                cast_to=object,
                body=body,
                options={"headers": self._headers},
                stream=True,
                stream_cls=Stream,
            )
        except BROKEN as error:
            raise self._unanswered(error) from None

    async def event(self, stream: Stream) -> Any:
        """The next event's JSON value, or None at the end of the stream."""
        try:
            return await anext(stream, None)
        except ValueError:
            raise self.server.garbled() from None
        except BROKEN:
            raise self.server.cut("") from None
        except openai.APIError as error:
            raise self._told(error) from None

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server lists: at least an `id` for each model."""
        listed = await self.get("/models")
        try:
            return [dict(model) for model in listed["data"] if model["id"]]
        except (LookupError, TypeError, ValueError):
            raise self.server.garbled() from None

    def refused(self, error: openai.APIStatusError) -> AttemptError:
        return self.server.refused(error.status_code, complaint_of(error), error.response.headers)

    async def _aside(self, method: str, path: str, body: Json | None) -> Any:
        call = self._client.get if method == "get" else self._client.post
        options: Any = {"headers": self._headers, "timeout": ASIDE_SECONDS}
        more: Json = {} if body is None else {"body": body}
        try:
            return await call(path, cast_to=object, options=options, **more)
        except BROKEN as error:
            raise self._unanswered(error) from None
        except openai.APIStatusError as error:
            raise self.refused(error) from None
        except ValueError:
            raise self.server.garbled() from None

    def _unanswered(self, error: Exception) -> AttemptError:
        """No response came: nobody listens there, or the connection broke."""
        # The package tells every broken connection as a time-out of connecting; its cause knows.
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UNCONNECTED):
                return self.server.unreachable()
            cause = cause.__cause__
        return self.server.cut("no response")

    def _told(self, error: openai.APIError) -> AttemptError:
        """An error that came as an event of a stream which had begun well."""
        if error.code and error.code.isdigit():
            return self.server.refused(int(error.code), complaint_of(error), {})
        failed = self.server.refused(400, complaint_of(error), {})
        return failed if "context" in str(failed) else self.server.cut(complaint_of(error))


def complaint_of(error: openai.APIError) -> str:
    """The server's words, with the code and the parameter that it names."""
    words: object = error.body
    if isinstance(words, Mapping):
        words = words.get("message") or words.get("detail") or dict(words)
    code = None if error.code is None or error.code.isdigit() else error.code
    return " ".join(str(part) for part in (words, code, error.param) if part)


def _authorization(server: Server) -> str | openai.Omit:
    """What this server is told; never a key that the package finds in the environment."""
    if server.endpoint.basic:
        return server.endpoint.basic
    return f"Bearer {server.key}" if server.key else openai.Omit()


def _client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    # Time-outs between pieces are ours: comments that keep a stream alive must not count.
    timeout = openai.Timeout(None, connect=CONNECT_SECONDS)
    # A proxy meant for the network cannot reach this machine's own servers.
    http = openai.DefaultAioHttpClient(timeout=timeout, trust_env=not endpoint.loopback)
    return openai.AsyncOpenAI(
        api_key="unused", base_url=endpoint.url, timeout=timeout, max_retries=0, http_client=http
    )
