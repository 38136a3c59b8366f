"""Reading documents: Markdown, plain text, reStructuredText, HTML, PDF and Word (docx).

Each reader gives sections, a place and the text under it: headings where there are any, pages
of a PDF, lines of a plain text. A document that cannot be read raises SourceError with what
to do; one that had to be guessed at (its encoding) is read, and says so in a note.

Of HTML, what surrounds the text (navigation, header, footer, forms, scripts) is left out. White
space outside `pre` is folded, and block elements stand on lines of their own.

Word is read from the package's own XML (ECMA-376, WordprocessingML): content controls, tables,
text boxes, footnotes and accepted insertions count as text, deleted text does not. A heading is
a paragraph whose style, or a style that it is based on, is called "heading N" or has an outline
level. Names are matched without their namespace, of which the standard has two. (mammoth knows
neither outline levels nor styles based on others, and takes ten times as long.)

A passage is at most MAX_WORDS words, cut between paragraphs, else between lines, else between
sentences, so that what is quoted can be read by itself.

What pypdf logs while it reads is the document's note, not lines on a terminal.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self
from zipfile import BadZipFile, ZipFile

from lxml import etree, html

from rubricem.memory.errors import SourceError
from rubricem.memory.text import one_line

Line = tuple[int, str]
"""(level of the heading that the line is, 0 for text; the line)"""


@dataclass(frozen=True, slots=True)
class Section:
    """A place in a document (heading, page or lines) and the text found there."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says: its title, its sections in order, and a note on how it was read."""

    title: str
    sections: tuple[Section, ...]
    note: str = ""

    @staticmethod
    def read(
        path: Path, seconds: float = math.inf, get_on: Callable[[], None] = lambda: None
    ) -> "Document":
        """Read a file by its suffix. Raises SourceError, with the remedy, where it cannot.

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
                "Check that it opens elsewhere, and save it anew or take it out.",
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
        """The pages of a PDF; after so many seconds those read so far, with a note that says so.

        `get_on` is called before each page.
        What pypdf passed over is part of the note. Raises SourceError where it is encrypted or has
        no text.
        """
        from pypdf import PdfReader

        with overheard("pypdf") as faults:
            reader = PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise SourceError(
                    f"{name} is encrypted.", "Save a copy of it that opens without a password."
                )
            until = clock() + seconds
            pages = []
            for page in reader.pages:
                if clock() >= until:
                    break
                get_on()
                pages.append(page.extract_text())
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
"""levels of headings; those below count as the last, since each section names all above it"""
LONGEST_NAME = 200
"""characters of a title or heading"""


def by_heading(lines: Iterable[Line]) -> list[Section]:
    """The lines gathered under their headings, each section named from the outermost in."""
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


def _titled(path: Path, sections: list[Section], note: str, title: str = "") -> Document:
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
"""characters of a line of Markdown in which badges are looked for: no person wrote a longer one"""
_LINES_EACH = 40


def _headed(sections_of: Callable[[str], list[Section]]) -> Callable[[Path], Document]:
    """The reader of a text whose headings `sections_of` knows."""

    def read(path: Path) -> Document:
        text, note = decode(path.read_bytes())
        return _titled(path, sections_of(text), note)

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
    """Sections by underlined heading; a kind of underline is a level where first met."""
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
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINES = frozenset({"br", "li", "tr", "td", "th"})
_PARAGRAPHS = "p pre blockquote figcaption caption div section article main hr"
_GAPS = dict.fromkeys(_LINES, ("\n", "\n")) | dict.fromkeys(_PARAGRAPHS.split(), ("\n\n", "\n\n"))
# A term and what it means stay one paragraph, laid out as such.
_GAPS |= {"dt": ("\n\n", ""), "dd": ("\n    ", "\n\n")}
"""what stands before and after a block"""
_MARK = "\ue000"
"""Before a heading's level and text; a private character that no page has a use for."""
_MARKED = re.compile(f"{_MARK}([1-6])(.*)")


