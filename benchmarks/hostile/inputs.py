"""Bytes that hurt a reader, each behind what reads it in a run: a page, a document, a reply."""

import copy
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubricem.agent.models.chat_server import OpenAIChat
from rubricem.agent.models.limits import Limiter, Retry
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.fetch import AddressGuard, Fetcher, FetchLimits, normal
from rubricem.agent.sources.mcp_client import Connection
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.sources.web import SearXNG
from rubricem.memory.schema import Message, Sampling
from tests.support.sites import CHUNKED, CRUMBS, ToolSite, for_ever, sending

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
    head = b'<w:%s xmlns:w="urn:w">'
    return _office({
        "word/document.xml": head % b"document" + document + b"</w:document>",
        "word/styles.xml": head % b"styles" + styles + b"</w:styles>",
    })  # fmt: skip


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


async def _search(content: bytes, headers: bytes = b"") -> Any:
    with sending(_JSON % headers, lambda: iter([content])) as address:
        return await SearXNG(address).search("acme", 5)


async def _fetch(head: bytes, piece: bytes) -> Any:
    with sending(head, for_ever(piece)) as address:
        guard = AddressGuard((address.removeprefix("http://"),))
        return await Fetcher(guard, FetchLimits(seconds=9.0)).fetch(address)


def _office(parts: Mapping[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return packed.getvalue()


def _sheets(cells: str, shared: str, sheets: int = 1) -> bytes:
    listed = "".join(f'<sheet name="a{number}" r:id="r1"/>' for number in range(sheets))
    return _office({
        "xl/workbook.xml": f'<w xmlns:r="u">{listed}</w>',
        "xl/_rels/workbook.xml.rels": '<R><R Id="r1" Target="a.xml"/></R>',
        "xl/sharedStrings.xml": f"<sst><si><t>{shared}</t></si></sst>",
        "xl/a.xml": f"<s>{cells}</s>",
    })  # fmt: skip


def _book(chapters: int, files: int) -> bytes:
    """A book that lists so many chapters, each of one of so many files."""
    names = [f"c{number % files}" for number in range(chapters)]
    items = "".join(f'<item id="{name}" href="{name}.html"/>' for name in dict.fromkeys(names))
    refs = "".join(f'<itemref idref="{name}"/>' for name in names)
    chapter = "<p>" + "word " * (20_000 if files == 1 else 1)
    return _office({
        "META-INF/container.xml": '<c><rootfile full-path="a.opf"/></c>',
        "a.opf": f"<p>{items}{refs}</p>",
        **{f"{name}.html": chapter for name in dict.fromkeys(names)},
    })  # fmt: skip


def _overlapping(chapters: int) -> bytes:
    """A book whose chapters are all one part of its package, under as many names."""
    packed = io.BytesIO()
    names = [f"c{number}.html" for number in range(chapters)]
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in names)
    refs = "".join(f'<itemref idref="{name}"/>' for name in names)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("META-INF/container.xml", '<c><rootfile full-path="a.opf"/></c>')
        package.writestr("a.opf", f"<p>{items}{refs}</p>")
        package.writestr(names[0], "<p>" + "word " * 4 * MB)
        for name in names[1:]:
            again = copy.copy(package.getinfo(names[0]))
            again.filename = name
            package.filelist.append(again)
    return packed.getvalue()


def _slides(count: int) -> bytes:
    one = '<p:sld xmlns:p="p" xmlns:a="a"><p:sp><a:p><a:t>word</a:t></a:p></p:sp></p:sld>'
    names = [f"slides/slide{number}.xml" for number in range(1, count + 1)]
    rels = "".join(f'<R Id="r{n}" Target="{name}"/>' for n, name in enumerate(names))
    listed = "".join(f'<p:sldId r:id="r{n}"/>' for n in range(count))
    return _office({
        "ppt/presentation.xml": f'<p:p xmlns:p="p" xmlns:r="r">{listed}</p:p>',
        "ppt/_rels/presentation.xml.rels": f"<R>{rels}</R>",
        **{f"ppt/{name}": one for name in names},
    })  # fmt: skip


def _multiplying(depth: int) -> str:
    """Ten of a text, of which ten are ten, and so on."""
    made = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, depth))
    declared = f'<!DOCTYPE d [<!ENTITY e0 "word ">{made}]>'
    text = f"<w:p><w:r><w:t>&e{depth - 1};</w:t></w:r></w:p>"
    return f'{declared}<w:document xmlns:w="urn:w"><w:body>{text}</w:body></w:document>'


