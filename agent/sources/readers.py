"""Reading documents: Markdown, plain text, reStructuredText, HTML, PDF, EPUB, CSV, and Office's.

Each reader gives sections, a place and its text: by headings if there are any, pages of a PDF,
lines of a plain text. A document that cannot be read raises SourceError with a remedy; one whose
encoding had to be guessed is read, and a note says so.

Of HTML, what surrounds the text (navigation, header, footer, forms, scripts) is left out. White
space outside `pre` is collapsed, and block elements are on lines of their own.

Word is read from the package's own XML (ECMA-376, WordprocessingML): content controls, tables, text
boxes, footnotes and accepted insertions count as text, deleted text does not. A heading is a
paragraph whose style, or a style that it is based on, is called "heading N" or has an outline
level. Names are matched without their namespace, of which the standard has two. (mammoth knows
neither outline levels nor styles based on others, and takes ten times as long.)

Of slides (pptx), workbooks (xlsx) and books (epub) the parts are read in the order of the package's
own lists, from their XML as well. A row of a table, also of CSV, names the columns of its cells, so
that it can be quoted by itself. It is all in one file since the same few functions read all
packages; each format by itself is some 40 lines.

A passage is at most MAX_WORDS words, cut between paragraphs, else between lines, else between
sentences, so that what is quoted can be read by itself.

What pypdf logs while it reads becomes the document's note, not lines on a terminal.
"""

import csv
import logging
import math
import posixpath
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, BinaryIO, Self
from urllib.parse import unquote
from zipfile import BadZipFile, ZipFile

from lxml import etree, html

from rubricem.memory.errors import SourceError
from rubricem.memory.language import beginning, length
from rubricem.memory.text import one_line

Line = tuple[int, str]
"""(level of a heading, 0 for text; the line)"""


@dataclass(frozen=True, slots=True)
class Section:
    """A place in a document (heading, page or lines) and the text found there."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file: its title, its sections in order, and a note on how it was read."""

    title: str
    sections: tuple[Section, ...]
    note: str = ""

    @staticmethod
    def read(
        path: Path, seconds: float = math.inf, get_on: Callable[[], None] = lambda: None
    ) -> "Document":
        """Read a file by its suffix. Raises SourceError, with a remedy, if it cannot be read.

        `seconds` and `get_on` are those of `of_pdf`.
        """
        try:
            if path.suffix.lower() == ".pdf":
                with path.open("rb") as file:
                    return Document.of_pdf(file, path.name, seconds, get_on=get_on)
            return READERS[path.suffix.lower()](path)
        except (SourceError, MemoryError):
            raise
        except Exception as cause:
            raise SourceError(
                f"{path.name} could not be read: {type(cause).__name__}: {cause}.",
                "Check that it opens elsewhere, and save it again or leave it out.",
            ) from cause

    @classmethod
    def of_pdf(
        cls,
        file: BinaryIO,
        name: str,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.process_time,
        get_on: Callable[[], None] = lambda: None,
    ) -> Self:
        """The pages of a PDF; at the time limit those read so far, with a note that says so.

        `get_on` is called before each page. Problems that pypdf skipped are in the note. Raises
        SourceError if it is encrypted or has no text.
        """
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError

        with overheard("pypdf") as faults:
            reader = PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise SourceError(
                    f"{name} is encrypted.", "Save a copy of it that opens without a password."
                )
            until = clock() + seconds
            pages: list[str] = []
            read: dict[Any, str] = {}  # by object: a file may name one page very often
            for page in reader.pages:
                if clock() >= until:
                    break
                get_on()
                key = page.indirect_reference
                text = read.get(key) if key else None
                text = page.extract_text() if text is None else text
                if key:
                    read[key] = text
                pages.append(text)
            title = ""
            with suppress(PyPdfError):  # a damaged title is no reason to lose the pages
                title = str(reader.metadata.title or "") if reader.metadata else ""
            whole = len(reader.pages)
        sections = tuple(
            Section(f"page {n}", text) for n, text in enumerate(pages, 1) if text.strip()
        )
        if not sections and len(pages) < whole:
            raise SourceError(f"{name} takes too long to read.", "Name a shorter document.")
        if not sections:
            raise SourceError(
                f"{name} has no text in its {len(pages)} pages.",
                "It was probably scanned: run text recognition on it first.",
            )
        part = f"read in part: {len(pages)} of {whole} pages" if len(pages) < whole else ""
        note = "; ".join(filter(None, (part, complaint(faults))))
        return cls(title.strip() or Path(name).stem, sections, note)


