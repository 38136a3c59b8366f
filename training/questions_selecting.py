"""Which of the questions that were read are asked: filters, duplicates, a held-out split.

Duplicates are told by their text alone, whatever its spaces, case and compatibility forms (Unicode
NFKC); the first one stands. A question is held out by the hash of that text, so the same one is
held out in every run with the same share, whichever file it came from, and one that is held out
at a share is so at a larger.
"""

import hashlib
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.errors import SettingsError
from training.questions import question_of, read_rows
from training.questions_rows import COLUMN, Row
from training.run_directory import Question
from training.selection import Selection

LENGTH = "length"
"""characters of the question, as filters call it where no column has that name"""
_FILTER = re.compile(r"\s*([^=!<>]+?)\s*(<=|>=|!=|=)\s*(.*?)\s*", re.DOTALL)
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Selected:
    """The questions to ask, those held out, and how many there were of each kind."""

    questions: tuple[Question, ...]
    held_out: tuple[Question, ...] = ()
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field: `level=hard`, `source!=web`, `length<=300`."""

    field: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Filter":
        """Raises SettingsError if the text is no condition."""
        found = _FILTER.fullmatch(text)
        wants_number = found is not None and found[2] in _ORDERS
        if found is None or (wants_number and _number(found[3]) is None):
            raise SettingsError(
                f"The filter {text!r} is no condition on a field.",
                "Write it like level=hard, source!=web or length<=300.",
            )
        return cls(found[1], found[2], found[3])

    def holds(self, row: Row, column: str) -> bool:
        """A row without the field holds no condition but `!=`."""
        known = row.fields.get(self.field)
        if known is None and self.field == LENGTH:
            known = len(str(row.fields.get(column, "")))
        if self.sign in _ORDERS:
            number = _number(known)
            return number is not None and _ORDERS[self.sign](number, float(self.value))
        return (known is not None and self._same(known)) == (self.sign == "=")

    def _same(self, known: object) -> bool:
        wanted, number = _number(self.value), _number(known)
        if wanted is not None and number is not None:
            return wanted == number
        return str(known).casefold() == self.value.casefold()


def select_questions(
    named: str, column: str = COLUMN, filters: Sequence[str] = (), held_out: float = 0.0
) -> Selected:
    """What is asked of the questions named; `held_out` is a share from 0 to below 1.

    Raises SettingsError where something cannot be read, and where nothing is left to ask.
    """
    conditions = [Filter.parse(text) for text in filters]
    rows = read_rows(named, column)
    _check(conditions, rows, named)
    wanted = [row for row in rows if all(c.holds(row, column) for c in conditions)]
    found: dict[str, Question] = {}
    for row in wanted:
        question = question_of(row, column)
        found.setdefault(normal(question.question), question)
    kept = [question for text, question in found.items() if not is_held_out(text, held_out)]
    held = [question for text, question in found.items() if is_held_out(text, held_out)]
    selection = Selection(
        read=len(rows),
        filtered=len(rows) - len(wanted),
        duplicates=len(wanted) - len(found),
        held_out=len(held),
        filters=tuple(filters),
        held_out_share=held_out,
    )
    if not kept:
        raise SettingsError(
            f"No question of {named} is left to ask: {selection.sentence()}.",
            "Filter less, or hold out a smaller share.",
        )
    return Selected(tuple(kept), tuple(held), selection)


def normal(question: str) -> str:
    """The text by which duplicates are told: case, spaces and compatibility forms are the same."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def is_held_out(normal_text: str, share: float) -> bool:
    digest = hashlib.sha256(normal_text.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _check(conditions: Sequence[Filter], rows: Sequence[Row], named: str) -> None:
    """Raises SettingsError for a field that no row has: most likely misspelt."""
    known = {name for row in rows for name in row.fields}
    for condition in conditions:
        if condition.field not in (*known, LENGTH):
            raise SettingsError(
                f"No row of {named} has a field {condition.field!r} to filter by.",
                f"Its fields are {', '.join(sorted(known))}; {LENGTH} is the question's.",
            )


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
