"""A damaged PDF is read with what is wrong as its note, and nothing on standard error.

Word documents, written here part by part in the XML that word processors write.
"""

import re
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read_file
from rubricem.agent.sources.readers.document import Section
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.readers.text import markdown_sections, rst_sections
from rubricem.memory.errors import SourceError
from tests.support.pdfs import pdf


@pytest.mark.parametrize(
    ("sections_of", "text", "sections"),
    [
        (markdown_sections,
         "intro\n# A\nfirst\n## B\nsecond\n```\n# no heading\n```\n# C\nthird\n",
         [("", "intro"), ("A", "first"), ("A > B", "second\n```\n# no heading\n```"),
          ("C", "third")]),
        (markdown_sections, "Title\n=====\n[![build](x.svg)](ci) text\n\nPart\n----\nmore\n",
         [("Title", " text"), ("Title > Part", "more")]),
        (rst_sections, "Top\n===\none\n\nSub\n---\ntwo\n\nNext\n====\nthree\n",
         [("Top", "one"), ("Top > Sub", "two"), ("Next", "three")]),
    ],
    ids=["Markdown", "Markdown underlined, with badges", "reStructuredText"],
)  # fmt: skip
def test_a_place_is_the_path_of_its_headings(
    sections_of: Callable[[str], tuple[Section, ...]], text: str, sections: list[tuple[str, str]]
) -> None:
    assert [(each.heading, each.text) for each in sections_of(text)] == sections


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
    assert document.sections[1].text.split()[-2:] == ["one", "two"]


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


NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = f"""<w:styles {NAMES}>
<w:style w:type="paragraph" w:styleId="Titel"><w:name w:val="Title"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="My section"/>
  <w:basedOn w:val="berschrift2"/></w:style>
<w:style w:type="paragraph" w:styleId="Outlined"><w:name w:val="Chapter"/>
  <w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Loop"><w:name w:val="Loop"/>
  <w:basedOn w:val="Loop"/></w:style>
</w:styles>"""