def decode(content: bytes) -> tuple[str, str]:
    """(text, note): UTF-8 with or without a mark, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, "" if encoding == "utf-8-sig" else "not UTF-8: read as Windows-1252"
    return content.decode("latin-1"), "not UTF-8: read as Latin-1"


DEEPEST = 9
"""levels of headings; deeper ones count as the last, since each section names all above it"""
LONGEST_NAME = 200
"""characters of a title or heading"""


def by_heading(lines: Iterable[Line]) -> list[Section]:
    """The lines grouped by heading, each section named by its headings from the outermost in."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    body: list[str] = []

    def close() -> None:
        text = "\n".join(body).strip("\n")
        if text.strip():
            sections.append(Section(" > ".join(name for _, name in path), text))
        body.clear()

    for told, line in lines:
        if level := min(told, DEEPEST):
            close()
            path = [(upper, name) for upper, name in path if upper < level]
            path.append((level, one_line(line, LONGEST_NAME)))
        else:
            body.append(line)
    close()
    return sections


def _make_document(path: Path, sections: list[Section], note: str, title: str = "") -> Document:
    first = next((s.heading for s in sections if s.heading), path.stem)
    title = one_line(title or first.partition(" > ")[0], LONGEST_NAME)
    return Document(title, tuple(sections), note)


_FENCE = re.compile(r"^\s*(?:```|~~~)")
# Each stops where another of its kind begins: what is never closed is not looked through for each.
_ATX = re.compile(r"^(#{1,6})\s+(.*)$")
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_BADGE = re.compile(
    r"\[?!\[[^\[\]]*+\]\([^()]*+\)(?:\]\([^()]*+\))?|<!--(?>(?:(?!<!--|-->).)*)-->|</?\w[^<>]*+>"
)
LONGEST_LINE = 100_000
"""most characters of a line of Markdown searched for badges: no person wrote a longer one"""
_LINES_EACH = 40


def _headings_reader(sections_of: Callable[[str], list[Section]]) -> Callable[[Path], Document]:
    """A reader of text whose headings `sections_of` finds."""

    def read(path: Path) -> Document:
        text, note = decode(path.read_bytes())
        return _make_document(path, sections_of(text), note)

    return read


def markdown_sections(text: str) -> list[Section]:
    """Sections by heading, each named by its headings from the outermost in."""
    return by_heading(_markdown_lines(text))


def _markdown_lines(text: str) -> Iterator[Line]:
    fenced = False
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if fenced or _FENCE.match(line):
            yield 0, line
        elif heading := _ATX.match(line):
            name = heading[2][:LONGEST_LINE].rstrip().rstrip("#")
            yield len(heading[1]), _BADGE.sub("", name).strip()
        elif line.strip() and re.match(r"^(=+|-{3,})\s*$", below) and not line.startswith("|"):
            yield (1 if below[0] == "=" else 2), line.strip()
        elif not (re.match(r"^(=+|-{3,})\s*$", line) and i and lines[i - 1].strip()):
            yield 0, _BADGE.sub("", line) if len(line) <= LONGEST_LINE else line


def rst_sections(text: str) -> list[Section]:
    """Sections by underlined heading; the first use of an underline decides its level."""
    found: list[Line] = []
    levels: list[str] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        titled = bool(line.strip()) and not _UNDERLINE.match(line)
        if titled and _UNDERLINE.match(below) and len(below.rstrip()) >= len(line.strip()):
            if below[0] not in levels:
                levels.append(below[0])
            found.append((levels.index(below[0]) + 1, line.strip()))
        elif not _UNDERLINE.match(line):
            found.append((0, line))
    return by_heading(found)


