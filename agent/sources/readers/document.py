"""What a file says: sections with their heading path, of blocks with their place.

From it the passages that are ranked are made, the whole sections that a strong model reads, and the
quotes of a report: all of the same text.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from itertools import groupby
from pathlib import PurePath
from typing import BinaryIO

from rubricem.agent.sources.readers.encoding import decode, names_of
from rubricem.memory.text import one_line

DEEPEST = 9
"""levels of headings; deeper ones count as the last, since each section names all above it"""
LONGEST_NAME = 200
"""characters of a title or heading"""
LINES_EACH = 40
"""of a text or a table without headings, in one block"""


class BlockKind(StrEnum):
    PARAGRAPH = "paragraph"
    LIST = "list"
    TABLE = "table"
    CODE = "code"
    FORMULA = "formula"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a section as a person reads it; of a table each line is a row."""

    kind: BlockKind
    text: str
    place: str = ""
    """where in the file, where no heading says it: "page 3", "rows 2-41" or "lines 1-40"."""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading, whose path names the headings from the outermost in."""

    path: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def heading(self) -> str:
        """The path, with the place of the blocks where all have the same."""
        places = {block.place for block in self.blocks}
        return " > ".join(filter(None, (*self.path, places.pop() if len(places) == 1 else "")))

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file, and a note on how it was read."""

    title: str
    sections: tuple[Section, ...]
    note: str = ""
    """what is to be said of the reading, as it follows "NAME is ", such as "read in part"."""

    @classmethod
    def of(
        cls, given: "Input", sections: Sequence[Section], title: str = "", note: str = ""
    ) -> "Document":
        """One with its own title or, without one, its first heading or the file's name."""
        return cls(title_of(sections, given.stem, title), tuple(sections), note)


@dataclass(frozen=True, slots=True)
class Input:
    """A file to read, from the disk, an archive, a mail or the web."""

    name: str
    """of the file, with its suffix"""
    file: BinaryIO
    """open for reading, seekable"""
    declared: str = ""
    """the content type that its carrier declares, possibly with a charset"""
    seconds: float = math.inf
    """of processor time that the reading may take where it can stop in between"""
    get_on: Callable[[], None] = lambda: None
    """called after each step of a long reading"""

    @classmethod
    def of_bytes(cls, name: str, content: bytes, declared: str = "") -> "Input":
        return cls(name, BytesIO(content), declared)

    @property
    def stem(self) -> str:
        return PurePath(self.name).stem

    @property
    def suffix(self) -> str:
        """In lower case, with its dot."""
        return PurePath(self.name).suffix.lower()

    def content(self) -> bytes:
        self.file.seek(0)
        return self.file.read()

    def text(self) -> tuple[str, str]:
        """(the text, a note on its encoding), as of `decode`."""
        return decode(self.content(), self.declared)


class Outline:
    """Collects blocks under headings, in the order of the document."""

    def __init__(self) -> None:
        self._sections: list[Section] = []
        self._path: list[tuple[int, str]] = []
        self._blocks: list[Block] = []
        self._alone = False
        """whether nothing stands under the last heading yet, which has to be told then"""

    def head(self, level: int, name: str, *, told: bool = False) -> None:
        """A heading begins; `level`: 1 is the outermost. `told`: also if nothing is under it."""
        level = min(level, DEEPEST)
        self._close(level)
        self._alone = told
        self._path = [(upper, name) for upper, name in self._path if upper < level]
        self._path.append((level, one_line(name, LONGEST_NAME)))

    def add(self, kind: BlockKind, text: str, place: str = "") -> None:
        """A block, unless it is empty."""
        if text.strip():
            self._blocks.append(Block(kind, text.strip("\n"), place))

    def extend(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.add(block.kind, block.text, block.place)

    def sections(self) -> tuple[Section, ...]:
        self._close()
        return tuple(self._sections)

    def _close(self, level: int = 0) -> None:
        """A section ends before a heading of this level, or before what has none."""
        path = tuple(name for _, name in self._path)
        if self._alone and not self._blocks and level <= self._path[-1][0]:
            self.add(BlockKind.PARAGRAPH, path[-1])
        self._alone = False
        if self._blocks:
            # A table or a text that is told in parts has a section for each, so that each is named.
            for _, part in groupby(self._blocks, lambda block: block.place):
                self._sections.append(Section(path, tuple(part)))
            self._blocks = []


def left_out(names: Sequence[str]) -> str:
    """A note that some of what is held is not read, the first three by name; "" if all is."""
    more = f" and {len(names) - 3} more" * (len(names) > 3)
    return f"read in part: not {', '.join(names[:3])}{more}" if names else ""


_WRITERS = re.compile("|".join(names_of("titles")["of_programs"]), re.I)
"""titles that a program gives, or that name a file: they say nothing of what is in it"""


def title_of(sections: Iterable[Section], stem: str, title: str = "") -> str:
    """The title that a document has or, without one, its first heading or the file's name."""
    title = "" if _WRITERS.fullmatch(title.strip()) else title.strip()
    first = next((section.path[0] for section in sections if section.path), stem)
    return one_line(title or first, LONGEST_NAME)
