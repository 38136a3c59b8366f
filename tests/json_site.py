"""A search service on loopback that answers by script and remembers what it was asked."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Answer:
    """One reply; `delay` seconds pass before it, and `drip` seconds between its bytes."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass
class JsonSite:
    """The running service; the last answer of the script is given for ever."""

    url: str
    answers: Sequence[Answer]
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def json_site(*answers: Answer) -> Iterator[JsonSite]:
    site = JsonSite("", answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            params = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.asked.append(Asked(parts.path, params, headers))
            self._answer(site.answers[min(len(site.asked), len(site.answers)) - 1])

        do_HEAD = do_GET

        def _answer(self, answer: Answer) -> None:
            time.sleep(answer.delay)
            content = b"" if self.command == "HEAD" else answer.content
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                for start in range(0, len(content), 1 if answer.drip else len(content)):
                    self.wfile.write(content[start : start + (1 if answer.drip else len(content))])
                    self.wfile.flush()
                    time.sleep(answer.drip)
            except (BrokenPipeError, ConnectionResetError):
                pass  # The client has given up, as some tests want it to.

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()
