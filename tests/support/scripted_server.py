"""A real OpenAI-compatible server on loopback that answers by script and can fail on demand.

    with ScriptedServer(["<think>...", Fault(503), "<answer>..."]) as server:
        OpenAIChat("any", server.base_url, "key", ...)

The script is a function of the request's JSON and of the number of chat requests before it, or
a list with one reply per chat request. A reply is a text, a `Reply` that says how the text is
sent, or a `Fault`. Streamed and plain replies are both spoken; `requests` records every one.

All servers on loopback are begun, heard and stopped in one way, each in a thread of the test.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import wait_for


class LoopbackServer:
    """Start and stop it with `with`; its handlers find it as `self.server.owner`."""

    def __init__(self, answering: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        """`port`: one that a server had before; 0: a free one."""
        self._http = _Http(("127.0.0.1", port), answering)
        self._http.owner = self

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def root(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def opened(self, connections: int) -> None:
        """So many have begun, or ended where it is negative."""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: Any

    def process_request(self, request: Any, client_address: Any) -> None:
        self.owner.opened(1)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.owner.opened(-1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is part of the tests."""


class Answering(BaseHTTPRequestHandler):
    """What answers a request; HTTP/1.0 ends a reply by closing the connection."""

    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole reply, of which HEAD is given the beginning."""
        self.begin(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        told = {"Content-Type": "application/json", **(headers or {})}
        self.send(status, json.dumps(value).encode(), told)

    def read_json(self) -> Any:
        """The body of the request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


