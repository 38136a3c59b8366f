"""Calls to one model server: reading replies however they come, and naming failures.

A reply is read line by line, since servers tell its kind wrongly: events, JSON values one a line,
or one value or web page in place of events. Each call is tried once: who waits, and for whom else
a refusal means waiting, is decided by the limiter (`limits.Tries`).
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import httpx2

from rubricem.agent.models.limits import AttemptError, Fault, Server, shared_client
from rubricem.agent.models.replies import Reading

Json = dict[str, Any]

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
DONE = "[DONE]"
MOST_BYTES = 16 << 20
"""of a line, and of a body that holds no events"""
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""what a value of another shape than expected raises"""


class ModelServer:
    """Paths stand under the server's address, or are whole; all that fails is an AttemptError."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.root = server.endpoint.url.removesuffix("/v1")
        own = f"Bearer {server.key}" if server.key else ""
        self._headers = {"Content-Type": "application/json"}
        if authorization := server.endpoint.basic or own:
            self._headers["Authorization"] = authorization

    async def get(self, path: str, body: Json | None = None) -> Any:
        """The JSON value at a path; with a body, the reply to a call which writes nothing."""
        async with aclosing(await self.send(path, body, ASIDE_SECONDS)) as response:
            try:
                return json.loads(await response.aread())
            except httpx2.HTTPError:
                raise self.server.failed(Fault.CUT, "no response") from None
            except UNREADABLE:
                raise self.server.failed(Fault.GARBLED) from None

    async def models(self) -> list[Mapping[str, Any]]:
        """What the server lists: at least an `id` for each model."""
        listed = await self.get("/models")
        try:
            return [dict(model) for model in listed["data"] if model["id"]]
        except UNREADABLE:
            raise self.server.failed(Fault.GARBLED) from None

    async def model_names(self) -> list[str]:
        return [str(model["id"]) for model in await self.models()]

    async def facts(self) -> tuple[bool, int | None]:
        """Whether the server says of its model that it calls tools, and its context length.

        Most servers say nothing.
        """
        calls, context = False, None
        with suppress(AttemptError, TimeoutError, *UNREADABLE):
            async with asyncio.timeout(LISTED_SECONDS):
                own = next((m for m in await self.models() if m["id"] == self.server.model), {})
                context = context_in(own)
                told = own.get("supported_parameters") or own.get("capabilities") or ()
                if own.get("owned_by") == "llamacpp":  # it lists what the weights were made for
                    props = await self.get(f"{self.root}/props")
                    context = (props.get("default_generation_settings") or {}).get("n_ctx")
                    told = props.get("chat_template_caps") or {}
            named = [n for n in told if told[n]] if isinstance(told, Mapping) else told
            calls = bool(CALLING.intersection(named))
        return calls, context

    async def read_reply(
        self,
        reading: Reading,
        opened: Awaitable[httpx2.Response],
        read: Callable[[Any], Any],
        timeout: float,
    ) -> None:
        """Fill a reading with one reply; `timeout`, in seconds, is for each silence.

        `read` makes of an event's JSON value what the reading takes, and raises one of `UNREADABLE`
        where it cannot. A text that has ended needs no more than its end, and is not waited for if
        it goes on all the same.
        """
        now, value = asyncio.get_running_loop().time, None
        try:
            async with (
                asyncio.timeout(timeout) as silence,
                aclosing(await opened) as response,
                aclosing(_values(response)) as values,
            ):
                reading.begun = True
                async for value in values:
                    ended, before = reading.ended, reading.progress
                    if self._take(value, reading, read):
                        break
                    if not ended and (reading.ended or reading.progress > before):
                        wait = LATE_SECONDS if reading.ended else timeout
                        silence.reschedule(now() + wait)
        except TimeoutError:
            if not reading.complete:
                raise self.server.failed(Fault.SILENT, seconds=timeout) from None
        except httpx2.HTTPError:
            pass  # it broke off, maybe after its end
        except UNREADABLE:
            if not reading.complete:
                raise self.server.failed(Fault.GARBLED) from None
        if not reading.complete:
            odd = isinstance(value, Mapping) and not (value.get("choices") or "usage" in value)
            raise self.server.failed(Fault.CUT, complaint_of(value) if odd else "")

    def _take(self, value: Any, reading: Reading, read: Callable[[Any], Any]) -> bool:
        """Take one value of a body; whether it is the last that is wanted."""
        if value == DONE:
            reading.finish = reading.finish or ("stop" if reading.taken else None)
            return True
        if isinstance(value, str):
            raise self.server.failed(Fault.WEB_PAGE if value[:1] == "<" else Fault.GARBLED, value)
        if not is_complaint(value):
            reading.take(read(value))
            reading.taken = True
            return reading.overdue
        if not reading.complete:  # in the place of a reply, or within one that had begun well
            inner, words = value.get("error"), complaint_of(value)
            code = str((inner if isinstance(inner, Mapping) else value).get("code") or "")
            if code.isdigit() and (reading.taken or int(code) >= 400):
                raise self.server.refusal(int(code), words, {})
            raise self.server.complaint(words, begun=reading.taken)
        return True

    async def send(
        self, path: str, body: Json | None, seconds: float | None = None
    ) -> httpx2.Response:
        """The response whose body is still to be read and closed; a refusal is raised.

        `seconds`: of each silence; None: they are not timed here.
        """
        endpoint = self.server.endpoint
        host = httpx2.URL(endpoint.url).host

        async def stay(request: httpx2.Request) -> None:
            if request.url.host != host:  # where nobody said that a prompt may go
                raise self.server.failed(Fault.MOVED, request.url.host)

        def open_client() -> httpx2.AsyncClient:
            most = MOST_CONNECTIONS
            return httpx2.AsyncClient(
                limits=httpx2.Limits(max_connections=most, max_keepalive_connections=most),
                # A proxy meant for the network cannot reach this machine's own servers.
                trust_env=not endpoint.loopback,
                follow_redirects=True,
                event_hooks={"request": [stay]},
            )

        # The service's, whoever asks it: what differs stands in the headers of each call.
        name = f"model {endpoint.url}"
        client = await shared_client(name, open_client, httpx2.AsyncClient.aclose)
        asked = client.build_request(
            "GET" if body is None else "POST",
            path if path.startswith("http") else f"{endpoint.url}{path}",
            content=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
            timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS, pool=None),
        )
        try:
            response = await client.send(asked, stream=True)
            if not response.is_error:
                return response
            told = (await response.aread()).decode(errors="replace")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if refused := _tls_error(error):
                said = getattr(refused, "verify_message", "") or str(refused)
                raise self.server.failed(Fault.NO_TLS, said) from None
            raise self.server.failed(Fault.UNREACHABLE) from None
        except httpx2.HTTPError:
            raise self.server.failed(Fault.CUT, "no response") from None
        complaint = complaint_of(_parsed(told, told))
        raise self.server.refusal(response.status_code, complaint, response.headers)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """What TLS said, where it is why there is no connection."""
    if error is None or isinstance(error, ssl.SSLError):
        return error
    return _tls_error(error.__cause__ or error.__context__)


async def _values(response: httpx2.Response) -> AsyncGenerator[Any]:
    """What a body holds: JSON objects of its events or lines, and `DONE`.

    Where there are none, what it is as a whole: an object, or a text.
    """
    others, found, room = list[str](), False, MOST_BYTES
    async for line in _lines(response):
        name, _, data = line.partition(":")
        value = DONE if data.strip() == DONE else _parsed(data if name == "data" else line)
        if value == DONE or isinstance(value, Mapping):
            found = True
            yield value
        elif not found and not line.startswith(":"):
            others.append(line)
            if (room := room - len(line) - 1) < 0:
                raise ValueError("no reply, however long")
    if not found and (whole := "\n".join(others).strip()):
        value = _parsed(whole)
        yield value if isinstance(value, Mapping) else whole


async def _lines(response: httpx2.Response) -> AsyncGenerator[str]:
    """The lines of a body, by line feeds alone: texts in it may hold other ends of a line."""
    left = b""
    async for chunk in response.aiter_bytes():
        *lines, left = (left + chunk).split(b"\n")
        if len(left) > MOST_BYTES:
            raise ValueError("a line without an end")
        for line in lines:
            yield line.decode(errors="replace").strip("\ufeff\r ")
    yield left.decode(errors="replace").strip("\ufeff\r ")


def _parsed(text: str, otherwise: Any = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def context_in(model: Mapping[str, Any]) -> int | None:
    """The context length in an entry of `/v1/models`, if the server states it."""
    length = model.get("max_model_len") or model.get("context_length")
    return length if isinstance(length, int) and length > 0 else None


def is_complaint(value: Mapping[str, Any]) -> bool:
    """Whether an object in the place of a piece of a reply is an error."""
    if value.get("error") or value.get("object") == "error":
        return True
    return "choices" not in value and bool(value.get("detail") or value.get("message"))


def complaint_of(body: Any) -> str:
    """The server's words, with the code and the parameter that it names."""
    if isinstance(body, list) and body and isinstance(body[0], Mapping):  # Gemini's
        body = body[0]
    error = body.get("error") or body if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    words = error.get("message") or error.get("detail") or dict(error)
    code = str(error.get("code") or "")
    parts = (words, "" if code.isdigit() else code, error.get("param"))
    return " ".join(str(part) for part in parts if part)
