"""Reading questions, choosing which of them are asked, and the steps that ask them.

A file is lines of text, JSONL or Parquet (the extra `data`); `Question` has its columns, and others
are ignored. Duplicates are found by their text, ignoring spaces, case and compatibility forms
(NFKC). A question is held out by the hash of that text: in every run with at least the same share.

A window of a `Curriculum` is K batches of new questions, then the same K batches again: first with
what similar questions taught, then with what they taught themselves (RubricEM, arXiv:2605.10899,
section 3.4 and appendix D, with K = 3). A step's batch follows from its number alone.
"""

import codecs
import hashlib
import json
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rubricem.agent.transcript.question import check_question
from rubricem.judge.checklist import ChecklistItem
from rubricem.memory.errors import SettingsError, boundary, import_extra
from rubricem.memory.schema import AnswerFormat, Value
from rubricem.memory.text import pluralise, storable

T = TypeVar("T")
COLUMN = "question"
KINDS = (".txt", ".jsonl", ".parquet")


class Question(Value):
    id: str
    question: str
    criteria: tuple[str | ChecklistItem, ...] = ()
    """what a good answer says, or with points below 0 does not: the scaffold shows it, and the
    judge scores it"""
    answer_format: AnswerFormat | None = None
    """None: the run's"""
    facts: dict[str, Any] | None = None
    """what a rubric of one's own scores by; no policy is shown it"""


@dataclass(frozen=True, slots=True)
class Selected:
    questions: tuple[Question, ...]
    held_out: tuple[Question, ...] = ()
    told: str = ""
    """how they were chosen from those that were read"""


_REMEDIES = (
    'Write it as {"question": "..."}, name what holds the question: column=NAME, shorten it, '
    "or drop it.",
    'Write criteria as ["says ...", {"criterion": "names ...", "points": -5}] with points from -10 '
    f"to 10, answer_format as one of {', '.join(AnswerFormat)}, and facts as an object.",
)


def read_questions(named: str | Path, column: str = COLUMN) -> list[Question]:
    """All questions of a file; raises SettingsError that names the line or row at fault."""
    path, found = Path(named), list[Question]()
    for place, row in _rows(path):
        try:
            found.append(_question(_fields(row, path, column), len(found), column))
        except ValidationError as cause:
            first = cause.errors()[0]
            said = f"its {first['loc'][0]} cannot be {str(first['input'])[:80]!r}: {first['msg']}"
            raise SettingsError(f"{place}: {said}.", _REMEDIES[1]) from cause
        except (ValueError, RecursionError) as cause:
            said = str(cause).removesuffix(".")
            raise SettingsError(f"{place}: {said}.", _REMEDIES[0]) from cause
    if not found:
        raise SettingsError(f"{path} holds no question.", "Write one question a line.")
    return found


def _rows(path: Path) -> Iterator[tuple[str, bytes | dict[str, Any]]]:
    """The rows of a file, with their places: lines that are not blank, or what Parquet holds."""
    if (kind := path.suffix.lower()) not in KINDS:
        raise SettingsError(
            f"{path} is not a {', '.join(KINDS[:-1])} or {KINDS[-1]} file.", "Name such a file."
        )
    if kind == ".parquet":
        parquet = import_extra("pyarrow.parquet", "data")
        with boundary(SettingsError, f"reading {path}"):
            listed = parquet.read_table(path).to_pylist()
        yield from ((f"row {number} of {path}", row) for number, row in enumerate(listed, 1))
        return
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as cause:
        raise SettingsError(
            f"{path} cannot be read: {cause.strerror or cause}.", "Name a file of questions."
        ) from cause
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"line {number} of {path}", line


def _fields(row: bytes | dict[str, Any], path: Path, column: str) -> dict[str, Any]:
    """A row as an object. Raises ValueError with a clause about it."""
    if isinstance(row, dict):
        return row
    try:
        text = row.decode()
    except UnicodeDecodeError as cause:
        raise ValueError(f"it is no UTF-8, at {cause.start}") from cause
    if path.suffix.lower() == ".txt":
        return {column: text}
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise ValueError(f"it is no JSON object: {cause}") from cause
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    return fields