def html_tree(text: str) -> html.HtmlElement | None:
    """The document, without its comments; None where there is none.

    Broken HTML is read as browsers would.
    """
    # lxml refuses a text that declares an encoding, as it is decoded already.
    text = re.sub(r"^\s*<\?xml[^>]*>", "", text).replace("\0", "")
    if not text.strip():
        return None
    parser = html.HTMLParser(no_network=True, remove_comments=True, remove_pis=True)
    return html.document_fromstring(text, parser=parser)


def empty(elements: Iterable[html.HtmlElement]) -> None:
    """Leave nothing of the elements but their place.

    Each taken out would move what follows it behind what stands before, which costs the square of
    a page that is made of nothing else.
    """
    for element in elements:
        element.clear(keep_tail=True)
        element.tag = "span"


def html_lines(tree: html.HtmlElement | None) -> tuple[str, list[Line]]:
    """(the page's title or "", its lines); the tree is used up."""
    if tree is None:
        return "", []
    title = " ".join((tree.findtext(".//title") or "").split())
    body = tree.find("body")
    root = tree if body is None else body
    empty(root.xpath(_LEFT_OUT))
    _lay_out(root)
    lines = str(root.text_content()).splitlines()
    marked = ((_MARKED.match(line), line) for line in lines)
    return title, [(int(m[1]), m[2]) if m else (0, line.rstrip()) for m, line in marked]


# What XML cannot hold, though a page may: lxml reads it, and refuses to have it set again.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _writable(text: str, *, folded: bool) -> str:
    return _UNWRITABLE.sub("", re.sub(r"\s+", " ", text) if folded else text)


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
    """Nothing before the first paragraph of a definition, one line between terms of one."""
    above = element.getparent()
    if element.tag == "dt" and (earlier := element.getprevious()) is not None:
        return "\n" if earlier.tag == "dt" else usual
    while element.tag in ("p", "div") and above is not None and element.getprevious() is None:
        if (above.text or "").strip():
            break
        if above.tag == "dd":
            return ""
        element, above = above, above.getparent()
    return usual