def _read_text(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    lines = text.splitlines()
    sections = [
        Section(f"lines {start + 1}-{min(start + _LINES_EACH, len(lines))}", body)
        for start in range(0, len(lines), _LINES_EACH)
        if (body := "\n".join(lines[start : start + _LINES_EACH]).strip("\n")).strip()
    ]
    return Document(path.stem, tuple(sections), note)


_AROUND_THE_TEXT = "script style noscript template nav header footer aside form svg iframe button"
_LEFT_OUT = " | ".join(f".//{name}" for name in _AROUND_THE_TEXT.split())
_LEFT_OUT += " | .//*[@role='navigation']"
_NAMED = ".//div[@class or @id] | .//ul[@class or @id]"
_MENU = re.compile(
    r"(?:\A|[\s_-])(?:nav(?:bar|igation)?|breadcrumbs?|\w*(?:menu|sidebar))(?:[\s_-]|\Z)"
)
"""in the class or id of a block that leads to other pages, if links are most of its text"""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINES = frozenset({"br", "li", "tr", "td", "th"})
_PARAGRAPHS = "p pre blockquote figcaption caption div section article main hr"
_GAPS = dict.fromkeys(_LINES, ("\n", "\n")) | dict.fromkeys(_PARAGRAPHS.split(), ("\n\n", "\n\n"))
# A term and what it means stay one paragraph, laid out as such.
_GAPS |= {"dt": ("\n\n", ""), "dd": ("\n    ", "\n\n")}
"""text inserted before and after a block"""
_MARK = "\ue000"
"""Precedes a heading's level and text; a private character that no page uses."""
_MARKED = re.compile(f"{_MARK}([1-6])(.*)")


def html_tree(text: str) -> html.HtmlElement | None:
    """The document, without its comments; None if there is none.

    Broken HTML is parsed as by browsers.
    """
    # lxml refuses a text that declares an encoding, as it is decoded already.
    text = re.sub(r"^\s*<\?xml[^>]*>", "", text).replace("\0", "")
    if not text.strip():
        return None
    parser = html.HTMLParser(no_network=True, remove_comments=True, remove_pis=True)
    return html.document_fromstring(text, parser=parser)


def empty(elements: Iterable[html.HtmlElement]) -> None:
    """Clear the elements, and leave them in place.

    Removing each would move its following text to the preceding element, which takes quadratic time
    on a page of nothing else.
    """
    for element in elements:
        element.clear(keep_tail=True)
        element.tag = "span"


def _is_menu(element: html.HtmlElement) -> bool:
    """Whether a block is called a menu, and has little text but that of its links."""
    if not _MENU.search(f"{element.get('class', '')} {element.get('id', '')}".lower()):
        return False
    linked = sum(len(str(link.text_content()).strip()) for link in element.iter("a"))
    return 2 * linked >= len("".join(str(element.text_content()).split()))


def html_lines(tree: html.HtmlElement | None) -> tuple[str, list[Line]]:
    """(the page's title or "", its lines); modifies the tree."""
    if tree is None:
        return "", []
    title = " ".join((tree.findtext(".//title") or "").split())
    body = tree.find("body")
    root = tree if body is None else body
    empty(root.xpath(_LEFT_OUT))
    empty([*filter(_is_menu, root.xpath(_NAMED))])
    _lay_out(root)
    lines = str(root.text_content()).splitlines()
    marked = ((_MARKED.match(line), line) for line in lines)
    return title, [(int(m[1]), m[2]) if m else (0, line.rstrip()) for m, line in marked]


# What XML cannot hold, though a page may: lxml reads it, and refuses to have it set again.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACE = re.compile(r"\s+")


def _writable(text: str, *, folded: bool) -> str:
    return _UNWRITABLE.sub("", _SPACE.sub(" ", text) if folded else text)


def _lay_out(root: html.HtmlElement) -> None:
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            continue
        preformatted = element.tag == "pre" or next(element.iterancestors("pre"), None) is not None
        if element.text:
            element.text = _writable(element.text, folded=not preformatted)
        if element.tail:
            folded = element.tag == "pre" or not preformatted
            element.tail = _writable(element.tail, folded=folded)
        if element.tag in _HEADINGS:
            name = " ".join(str(element.text_content()).split()).rstrip("¶# ")
            for child in list(element):
                element.remove(child)
            element.text = f"\n{_MARK}{element.tag[1]}{name}\n" if name else "\n"
        elif element.tag in _GAPS:
            before, after = _GAPS[element.tag]
            text = element.text or ""
            element.text = _gap_before(element, before) + (text if preformatted else text.lstrip())
            tail = element.tail or ""
            element.tail = after + (
                tail if preformatted and element.tag != "pre" else tail.lstrip()
            )


def _gap_before(element: html.HtmlElement, usual: str) -> str:
    """No gap before the first paragraph of a definition, and one line between terms of one.

    All paragraphs of a definition are indented.
    """
    above = element.getparent()
    if element.tag == "dt" and (earlier := element.getprevious()) is not None:
        return "\n" if earlier.tag == "dt" else usual
    while element.tag in ("p", "div") and above is not None and element.getprevious() is None:
        if (above.text or "").strip():
            break
        if above.tag == "dd":
            return ""
        element, above = above, above.getparent()
    within = element.tag in ("p", "div") and above is not None and above.tag == "dd"
    return f"{usual}    " if within else usual


def _read_html(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    title, lines = html_lines(html_tree(text))
    return _make_document(path, by_heading(lines), note, title)


MOST_BYTES = 100_000_000
"""of one part, uncompressed: a small file may expand beyond memory"""
MOST_PARTS = 20_000
"""of a package, each time they are read; 20,000 small ones take some two seconds"""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""how a file in Word's older container begins: .doc, and docx with a password"""
_BODY_TEXT = 9
"""outline levels below this one are headings"""
_NUMBER = re.compile("[0-9]{1,3}")
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "footnote"})
_NO_TEXT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


