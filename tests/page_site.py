"""A real HTTP server on loopback that serves pages by path and records who asked for what."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from agent.pages.addresses import AddressGuard, Resolve
from agent.pages.cache import PageCache
from agent.pages.fetching import Fetcher, FetchLimits
from agent.pages.reader import WebPages

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Sent:
    """One answer; `pieces` are sent one after another, `seconds` apart."""

    body: bytes | str = b""
    content_type: str = HTML
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: int = 1
    seconds: float = 0.0
    length: bool = True
    """whether it says how long it is"""


NOTHING = Sent("nothing here", status=404)


class PageSite:
    """Serves `pages` (path, with or without its query -> what is sent).

    `asked` are (host, path), as they came.
    """

    def __init__(self, pages: Mapping[str, Sent | str]) -> None:
        self.pages = dict(pages)
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        """bytes of bodies"""
        self._http = _Server(("127.0.0.1", 0), _Answering)
        self._http.site = self

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def address(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def wrap(self, wrapped: Callable[[Any], Any]) -> None:
        """Let its socket be another one, such as one that speaks TLS."""
        self._http.socket = wrapped(self._http.socket)

    def __enter__(self) -> "PageSite":
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
    site: PageSite

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is part of the tests."""


class _Answering(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        site = self.server.site
        site.asked.append((self.headers.get("host", ""), self.path))
        bare = self.path.partition("?")[0]
        found = site.pages.get(self.path) or site.pages.get(bare) or NOTHING
        sent = Sent(found) if isinstance(found, str) else found
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body
        self.send_response(sent.status)
        self.send_header("content-type", sent.content_type)
        for name, value in sent.headers.items():
            self.send_header(name, value)
        if sent.length:
            self.send_header("content-length", str(len(body) * sent.pieces))
        self.end_headers()
        for _ in range(sent.pieces):
            self.wfile.write(body)
            self.wfile.flush()
            site.sent += len(body)
            time.sleep(sent.seconds)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def names(**hosts: Sequence[str] | str) -> Resolve:
    """A resolver that knows these names (`_` for the dot); any other is an OSError.

    Numbers resolve to themselves, as they do in the system's.
    """
    known = {name.replace("_", "."): numbers for name, numbers in hosts.items()}

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host.replace(".", "").isdigit() or ":" in host:
            return [host]
        if host not in known:
            raise OSError("name or service not known")
        found = known[host]
        return [found] if isinstance(found, str) else found

    return resolve


def page_reader(
    folder: Any,
    *,
    allowed: Sequence[str] = (),
    resolve: Resolve | None = None,
    limits: FetchLimits | None = None,
) -> WebPages:
    """A reader over the real fetcher, with a cache in a folder."""
    guard = AddressGuard(allowed, resolve) if resolve else AddressGuard(allowed)
    return WebPages(Fetcher(guard, limits), PageCache(folder, allowed))


def article(title: str, *paragraphs: str) -> str:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    head = f"<head><title>{title}</title></head>"
    return (
        f"<!doctype html><html>{head}<body><article><h1>{title}</h1>{body}</article></body></html>"
    )