def p(text: str, style: str = "", layout: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{layout}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def write_docx(path: Path, *blocks: str, **parts: str) -> Path:
    body = "".join(blocks)
    with ZipFile(path, "w", ZIP_DEFLATED) as package:
        package.writestr(
            "word/document.xml", f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"
        )
        package.writestr("word/styles.xml", STYLES)
        for name, content in parts.items():
            package.writestr(name.replace("__", "/") + ".xml", content)
    return path


def sections(path: Path) -> list[tuple[str, str]]:
    return [(s.heading, s.text) for s in read_file(path).sections]


def package(path: Path, body: str, names: str = NAMES, before: str = "") -> Path:
    """A file with nothing but a document."""
    with ZipFile(path, "w") as file:
        document = f"{before}<w:document {names}><w:body>{body}</w:body></w:document>"
        file.writestr("word/document.xml", document)
    return path


def test_headings_are_found_by_their_styles_name_whatever_the_language(tmp_path: Path) -> None:
    path = write_docx(
        tmp_path / "a.docx",
        p("On bees", "Titel"),
        p("An abstract."),
        p("Method", "berschrift1"),
        p("We watched 42 hives."),
        p("Hives", "Own"),
        p("Of wood."),
        p("Results", "Outlined"),
        p("They danced.", "Loop"),
    )
    document = read_file(path)
    assert document.title == "On bees"
    assert [(each.heading, each.text) for each in document.sections] == [
        ("", "An abstract."),
        ("Method", "We watched 42 hives."),
        ("Method > Hives", "Of wood."),
        ("Results", "They danced."),
    ]


def test_tables_lists_and_line_breaks_keep_their_shape(tmp_path: Path) -> None:
    def cell(text: str) -> str:
        return f"<w:tc>{p(text)}</w:tc>"

    rows = (cell("Hive") + cell("Bees"), cell("1") + cell("900"))
    table = f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    broken = "<w:p><w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:tab/><w:t>three</w:t></w:r></w:p>"
    path = write_docx(tmp_path / "a.docx", p("first", layout="<w:numPr/>"), table, broken)
    ((heading, text),) = sections(path)
    assert heading == ""
    lines = ["- first", "Hive | Bees", "1 | 900", "one", "two\tthree"]
    assert [line for line in text.splitlines() if line] == lines


def test_insertions_controls_links_and_footnotes_count_and_deletions_do_not(
    tmp_path: Path,
) -> None:
    run = "<w:r><w:t>{}</w:t></w:r>".format
    path = write_docx(
        tmp_path / "a.docx",
        f"<w:p>{run('Bees ')}<w:ins>{run('really ')}</w:ins>"
        f"<w:del><w:r><w:delText>never </w:delText></w:r></w:del>"
        f"<w:moveFrom>{run('gone ')}</w:moveFrom><w:hyperlink>{run('dance')}</w:hyperlink></w:p>",
        f"<w:sdt><w:sdtContent>{p('Inside a control.')}</w:sdtContent></w:sdt>",
        word__footnotes=f'<w:footnotes {NAMES}><w:footnote w:type="separator"><w:p/></w:footnote>'
        f"<w:footnote>{p('Frisch, 1967.')}</w:footnote></w:footnotes>",
    )
    (body, footnotes) = sections(path)
    assert body[1].split("\n\n") == ["Bees really dance", "Inside a control."]
    assert footnotes == ("Footnotes", "Frisch, 1967.")


def test_a_small_file_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with (
        ZipFile(path, "w", ZIP_DEFLATED) as package,
        package.open("word/document.xml", "w") as part,
    ):
        for _ in range(101):
            part.write(b" " * 1_000_000)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(SourceError, match="unpacks to more than 100 MB"):
        read_file(path)


def test_an_entity_in_the_xml_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hunter2")
    entity = f'<!DOCTYPE d [<!ENTITY s SYSTEM "file://{tmp_path}/secret.txt">]>'
    path = package(tmp_path / "a.docx", p("A &s; B"), before=entity)
    assert "hunter2" not in f"{read_file(path)}"


def chained(links: int) -> str:
    """Styles of which each is based on the next."""
    based = '<w:style w:styleId="s{}"><w:basedOn w:val="s{}"/></w:style>'
    return f"<w:styles {NAMES}>{''.join(based.format(i, i + 1) for i in range(links))}</w:styles>"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("comments.md", "<!--" * 20_000),
        ("tags.md", "<a" * 80_000),
        ("badges.md", "![" * 80_000),
        ("heading.md", f"# a{' ' * 30_000}b"),
        ("blank.md", "a\n" + "\u00a0\n" * 40_000 + "b " * 200),
        ("scripts.html", f"<body>{'<script></script>x' * 60_000}"),
        ("paragraphs.html", f"<div>{'<p>x' * 60_000}"),
        ("styles.docx", ""),
    ],
)
def test_what_never_closes_is_read_in_time_that_grows_with_it(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    if name == "styles.docx":
        package(path, "".join(p("x", "s0") for _ in range(2000)))
        with ZipFile(path, "a") as file:
            file.writestr("word/styles.xml", chained(2000))
    else:
        path.write_text(content)
    began = time.process_time()
    for section in read_file(path).sections:
        split_passages(section.text)
    assert time.process_time() - began < 2.5


R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


def relations(**targets: str) -> str:
    each = "".join(f'<Relationship Id="{i}" Target="{t}"/>' for i, t in targets.items())
    return f"<Relationships>{each}</Relationships>"


def slide(title: str, *texts: str, table: str = "") -> str:
    shapes = f'<p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:t>{title}</a:t></a:p></p:sp>'
    body = "".join(f"<p:sp><a:p><a:r><a:t>{t}</a:t></a:r></a:p></p:sp>" for t in texts)
    return f'<p:sld xmlns:p="p" xmlns:a="a">{shapes}{body}{table}</p:sld>'


CELLS = "<a:tr><a:tc><a:p><a:t>bee</a:t></a:p></a:tc><a:tc><a:p><a:t>2</a:t></a:p></a:tc></a:tr>"
SLIDES = {
    "ppt/presentation.xml": f'<p xmlns:p="p" {R}><p:sldId id="9" r:id="b"/>'
    '<p:sldId id="8" r:id="a"/></p>',
    "ppt/_rels/presentation.xml.rels": relations(a="slides/slide1.xml", b="slides/slide2.xml"),
    "ppt/slides/slide1.xml": slide("Wasps", "They sting."),
    "ppt/slides/slide2.xml": slide("Bees", "They dance.", table=f"<a:tbl>{CELLS}</a:tbl>"),
    "ppt/slides/_rels/slide2.xml.rels": relations(n="../notesSlides/notesSlide1.xml"),
    "ppt/notesSlides/notesSlide1.xml": '<n xmlns:p="p" xmlns:a="a"><p:sp><a:p><a:t>Slowly.</a:t>'
    "</a:p></p:sp></n>",
}
SHEETS = {
    "xl/workbook.xml": f'<w {R}><sheet name="Hives" r:id="s"/></w>',
    "xl/_rels/workbook.xml.rels": relations(s="/xl/worksheets/sheet1.xml"),
    "xl/sharedStrings.xml": "<s><si><t>Place</t></si><si><r><t>Gar</t></r><r><t>den</t></r></si>"
    "</s>",
    "xl/styles.xml": '<s><numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="164"/></cellXfs></s>',
    "xl/worksheets/sheet1.xml": '<s><row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is>'
    '<t>Since</t></is></c></row><row/><row><c r="A3" t="s"><v>1</v></c><c r="B3"><v>7.5</v></c>'
    '<c r="C3" s="1"><v>43586</v></c></row></s>',
}
BOOK = {
    "META-INF/container.xml": '<c><rootfile full-path="OEBPS/book.opf"/></c>',
    "OEBPS/book.opf": '<p xmlns:dc="dc"><dc:title>On bees</dc:title>'
    '<item id="two" href="b%20c.xhtml"/>'
    '<item id="one" href="a.xhtml"/><itemref idref="one"/><itemref idref="two"/></p>',
    "OEBPS/a.xhtml": "<html><body><h1>Dances</h1><p>Bees dance.</p></body></html>",
    "OEBPS/b c.xhtml": "<html><head><title>End</title></head><body><p>They rest.</p></body></html>",
}


@pytest.mark.parametrize(
    ("name", "parts", "title", "said"),
    [
        ("a.pptx", SLIDES, "slide 1: Bees",
         [("slide 1: Bees", "Bees\n\nThey dance.\n\nbee | 2\nSlowly."),
          ("slide 2: Wasps", "Wasps\n\nThey sting.")]),
        ("a.xlsx", SHEETS, "Hives",
         [("Hives > rows 3-3", "Place: Garden | 7.5 | Since: 2019-05-01")]),
        ("a.epub", BOOK, "On bees", [("Dances", "Bees dance."), ("End", "They rest.")]),
    ],
)  # fmt: skip
def test_slides_workbooks_and_books_are_read_in_the_order_of_their_lists(
    tmp_path: Path, name: str, parts: dict[str, str], title: str, said: list[tuple[str, str]]
) -> None:
    (tmp_path / name).write_bytes(zipped(parts))
    document = read_file(tmp_path / name)
    assert [(s.heading, s.text.strip()) for s in document.sections] == said
    assert document.title == title


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name;born\nAda;1815\n\nEda;1906\n", ["name: Ada | born: 1815\nname: Eda | born: 1906"]),
        ('a,b\n"x, y\nz",2\n', ["a: x, y z | b: 2"]),
        ("lonely\n", ["lonely"]),
        ("", []),
        ("n\n" + "1\n" * 41, ["\n".join(["n: 1"] * 40), "n: 1"]),
    ],
)  # fmt: skip
def test_each_row_of_a_csv_names_its_columns(tmp_path: Path, content: str, said: list[str]) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert [s.text for s in read_file(tmp_path / "a.csv").sections] == said
