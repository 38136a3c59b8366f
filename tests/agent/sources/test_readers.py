"""A damaged PDF is read with what is wrong as its note, and nothing on standard error."""

import re
import time
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read_file
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.memory.errors import SourceError
from tests.support.pdfs import pdf


def test_html_keeps_headings_and_drops_what_surrounds_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<html><head><title>Bee  keeping</title><script>x()</script></head><body>"
        "<nav>Home</nav><h1>Bees</h1><p>They make <b>honey</b>\n and wax.</p>"
        "<h2>Hives</h2><pre>a\n  b</pre><ul><li>one</li><li>two</li></ul>"
        "<footer>Imprint</footer></body></html>"
    )
    document = read_file(tmp_path / "a.html")
    assert document.title == "Bee keeping"
    assert document.sections[0].path == ("Bees",)
    assert document.sections[0].text == "They make honey and wax."
    assert document.sections[1].heading == "Bees > Hives"
    assert document.sections[1].text.split("\n")[:2] == ["a", "  b"]
    assert document.sections[1].text.split("\n")[-2:] == ["- one", "- two"]


DEFINITIONS = """
<dl><dt class="term">
core.bare
</dt><dt>core.naked</dt><dd><div class="paragraph"><p>
   Whether there is no working
tree.</p></div><p>It is guessed.</p></dd>
<dt>advice.*</dt><dd><p>Hints.</p><dl><dt>inner</dt><dd>One hint.</dd></dl></dd></dl>
"""


def test_a_term_and_its_definition_are_one_paragraph(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(DEFINITIONS)
    (section,) = read_file(tmp_path / "a.html").sections
    assert re.split(r"\n\s*\n", section.text) == [
        "core.bare\ncore.naked\n    Whether there is no working tree.",
        "    It is guessed.",
        "advice.*\n    Hints.",
        "inner\n    One hint.",
    ]


def zipped(parts: dict[str, str]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said", "remedy"),
    [
        ("a.pdf", pdf(["", ""]), r"a\.pdf has no text in its 2 pages", "scanned"),
        ("a.pdf", pdf(["Secret."], password="key"), r"a\.pdf is encrypted", "password"),
        ("a.pdf", b"%PDF-1.7 nothing follows", r"a\.pdf could not be read", "again"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1 and more", "is encrypted, or an old doc", "docx"),
        ("a.docx", b"plain text", "is no docx file", "docx"),
        ("a.docx", b"", "is no docx file", "docx"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1 and more", "is encrypted, or an old xls", "xlsx"),
        ("a.epub", b"plain text", "is no epub file", "epub"),
        ("a.pptx", zipped({"x": "y"}), "holds no document", "anew"),
        ("a.epub", zipped({"x": "y"}), "names no book", "epub"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_what_to_do(
    tmp_path: Path, name: str, content: bytes, said: str, remedy: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=said) as caught:
        read_file(tmp_path / name)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("comments.md", "<!--" * 20_000),
        ("tags.md", "<a" * 80_000),
        ("badges.md", "![" * 80_000),
        ("heading.md", f"# a{' ' * 30_000}b"),
        ("targets.md", "".join(f"[r{n}]: http://a.test/{n}\n" for n in range(150_000))),
        ("codes.rtf", "{\\rtf1 " + "\\'e4" * 1_000_000 + "}"),
        ("blank.md", "a\n" + "\u00a0\n" * 40_000 + "b " * 200),
        ("scripts.html", f"<body>{'<script></script>x' * 60_000}"),
        ("paragraphs.html", f"<div>{'<p>x' * 60_000}"),
    ],
)
def test_what_never_closes_is_read_in_time_that_grows_with_it(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    began = time.process_time()
    for section in read_file(path).sections:
        split_passages(section.text)
    assert time.process_time() - began < 2.5


BOOK = {
    "META-INF/container.xml": '<c><rootfile full-path="OEBPS/book.opf"/></c>',
    "OEBPS/book.opf": '<p xmlns:dc="dc"><dc:title>On bees</dc:title>'
    '<item id="two" href="b%20c.xhtml"/>'
    '<item id="one" href="a.xhtml"/><itemref idref="one"/><itemref idref="two"/></p>',
    "OEBPS/a.xhtml": "<html><body><h1>Dances</h1><p>Bees dance.</p></body></html>",
    "OEBPS/b c.xhtml": "<html><head><title>End</title></head><body><p>They rest.</p></body></html>",
}


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    (tmp_path / "a.epub").write_bytes(zipped(BOOK))
    document = read_file(tmp_path / "a.epub")
    assert [(s.heading, s.text.strip()) for s in document.sections] == [
        ("Dances", "Bees dance."),
        ("End", "They rest."),
    ]
    assert document.title == "On bees"