def _pdf(objects: Sequence[bytes]) -> bytes:
    """A file of these objects, of which the first is the catalogue."""
    size, written = len(objects) + 1, b"%PDF-1.7\n"
    table = b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number, content in enumerate(objects, 1):
        table += b"%010d 00000 n \n" % len(written)
        written += b"%d 0 obj%s\nendobj\n" % (number, content)
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, len(written))
    return written + table + end


def _pack_twice(size: int) -> bytes:
    """A PDF of one page, whose content was packed and packed again."""
    content = zlib.compress(zlib.compress(b"BT /F 9 Tf (word) Tj ET " * (size // 24)))
    head = b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n" % len(content)
    font = b"/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    return _pdf([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R" + font + b">>",
        head + content + b"\nendstream",
    ])  # fmt: skip


def _references(count: int) -> bytes:
    told = b"".join(b"[r%d]: http://a.test/%d\n" % (n, n) for n in range(count))
    return told + b"".join(b"[r%d] " % n for n in range(count))


def _without_end(folder: Path) -> None:
    os.mkfifo(folder / "a.md")
    (folder / "b.md").symlink_to("/dev/zero")
    (folder / "c.md").write_text("# C\n\nText.\n")


async def _model(pieces: Callable[[], Iterator[bytes]], head: bytes = _EVENTS) -> Any:
    with sending(head, pieces) as address:
        limiter, retry = Limiter(1), Retry(tries=1)
        chat = OpenAIChat("m", f"{address}/v1", None, limiter=limiter, timeout=4.0, retry=retry)
        asked = [Message("user", "?")]
        return await chat.chat(asked, Sampling(max_tokens=2048), lambda text: None)


def _words() -> Iterator[bytes]:
    number = 0
    while True:
        number += 7919
        yield _EVENT % (b"w%d " % (number % 100_003))


async def _ask_tools(listed: bytes, called: bytes = b"") -> Any:
    """What a server says of its tools, once it has shaken hands, and of a call of one."""
    with ToolSite(listed, called) as site:
        server = Connection("far", ToolServer(url=site.url, tools=("find",), seconds=20.0))
        try:
            offers = await server.offers()
            return await server.call("find", {}) if called else offers
        finally:
            await server.aclose()


def _tool_list(count: int) -> bytes:
    return b'{"tools": [%s]}' % b",".join(
        [b'{"name": "t", "inputSchema": {"type": "object"}}'] * count
    )


def _tables(count: int) -> bytes:
    """A PDF of so many tables of objects, each behind the one before."""
    parts = [b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n"]
    before, at = b"", len(parts[0])
    for _ in range(count):
        table = b"xref\n0 1\n0000000000 65535 f \ntrailer<</Size 3/Root 1 0 R%s>>\n" % before
        parts.append(table)
        before, at = b"/Prev %d" % at, at + len(table)
    return b"".join(parts) + b"startxref%s\n%%%%EOF" % before.removeprefix(b"/Prev")


def _one_page(times: int) -> bytes:
    """A PDF of so many pages, which are all the same one."""
    return _pdf([
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (times, b"3 0 R " * times),
        b"<</Type/Page/Parent 2 0 R/Resources<</Font<</F 5 0 R>>>>/Contents 4 0 R>>",
        b"<</Length 31>>stream\nBT /F 12 Tf 9 9 Td (word) Tj ET \nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ])  # fmt: skip


def _repeated(rows: int) -> bytes:
    """A sheet of rows that say how often they and their one cell are repeated."""
    names = 'xmlns:office="o" xmlns:table="t" xmlns:text="x"'
    cell = '<table:table-cell table:number-columns-repeated="16000"><text:p>a word'
    row = f'<table:table-row table:number-rows-repeated="1000000">{cell}'
    row += "</text:p></table:table-cell></table:table-row>"
    body = f"<table:table>{row * rows}</table:table>"
    parts = f"<office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"
    return _office({"content.xml": f"<office:d {names}>{parts}</office:d>"})


def _mails(depth: int) -> bytes:
    """A mail in a mail, and so on."""
    head = b"Content-Type: multipart/mixed; boundary=B%d\n\n--B%d\nContent-Type: message/rfc822\n\n"
    return b"".join(b"Subject: %d\n%b" % (n, head % (n, n)) for n in range(depth))


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
    _file("md: a sentence of 10 million words", "a.md", lambda: b"b " * 10 * MB),
    _file("txt: 2 million different words", "a.txt", lambda: b" ".join(
        b"%c%x" % (b"qwrt"[n % 4], n * 7919) for n in range(2_000_000))),
    _file("md: 2 MB of open comments", "a.md", lambda: b"<!--" * 500_000),
    _file("docx: a chain of 3,000 styles", "a.docx", lambda: _docx(
        b'<w:body><w:p><w:pPr><w:pStyle w:val="s0"/></w:pPr></w:p></w:body>', _chain(3000))),
    _file("docx: 16 million paragraphs", "a.docx", lambda: _docx(
        b"<w:body>" + b"<w:p/>" * 16 * MB + b"</w:body>")),
    _file("docx: paragraphs nested 100,000 deep", "a.docx", lambda: _docx(
        b"<w:body>" + b"<w:sdt>" * 10**5)),
    _file("csv: 20,000 columns with names", "a.csv", lambda: b",".join(
        b"name%d" % n for n in range(20_000)) + (b"\n" + b"1," * 20_000) * 100),
    _file("xlsx: a long text in a million cells", "a.xlsx", lambda: _sheets(
        '<row><c t="s"><v>0</v></c></row>' * 10**6, "word " * 200_000)),
    _file("xlsx: 100,000 sheets that are one", "a.xlsx", lambda: _sheets(
        '<row><c r="XFD1"><v>0</v></c></row>' * 10**4, "", 10**5)),
    _file("csv: a quote that never closes", "a.csv", lambda: b'a,b\n"' + b'x,""y\n' * 2_500_000),
    _file("csv: a field of 20 MB", "a.csv", lambda: b"a,b\n" + b"x" * 20 * MB),
    _file("pdf: 50,000 tables of objects", "a.pdf", lambda: _tables(50_000)),
    _file("pdf: a page 100,000 times", "a.pdf", lambda: _one_page(10**5)),
    _file("epub: a chapter 100,000 times", "a.epub", lambda: _book(10**5, 1)),
    _file("epub: 60,000 chapters", "a.epub", lambda: _book(60_000, 60_000)),
    _file("epub: 3,000 chapters that overlap", "a.epub", lambda: _overlapping(3000)),
    _file("pptx: 9,000 slides", "a.pptx", lambda: _slides(9000)),
    _file("docx: entities that multiply", "a.docx", lambda: _office(
        {"word/document.xml": _multiplying(10)})),
    _file("pdf: a page of 1 GB, packed twice", "a.pdf", lambda: _pack_twice(1000 * MB)),
    _file("csv: 10 million lines", "a.csv", lambda: b"a\n" * 10 * MB),
    _file("md: 200,000 references", "a.md", lambda: _references(200_000)),
    _file("html: cells that cover a million others", "a.html", lambda: b"<table>" + b"<tr>" + (
        b"<th colspan=1000 rowspan=65534>word<td>x" * 1000) + b"<tr><td>x" * 50_000),
    _file("html: 200,000 notes", "a.html", lambda: b"".join(
        b"<p>x<sup><a href='#n%d' id=r%d>%d</a></sup><p id=n%d>note" % (n, n, n % 999, n)
        for n in range(200_000))),
    _file("rtf: 5 million codes of letters", "a.rtf", lambda: b"{\\rtf1 " + b"\\'e4" * 5 * MB),
    _file("tex: 400,000 notes in each other", "a.tex", lambda: b"\\footnote{" * 400_000),
    _file("yaml: references that multiply", "a.yaml", lambda: b"a0: &a0 [x]\n" + b"".join(
        b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 99))),
    _file("eml: 3,000 in each other", "a.eml", lambda: _mails(3000)),
    _file("ods: a cell a trillion times", "a.ods", lambda: _repeated(50)),
    _file("xlsx: 100,000 merged regions", "a.xlsx", lambda: _sheets(
        '<row><c t="s"><v>0</v></c></row>' * 1000 + "".join(
            f'<mergeCell ref="A{n % 1000 + 1}:XFD1048576"/>' for n in range(100_000)), "word")),
    _file("srt: 500,000 cues", "a.srt", lambda: b"".join(
        b"00:00:%02d,0 --> 00:00:%02d,5\nword\n\n" % (n % 60, n % 60) for n in range(500_000))),
    _file("org: 5 MB of open links", "a.org", lambda: b"[[" * 2_500_000),
    Input("folder: pipes and devices", _folder, _without_end),
    Input("folder: loops and names that are no text", _folder, _odd_names),
    Input("addresses as they stand in the world", _addresses),
    Input("page: a charset that takes the square", _page_of(
        b"<html><meta charset=punycode><p>" + b"a" * 2 * MB + b"-" + b"z" * 2 * MB)),
    Input("page: chunks of a byte for ever", lambda folder: _fetch(CHUNKED, CRUMBS)),
    Input("page: redirected to data", lambda folder: _fetch(
        b"HTTP/1.1 302 Found\r\nLocation: data:text/html,x\r\n\r\n", b"x")),
    Input("page: 500,000 headings", _page_of(b"<h1>x<h2>y<p>z" * 500_000)),
    Input("search: 100,000 open brackets", _reply_of(b"[" * 10**5)),
    Input("search: a number of 1,000,000 digits", _reply_of(b"9" * MB)),
    Input("search: 10 MB of empty lists", _reply_of(b"[" + b"[]," * 3_300_000 + b"1]")),
    Input("search: gzip of 200 MB", _reply_of(gzip.compress(bytes(200 * MB)), PACKED)),
    Input("search: packed as nobody asked", _reply_of(b"\x1b" * 4700, BROTLI)),
    Input("model: empty events for ever", _stream_of(for_ever(b'data: {"choices": []}\n\n' * 50))),
    Input("model: comments for ever", _stream_of(for_ever(b": x\n\n" * 200))),
    Input("model: tokens without end", _stream_of(_words)),
    Input("model: huge events without end", _stream_of(for_ever(_EVENT % (b"x " * 400_000)))),
    Input("model: an event of open brackets", _stream_of(
        for_ever(b"data: " + b"[" * 10**5 + b"\n\n"))),
    Input("tools: 100,000 of them", lambda folder: _ask_tools(_tool_list(10**5))),
    Input("tools: as many as are read", lambda folder: _ask_tools(_tool_list(3300))),
    Input("tools: 74,000 empty lists", lambda folder: _ask_tools(
        b'{"tools": [], "more": [%s]}' % b",".join([b"[]"] * 74_000))),
    Input("tools: 4 MB of text", lambda folder: _ask_tools(
        b'{"tools": [], "more": "%s"}' % (b"word " * 790_000))),
    Input("tools: a schema with a pattern without end", lambda folder: _ask_tools(
        b'{"tools": [{"name": "find", "inputSchema": {"type": "object"}, "outputSchema": {"type": '
        b'"object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}}]}',
        b'{"content": [], "structuredContent": {"a": "%s!"}}' % (b"a" * 40))),
)  # fmt: skip
