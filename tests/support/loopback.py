"""HTTP servers on loopback, each in a thread of the test: begun, heard and stopped in one way."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class LoopbackServer:
    """Start and stop it with `with`; its handlers find it as `self.server.owner`."""

    def __init__(self, answering: type[BaseHTTPRequestHandler]) -> None:
        self._http = _Http(("127.0.0.1", 0), answering)
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

    def chunk(self, data: bytes) -> None:
        """b"" ends the stream."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
