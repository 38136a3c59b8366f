"""Plain text and the markups that are read as they are: Markdown, reStructuredText."""

import re
from collections.abc import Callable, Iterator

from rubricem.agent.sources.readers.document import (
    LINES_EACH,
    BlockKind,
    Document,
    Input,
    Line,
    Outline,
    Section,
    by_heading,
    title_of,
)
from rubricem.agent.sources.readers.encoding import decode

_FENCE = re.compile(r"^\s*(?:```|~~~)")
# Each stops where another of its kind begins: what is never closed is not looked through for each.
_ATX = re.compile(r"^(#{1,6})\s+(.*)$")
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_BADGE = re.compile(
    r"\[?!\[[^\[\]]*+\]\([^()]*+\)(?:\]\([^()]*+\))?|<!--(?>(?:(?!<!--|-->).)*)-->|</?\w[^<>]*+>"
)
LONGEST_LINE = 100_000
"""most characters of a line of Markdown searched for badges: no person wrote a longer one"""


def _headings_reader(
    sections_of: Callable[[str], tuple[Section, ...]],
) -> Callable[[Input], Document]:
    """A reader of text whose headings `sections_of` finds."""

    def read(given: Input) -> Document:
        text, note = decode(given.content())
        sections = sections_of(text)
        return Document(title_of(sections, given.stem), sections, note)

    return read


def markdown_sections(text: str) -> tuple[Section, ...]:
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


def rst_sections(text: str) -> tuple[Section, ...]:
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


def read_text(given: Input) -> Document:
    """Each section names its lines."""
    text, note = decode(given.content())
    lines, outline = text.splitlines(), Outline()
    for start in range(0, len(lines), LINES_EACH):
        body = "\n".join(lines[start : start + LINES_EACH])
        place = f"lines {start + 1}-{min(start + LINES_EACH, len(lines))}"
        outline.add(BlockKind.PARAGRAPH, body, place)
    return Document(given.stem, outline.sections(), note)


READERS: dict[str, Callable[[Input], Document]] = {
    ".md": _headings_reader(markdown_sections),
    ".markdown": _headings_reader(markdown_sections),
    ".rst": _headings_reader(rst_sections),
    ".txt": read_text,
}
