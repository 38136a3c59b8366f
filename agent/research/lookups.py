"""The parts of a question, and what was searched, read and found for each.

The model writes the parts by a grammar, so that its lines are data; a person may edit them, and
then they are read more tolerantly. Code adds no part.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rubricem.agent.research.tuned import TUNED

END = "</think>"
"""by which a small model says that there are no more parts; nothing else ends its lists"""
_ITEM = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]*(\S[^\n]*)", re.MULTILINE)


def read_parts(text: str, question: str) -> tuple[str, ...]:
    """The numbered lines of a text, each once, `TUNED.parts` at most; else the question itself."""
    asked = {" ".join(said.split()).casefold(): said for said in _ITEM.findall(text)}
    parts = [" ".join(said.split()) for said in asked.values()][: TUNED.parts]
    return tuple(parts) or (" ".join(question.split()),)


def parts_grammar(most: int) -> str:
    """A grammar (GBNF) of up to so many numbered questions, behind "1.", and `END` at their end."""
    nested = ""
    for number in range(most, 1, -1):
        line = f'"{number}. " part'
        nested = f"({line} {nested})?" if nested else f"({line})?"
    text, mark = "[^\\n?\uff1f\u061f]", "[?\uff1f\u061f]"
    return f'root ::= " " part {nested} "{END}"\npart ::= [^ \\n?] {text}* {mark} "\\n"\n'


@dataclass(frozen=True, slots=True)
class Finding:
    """What answers a part, or the whole question."""

    text: str
    """a drafted sentence; of an exact answer, a span of one, or yes or no"""
    source: str
    quote: str
    """the sentence of the source that the answer rests on"""
    chance: float
    """that it is right, 0 to 1"""
    near: tuple[tuple[str, str], ...] = ()
    """ids and sentences of sources that are nearly as near, where only a sentence was found"""


@dataclass
class Lookups:
    """The parts, counted from 1, and what was searched, read and found for each."""

    question: str = ""
    parts: tuple[str, ...] = ()
    at: int = 0
    """the part that is being searched; 0: the question itself, which comes first"""
    whole: Finding | None = None
    """the exact answer to the question, for which the parts are only searched"""
    found: dict[int, Finding] = field(default_factory=dict)
    searched: set[int] = field(default_factory=set)
    """the parts for which not only the question was searched"""
    read: dict[int, set[str]] = field(default_factory=dict)
    """ids of the sources that were read"""
    shown: tuple[str, ...] = ()
    """ids of the sources that the last search brought and that were not read for this part"""

    def begin(self, question: str, parts: tuple[str, ...]) -> None:
        """Take up the parts, for each of which the question itself has been searched."""
        self.question, self.parts, self.at, self.whole = question, parts, 0, None
        self.found, self.read, self.searched = {}, {}, set()

    @property
    def numbers(self) -> range:
        return range(1, len(self.parts) + 1)

    def show(self, ids: Iterable[str]) -> None:
        """Note what the search for the present part brought."""
        read = self.read.setdefault(self.at, set())
        most = TUNED.read if self.at else TUNED.read_first
        self.shown = tuple(i for i in dict.fromkeys(ids) if i not in read)[:most]
        read |= {*self.shown}

    @property
    def open(self) -> list[int]:
        """The parts that no answer was found for."""
        settled = self.whole is not None and self.whole.chance >= TUNED.certain
        return [] if settled else [number for number in self.numbers if number not in self.found]

    def left(self, number: int) -> bool:
        """Whether a part may be searched again."""
        return number not in self.searched

    def next(self) -> int | None:
        """The first part that is open and can still be searched."""
        return next(filter(self.left, self.open), None)

    def certain(self, finding: Finding) -> bool:
        """Whether it counts as certain: an exact answer by the null, a draft by the model alone."""
        return finding.chance >= (TUNED.certain if finding is self.whole else TUNED.supported)