class _Package(ZipFile):
    """An archive with a limit on parts read: its lists may name one any number of times."""

    _left = MOST_PARTS

    def open(self, *given: Any, **named: Any) -> IO[bytes]:
        self._left -= 1
        if self._left < 0:
            name = Path(self.filename or "").name
            raise SourceError(f"{name} lists more than {MOST_PARTS:,} parts.", "Split it.")
        return super().open(*given, **named)


def _package_reader(
    read: Callable[[ZipFile, str], tuple[str, list[Section]]],
) -> Callable[[Path], Document]:
    """A reader of a package; `read` gives its title, or "", and its sections."""

    def read_package(path: Path) -> Document:
        kind = path.suffix.lower().removeprefix(".")
        with path.open("rb") as file:
            if file.read(4) == _OLD_OR_ENCRYPTED:
                raise SourceError(
                    f"{path.name} is encrypted, or an old {kind[:3]} file by another name.",
                    f"Save a copy of it as {kind} without a password.",
                )
        try:
            with _Package(path) as package:
                title, sections = read(package, path.name)
        except BadZipFile as cause:
            raise SourceError(
                f"{path.name} is no {kind} file.",
                f"Open it in a program that reads it, and save it as {kind}.",
            ) from cause
        return _make_document(path, sections, "", title)

    return read_package


def _of_word(package: ZipFile, name: str) -> tuple[str, list[Section]]:
    document = _part(package, "word/document.xml", name)
    if document is None:
        raise SourceError(f"{name} holds no document.", "Save it again as docx.")
    styles = _Styles(_part(package, "word/styles.xml", name))
    blocks = list(_blocks(document, styles))
    title = next((line for level, line in blocks if level == _Styles.TITLE), "")
    lines = [(level, line) for level, line in blocks if level != _Styles.TITLE]
    notes = _part(package, "word/footnotes.xml", name)
    told = [] if notes is None else [line for line in _blocks(notes, styles) if line[1].strip()]
    lines += [(1, "Footnotes"), *told] if told else []
    return title or _core_title(package, name), by_heading(lines)


def _core_title(package: ZipFile, name: str) -> str:
    core = _part(package, "docProps/core.xml", name)
    named = "" if core is None else next((e.text or "" for e in core if _tag(e) == "title"), "")
    return named.strip()


def _part(package: ZipFile, part: str, name: str) -> etree._Element | None:
    """The root element of a part, or None if the package lacks it."""
    if part not in package.NameToInfo:
        return None
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    return etree.fromstring(_unpack(package, part, name), parser)


def _unpack(package: ZipFile, part: str, name: str) -> bytes:
    with package.open(part) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise SourceError(
            f"{name} unpacks to more than {MOST_BYTES // 1_000_000} MB.", "Split the document."
        )
    return content


def _relations_of(package: ZipFile, part: str, name: str) -> dict[str, str]:
    """The parts that a part refers to, by the ids it has for them."""
    folder, _, file = part.rpartition("/")
    rels = _part(package, f"{folder}/_rels/{file}.rels", name)
    told = () if rels is None else [(_attribute(e, "Id"), _attribute(e, "Target")) for e in rels]
    return {
        key: posixpath.normpath(posixpath.join(f"/{folder}", target)).lstrip("/")
        for key, target in told
    }


