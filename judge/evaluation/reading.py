"""Labelled data and recorded verdicts, read from files of the public sets' own formats.

A file is a JSON list or one JSON object a line. Raises SettingsError where it is none of the
formats, StoreError where it cannot be read or a row is broken, with the number of the row.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from judge.evaluation.formats import Labelled, form_of
from judge.evaluation.labelled import LabelledCriterion, ListedAnswer, Pair
from memory.errors import SettingsError, StoreError
from memory.runs import unusable

Form = TypeVar("Form", bound=BaseModel)
Kind = TypeVar("Kind", Pair, LabelledCriterion, ListedAnswer)

KNOWN = (
    "Known are rows of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected), RM-Bench "
    "(three of each), and of HealthBench: prompts with rubrics and a completion, or its meta "
    "evaluation (completion, rubric, binary_labels)."
)


@dataclass(frozen=True, slots=True)
class LabelledData:
    """What a file holds: one of the three."""

    pairs: tuple[Pair, ...] = ()
    criteria: tuple[LabelledCriterion, ...] = ()
    answers: tuple[ListedAnswer, ...] = ()

    @property
    def checkable(self) -> tuple[LabelledCriterion | ListedAnswer, ...]:
        """What a judge marks item by item."""
        return self.criteria or self.answers


def read_labelled(path: Path) -> LabelledData:
    """Everything that the file holds to measure a judge on, each with an id of its own."""
    rows = read_rows(path)
    form = form_of(rows[0])
    if form is None:
        raise SettingsError(f"{path} holds none of the labelled formats.", KNOWN)
    read: list[Labelled] = []
    for place, row in enumerate(rows, start=1):
        read += validated(form, row, path, place).labelled(place)
    if not read:
        raise SettingsError(f"{path} holds prompts without answers.", "Add a `completion` to each.")
    return LabelledData(
        pairs=_apart([one for one in read if isinstance(one, Pair)]),
        criteria=_apart([one for one in read if isinstance(one, LabelledCriterion)]),
        answers=_apart([one for one in read if isinstance(one, ListedAnswer)]),
    )


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


def _apart(listed: Sequence[Kind]) -> tuple[Kind, ...]:
    """The same with ids that differ: sets number their rows anew in each part."""
    seen: Counter[str] = Counter()
    apart = []
    for one in listed:
        seen[one.id] += 1
        again = seen[one.id]
        apart.append(one if again == 1 else one.model_copy(update={"id": f"{one.id}#{again}"}))
    return tuple(apart)
