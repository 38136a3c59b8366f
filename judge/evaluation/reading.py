"""Labelled data and recorded verdicts, read from files of the public sets' own formats.

A file is a JSON list or one JSON object a line. Raises SettingsError where it is none of the
formats, StoreError where it cannot be read or a row is broken, with the number of the row.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from judge.evaluation.formats import Labelled, form_of
from judge.evaluation.labelled import LabelledCriterion, Pair
from memory.errors import SettingsError, StoreError
from memory.runs import unusable

Form = TypeVar("Form", bound=BaseModel)

KNOWN = (
    "Known are rows of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected), RM-Bench "
    "(three of each) and HealthBench's meta evaluation (completion, rubric, binary_labels)."
)


def read_labelled(path: Path) -> tuple[Pair, ...] | tuple[LabelledCriterion, ...]:
    """Everything that the file labels, each with an id of its own; all of one kind."""
    rows = read_rows(path)
    form = form_of(rows[0])
    if form is None:
        raise SettingsError(f"{path} holds none of the labelled formats.", KNOWN)
    read: list[Labelled] = []
    for place, row in enumerate(rows, start=1):
        read += validated(form, row, path, place).labelled(place)
    pairs = [one for one in read if isinstance(one, Pair)]
    return _apart(pairs) if pairs else tuple(c for c in read if isinstance(c, LabelledCriterion))


def read_rows(path: Path) -> list[Any]:
    """The rows of a JSON list or of JSON lines; at least one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise unusable(path, error) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path} is no UTF-8 text.", "Name a .json or .jsonl file.") from error
    rows = _rows(text, path)
    if not rows:
        raise SettingsError(f"{path} holds no rows.", KNOWN)
    return rows


def validated(form: type[Form], row: object, path: Path, place: int) -> Form:
    """The row as a value of `form`; StoreError with its number where it is none."""
    try:
        return form.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"row {place} of {path} cannot be read: {where}: {first['msg']}",
            "Mend the row, or leave it out.",
        ) from error


def _rows(text: str, path: Path) -> list[Any]:
    if text.lstrip().startswith("["):
        try:
            listed: list[Any] = json.loads(text)
            return listed
        except ValueError as error:
            raise StoreError(f"{path} is no valid JSON: {error}", "Download it again.") from error
    rows = []
    # Not splitlines: answers may hold separators that end a line for it but not for JSON.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            message = f"line {number} of {path} is no valid JSON: {error}"
            raise StoreError(message, "Mend the line, or leave it out.") from error
    return rows


def _apart(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """The same pairs with ids that differ: sets number their rows anew in each part."""
    seen: Counter[str] = Counter()
    apart = []
    for pair in pairs:
        seen[pair.id] += 1
        again = seen[pair.id]
        apart.append(pair if again == 1 else pair.model_copy(update={"id": f"{pair.id}#{again}"}))
    return tuple(apart)