def _in_order(package: ZipFile, part: str, item: str, name: str) -> Iterator[tuple[str, str]]:
    """(name, part) of what a part lists as elements called `item`."""
    related = _relations_of(package, part, name)
    if (root := _part(package, part, name)) is None:
        raise SourceError(f"{name} holds no document.", "Save it anew.")
    for element in root.iter(f"{{*}}{item}"):
        # Its relation, and for slides a number of its own that is called `id` as well.
        ids = [str(value) for key, value in element.attrib.items() if str(key).endswith("}id")]
        if ids and ids[0] in related:
            yield _attribute(element, "name"), related[ids[0]]


def _of_slides(package: ZipFile, name: str) -> tuple[str, list[Section]]:
    """A section for each slide, with its notes at the end."""
    sections = []
    listed = _in_order(package, "ppt/presentation.xml", "sldId", name)
    for number, (_, part) in enumerate(listed, start=1):
        lines, title = list[str](), ""
        notes = [p for p in _relations_of(package, part, name).values() if "/notesSlides/" in p]
        for each in (part, *notes):
            root = _part(package, each, name)
            for shape in () if root is None else root.iter("{*}sp", "{*}tr"):
                kind = next((_attribute(e, "type") for e in shape.iter("{*}ph")), "")
                told = _paragraphs_of(shape)
                if kind in ("title", "ctrTitle"):
                    title = title or " ".join(told)
                elif kind not in ("sldNum", "dt", "ftr", "sldImg"):
                    lines += [" | ".join(told)] if _tag(shape) == "tr" else [*told, ""]
        heading = one_line(f"slide {number}: {title}".rstrip(": "), LONGEST_NAME)
        if title or any(lines):
            sections.append(Section(heading, "\n".join([title, "", *lines]).strip()))
    return _core_title(package, name), sections


def _paragraphs_of(shape: etree._Element) -> list[str]:
    """The non-empty paragraphs of a shape, or of a table's row."""
    found = ("".join(t.text or "" for t in p.iter("{*}t")) for p in shape.iter("{*}p"))
    return [text for text in found if text.strip()]


def _of_sheets(package: ZipFile, name: str) -> tuple[str, list[Section]]:
    """The rows of each sheet, with its name as heading."""
    strings = _part(package, "xl/sharedStrings.xml", name)
    shared = [] if strings is None else [_join_texts(e) for e in strings if _tag(e) == "si"]
    dates = _date_styles(_part(package, "xl/styles.xml", name))
    sections: list[Section] = []
    for sheet, part in _in_order(package, "xl/workbook.xml", "sheet", name):
        root = _part(package, part, name)
        rows = () if root is None else root.iter("{*}row")
        sections += by_rows((_cells(row, shared, dates) for row in rows), sheet)
    return _core_title(package, name), sections


MOST_COLUMNS = 16_384


def _cells(row: etree._Element, shared: list[str], dates: Collection[int]) -> list[str]:
    """The contents of a row's cells, each at the index of its column."""
    cells: list[str] = []
    for cell in row.iterchildren("{*}c"):
        column = 0
        for letter in _attribute(cell, "r").rstrip("0123456789").upper()[:3]:
            column = column * 26 + ord(letter) - 64
        cells += [""] * (min(column, MOST_COLUMNS) - 1 - len(cells))
        text = _join_texts(cell) if _attribute(cell, "t") == "inlineStr" else ""
        value = text or next((e.text or "" for e in cell if _tag(e) == "v"), "")
        if _attribute(cell, "t") == "s" and value.isdecimal() and int(value) < len(shared):
            value = shared[int(value)]
        elif _attribute(cell, "t") in ("", "n") and int(_attribute(cell, "s") or 0) in dates:
            value = _day(value)
        cells.append(value)
    return cells


def _join_texts(element: etree._Element) -> str:
    spoken = {t for sounds in element.iter("{*}rPh") for t in sounds.iter("{*}t")}
    texts = (t for t in element.iter("{*}t") if t not in spoken)
    return "".join(t.text or "" for t in texts)


_DATE_FORMATS = {*range(14, 23), *range(45, 48)}
"""ids of the built-in formats of dates and times"""
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')


def _date_styles(styles: etree._Element | None) -> set[int]:
    """The cell styles that show a number as a date."""
    if styles is None:
        return set()
    own = {
        int(_attribute(e, "numFmtId"))
        for e in styles.iter("{*}numFmt")
        if re.search("[ymdh]", _QUOTED.sub("", _attribute(e, "formatCode")), re.IGNORECASE)
    }
    formats = styles.find("{*}cellXfs")
    styled = [] if formats is None else [int(_attribute(e, "numFmtId") or 0) for e in formats]
    return {place for place, number in enumerate(styled) if number in _DATE_FORMATS | own}


