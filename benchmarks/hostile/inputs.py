"""Bytes that hurt a reader, each behind what reads it in a run: a page, a document, a reply."""

import gzip
import io
import os
import socket
import threading
import zipfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter, Retry
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.fetch import normal
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.agent.sources.web import SearXNG
from rubricem.memory.schema import Message, Sampling

MB = 1_000_000
_EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n'
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Input:
    """What is sent, and how it is read; reading raises a RubricemError or gives something."""

    name: str
    read: Callable[[Path], Awaitable[Any]]
    make: Callable[[Path], object] = lambda folder: None
    """writes what is read, before anything is measured"""


async def _page(content: bytes, packing: str = "") -> Any:
    asked = {"address": "https://a.test/x", "declared": "text/html", "packing": packing}
    return await readers().read(Job("page", "The page", {**asked, "most": 20 * MB}, content))


async def _folder(folder: Path) -> Any:
    await Folder(folder, folder.parent / "cache").prepare()


def _docx(document: bytes, styles: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package:
        head = b'<w:%s xmlns:w="urn:w">'
        package.writestr("word/document.xml", head % b"document" + document + b"</w:document>")
        package.writestr("word/styles.xml", head % b"styles" + styles + b"</w:styles>")
    return packed.getvalue()


def _chain(length: int) -> bytes:
    """Styles each of which is based on the next."""
    style = b'<w:style w:styleId="s%d"><w:basedOn w:val="s%d"/></w:style>'
    return b"".join(style % (number, number + 1) for number in range(length))


def _odd_names(folder: Path) -> None:
    os.symlink(folder, folder / "loop")
    (folder / "a.md").write_text("# A\n\nText.\n")
    with suppress(OSError):
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.md")).write_text("x")


async def _addresses(folder: Path) -> Any:
    for path in ("Where_Is_My_Mind%3F", "%23", "%0D", "a%2Fb", "%", "%zz", "\r\n", "x" * 9999):
        normal(f"https://a.test/{path}")


@contextmanager
def _sending(head: bytes, pieces: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """The address of a server that sends this to whoever asks, for as long as it is taken."""

    def send() -> None:
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


async def _search(content: bytes, headers: bytes = b"") -> Any:
    with _sending(_JSON % headers, lambda: iter([content])) as address:
        return await SearXNG(address).search("acme", 5)


async def _model(pieces: Callable[[], Iterator[bytes]], head: bytes = _EVENTS) -> Any:
    with _sending(head, pieces) as address:
        limiter, retry = Limiter(1), Retry(tries=1)
        chat = OpenAIChat("m", f"{address}/v1", None, limiter=limiter, timeout=4.0, retry=retry)
        asked = [Message("user", "?")]
        return await chat.chat(asked, Sampling(max_tokens=2048), lambda text: None)


def _for_ever(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        while True:
            yield piece

    return pieces


def _words() -> Iterator[bytes]:
    number = 0
    while True:
        number += 7919
        yield _EVENT % (b"w%d " % (number % 100_003))


def _page_of(content: bytes, packing: str = "") -> Callable[[Path], Awaitable[Any]]:
    return lambda folder: _page(content, packing)


def _file(name: str, file: str, content: Callable[[], bytes]) -> Input:
    return Input(name, _folder, lambda folder: (folder / file).write_bytes(content()))


def _reply_of(content: bytes, headers: bytes = b"") -> Callable[[Path], Awaitable[Any]]:
    return lambda folder: _search(content, headers)


def _stream_of(
    pieces: Callable[[], Iterator[bytes]], head: bytes = _EVENTS
) -> Callable[[Path], Awaitable[Any]]:
    return lambda folder: _model(pieces, head)


_MANY = range(10**5)
PACKED = b"Content-Encoding: gzip\r\n"
BROTLI = b"Content-Encoding: br\r\n"
INPUTS = (
    Input("page: comments without a tag", _page_of(b"<!---->" * 290)),
    Input("page: 7 MB of scripts", _page_of(b"<script></script>x" * 390_000)),
    Input("page: a word of 18 MB", _page_of(b"<p>" + b"w" * 18 * MB)),
    Input("page: a million open tags", _page_of(b"<b>" * MB)),
    Input("page: 100,000 attributes", _page_of(b"<p " + b" ".join(b"a%d=1" % n for n in _MANY))),
    Input("page: gzip of 20 MB of nothing", _page_of(gzip.compress(bytes(20 * MB)), "gzip")),
    Input("page: bytes behind its gzip", _page_of(gzip.compress(b"<p>x") + b"y" * 9 * MB, "gzip")),
    _file("md: 80 kB of open badges", "a.md", lambda: b"[![" * 27_000),
    _file("md: 20 MB of back-ticks", "a.md", lambda: b"`" * 20 * MB),
    _file("md: an open tag of 20 MB", "a.md", lambda: b"<a" + b" a" * 10 * MB),
    _file("md: an open comment of 20 MB", "a.md", lambda: b"<!--" + b"- " * 10 * MB),
    _file("md: 2 MB of open comments", "a.md", lambda: b"<!--" * 500_000),
    _file("docx: a chain of 3,000 styles", "a.docx", lambda: _docx(
        b'<w:body><w:p><w:pPr><w:pStyle w:val="s0"/></w:pPr></w:p></w:body>', _chain(3000))),
    _file("docx: 16 million paragraphs", "a.docx", lambda: _docx(
        b"<w:body>" + b"<w:p/>" * 16 * MB + b"</w:body>")),
    _file("docx: paragraphs nested 100,000 deep", "a.docx", lambda: _docx(
        b"<w:body>" + b"<w:sdt>" * 10**5)),
    Input("folder: loops and names that are no text", _folder, _odd_names),
    Input("addresses as they stand in the world", _addresses),
    Input("search: 100,000 open brackets", _reply_of(b"[" * 10**5)),
    Input("search: a number of 1,000,000 digits", _reply_of(b"9" * MB)),
    Input("search: 10 MB of empty lists", _reply_of(b"[" + b"[]," * 3_300_000 + b"1]")),
    Input("search: gzip of 200 MB", _reply_of(gzip.compress(bytes(200 * MB)), PACKED)),
    Input("search: packed as nobody asked", _reply_of(b"\x1b" * 4700, BROTLI)),
    Input("model: empty events for ever", _stream_of(_for_ever(b'data: {"choices": []}\n\n' * 50))),
    Input("model: comments for ever", _stream_of(_for_ever(b": x\n\n" * 200))),
    Input("model: tokens without end", _stream_of(_words)),
    Input("model: huge events without end", _stream_of(_for_ever(_EVENT % (b"x " * 400_000)))),
    Input("model: an event that never ends", _stream_of(_for_ever(b"data: " + b"x" * 60_000))),
    Input("model: an event of open brackets", _stream_of(
        _for_ever(b"data: " + b"[" * 10**5 + b"\n\n"))),
    Input("model: a refusal without end", _stream_of(
        _for_ever(b"x" * 60_000), b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")),
)  # fmt: skip
