"""A loopback server that replays what model servers send: JSON by route, and streams of events.

    with RecordedServer(recorded("vllm")) as server:
        ...  # server.root, server.asked

Routes are named like `POST /tokenize`. What stands there is a value to be sent, a stream, a
failure, or a function of the request's JSON that gives one of them.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

Json = dict[str, Any]
RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Events:
    """A stream of events; `broken` drops the connection instead of ending it."""

    events: Sequence[Json]
    broken: bool = False


@dataclass(frozen=True)
class Failure:
    """An HTTP error."""

    status: int
    message: str = "recorded failure"


Route = Json | Events | Failure | Callable[[Json], Any]


def recorded(name: str) -> dict[str, Route]:
    """The routes of `tests/recorded/NAME.json`; of several replies the first whose `asked` fits."""
    written: Json = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return {route: _route(value) for route, value in written["routes"].items()}


def _route(value: Any) -> Route:
    if isinstance(value, list):

        def reply(asked: Json) -> Any:
            fits = (one for one in value if one["asked"].items() <= asked.items())
            found = next(fits, None)
            return (
                Failure(400, f"nothing recorded for {asked}") if found is None else found["reply"]
            )

        return reply
    return Events(value["events"]) if "events" in value else value["reply"]


class RecordedServer:
    """Start and stop it with `with`; `root` has no `/v1`."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = dict(routes)
        self.asked: list[tuple[str, Json]] = []
        self._http = _Server(("127.0.0.1", 0), _Answering)
        self._http.recorded = self

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def bodies(self, route: str) -> list[Json]:
        return [body for name, body in self.asked if name == route]

    def __enter__(self) -> "RecordedServer":
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    recorded: RecordedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that close a stream early are part of what is tested."""


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests print nothing."""

    def do_GET(self) -> None:
        self._answer(f"GET {self.path}", {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(f"POST {self.path}", body)

    def _answer(self, route: str, body: Json) -> None:
        self.server.recorded.asked.append((route, body))
        reply = self.server.recorded.routes.get(route, Failure(404, "no such path"))
        reply = reply(body) if callable(reply) else reply
        if isinstance(reply, Events):
            self._stream(reply)
        elif isinstance(reply, Failure):
            self._send(reply.status, {"error": {"message": reply.message}})
        else:
            self._send(200, reply)

    def _send(self, status: int, value: Any) -> None:
        written = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def _stream(self, reply: Events) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in reply.events:
            self._chunk(json.dumps(event).encode())
        if reply.broken:
            self.close_connection = True
        else:
            self._chunk(b"[DONE]")
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()