def _day(serial: str) -> str:
    """The date of days since 1899-12-30, with the time if there is one."""
    try:
        moment = datetime(1899, 12, 30) + timedelta(seconds=round(float(serial) * 86_400))
    except (ValueError, OverflowError):
        return serial
    return moment.isoformat(" ").removesuffix(" 00:00:00")


MOST_NAMED = 200
"""most columns of a table whose cells are given with their names"""


def by_rows(rows: Iterable[Sequence[str]], name: str = "") -> list[Section]:
    """The rows of a table, some in each section, each cell with its column's name.

    The first non-empty row names the columns. `name`: of the table, "" for none.
    """
    told = ((n, [" ".join(cell.split()) for cell in row]) for n, row in enumerate(rows, start=1))
    filled = [(number, row) for number, row in told if any(row)]
    if not filled:
        return []
    # Beside long names, or many, what a table says would be lost among them.
    heads = [head[:LONGEST_NAME] for head in filled[0][1][:MOST_NAMED]]
    cells = ((number, zip_longest(heads, row, fillvalue="")) for number, row in filled[1:])
    lines = [(n, " | ".join(f"{h}: {c}" if h else c for h, c in row if c)) for n, row in cells]
    lines = lines or [(filled[0][0], " | ".join(filter(None, filled[0][1])))]
    sections = []
    for start in range(0, len(lines), _LINES_EACH):
        part = lines[start : start + _LINES_EACH]
        heading = " > ".join(filter(None, (name, f"rows {part[0][0]}-{part[-1][0]}")))
        sections.append(Section(heading, "\n".join(line for _, line in part)))
    return sections


