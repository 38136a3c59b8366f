"""Questions as they are read: from lines, JSONL, CSV, Parquet or a Hugging Face dataset.

A row has the question in the column `question`, or in the one that is named, and may have an
`id` and `criteria`, what a good answer says. Without an id a question is called by the number
of its row, from 0. Which of them are asked is chosen afterwards (`questions_selecting`).
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.question import checked
from memory.errors import SettingsError
from memory.text import storable
from training.questions_rows import COLUMN, HUB, Row, lacking, utf8_lines
from training.run_directory import Question

KINDS = (".txt", ".jsonl", ".csv", ".parquet")


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
        raise SettingsError(
            f"{row.place}: its {column} is {_kind(text)} instead of a text.",
            "Correct it, or leave it out with --filter.",
        )
    fields = {
        "id": storable(str(row.number if identifier is None else identifier)),
        "question": _checked(text, row.place),
        "criteria": _criteria(row.fields.get("criteria")),
    }
    try:
        return Question.model_validate(fields)
    except ValidationError as cause:
        raise SettingsError(
            f"{row.place}: its criteria are no list of texts.",
            'Write them as ["says ...", "names ..."].',
        ) from cause


def _rows(named: str, column: str) -> Iterator[Row]:
    path = Path(named)
    kind = path.suffix.lower()
    if named.startswith(HUB) or (named and path.is_dir()):
        from training.questions_tables import dataset_rows

        yield from dataset_rows(named, column)
    elif kind == ".parquet":
        from training.questions_tables import parquet_rows

        yield from parquet_rows(path, column)
    elif kind == ".csv":
        from training.questions_tables import csv_rows

        yield from csv_rows(path, column)
    elif kind in KINDS:
        yield from _line_rows(path, column)
    else:
        raise SettingsError(
            f"{named or 'What is named'} is not a {', '.join(KINDS[:-1])} or {KINDS[-1]} file, "
            "nor a dataset.",
            "Name such a file, a folder saved by datasets, or hf:org/name.",
        )


def _line_rows(path: Path, column: str) -> Iterator[Row]:
    number = 0
    for place, line in utf8_lines(path):
        if line.strip():
            fields = _object(line, place) if path.suffix.lower() == ".jsonl" else {column: line}
            yield Row(number, place, fields)
            number += 1


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


def _criteria(written: Any) -> Any:
    """A list as it stands, or as a cell of CSV holds it; what is none is left to be refused."""
    if isinstance(written, str):
        with suppress(ValueError, RecursionError):
            written = json.loads(written)
    if not isinstance(written, list):
        return written or ()
    return [storable(one) if isinstance(one, str) else one for one in written]


def _checked(text: str, place: str) -> str:
    try:
        return checked(text)
    except SettingsError as cause:
        raise SettingsError(f"{place}: {cause}", "Correct it, or leave the row out.") from cause


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else "a list or an object"
