"""Reading questions, and choosing which of them are asked.

Files are lines of text, JSONL, CSV, Parquet or a Hugging Face dataset. A row has the question in
the column `question`, or in a named one, and may have an `id` and `criteria` that a good answer
meets: texts, or items with points as in checklists. `answer_format` is the form of the answer:
long, short or exact, also as long_form and exact_answer. `facts` is an object by which a custom
rubric scores. Without an id a question is called by the number of its row, from 0. Parquet needs
`pyarrow`, datasets need `datasets`; both come with the extra `data`. Only columns of text, numbers,
truth values, lists of text and items with points are read; others, such as pictures, are ignored.

Filters leave some questions out. Duplicates are found by their text alone, ignoring spaces, case
and compatibility forms (Unicode NFKC); the first one is kept. A question is held out by the hash of
that text, so the same one is held out in every run with the same share, whichever file it came
from, and one that is held out at a share is also held out at any larger share.

A `Curriculum` says which questions each step asks: batches in order, or windows that ask each batch
twice. A window is K batches of new questions, then the same K batches again: the first time a
question is asked with what similar ones taught, the second time with what it taught itself
(RubricEM, arXiv:2605.10899, section 3.4 and appendix D, with K = 3). So a fresh batch of a window
recalls nothing of its own questions, even if the bank holds it from an earlier pass or run. A
step's batch follows from its number alone: resuming at a step, in collecting or training, needs no
other state than that number.
"""

import csv
import hashlib
import io
import json
import logging
import operator
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rubricem.agent.transcript.question import check_question
from rubricem.judge.checklist import ChecklistItem
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.schema import AnswerFormat, Value
from rubricem.memory.text import pluralise, storable

T = TypeVar("T")
COLUMN = "question"
HUB = "hf:"
FORMAT = "answer_format"
SHOWN = 8
"""column names told of a table that lacks one"""


class Question(Value):
    """One line of a questions file."""

    id: str
    question: str
    criteria: tuple[str | ChecklistItem, ...] = ()
    """what a good answer says, or with points below 0 does not, where whoever asks knows it: the
    scaffold shows it, and the judge scores it"""
    answer_format: AnswerFormat | None = None
    """None: the run's"""
    facts: dict[str, Any] | None = None
    """what a rubric of one's own scores by; no policy is shown it"""


class Selection(Value):
    """How the questions of a run were chosen from those that were read."""

    read: int
    filtered: int
    duplicates: int
    """dropped: the same text, but for spaces and case, came before"""
    held_out: int
    filters: tuple[str, ...] = ()
    held_out_share: float = 0.0

    def sentence(self) -> str:
        asked = self.read - self.filtered - self.duplicates - self.held_out
        return (
            f"{pluralise(self.read, 'question')} read, {self.filtered} filtered out, "
            f"{pluralise(self.duplicates, 'duplicate')} dropped, {self.held_out} held out, "
            f"{asked} asked"
        )


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    """from 0, over the rows that are not blank"""
    place: str
    """for a person: `line 3 of q.jsonl`"""
    fields: Mapping[str, Any]


def utf8_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file with their places; a byte order mark is no part of them.

    Raises SettingsError that names the first line which is no UTF-8.
    """
    for number, line in enumerate(content(path).split(b"\n"), start=1):
        place = f"line {number} of {path}"
        yield place, decode(line, place)


def decode(written: bytes, place: str) -> str:
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise SettingsError(
            f"{place} is no UTF-8: byte {written[cause.start]:#04x} at {cause.start}.",
            "Save the file as UTF-8.",
        ) from cause


def content(path: Path) -> bytes:
    try:
        if path.is_char_device():  # it has no end
            raise OSError("it is no plain file")
        return path.read_bytes()
    except OSError as cause:
        raise SettingsError(
            f"{path} cannot be read: {cause.strerror or cause}.", "Name a file of questions."
        ) from cause


def lacking(place: str, column: str, has: Iterable[str]) -> SettingsError:
    names = [str(name) for name in has]
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return SettingsError(
        f"{place} has no {column!r}; it has {listed or 'nothing'}.",
        "Name what holds the question with --column.",
    )


KINDS = (".txt", ".jsonl", ".csv", ".parquet")
_SAID = (
    (type(None), "empty"),
    (bool, "true or false"),
    (int | float, "a number"),
    (object, "a list or an object"),
)


def read_rows(named: str, column: str = COLUMN) -> list[Row]:
    """All rows of what is named: a file, a folder that `datasets` saved, or `hf:org/name[:split]`.

    Raises SettingsError that names the line or row at fault, and where there is none.
    """
    rows = list(_rows(named, column))
    if not rows:
        raise SettingsError(f"{named} holds no question.", "Write one question a line.")
    return rows


def question_of(row: Row, column: str = COLUMN) -> Question:
    """The question of a row. Raises SettingsError, with the row's place, if it has none."""
    if column not in row.fields:
        raise lacking(row.place, column, row.fields)
    text, identifier = row.fields[column], row.fields.get("id")
    if not isinstance(text, str):
        kinds = (said for kind, said in _SAID if isinstance(text, kind))
        raise SettingsError(
            f"{row.place}: its {column} is {next(kinds)} instead of a text.",
            "Correct it, or leave it out with --filter.",
        )
    try:
        fields = {
            "id": storable(str(row.number if identifier is None else identifier)),
            "question": check_question(text),
            "criteria": _criteria(row.fields.get("criteria")),
            "answer_format": _format(row),
            "facts": _facts(row.fields.get("facts")),
        }
    except SettingsError as cause:
        raise SettingsError(f"{row.place}: {cause}", "Correct it, or leave the row out.") from cause
    try:
        return Question.model_validate(fields)
    except ValidationError as cause:
        raise SettingsError(
            f"{row.place}: its criteria are no list of texts, or of items with points.",
            'Write them as ["says ...", {"criterion": "names ...", "points": -5}], from -10 to 10.',
        ) from cause


