"""Figures on which sources differ: said before the answer, since a reader cannot see it in one.

A rule of words and numbers alone. The sentence that a claim stands on is held against the
sentences of all other sources that were found, cited or not. Two sentences differ when they
share most of their words and name the same years, and give different numbers before the same
word, each the only one there. Numbers are the same as far as the coarser of the two goes: 12 and
12.4 do not differ. It finds what is plainly about the same thing, and says nothing of the rest.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from agent.overlap import content_words, sentences
from agent.reports.cited import CitedAnswer
from agent.reports.printable import one_line
from agent.sources.words import STOP_WORDS
from memory.schema import Source, Trajectory

ALIKE = 0.7
"""share of the words of both sentences that they have in common"""
LEAST_WORDS = 4
"""in common, without the numbers"""
LONGEST = 40
"""words of a sentence; a longer one says more than one thing"""
MOST = 3
"""conflicts told"""
QUOTED = 160
"""characters of each sentence told"""

_FIGURE = re.compile(
    r"(?<![\w.,%/-])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?)(?:\s?(%)|\s([^\W\d_]{2,}))?(?!\w)"
)
_TABLE = re.compile(r"\S(?: {2,}|\t)\S|\n\s*\n")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sources that give different figures for the same thing, as they put it."""

    source: Source
    says: str
    other: Source
    but: str


@dataclass(frozen=True, slots=True)
class _Statement:
    words: frozenset[str]
    years: frozenset[str]
    figures: dict[str, Decimal]
    """the word after each number -> the number, where there is one number for it"""

    def differs(self, other: "_Statement") -> bool:
        common = self.words & other.words
        if len(common) < LEAST_WORDS or len(common) < ALIKE * len(self.words | other.words):
            return False
        units = self.figures.keys() & other.figures.keys()
        return self.years == other.years and any(
            _differ(self.figures[unit], other.figures[unit]) for unit in units
        )


def conflicts(trajectory: Trajectory, answer: CitedAnswer) -> tuple[Conflict, ...]:
    """What the sources of the answer's claims say otherwise than others that were found."""
    stated = [
        (source, sentence, statement)
        for source in trajectory.sources
        for sentence in sentences(source.text)
        if (statement := _statement(sentence)).figures
    ]
    found = {
        frozenset((citation.quote, sentence)): Conflict(
            citation.source, citation.quote, other, sentence
        )
        for citation in answer.citations
        for said in (_statement(citation.quote),)
        for other, sentence, statement in stated
        if other.location != citation.source.location and said.differs(statement)
    }
    return tuple(found.values())[:MOST]


def told(trajectory: Trajectory, answer: CitedAnswer) -> Iterator[str]:
    """A sentence for each conflict; what it quotes is untrusted."""
    numbers = {citation.id: citation.number for citation in answer.citations}
    for conflict in conflicts(trajectory, answer):
        first, second = (
            f"[{numbers[source.id]}]" if source.id in numbers else one_line(source.location, 100)
            for source in (conflict.source, conflict.other)
        )
        yield (
            f'Figures differ: {first} says "{one_line(conflict.says, QUOTED)}", '
            f'{second} says "{one_line(conflict.but, QUOTED)}"'
        )


def _statement(sentence: str) -> _Statement:
    figures: dict[str, Decimal] = {}
    twice: set[str] = set()
    years: set[str] = set()
    prose = "" if _TABLE.search(sentence) or len(sentence.split()) > LONGEST else sentence
    for number, percent, word in _FIGURE.findall(prose):
        unit = percent or word
        if _YEAR.fullmatch(number):
            years.add(number)
        elif unit and unit.casefold() not in STOP_WORDS:
            key = unit.casefold().removesuffix("s")
            twice |= {key} & figures.keys()
            figures[key] = _value(number)
    words = frozenset(word for word in content_words(sentence) if not _DIGIT.search(word))
    return _Statement(words, frozenset(years), {u: n for u, n in figures.items() if u not in twice})


def _value(number: str) -> Decimal:
    """`1,200` is in thousands, `1,5` is a decimal."""
    thousands = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number)
    return Decimal(number.replace(",", "" if thousands else "."))


def _differ(left: Decimal, right: Decimal) -> bool:
    """Whether two numbers differ by more than the coarser of them was rounded by."""
    coarser = max(int(left.as_tuple().exponent), int(right.as_tuple().exponent))
    return abs(left - right) > Decimal(5).scaleb(coarser - 1)
