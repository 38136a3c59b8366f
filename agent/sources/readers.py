"""Reading documents: Markdown, plain text, reStructuredText, HTML, PDF and Word (docx).

Each reader gives sections, a place and the text under it: headings where there are any, pages
of a PDF, lines of a plain text. A document that cannot be read raises SourceError with what
to do; one that had to be guessed at (its encoding) is read, and says so in a note.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent.sources.docx_text import docx_lines
from agent.sources.html_text import Line, html_lines
from agent.sources.overheard import complaint, overheard
from memory.errors import SourceError

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_ATX = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_BADGE = re.compile(r"\[?!\[[^\]]*\]\([^)]*\)(?:\]\([^)]*\))?|<!--.*?-->|</?\w[^>]*>", re.DOTALL)
_LINES_EACH = 40


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


def read_document(path: Path) -> Document:
    """Read a file by its suffix. Raises SourceError, with the remedy, where it cannot."""
    reader = READERS[path.suffix.lower()]
    try:
        return reader(path)
    except SourceError:
        raise
    except Exception as cause:
        raise SourceError(
            f"{path.name} could not be read: {type(cause).__name__}: {cause}.",
            "Check that it opens elsewhere, and save it anew or take it out.",
        ) from cause


def decode(content: bytes) -> tuple[str, str]:
    """(text, note): UTF-8 with or without a mark, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, "" if encoding == "utf-8-sig" else "not UTF-8: read as Windows-1252"
    return content.decode("latin-1"), "not UTF-8: read as Latin-1"


def _read_markdown(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    return _titled(path, markdown_sections(text), note)


def _read_rst(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    return _titled(path, rst_sections(text), note)


def _titled(path: Path, sections: list[Section], note: str) -> Document:
    title = next((s.heading for s in sections if s.heading), path.stem)
    return Document(title.partition(" > ")[0], tuple(sections), note)


def markdown_sections(text: str) -> list[Section]:
    """Sections by heading, each named by its headings from the outermost in."""
    return by_heading(_markdown_lines(text))


def rst_sections(text: str) -> list[Section]:
    """Sections by underlined heading; a kind of underline is a level where first met."""
    return by_heading(_rst_lines(text))


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

    for level, line in lines:
        if level:
            close()
            path = [(upper, name) for upper, name in path if upper < level]
            path.append((level, line))
        else:
            body.append(line)
    close()
    return sections


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
            yield len(heading[1]), _BADGE.sub("", heading[2]).strip()
        elif line.strip() and re.match(r"^(=+|-{3,})\s*$", below) and not line.startswith("|"):
            yield (1 if below[0] == "=" else 2), line.strip()
        elif not (re.match(r"^(=+|-{3,})\s*$", line) and i and lines[i - 1].strip()):
            yield 0, _BADGE.sub("", line)


def _rst_lines(text: str) -> Iterator[Line]:
    levels: list[str] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if _is_underlined(line, below):
            if below[0] not in levels:
                levels.append(below[0])
            yield levels.index(below[0]) + 1, line.strip()
        elif not _UNDERLINE.match(line):
            yield 0, line


def _is_underlined(line: str, below: str) -> bool:
    under = _UNDERLINE.match(below)
    titled = bool(line.strip()) and not _UNDERLINE.match(line)
    return bool(under) and titled and len(below.rstrip()) >= len(line.strip())


def _read_text(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    lines = text.splitlines()
    sections = [
        Section(f"lines {start + 1}-{min(start + _LINES_EACH, len(lines))}", body)
        for start in range(0, len(lines), _LINES_EACH)
        if (body := "\n".join(lines[start : start + _LINES_EACH]).strip("\n")).strip()
    ]
    return Document(path.stem, tuple(sections), note)


def _read_html(path: Path) -> Document:
    text, note = decode(path.read_bytes())
    title, lines = html_lines(text)
    document = _titled(path, by_heading(lines), note)
    return Document(title or document.title, document.sections, note)


def _read_docx(path: Path) -> Document:
    title, lines = docx_lines(path)
    document = _titled(path, by_heading(lines), "")
    return Document(title or document.title, document.sections)


def _read_pdf(path: Path) -> Document:
    with path.open("rb") as file:
        return pdf_document(file, path.name)


def pdf_document(
    file: BinaryIO,
    name: str,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Document:
    """The pages of a PDF; after so many seconds those read so far, with a note that says so.

    What pypdf passed over is part of the note. Raises SourceError where it is encrypted or has
    no text.
    """
    with overheard("pypdf") as faults:
        document = _pdf(file, name, seconds, clock)
    note = "; ".join(filter(None, (document.note, complaint(faults))))
    return Document(document.title, document.sections, note)


def _pdf(file: BinaryIO, name: str, seconds: float, clock: Callable[[], float]) -> Document:
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise SourceError(
            f"{name} is encrypted.", "Save a copy of it that opens without a password."
        )
    until = clock() + seconds
    pages = [page.extract_text() for page in reader.pages if clock() < until]
    title = str(reader.metadata.title or "") if reader.metadata else ""
    sections = tuple(Section(f"page {n}", text) for n, text in enumerate(pages, 1) if text.strip())
    whole = len(reader.pages)
    if not sections and len(pages) < whole:
        raise SourceError(f"{name} takes too long to read.", "Name a shorter document.")
    if not sections:
        raise SourceError(
            f"{name} has no text in its {len(pages)} pages.",
            "It was probably scanned: run text recognition on it first.",
        )
    note = f"read in part: {len(pages)} of {whole} pages" if len(pages) < whole else ""
    return Document(title.strip() or Path(name).stem, sections, note)


READERS: dict[str, Callable[[Path], Document]] = {
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".rst": _read_rst,
    ".txt": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
    ".docx": _read_docx,
}
"""The suffixes that are read, in lower case."""