def _rows(named: str, column: str) -> Iterator[Row]:
    path = Path(named)
    kind = path.suffix.lower()
    if named.startswith(HUB) or (named and path.is_dir()):
        yield from dataset_rows(named, column)
    elif kind == ".parquet":
        yield from parquet_rows(path, column)
    elif kind == ".csv":
        yield from csv_rows(path, column)
    elif kind in KINDS:
        lines = ((place, line) for place, line in utf8_lines(path) if line.strip())
        for number, (place, line) in enumerate(lines):
            yield Row(number, place, _object(line, place) if kind == ".jsonl" else {column: line})
    else:
        raise SettingsError(
            f"{named or 'What is named'} is not a {', '.join(KINDS[:-1])} or {KINDS[-1]} file, "
            "nor a dataset.",
            "Name such a file, a folder saved by datasets, or hf:org/name.",
        )


def _object(line: str, place: str) -> dict[str, Any]:
    fault = ""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as cause:
        fields, fault = None, f": {cause.msg} at character {cause.pos + 1}"
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise SettingsError(
            f"{place} is no JSON object{fault}.", 'Write it as {"question": "..."}.'
        )
    return fields


def _format(row: Row) -> AnswerFormat | None:
    """The form of the answer that a row names; other words are refused."""
    said = row.fields.get(FORMAT)
    if said is None or said == "":
        return None
    word = str(said).strip().casefold().partition("_")[0].partition("-")[0]
    try:
        return AnswerFormat(word)
    except ValueError:
        raise SettingsError(
            f"its {FORMAT} {said!r} is none of {', '.join(AnswerFormat)}.",
            "Correct it, or rename the column.",
        ) from None


def _facts(written: Any) -> dict[str, Any] | None:
    found = _of_cell(written)
    if not isinstance(found, dict | None):
        raise SettingsError(
            f"its facts {str(written)[:80]!r} are no object.",
            'Write them as {"answer": "..."}, or rename the column.',
        )
    return found or None


def _of_cell(written: Any) -> Any:
    """A value as it stands, or as a cell of CSV holds it; what is no JSON stays a text."""
    if not written:
        return None
    if isinstance(written, str):
        with suppress(ValueError, RecursionError):
            return json.loads(written)
    return written


def _criteria(written: Any) -> Any:
    """A list; what is none is left to be refused."""
    written = _of_cell(written)
    if not isinstance(written, list):
        return written or ()
    if any(isinstance(one, str) and not one.strip() for one in written):
        raise SettingsError("one of its criteria is empty.", "Say what a good answer says.")
    return [storable(one) if isinstance(one, str) else one for one in written]


