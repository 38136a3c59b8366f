"""What a fetched page says: its kind by its bytes, the text that a reader sees, the cache."""

import os
import time
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from lxml.html import tostring

from rubricem.agent.sources.fetch import KEPT_SECONDS
from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.pages.seen import visible
from rubricem.agent.sources.readers.pdf import read_pdf
from rubricem.agent.sources.sandbox.web_text import document_of, kind_of
from rubricem.memory.errors import SourceError
from tests.support.pdfs import pdf
from tests.support.sites import PageSite, Sent, article, names, page_reader

LONG = "The cache evicts the least recently used entry when it is full. " * 12


def page(content: bytes | str, declared: str = "text/html", path: str = "/p") -> Document:
    body = content.encode() if isinstance(content, str) else content
    return document_of(body, declared, f"https://site.test{path}")


def visible_html(text: str) -> str:
    return tostring(visible(text), encoding="unicode")


def texts(document: Document) -> str:
    return "\n".join(section.text for section in document.sections)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.7 ...", "pdf"),
        (b"<!DOCTYPE html><p>x", "html"),
        (b"\xef\xbb\xbf  <html>", "html"),
        (b"plain words < 5", "text"),
        ("\ufeffmarked".encode("utf-16"), "text"),
        (b'{"a": 1}', "text"),
    ],
)
def test_the_kind_is_told_by_the_bytes(content: bytes, kind: str):
    assert kind_of(content) == kind


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n...", "a PNG image"),
        (b"PK\x03\x04....", "a ZIP archive"),
        (b"words\0\0\0", "binary"),
        (b"", "empty"),
    ],
)
def test_what_holds_no_text_is_refused_whatever_it_is_declared_to_be(content: bytes, reason: str):
    with pytest.raises(SourceError, match=reason):
        page(content, "text/html")


def test_files_of_the_web_are_read_as_those_of_a_folder_unless_they_are_pages():
    sheet = BytesIO()
    with ZipFile(sheet, "w") as package:
        row = '<row><c t="inlineStr"><is><t>{}</t></is></c><c><v>{}</v></c></row>'.format
        package.writestr("xl/workbook.xml", '<w xmlns:r="r"><sheet name="Use" r:id="s"/></w>')
        package.writestr("xl/_rels/workbook.xml.rels", '<R><R Id="s" Target="s.xml"/></R>')
        package.writestr("xl/s.xml", f"<s>{row('seal', 3)}{row('rotor', 9)}</s>")
    assert "rotor | 9" in texts(page(sheet.getvalue(), path="/use.xlsx"))
    assert texts(page("part,hours\nseal,3\n", path="/use.csv?v=1")) == "part: seal | hours: 3"
    item = "<item><title>T</title><description>It wore.</description></item>"
    assert (
        page(f"<rss><channel>{item}</channel></rss>", path="/news.rss").sections[0].heading == "T"
    )
    assert texts(page("<!doctype html><p># Use", path="/README.md")) == "# Use"


def test_a_pdf_that_takes_too_long_is_read_in_part_or_not_at_all():
    with pytest.raises(SourceError, match=r"slow\.pdf takes too long to read"):
        read_pdf(Input("slow.pdf", BytesIO(pdf(["text"])), seconds=0))
    ticks = iter(range(100))
    nine = BytesIO(pdf(["text"] * 9))
    document = read_pdf(Input("slow.pdf", nine, seconds=4), clock=lambda: next(ticks))
    assert len(document.sections) == 3
    assert document.note == "read in part: 3 of 9 pages"


@pytest.mark.parametrize(
    "hidden",
    [
        '<p style="display:none">{}</p>',
        '<div style="color:red; display : NONE !important"><p>{}</p></div>',
        '<span style="visibility:hidden">{}</span>',
        '<p style="opacity:0">{}</p>',
        '<p style="font-size:0px;">{}</p>',
        '<p style="position:absolute;left:-9999px">{}</p>',
        '<p style="text-indent:-5000px">{}</p>',
        '<p style="clip: rect(0,0,0,0)">{}</p>',
        "<p hidden>{}</p>",
        "<!-- {} -->",
        "<template><p>{}</p></template>",
        "<noscript>{}</noscript>",
    ],
)
def test_hidden_text_is_no_text_of_the_page(hidden: str):
    html = f"<html><body><p>{LONG}</p>{hidden.format('obey me')}tail</body></html>"
    assert "obey me" not in visible_html(html)
    assert "tail" in visible_html(html), "what follows the hidden element is seen"
    assert "obey me" not in texts(page(html))


async def test_characters_that_nobody_sees_are_taken_out(tmp_path: Path):
    smuggled = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    with PageSite({"/": Sent(f"a\u200bb {smuggled}c", kind="text/plain; charset=utf-8")}) as site:
        reader = page_reader(tmp_path, allowed=("site.test",), resolve=names(site_test="127.0.0.1"))
        (passage,) = await reader.read(site.address("/", "site.test"))
    assert passage.text == "ab c"


async def test_a_page_is_cut_into_passages_under_its_last_address(tmp_path: Path):
    with PageSite({"/old": Sent(status=301, headers={"location": "/new"})}) as site:
        site.pages["/new"] = article("Caches", LONG, LONG.replace("cache", "store"))
        reader = page_reader(tmp_path, allowed=(f"127.0.0.1:{site.port}",))
        found = await reader.read(site.address("/old"))
        assert {passage.location for passage in found} == {site.address("/new")}
    assert [(p.title, p.place) for p in found] == [("Caches", "")] * 2, "told once"


async def test_a_page_read_lately_is_not_fetched_again_and_a_failure_is_not_kept(tmp_path: Path):
    with PageSite({}) as site:
        allowed = (f"127.0.0.1:{site.port}",)
        reader = page_reader(tmp_path, allowed=allowed)
        with pytest.raises(SourceError):
            await reader.read(site.address("/"))
        site.pages["/"] = article("Caches", LONG)
        first = await reader.read(site.address("/"))
        again = await page_reader(tmp_path, allowed=allowed).read(site.address("/#part"))
        assert first and again == first and len(site.asked) == 2
        with pytest.raises(SourceError, match="private network"):
            await page_reader(tmp_path).read(site.address("/"))
        (path,) = tmp_path.iterdir()
        old = time.time() - KEPT_SECONDS
        for wrong in (time.time() + KEPT_SECONDS, old):
            os.utime(path, (wrong, wrong))
            assert await reader.kept(site.address("/")) is None
        site.pages["/b"] = article("Stores", LONG)
        await page_reader(tmp_path, allowed=allowed).read(site.address("/b"))
    assert not path.exists() and len(list(tmp_path.iterdir())) == 1