def _read_html(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    title, lines = html_lines(html_tree(text))
    return _titled(path, by_heading(lines), note, title)


MOST_BYTES = 100_000_000
"""of one part, unpacked: a small file may unpack to more than memory holds"""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""how a file begins that Word keeps in its older container: .doc, and docx with a password"""
_BODY_TEXT = 9
"""outline levels below are headings"""
_NUMBER = re.compile("[0-9]{1,3}")
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "footnote"})
_NO_TEXT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def _read_docx(path: Path) -> Document:
    with path.open("rb") as file:
        if file.read(4) == _OLD_OR_ENCRYPTED:
            raise SourceError(
                f"{path.name} is encrypted, or an old doc file by another name.",
                "Save a copy of it as docx without a password.",
            )
    try:
        with ZipFile(path) as package:
            title, lines = _titled_lines(package, path.name)
    except BadZipFile as cause:
        raise SourceError(
            f"{path.name} is no docx file.", "Open it in a word processor and save it as docx."
        ) from cause
    return _titled(path, by_heading(lines), "", title)


def _titled_lines(package: ZipFile, name: str) -> tuple[str, list[Line]]:
    """(the document's title or "", its lines)."""
    document = _part(package, "word/document.xml", name)
    if document is None:
        raise SourceError(f"{name} holds no document.", "Save it anew as docx.")
    styles = _Styles(_part(package, "word/styles.xml", name))
    blocks = list(_blocks(document, styles))
    title = next((line for level, line in blocks if level == _Styles.TITLE), "")
    lines = [(level, line) for level, line in blocks if level != _Styles.TITLE]
    notes = _part(package, "word/footnotes.xml", name)
    told = [] if notes is None else [line for line in _blocks(notes, styles) if line[1].strip()]
    core = _part(package, "docProps/core.xml", name)
    named = "" if core is None else next((e.text or "" for e in core if _tag(e) == "title"), "")
    return title or named.strip(), [*lines, *([(1, "Footnotes"), *told] if told else [])]


def _part(package: ZipFile, part: str, name: str) -> etree._Element | None:
    """The root element of a part, or None where the package has no such part."""
    if part not in package.namelist():
        return None
    with package.open(part) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise SourceError(
            f"{name} unpacks to more than {MOST_BYTES // 1_000_000} MB.", "Split the document."
        )
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    return etree.fromstring(content, parser)


class _Styles:
    """Which heading level, or the title, a paragraph style stands for."""

    TITLE = -1

    def __init__(self, styles: etree._Element | None) -> None:
        found = [] if styles is None else [e for e in styles if _tag(e) == "style"]
        self._by_id = {_attribute(style, "styleId"): style for style in found}
        self._levels: dict[str, int] = {}

    def level(self, style_id: str) -> int:
        """1 and on for headings, 0 for text, `TITLE` for the document's title."""
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
        """What the style says itself; None where it leaves that to the one it is based on."""
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
    """The heading level that the element's own layout sets, or 0."""
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
"""characters of the first complaint; it may quote the document"""


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
    """The warnings in a few words; "" where there were none."""
    if not lines:
        return ""
    faults = "1 fault" if len(lines) == 1 else f"{len(lines)} faults, the first"
    return f"damaged, with {faults}: {one_line(lines[0], LONGEST).rstrip('.')}"


READERS: dict[str, Callable[[Path], Document]] = {
    ".md": _headed(markdown_sections),
    ".markdown": _headed(markdown_sections),
    ".rst": _headed(rst_sections),
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": Document.read,
    ".docx": _read_docx,
}
"""The suffixes that are read, in lower case."""


MAX_WORDS = 110
MOST_CHARACTERS = 4000
"""of a passage"""
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z0-9`*])")
_LAID_OUT = re.compile(r"^[^\S\n]*+(?:[-*>|#]|\d+[.)]\s|\w+\s*:)|^[^\S\n]{2}", re.MULTILINE)
"""Lists, tables, code and fields, whose line breaks mean something."""


def split_passages(text: str, max_words: int = MAX_WORDS) -> list[str]:
    """Pieces of the text in order, each of at most `max_words` words, none empty.

    None is longer than `MOST_CHARACTERS` either: a word can be as long as its page.
    """
    passages: list[str] = []
    passage, size = "", 0
    for joint, piece in _short_pieces(text, max_words):
        count = len(piece.split())
        long = len(passage) + len(joint) + len(piece) > MOST_CHARACTERS
        if passage and (long or size + count > max_words):
            passages.append(passage.strip("\n"))
            passage, size = "", 0
        if count:
            passage = passage + joint + piece if passage else piece
            size += count
    return [*passages, passage.strip("\n")] if passage.strip() else passages


def _short_pieces(text: str, max_words: int) -> Iterator[tuple[str, str]]:
    for joint, piece in _small_pieces(text, max_words):
        for at in range(0, len(piece) or 1, MOST_CHARACTERS):
            yield joint if not at else "", piece[at : at + MOST_CHARACTERS]


def _small_pieces(text: str, max_words: int) -> Iterator[tuple[str, str]]:
    """(what joins it to the piece before, piece), no piece longer than `max_words`."""
    for paragraph in _PARAGRAPH_END.split(text):
        paragraph = paragraph.strip("\n").rstrip()
        if len(paragraph.split()) <= max_words:
            yield "\n\n", paragraph
            continue
        prose = not _LAID_OUT.search(paragraph)
        joint = "\n\n"
        for line in [" ".join(paragraph.split())] if prose else paragraph.splitlines():
            short = len(line.split()) <= max_words
            for sentence in [line] if short else _SENTENCE_END.split(line):
                parts = sentence.split()
                # A sentence without end (a table, a log, a list of names) is cut by words.
                cuts = range(0, len(parts), max_words) if len(parts) > max_words else ()
                for piece in [" ".join(parts[i : i + max_words]) for i in cuts] or [sentence]:
                    yield joint, piece
                    joint = " "
            joint = "\n"
