"""Calls to one model server through the `openai` package: reading replies, naming failures.

Replies are taken as plain JSON values, since servers that return token ids send more than OpenAI's
types hold. The client tries each call once: who waits, and for whom else a refusal means waiting,
is decided by the limiter (`limits.Tries`), which retries of the client would bypass.

Import this module only if a server is used: the package takes a second.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    omit,
)

from rubricem.agent.models.limits import AttemptError, Server, shared_client
from rubricem.agent.models.replies import Reading

Json = dict[str, Any]
Events = AsyncStream[object]

CONNECT_SECONDS = 10.0
ASIDE_SECONDS = 30.0
"""for a reply that needs no writing: a list of models, the ids of a text"""
LISTED_SECONDS = 5.0  # for what a model can do, after which it is not known
CALLING = frozenset({"tools", "tool_use", "function_calling", "supports_tool_calls"})
"""what says so in the lists of OpenRouter, LM Studio, Mistral and llama.cpp"""
MOST_CONNECTIONS = 5000
"""to one server; how many calls are in flight is the limiter's affair"""
LATE_SECONDS = 0.25
"""how long a model that was not cut off may take to end a text that has ended"""
WHOLE = ("application/json", "text/html")
"""kinds of a body that is no stream of events, and may be a reply all the same"""
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
_FAILURES = (APIError, ValueError, RecursionError)