def _read_csv(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    try:
        dialect: Any = csv.Sniffer().sniff(text[:10_000], ",;\t|")
    except csv.Error:
        dialect = "excel"
    return Document(path.stem, tuple(by_rows(csv.reader(StringIO(text), dialect))), note)


def _of_book(package: ZipFile, name: str) -> tuple[str, list[Section]]:
    """The chapters of an EPUB, in the order of its spine."""
    container = _part(package, "META-INF/container.xml", name)
    roots = [] if container is None else list(container.iter("{*}rootfile"))
    opf = _attribute(roots[0], "full-path") if roots else ""
    if (root := _part(package, opf, name)) is None:
        raise SourceError(f"{name} names no book.", "Save it again as epub.")
    files = {_attribute(e, "id"): _attribute(e, "href") for e in root.iter("{*}item")}
    sections: list[Section] = []
    for each in root.iter("{*}itemref"):
        href = unquote(files.get(_attribute(each, "idref"), "").partition("#")[0])
        part = posixpath.normpath(posixpath.join(posixpath.dirname(opf), href))
        if href and part in package.NameToInfo:
            title, lines = html_lines(html_tree(decode(_unpack(package, part, name))[0]))
            told = by_heading(lines)
            sections += (s if s.heading else replace(s, heading=title) for s in told)
    return next((e.text or "" for e in root.iter("{*}title")), "").strip(), sections


class _Styles:
    """The heading level of a paragraph style, or that it is the title's."""

    TITLE = -1

    def __init__(self, styles: etree._Element | None) -> None:
        found = [] if styles is None else [e for e in styles if _tag(e) == "style"]
        self._by_id = {_attribute(style, "styleId"): style for style in found}
        self._levels: dict[str, int] = {}

    def level(self, style_id: str) -> int:
        """1 and up for headings, 0 for text, `TITLE` for the document's title."""
        level: int | None = None
        chain: list[str] = []
        while level is None and style_id not in self._levels:
            style = self._by_id.get(style_id)
            level = 0 if style is None else self._own(style)
            # Known before it is found out: a style may be based on itself.
            self._levels[style_id] = 0
            chain.append(style_id)
            style_id = "" if style is None else _value(style, "basedOn")
        found = self._levels[style_id] if level is None else level
        self._levels |= dict.fromkeys(chain, found)
        return found

    @classmethod
    def _own(cls, style: etree._Element) -> int | None:
        """The level set by the style itself; None if it leaves that to its base style."""
        name = _value(style, "name").casefold()
        if name == "title":
            return cls.TITLE
        head, _, number = name.rpartition(" ")
        if head == "heading" and _NUMBER.fullmatch(number):
            return int(number)
        return _outline(style) or None


def _blocks(parent: etree._Element, styles: _Styles) -> Iterator[Line]:
    for element in parent:
        tag = _tag(element)
        if tag == "p":
            yield from _paragraph(element, styles)
        elif tag == "tbl":
            own = (r for r in element.iter("{*}tr") if next(r.iterancestors("{*}tbl")) is element)
            rows = [[e for e in row if _tag(e) in ("tc", "sdt")] for row in own]
            cells = [[" ".join(_text(cell).split()) for cell in row] for row in rows]
            yield from ((0, line) for line in ("", *map(" | ".join, filter(any, cells)), ""))
        elif tag in _INNER or tag == "body":
            yield from _blocks(element, styles)


def _paragraph(element: etree._Element, styles: _Styles) -> Iterator[Line]:
    text = _text(element).strip()
    layout = next((e for e in element if _tag(e) == "pPr"), None)
    level = 0
    if layout is not None:
        level = _outline(element) or styles.level(_value(layout, "pStyle"))
    if level and text:
        yield level, " ".join(text.split())
    elif text:
        listed = layout is not None and any(_tag(e) == "numPr" for e in layout)
        yield from ((0, line) for line in (f"- {text}" if listed else text).splitlines())
        yield 0, ""


def _text(element: etree._Element) -> str:
    tag = _tag(element)
    if tag == "t":
        return element.text or ""
    if tag in _NO_TEXT:
        return ""
    inner = "".join(_text(child) for child in element)
    return _MARKS.get(tag, f"{inner}\n" if tag == "p" else inner)


def _outline(element: etree._Element) -> int:
    """The heading level set by the element's own formatting, or 0."""
    for layout in element:
        if _tag(layout) == "pPr" and _NUMBER.fullmatch(level := _value(layout, "outlineLvl")):
            return int(level) + 1 if int(level) < _BODY_TEXT else 0
    return 0


def _tag(element: etree._Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _attribute(element: etree._Element, name: str) -> str:
    attributes = ((str(key), str(value)) for key, value in element.attrib.items())
    return next((value for key, value in attributes if etree.QName(key).localname == name), "")


def _value(parent: etree._Element, name: str) -> str:
    """The `val` of the child called `name`, or ""."""
    return next((_attribute(e, "val") for e in parent if _tag(e) == name), "")


LONGEST = 120
"""characters of the first warning; it may quote the document"""


class _Overhearing(logging.Handler):
    """Keeps what is logged in one thread: others may be reading other documents."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


@contextmanager
def overheard(library: str) -> Iterator[list[str]]:
    """The warnings that a library logs in this thread; from now on they go nowhere else."""
    logger, hearing = logging.getLogger(library), _Overhearing()
    logger.propagate = False
    logger.addHandler(hearing)
    try:
        yield hearing.lines
    finally:
        logger.removeHandler(hearing)


def complaint(lines: list[str]) -> str:
    """The warnings in a few words; "" if there were none."""
    if not lines:
        return ""
    faults = "1 fault" if len(lines) == 1 else f"{len(lines)} faults, the first"
    return f"damaged, with {faults}: {one_line(lines[0], LONGEST).rstrip('.')}"


READERS: dict[str, Callable[[Path], Document]] = {
    ".md": _headings_reader(markdown_sections),
    ".markdown": _headings_reader(markdown_sections),
    ".rst": _headings_reader(rst_sections),
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": Document.read,
    ".docx": _package_reader(_of_word),
    ".pptx": _package_reader(_of_slides),
    ".xlsx": _package_reader(_of_sheets),
    ".epub": _package_reader(_of_book),
    ".csv": _read_csv,
}
"""The supported suffixes, in lower case."""


MAX_WORDS = 110
MOST_CHARACTERS = 4000
"""of a passage"""
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
# Each begins with a mark, which a search finds sooner than white space behind one.
_SENTENCE_END = re.compile(
    r"[.!?]\s+(?=[\"'(A-Z0-9`*\u00c0-\u00de\u0391-\u03a9\u0401-\u042f])"
    r"|[\u061f\u06d4\u0964.!]\s+(?=[\u0590-\u1fff])|[\u3002\uff01\uff1f]"
)
_LAID_OUT = re.compile(r"^[^\S\n]*+(?:[-*>|#]|\d+[.)]\s|\w+\s*:)|^[^\S\n]{2}", re.MULTILINE)
"""Lists, tables, code and fields, whose line breaks matter."""


MOST_TERM = 12
"""words of an entry's term that is repeated before later parts of the entry"""
_RULE = re.compile(r"[-=~^]{3,}\s*$")


def split_passages(text: str, max_words: int = MAX_WORDS, most: int = sys.maxsize) -> list[str]:
    """The first `most` pieces of the text in order, each of at most `max_words` words, none empty.

    None is longer than `MOST_CHARACTERS` either: a word can be as long as its page. A piece that
    begins within an entry (a term, and its meaning indented below) begins with the term, and none
    ends with a term alone: nowhere else does a page say what an option does.
    """
    passages: list[str] = []
    passage, size = "", 0
    for joint, piece, term in _short_pieces(text, max_words):
        count = length(piece)
        long = len(passage) + len(joint) + len(piece) > MOST_CHARACTERS
        if passage and (long or size + count > max_words):
            passages.append(passage.strip("\n"))
            passage, size = "", 0
            if len(passages) == most:
                return passages
        if not passage and term and count + length(term) <= max_words:
            piece, count = f"{term}\n{piece}", count + length(term)
        if count:
            passage = passage + joint + piece if passage else piece
            size += count
    return [*passages, passage.strip("\n")] if passage.strip() else passages


Piece = tuple[str, str, str]
"""separator from the preceding piece, the piece, and the term of the entry that it continues"""


def _short_pieces(text: str, max_words: int) -> Iterator[Piece]:
    for joint, piece, term in _small_pieces(text, max_words):
        for at in range(0, len(piece) or 1, MOST_CHARACTERS):
            yield joint if not at else "", piece[at : at + MOST_CHARACTERS], term


_LONG_WORD = 32
"""characters; few texts have that many per word"""


def _is_longer(text: str, words: int) -> bool:
    """Whether a text has more than so many words, as counted by `length`.

    Of an endless text mostly only the beginning is looked at.
    """
    near = _LONG_WORD * words
    return length(text[:near]) > words or (len(text) > near and length(text) > words)


def _small_pieces(text: str, max_words: int) -> Iterator[Piece]:
    """The pieces of a text, none longer than `max_words`."""
    term = ""
    for paragraph in _PARAGRAPH_END.split(text):
        paragraph = paragraph.strip("\n").rstrip()
        if not _is_longer(paragraph, max_words):
            yield "\n\n", paragraph, term if paragraph[:1].isspace() else ""
            term = [(term, ""), *_by_term(paragraph.splitlines(), term)][-1][0]
            continue
        prose = not _LAID_OUT.search(paragraph)
        joint = "\n\n"
        lines = [paragraph.strip()] if prose else paragraph.splitlines()
        for own, line in [*_by_term(lines, term)]:
            lead = f"{own}\n" if own and line.startswith(f"{own}\n") else ""
            led, room = line[len(lead) :], max_words - length(own)
            for sentence in _sentences(led) if _is_longer(led, room) else [led]:
                for piece in _cut(sentence, room, folded=prose):
                    yield joint, lead + piece, "" if lead else own
                    joint, lead = "" if "\u2e80" <= piece[-1:] <= "\uffef" else " ", ""
            joint, term = "\n", own


def _by_term(lines: Sequence[str], before: str) -> Iterator[tuple[str, str]]:
    """Each line with the term of its entry; the first line of an entry follows its term.

    `before`: the term of the entry that the preceding lines end in. A term is the lines at the
    margin before an indented one; "" if it is long, and for a line in no entry.
    """
    term, held = before, list[str]()
    for line in lines:
        if not line[:1].isspace():
            held.append(line)
            continue
        if held:
            at = max((n for n, each in enumerate(held, 1) if _RULE.match(each)), default=0)
            yield from (("", each) for each in held[:at])
            term = "\n".join(held[at:])
            if length(term) > MOST_TERM:
                yield from (("", each) for each in held[at:])
                term = ""
            line, held = f"{term}\n{line}" if term else line, []
        yield term, line
    yield from (("", each) for each in held)


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start() + 1]
        start = end.end()
    yield text[start:]


def _cut(sentence: str, max_words: int, *, folded: bool) -> Iterator[str]:
    """The parts of a sentence; an endless one (a table, a log, a list of names) is cut by words."""
    if not _is_longer(sentence, max_words):
        yield _SPACE.sub(" ", sentence) if folded else sentence
        return
    at = 0  # what is left is not copied for each piece: that would take the square of its length
    while piece := beginning(sentence, max_words, at):
        yield " ".join(piece.split())
        at += len(piece)
