from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from agent.sources.readers import Section, decode, markdown_sections, read_document, rst_sections
from memory.errors import SourceError


def write_pdf(path: Path, pages: list[str], password: str = "") -> None:
    """A PDF with one line of text on each page; a blank page for an empty line."""
    writer = PdfWriter()
    for line in pages:
        page = writer.add_blank_page(width=300, height=200)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        if line:
            stream = DecodedStreamObject()
            stream.set_data(f"BT /F1 12 Tf 20 100 Td ({line}) Tj ET".encode())
            page[NameObject("/Contents")] = writer._add_object(stream)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    with path.open("wb") as file:
        writer.write(file)


def test_markdown_places_are_paths_of_headings() -> None:
    text = "intro\n# A\nfirst\n## B\nsecond\n```\n# no heading\n```\n# C\nthird\n"
    assert markdown_sections(text) == [
        Section("", "intro"),
        Section("A", "first"),
        Section("A > B", "second\n```\n# no heading\n```"),
        Section("C", "third"),
    ]


def test_markdown_underlined_headings_and_badges() -> None:
    text = "Title\n=====\n[![build](x.svg)](ci) text\n\nPart\n----\nmore\n"
    assert markdown_sections(text) == [Section("Title", " text"), Section("Title > Part", "more")]


def test_rst_levels_are_as_first_met() -> None:
    text = "Top\n===\none\n\nSub\n---\ntwo\n\nNext\n====\nthree\n"
    assert rst_sections(text) == [
        Section("Top", "one"),
        Section("Top > Sub", "two"),
        Section("Next", "three"),
    ]


def test_plain_text_is_placed_by_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"line {n}" for n in range(1, 51)))
    document = read_document(tmp_path / "a.txt")
    assert [s.heading for s in document.sections] == ["lines 1-40", "lines 41-50"]
    assert document.sections[1].text.startswith("line 41\n")


def test_html_keeps_headings_and_drops_what_surrounds_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<html><head><title>Bee  keeping</title><script>x()</script></head><body>"
        "<nav>Home</nav><h1>Bees</h1><p>They make <b>honey</b>\n and wax.</p>"
        "<h2>Hives</h2><pre>a\n  b</pre><ul><li>one</li><li>two</li></ul>"
        "<footer>Imprint</footer></body></html>"
    )
    document = read_document(tmp_path / "a.html")
    assert document.title == "Bee keeping"
    assert document.sections[0] == Section("Bees", "They make honey and wax.")
    assert document.sections[1].heading == "Bees > Hives"
    assert document.sections[1].text.split("\n")[:2] == ["a", "  b"]
    assert document.sections[1].text.split()[-2:] == ["one", "two"]


@pytest.mark.parametrize("content", ["", "<p>unclosed <b>text", '<?xml version="1.0"?><p>x</p>'])
def test_broken_html_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.html").write_text(content)
    assert read_document(tmp_path / "a.html").note == ""


def test_pdf_is_placed_by_page(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["Bees dance.", "", "Wasps sting."])
    sections = read_document(tmp_path / "a.pdf").sections
    assert sections == (Section("page 1", "Bees dance."), Section("page 3", "Wasps sting."))


def test_scanned_pdf_says_so(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["", ""])
    with pytest.raises(SourceError, match="no text in its 2 pages") as caught:
        read_document(tmp_path / "a.pdf")
    assert "scanned" in caught.value.remedy


def test_encrypted_pdf_says_so(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["Secret."], password="key")
    with pytest.raises(SourceError, match="is encrypted") as caught:
        read_document(tmp_path / "a.pdf")
    assert "password" in caught.value.remedy


def test_broken_pdf_is_a_source_error(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 nothing follows")
    with pytest.raises(SourceError, match=r"a\.pdf could not be read") as caught:
        read_document(tmp_path / "a.pdf")
    assert caught.value.remedy


def test_encodings_are_guessed_in_order() -> None:
    assert decode("\ufeffgrün".encode()) == ("grün", "")
    assert decode("grün “x”".encode("cp1252")) == (
        "grün “x”",
        "not UTF-8: read as Windows-1252",
    )
    assert decode(b"gr\xfcn \x81")[1] == "not UTF-8: read as Latin-1"