class ModelServer:
    """Paths stand under the server's address, or are whole; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        own = f"Bearer {server.key}" if server.key else omit
        self._headers = {"Authorization": server.endpoint.basic or own}

    async def get(self, path: str, body: Json | None = None) -> Any:
        """The JSON value at a path; with a body, the reply to a call which writes nothing."""
        client, asked = await self._client(), self._options(ASIDE_SECONDS)
        try:
            if body is None:
                reply: object = await client.get(path, cast_to=object, options=asked)
            else:
                reply = await client.post(path, cast_to=object, body=body, options=asked)
        except _FAILURES as error:
            raise self._failure(error, "no response") from None
        if isinstance(reply, str):  # it was not declared as JSON
            raise self.server.garbled_reply()
        return reply

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

    async def calls_tools(self) -> bool:
        """Whether the server says of its model that it calls tools; most servers say nothing."""
        try:
            async with asyncio.timeout(LISTED_SECONDS):
                listed = await self.models()
                own = next((m for m in listed if m["id"] == self.server.model), {})
                told = own.get("supported_parameters") or own.get("capabilities") or ()
                if own.get("owned_by") == "llamacpp":
                    told = (await self.get(f"{self.root}/props")).get("chat_template_caps") or {}
            named = [n for n in told if told[n]] if isinstance(told, Mapping) else told
            return bool(CALLING.intersection(named))
        except (AttemptError, TimeoutError, *UNREADABLE):
            return False

    async def stream(self, path: str, body: Json) -> Events:
        """The events of a reply that is being written.

        What the server refuses is raised as it is, an APIStatusError, since some refusals can be
        answered; `read_reply` translates the others.
        """
        client = await self._client()
        try:
            # A stream's silences are timed by events, not by bytes: comments keep it alive, too.
            events: Events = await client.post(
                path,
                cast_to=object,
                body=body,
                options=self._options(None),
                stream=True,
                stream_cls=Events,
            )
        except APIConnectionError as error:
            raise self._failure(error, "no response") from None
        return events

    async def read_reply(
        self,
        reading: Reading,
        opened: Awaitable[Events],
        read: Callable[[Any], Any],
        timeout: float,
    ) -> None:
        """Fill a reading with one reply; `timeout`, in seconds, is for each silence.

        `read` makes of an event's JSON value what the reading takes, and raises AttemptError
        where it cannot. A text that has ended needs no more than its end. A refusal to begin is
        an AttemptError as well.
        """
        try:
            async with asyncio.timeout(timeout) as silence, await opened as events:
                reading.begun = True
                if events.response.headers.get("content-type", "").startswith(WHOLE):
                    self._read_whole(await events.response.aread(), reading, read)
                else:
                    await self._read_events(events, reading, read, silence, timeout)
            if not reading.complete:
                raise self.server.cut("")
        except APIStatusError as refused:
            raise self._failure(refused, "") from None
        except TimeoutError:
            if not reading.complete:
                raise self.server.silent(timeout) from None

    async def _read_events(
        self,
        events: Events,
        reading: Reading,
        read: Callable[[Any], Any],
        silence: asyncio.Timeout,
        timeout: float,
    ) -> None:
        """Take events to the end, or until a text that has ended goes on all the same."""
        now, arriving, begun = asyncio.get_running_loop().time, aiter(events), False
        while not reading.overdue:
            ended, before = reading.ended, reading.progress
            try:
                event = read(await anext(arriving))
            except StopAsyncIteration:
                return
            except (*_FAILURES, AttemptError) as error:
                if reading.complete:
                    return
                if isinstance(error, AttemptError):
                    raise
                if not begun and isinstance(error, APIError) and type(error) is APIError:
                    raise self._told_of(error.body, begun) from None
                raise self._failure(error, "") from None
            begun = True
            reading.take(event)
            if reading.ended and not ended:
                silence.reschedule(now() + LATE_SECONDS)
            elif not ended and reading.progress > before:
                silence.reschedule(now() + timeout)

    def _read_whole(self, body: bytes, reading: Reading, read: Callable[[Any], Any]) -> None:
        """Fill a reading with a reply that did not come as events: one JSON value, or no reply."""
        text = body.decode(errors="replace").strip()
        if text.startswith("<"):
            raise self.server.web_page()
        try:
            value = json.loads(text)
            told = isinstance(value, Mapping) and not value.get("choices")
            if told and (value.get("error") or value.get("detail") or value.get("message")):
                raise self._told_of(value, begun=False)
            reading.take(read(value))
        except (ValueError, RecursionError):
            raise self.server.garbled_reply() from None
        reading.finish = reading.finish or "stop"

    def _told_of(self, error: Any, begun: bool) -> AttemptError:
        """An error that came in the place of a reply, or within one that had `begun` well."""
        inner = error.get("error") if isinstance(error, Mapping) else None
        told = inner if isinstance(inner, Mapping) else error
        code = str(told.get("code") or "") if isinstance(told, Mapping) else ""
        complaint = complaint_of(error)
        if code.isdigit() and (begun or int(code) >= 400):
            return self.server.refusal(int(code), complaint, {})
        return self.server.broken_stream(complaint) if begun else self.server.complained(complaint)

    def _failure(self, error: Exception, broke_off: str) -> AttemptError:
        """What one of `_FAILURES` stands for; `broke_off` says where a connection broke."""
        match error:
            case APIStatusError():
                complaint = complaint_of(error.body)
                return self.server.refusal(error.status_code, complaint, error.response.headers)
            case APIConnectionError():
                away = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
                return self.server.unreachable() if away else self.server.cut(broke_off)
            case APIError():
                return self._told_of(error.body, begun=True)
            case _:
                return self.server.garbled_reply()

    def _options(self, seconds: float | None) -> Any:
        limits = httpx2.Timeout(seconds, connect=CONNECT_SECONDS, pool=None)
        return {"headers": self._headers, "timeout": limits}

    async def _client(self) -> AsyncOpenAI:
        """The service's, whoever asks it: what differs stands in the headers of each call."""
        endpoint = self.server.endpoint

        def open_client() -> AsyncOpenAI:
            return AsyncOpenAI(
                base_url=endpoint.url,
                api_key="in the headers of each request",
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(
                    limits=httpx2.Limits(
                        max_connections=MOST_CONNECTIONS,
                        max_keepalive_connections=MOST_CONNECTIONS,
                    ),
                    # A proxy meant for the network cannot reach this machine's own servers.
                    trust_env=not endpoint.loopback,
                ),
            )

        return await shared_client(f"model {endpoint.url}", open_client, AsyncOpenAI.close)


def complaint_of(body: Any) -> str:
    """The server's words, with the code and the parameter that it names."""
    error = body.get("error") or body if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    words = error.get("message") or error.get("detail") or dict(error)
    code = str(error.get("code") or "")
    parts = (words, "" if code.isdigit() else code, error.get("param"))
    return " ".join(str(part) for part in parts if part)