def _question(fields: Mapping[str, Any], number: int, column: str) -> Question:
    """Raises ValueError with a clause, or a sentence, about the row."""
    text, identifier = fields.get(column), fields.get("id")
    criteria = fields.get("criteria") or ()
    if column not in fields:
        raise ValueError(f"it has no {column!r}; it has {', '.join(map(str, fields))[:200]}")
    if not isinstance(text, str):
        raise ValueError(f"its {column} is no text")
    if isinstance(criteria, list):
        criteria = [storable(one) if isinstance(one, str) else one for one in criteria]
        if any(isinstance(one, str) and not one.strip() for one in criteria):
            raise ValueError("one of its criteria is empty")
    return Question.model_validate(
        {
            "id": storable(str(number if identifier is None else identifier)),
            "question": check_question(text),
            "criteria": criteria,
            "answer_format": fields.get("answer_format") or None,
            "facts": fields.get("facts") or None,
        }
    )


def select_questions(
    named: str | Path, column: str = COLUMN, held_out: float = 0.0, limit: int | None = None
) -> Selected:
    """What is asked of a file, at most `limit`; `held_out` is a share from 0 to below 1."""
    read = read_questions(named, column)
    found: dict[str, Question] = {}
    for question in read:
        found.setdefault(normal(question.question), question)
    (name, times), *_ = Counter(question.id for question in found.values()).most_common(1)
    if times > 1:
        raise SettingsError(
            f"{times} questions of {named} have the id {name!r}.",
            "Give each one of its own; without any, the row's number is used.",
        )
    kept = [question for text, question in found.items() if not is_held_out(text, held_out)]
    held = [question for text, question in found.items() if is_held_out(text, held_out)]
    asked = kept[:limit]
    told = (
        f"{pluralise(len(read), 'question')} read, {len(kept) - len(asked)} over the limit, "
        f"{pluralise(len(read) - len(found), 'duplicate')} dropped, {len(held)} held out, "
        f"{len(asked)} asked"
    )
    if not asked:
        raise SettingsError(
            f"No question of {named} is left to ask: {told}.", "Hold out a smaller share."
        )
    return Selected(tuple(asked), tuple(held), told)


def normal(question: str) -> str:
    """The text by which duplicates are told: case, spaces and compatibility forms are the same."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def apart_from(
    found: Sequence[T],
    held_out: Iterable[T],
    asked: Callable[[T], str],
    what: str,
    tell: Callable[[str], None],
) -> list[T]:
    """Those whose text is not among those held out; raises SettingsError where none is left."""
    apart = {normal(asked(one)) for one in held_out}
    left = [one for one in found if normal(asked(one)) not in apart]
    if not left:
        raise SettingsError(f"All {what} are held out.", f"Name other {what}.")
    if left_out := len(found) - len(left):
        tell(f"{left_out} {what} are held out, and not trained on")
    return left


def is_held_out(normal_text: str, share: float) -> bool:
    digest = hashlib.sha256(normal_text.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    questions: tuple[Question, ...]
    replay_of: int | None = None
    """the step that asked them before in its window; None: they are new there"""
    fresh: bool = False
    """they are to be met with what others taught alone, since the window asks them again"""


class Curriculum:
    """The steps over some questions, pass after pass without an end."""

    def __init__(
        self, questions: Sequence[Question], size: int, window: int = 0, seed: int | None = None
    ) -> None:
        """`size`: questions in a batch; `window`: K, 0: no replay; `seed`: shuffles each pass."""
        self._questions = tuple(questions)
        self._size = size
        self._window = window
        self._seed = seed
        self._steps: list[QuestionBatch] = []
        self._passes = 0
        self._extend()
        self.steps = len(self._steps)

    def batch(self, step: int) -> QuestionBatch:
        """What a step asks, from 0; the steps of further passes follow those of the first."""
        while step >= len(self._steps):
            self._extend()
        return self._steps[step]

    def _extend(self) -> None:
        order = list(self._questions)
        if self._seed is not None:
            random.Random(f"{self._seed}:{self._passes}").shuffle(order)
        batches = [QuestionBatch(questions) for questions in _batches(order, self._size)]
        width = self._window or len(batches)
        for start in range(0, len(batches), width):
            fresh, first = batches[start : start + width], len(self._steps)
            self._steps += fresh
            if self._window:
                replays = [replace(b, replay_of=first + n) for n, b in enumerate(fresh)]
                self._steps[first:] = [*(replace(b, fresh=True) for b in fresh), *replays]
        self._passes += 1


def _batches(questions: Sequence[Question], size: int) -> Iterator[tuple[Question, ...]]:
    """Batches of at most `size`; a question that comes again waits for the next one."""
    batch: dict[str, Question] = {}
    for question in questions:
        if len(batch) == size or question.question in batch:
            yield tuple(batch.values())
            batch = {}
        batch[question.question] = question
    if batch:
        yield tuple(batch.values())