class Streaming(Answering):
    """What also streams events; connections stay open, as those of model servers do."""

    protocol_version = "HTTP/1.1"

    def begin_stream(self) -> None:
        self.begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})

    def event(self, value: Any) -> None:
        self.chunk(b"data: %s\n\n" % json.dumps(value).encode())

    def end_stream(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


Json = dict[str, Any]

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass(frozen=True)
class Reply:
    """A reply that is not cut into default pieces, or not plain text alone."""

    text: str = ""
    pieces: Sequence[str] | None = None
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    finish: str | None = "stop"
    usage: Mapping[str, Any] | None = field(default_factory=lambda: USAGE)
    piece_seconds: float = 0.0
    cut_after: int | None = None
    """the connection is dropped after so many pieces"""
    hang_after: int | None = None
    """nothing more is sent after so many pieces, and the connection stays open"""
    comments_every: float | None = None
    """seconds between the keep-alive comments that are sent instead, for a hanging stream"""
    endless: bool = False
    """the pieces are sent again and again"""
    error_after: Mapping[str, Any] | None = None
    """an error event after the pieces, instead of an end"""
    calls: Sequence[Mapping[str, Any]] = ()
    """the server's own tool calls, in one event"""

    def parts(self) -> list[str]:
        if self.pieces is not None:
            return list(self.pieces)
        return [self.text[i : i + 8] for i in range(0, len(self.text), 8)]


@dataclass(frozen=True)
class Fault:
    """An HTTP error; `seconds` is how long it takes, `body` replaces the usual error object."""

    status: int
    message: str = "scripted fault"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    body: str | None = None


@dataclass(frozen=True)
class Hang:
    """No response at all until the server is closed."""


Scripted = str | Reply | Fault | Hang
Script = Callable[[Json, int], Scripted] | Sequence[Scripted]


@dataclass
class Recorded:
    """One chat request as it came."""

    body: Json
    headers: Mapping[str, str]
    """names in lower case"""
    at: float
    """`time.monotonic()` at its arrival"""


class ScriptedServer(LoopbackServer):
    """Start and stop it with `with`; `base_url` ends in /v1."""

    def __init__(
        self,
        script: Script,
        models: Sequence[str | Json] | None = ("scripted",),
        props: Json | None = None,
    ) -> None:
        """`models`: names, or entries of the list; `props`: as llama.cpp's server tells them."""
        self.requests: list[Recorded] = []
        self.looked_up: list[str] = []
        self.props = props
        self.most_at_once = 0
        self.models = models
        self.closing = threading.Event()
        self._script = script
        self._at_once = self._open = 0
        self._lock = threading.Lock()
        super().__init__(_Chatting)

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def __exit__(self, *failed: Any) -> None:
        self.closing.set()
        super().__exit__(*failed)

    def settle(self) -> None:
        """Return once all is noted that was sent by clients which are gone."""
        with socket.create_connection(self._http.server_address) as last:
            last.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while last.recv(4096):
                pass
        wait_for(lambda: self._open == 0)

    def opened(self, connections: int) -> None:
        with self._lock:
            self._open += connections

    def record(self, body: Json, headers: Mapping[str, str]) -> Scripted:
        """Note a chat request and say how it is answered."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(Recorded(body, headers, time.monotonic()))
        if callable(self._script):
            return self._script(body, number)
        if number < len(self._script):
            return self._script[number]
        return Fault(418, f"the script has no reply for request {number}")

    def enter(self) -> None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def leave(self) -> None:
        with self._lock:
            self._at_once -= 1


class _Chatting(Streaming):
    def do_GET(self) -> None:
        scripted = self.server.owner
        scripted.looked_up.append(self.path)
        if self.path.endswith("/models") and scripted.models is not None:
            data = [{"id": each} if isinstance(each, str) else each for each in scripted.models]
            self.send_json(200, {"object": "list", "data": data})
        elif self.path == "/props" and scripted.props is not None:
            self.send_json(200, scripted.props)
        else:
            self.send_json(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        scripted = self.server.owner
        body = self.read_json()
        if not self.path.endswith("/chat/completions"):
            self.send_json(404, {"error": {"message": "no such path"}})
            return
        scripted.enter()
        try:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(scripted.record(body, headers), body)
        finally:
            scripted.leave()

    def _answer(self, reply: Scripted, request: Json) -> None:
        if isinstance(reply, Hang):
            self._hang(None)
        elif isinstance(reply, Fault):
            self._fail(reply)
        else:
            reply = Reply(reply) if isinstance(reply, str) else reply
            if request.get("stream"):
                self._stream(reply, request)
            else:
                self._whole(reply)

    def _hang(self, comments_every: float | None) -> None:
        while not self.server.owner.closing.wait(comments_every or 0.05):
            if comments_every:
                self.chunk(b": still here\n\n")
        self.close_connection = True

    def _fail(self, fault: Fault) -> None:
        time.sleep(fault.seconds)
        error = {"error": {"message": fault.message, "code": fault.code}}
        if fault.body is None:
            self.send_json(fault.status, error, fault.headers)
        else:
            told = {"Content-Type": "application/json", **fault.headers}
            self.send(fault.status, fault.body.encode(), told)

    def _whole(self, reply: Reply) -> None:
        message = {"role": "assistant", "content": "".join(reply.parts())}
        if reply.reasoning:
            message[reply.reasoning_field] = reply.reasoning
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        self.send_json(200, {"choices": [choice], "usage": reply.usage})

    def _stream(self, reply: Reply, request: Json) -> None:
        self.begin_stream()
        for i in range(0, len(reply.reasoning), 8):
            self._event({reply.reasoning_field: reply.reasoning[i : i + 8]})
        if self._pieces(reply):
            if reply.calls:
                self._event({"tool_calls": list(reply.calls)})
            self._end(reply, bool((request.get("stream_options") or {}).get("include_usage")))

    def _pieces(self, reply: Reply) -> bool:
        """Send the pieces; whether the stream goes on to its end."""
        parts, sent = reply.parts(), 0
        while not self.server.owner.closing.is_set():
            if sent == reply.cut_after:
                self.close_connection = True
                return False
            if sent == reply.hang_after:
                self._hang(reply.comments_every)
                return False
            if sent >= len(parts) and not reply.endless:
                return True
            piece = parts[sent % len(parts)]
            self._event({"content": piece})
            sent += 1
            time.sleep(reply.piece_seconds)
        return False

    def _end(self, reply: Reply, usage_wanted: bool) -> None:
        if reply.error_after is not None:
            self.event({"error": reply.error_after})
        elif reply.finish:
            self._event({}, {"finish_reason": reply.finish})
        if reply.usage and usage_wanted:
            self.event({"choices": [], "usage": reply.usage})
        self.end_stream()

    def _event(self, delta: Json, extra: Mapping[str, Any] | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **(extra or {})}
        self.event({"object": "chat.completion.chunk", "choices": [choice]})