LENGTH = "length"
"""characters of the question, as filters call it where no column has that name"""
_FILTER = re.compile(r"\s*([^=!<>]+?)\s*(<=|>=|!=|==?)\s*(.*?)\s*", re.DOTALL)
_MISSPELT = re.compile(r"[=!]|[<>]=?\s*[-+.\d]")
"""how a value begins that is part of a sign, as in `level!==hard` and `length=<300`"""
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Selected:
    """The questions to ask, those held out, and how many there were of each kind."""

    questions: tuple[Question, ...]
    held_out: tuple[Question, ...] = ()
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field: `level=hard` (or `==`), `source!=web`, `length<=300`."""

    field: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Filter":
        """Raises SettingsError if the text is no condition."""
        found = _FILTER.fullmatch(text)
        wants_number = found is not None and found[2] in _ORDERS
        misspelt = found is None or _MISSPELT.match(found[3])
        if found is None or misspelt or (wants_number and _number(found[3]) is None):
            raise SettingsError(
                f"The filter {text!r} is no condition on a field.",
                "Write it like level=hard, source!=web or length<=300.",
            )
        return cls(found[1], found[2].replace("==", "="), found[3])

    def holds(self, row: Row, column: str) -> bool:
        """A row without the field holds no condition but `!=`."""
        known = row.fields.get(self.field)
        if known is None and self.field == LENGTH:
            known = len(str(row.fields.get(column, "")))
        wanted, number = _number(self.value), _number(known)
        if self.sign in _ORDERS:
            return number is not None and _ORDERS[self.sign](number, float(self.value))
        if wanted is not None and number is not None:
            same = wanted == number
        else:
            same = known is not None and str(known).casefold() == self.value.casefold()
        return same == (self.sign == "=")


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


def apart_from(
    found: Sequence[T],
    held_out: Iterable[T],
    asked: Callable[[T], str],
    what: str,
    tell: Callable[[str], None],
) -> list[T]:
    """Those whose text, however it is spaced and written, is not among those held out.

    How many are not is told. Raises SettingsError where none is left; `what` are they.
    """
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


TRAIN = "train"


def csv_rows(path: Path, column: str) -> Iterator[Row]:
    """Rows of a CSV file whose first line names the columns; a cell may hold line breaks."""
    written = content(path)
    for at, part in enumerate(written.split(b"\n"), start=1):
        decode(part, f"line {at} of {path}")
    text = decode(written, str(path))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    number, line = 0, 1
    try:
        for cells in reader:
            place, line = f"line {line} of {path}", reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if names is None:
                names = [cell.strip() for cell in cells]
                if column not in names:
                    raise lacking(place, column, names)
                continue
            if len(cells) != len(names):
                raise SettingsError(
                    f"{place} has {len(cells)} cells instead of {len(names)}.",
                    "Complete the line, or put cells with commas into quotes.",
                )
            yield Row(number, place, dict(zip(names, cells, strict=True)))
            number += 1
    except csv.Error as cause:
        raise SettingsError(
            f"line {line} of {path} is malformed: {cause}.", "Close its quotes; write one as two."
        ) from cause


def parquet_rows(path: Path, column: str) -> Iterator[Row]:
    arrow, parquet = import_extra("pyarrow", "data"), import_extra("pyarrow.parquet", "data")
    held = io.BytesIO(content(path))
    try:
        file = parquet.ParquetFile(held)
        names = _readable(file.schema_arrow)
        if column not in names:
            raise lacking(str(path), column, names)
        listed = file.read(columns=names).to_pylist()
    except (arrow.ArrowException, OSError) as cause:
        raise SettingsError(
            f"{path} is no whole Parquet file: {_line(cause)}.", "Write or fetch it again."
        ) from cause
    for number, fields in enumerate(listed):
        yield Row(number, f"row {number + 1} of {path}", fields)


def dataset_rows(named: str, column: str) -> Iterator[Row]:
    """Rows of `hf:org/name[:split]`, or of a folder that `save_to_disk` wrote."""
    datasets = import_extra("datasets", "data")
    name, _, split = named.removeprefix(HUB).partition(":")
    if not name:
        raise SettingsError(
            f"{named!r} names no dataset.", "Write it as hf:org/name or hf:org/name:split."
        )
    # What the hub's client writes of each of its tries is told in a sentence at the end.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        if Path(name).is_dir():
            found = _split_of(datasets.load_from_disk(name), name, split)
        else:
            found = datasets.load_dataset(name, split=split or TRAIN)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as cause:
        if isinstance(cause, SettingsError):
            raise
        raise SettingsError(
            f"The dataset {name!r} cannot be loaded: {_line(cause)}.",
            "Name one of the hub as hf:org/name:split, or a folder saved by datasets.",
        ) from cause
    names = _readable(found.features.arrow_schema)
    if column not in names:
        raise lacking(name, column, names)
    for number, fields in enumerate(found.select_columns(names)):
        yield Row(number, f"row {number + 1} of {named}", fields)


def _split_of(found: Any, name: str, split: str) -> Any:
    """The split that is named, or the only one, or `train`."""
    if not isinstance(found, dict):
        return found
    chosen = split or (TRAIN if TRAIN in found or len(found) > 1 else next(iter(found), TRAIN))
    if chosen not in found:
        raise SettingsError(
            f"The dataset {name!r} has no split {chosen!r}; it has {', '.join(found)}.",
            f"Name one of them: {HUB}{name}:SPLIT.",
        )
    return found[chosen]


def _readable(schema: Any) -> list[str]:
    types = import_extra("pyarrow", "data").types

    def plain(kind: Any) -> bool:
        return bool(
            types.is_string(kind)
            or types.is_large_string(kind)
            or types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_null(kind)
            or ((types.is_list(kind) or types.is_large_list(kind)) and plain(kind.value_type))
            or (types.is_struct(kind) and all(plain(field.type) for field in kind))
        )

    return [field.name for field in schema if plain(field.type)]


def _line(cause: BaseException) -> str:
    return " ".join(str(cause).split())[:200].rstrip(".")


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """The questions of one step, no two alike."""

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
        """`size`: questions in a batch; `window`: K, or 0 for no replay.

        With a seed the questions come in another order in each pass, else always as given.
        Raises ValueError where there is nothing to ask.
        """
        if not questions or size < 1 or window < 0:
            raise ValueError(f"{len(questions)} questions make no batches of {size}")
        self._questions = tuple(questions)
        self._size = size
        self._window = window
        self._seed = seed
        self._steps: list[QuestionBatch] = []
        self._passes = 0
        self._extend()
        self.steps = len(self._steps)
        """of the first pass"""

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
