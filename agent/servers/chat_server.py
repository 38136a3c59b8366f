"""The HTTP side of a chat model: opens streams, reads events, tells what failed.

Built on the `openai` package, with its own retries off, over aiohttp: httpx's own transport looks
at every idle connection on each call, which took a third of a turn's CPU time with 64 runs at
once. Events are taken as plain JSON values, not as the package's models, which halved it before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import openai

from agent.servers.chat_delta import Delta, delta_of
from agent.servers.chat_request import Dialect
from agent.servers.endpoint import Endpoint
from agent.servers.retrying import AttemptError
from agent.servers.server_errors import Server
from memory.interfaces import Message, Sampling

Stream = openai.AsyncStream[object]

CONNECT_SECONDS = 10.0
LISTING_SECONDS = 5.0

# The package lets some of aiohttp's errors through as they are.
BROKEN = (openai.APIConnectionError, aiohttp.ClientError)
UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class ChatServer:
    """One server as one model's client sees it. All that fails is an AttemptError."""

    def __init__(self, server: Server, dialect: Dialect) -> None:
        self._server = server
        self._dialect = dialect
        self._client = _client(server.endpoint)
        self._headers = {"Authorization": _authorization(server)}

    async def aclose(self) -> None:
        await self._client.close()

    async def open(self, messages: Sequence[Message], sampling: Sampling) -> Stream:
        """The reply's stream, asked for without what the server refuses to be asked."""
        while True:
            body = self._dialect.body(messages, sampling)
            try:
                return await self._client.post(
                    "/chat/completions",
                    cast_to=object,
                    body=body,
                    options={"headers": self._headers},
                    stream=True,
                    stream_cls=Stream,
                )
            except BROKEN as error:
                raise self._unanswered(error) from None
            except openai.NotFoundError:
                raise self._server.no_model(await self._known_models()) from None
            except openai.APIStatusError as error:
                if error.status_code in (400, 422):
                    self._dialect.learn(body, _complaint(error))
                if self._dialect.body(messages, sampling) == body:
                    raise self._refused(error) from None

    async def next(self, stream: Stream) -> Delta | None:
        """The next event's delta, or None at the end of the stream."""
        try:
            event = await anext(stream, None)
            return None if event is None else delta_of(event)
        except ValueError:
            raise self._server.garbled() from None
        except BROKEN:
            raise self._server.cut("") from None
        except openai.APIError as error:
            raise self._told(error) from None

    async def models(self) -> list[str]:
        """The ids that the server lists."""
        try:
            listed = await self._client.get(
                "/models",
                cast_to=object,
                options={"headers": self._headers, "timeout": LISTING_SECONDS},
            )
        except BROKEN as error:
            raise self._unanswered(error) from None
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        try:
            return _ids(listed)
        except (LookupError, TypeError):
            raise self._server.garbled() from None

    async def _known_models(self) -> list[str]:
        try:
            return await self.models()
        except AttemptError:
            return []

    def _refused(self, error: openai.APIStatusError) -> AttemptError:
        return self._server.refused(error.status_code, _complaint(error), error.response.headers)

    def _unanswered(self, error: Exception) -> AttemptError:
        """No response came: nobody listens there, or the connection broke."""
        # The package tells every broken connection as a time-out of connecting; its cause knows.
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UNCONNECTED):
                return self._server.unreachable()
            cause = cause.__cause__
        return self._server.cut("no response")

    def _told(self, error: openai.APIError) -> AttemptError:
        """An error that came as an event of a stream which had begun well."""
        if error.code and error.code.isdigit():
            return self._server.refused(int(error.code), _complaint(error), {})
        failed = self._server.refused(400, _complaint(error), {})
        return failed if "context" in str(failed) else self._server.cut(_complaint(error))


def _ids(listed: Any) -> list[str]:
    return [str(model["id"]) for model in listed["data"]]


def _complaint(error: openai.APIError) -> str:
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
