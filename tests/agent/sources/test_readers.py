"""Files that cannot be read say why, and none takes more time than is due."""

import re
import time
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.memory.errors import SourceError


def read_as(name: str, content: str | bytes) -> Document:
    return read(Input.of_bytes(name, content.encode() if isinstance(content, str) else content))


DEFINITIONS = """
<dl><dt class="term">
core.bare
</dt><dt>core.naked</dt><dd><div class="paragraph"><p>
   Whether there is no working
tree.</p></div><p>It is guessed.</p></dd>
<dt>advice.*</dt><dd><p>Hints.</p><dl><dt>inner</dt><dd>One hint.</dd></dl></dd></dl>
"""


def test_a_term_and_its_definition_are_one_paragraph() -> None:
    (section,) = read_as("a.html", DEFINITIONS).sections
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
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1 and more", "is encrypted, or an old doc", "docx"),
        ("a.docx", b"plain text", "is no docx file", "docx"),
        ("a.docx", b"", "is no docx file", "docx"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1 and more", "is encrypted, or an old xls", "xlsx"),
        ("a.epub", b"plain text", "is no epub file", "epub"),
        ("a.pptx", zipped({"x": "y"}), "holds no document", "anew"),
        ("a.epub", zipped({"x": "y"}), "names no book", "epub"),
        ("id_rsa", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "is a private key", "Move"),
        ("a.txt", b"\n-----BEGIN PRIVATE KEY-----\nMIIE", "is a private key", "Move"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_what_to_do(
    name: str, content: bytes, said: str, remedy: str
) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        read_as(name, content)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("comments.md", "<!--" * 20_000),
        ("tags.md", "<a" * 80_000),
        ("badges.md", "![" * 80_000),
        ("heading.md", f"# a{' ' * 15_000}b"),
        ("targets.md", "".join(f"[r{n}]: http://a.test/{n}\n" for n in range(20_001))),
        ("drawn.md", "+--+\n" * 100_000),
        ("codes.rtf", "{\\rtf1 " + "\\'e4" * 1_000_000 + "}"),
        ("blank.md", "a\n" + "\u00a0\n" * 40_000 + "b " * 200),
        ("scripts.html", f"<body>{'<script></script>x' * 60_000}"),
        ("paragraphs.html", f"<div>{'<p>x' * 60_000}"),
        ("picture.html", f"<style>.a{{b:url({'A1b2' * 500_000})}} {'/*' * 99_999}</style><p>x"),
    ],
)
def test_what_never_closes_is_read_in_time_that_grows_with_it(name: str, content: str) -> None:
    began = time.process_time()
    for section in read_as(name, content).sections:
        split_passages(section.text)
    assert time.process_time() - began < 10


BOOK = {
    "META-INF/container.xml": '<c><rootfile full-path="OEBPS/book.opf"/></c>',
    "OEBPS/book.opf": '<p xmlns:dc="dc"><dc:title>On bees</dc:title>'
    '<item id="two" href="b%20c.xhtml"/>'
    '<item id="one" href="a.xhtml"/><itemref idref="one"/><itemref idref="two"/></p>',
    "OEBPS/a.xhtml": "<html><body><h1>Dances</h1><p>Bees dance.</p></body></html>",
    "OEBPS/b c.xhtml": "<html><head><title>End</title></head><body><p>They rest.</p></body></html>",
}


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    document = read_as("a.epub", zipped(BOOK))
    assert [(s.heading, s.text.strip()) for s in document.sections] == [
        ("Dances", "Bees dance."),
        ("End", "They rest."),
    ]
    assert document.title == "On bees"


def test_a_note_of_a_book_may_stand_in_another_chapter_with_the_mark_of_its_own() -> None:
    noted = '<p>They were {}<a epub:type="noteref" href="b%20c.xhtml#n{}">1</a>.</p>'.format
    notes = (f'<p id="n{n}"><a href="a.xhtml#x">1</a>. Note {n}.</p>' for n in (1, 2))
    book = BOOK | {"OEBPS/a.xhtml": noted(40, 1) + noted(50, 2), "OEBPS/b c.xhtml": "".join(notes)}
    blocks = [b.text for s in read_as("a.epub", zipped(book)).sections for b in s.blocks]
    assert blocks == ["They were 40[1].", "They were 50[1].", "[1] Note 1.", "[1] Note 2."]
