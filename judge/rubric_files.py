"""Rubrics from files of others: DR Tulu's, HealthBench's, and those that were exported here.

    DR Tulu       {"query", "rubrics": [{"title", "description", "weight"}]}, also within a row's
                  "ground_truth" (as JSON in a text); {"Question", "Answer Critical":
                  [{"Handle", "Ingredient"}]}; {"query", "rubric": [{"type", "rubric_item"}]}
    HealthBench   {"prompt": [{"role", "content"}], "rubrics": [{"criterion", "points", "tags"}]},
                  with the rubrics also within "reward_model", as RuscaRL has them
    ours          a `RubricBuffer`

Foreign ones are criteria of the answer that are kept for good. Their points become weights, of
which the largest of a question is 3; points below 0 make a flaw, points of 0 say nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from memory.errors import StoreError
from memory.rubrics import RubricBuffer
from memory.schema import Criterion, Stage

LARGEST = 3.0
TITLE_WORDS = 8
LISTS = {"Answer Critical": 3.0, "Valuable": 2.0, "Context": 1.0}
"""DR Tulu's earlier lists of ingredients, and what one of each weighs"""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FoundRubrics:
    """The rubrics of one question in a file; `buffer` where they were exported here."""

    question: str
    criteria: Mapping[Stage, tuple[Criterion, ...]]
    buffer: RubricBuffer | None = None


def rubrics_of(text: str) -> Iterator[FoundRubrics]:
    """Every question's rubrics in a file's text. Raises StoreError that names the row at fault."""
    for number, row in enumerate(_rows(text), start=1):
        try:
            yield _found(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            missing = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise StoreError(
                f"row {number} holds no rubrics of a known form: {missing.splitlines()[0]}",
                "Known are DR Tulu's and HealthBench's rows, and what rubrics export writes.",
            ) from error


def _rows(text: str) -> list[Any]:
    """The objects of a JSON array, of one JSON object, or of JSON lines."""
    try:
        whole = json.loads(text)
        return whole if isinstance(whole, list) else [whole]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"the file is neither JSON nor JSON lines: {error}", "Name a file of rubrics."
        ) from error


def _found(row: Any) -> FoundRubrics:
    if not isinstance(row, Mapping):
        raise ValueError("a row must be an object")
    if "history" in row and "question" in row:
        return _ours(row)
    given = _ground_truth(row)
    points = list(_points(given))
    if not any(value for _, _, value in points):
        raise ValueError("no criterion has points")
    return FoundRubrics(_question(given, row), {Stage.ANSWER: _criteria(points)})


def _ours(row: Row) -> FoundRubrics:
    try:
        buffer = RubricBuffer.model_validate(row)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error
    criteria = {stage: buffer.criteria(stage) for stage in Stage if buffer.criteria(stage)}
    return FoundRubrics(buffer.question, criteria, buffer)


def _ground_truth(row: Row) -> Row:
    """What a row of a training set wraps, else the row itself."""
    if "ground_truth" in row:
        value = row["ground_truth"]
        value = json.loads(value) if isinstance(value, str) else value
        value = value[0] if isinstance(value, list) and value else value
        return _ground_truth(json.loads(value) if isinstance(value, str) else value)
    reward = row.get("reward_model")
    return reward if isinstance(reward, Mapping) and "rubrics" in reward else row


def _points(given: Row) -> Iterator[tuple[str, str, float]]:
    """Title, description and points of each criterion."""
    if "rubrics" in given:
        for item in given["rubrics"]:
            if "criterion" in item:
                yield "", str(item["criterion"]), float(item["points"])
            else:
                yield str(item.get("title") or ""), str(item["description"]), float(item["weight"])
    elif "rubric" in given:
        for item in given["rubric"]:
            yield (
                str(item.get("type") or ""),
                str(item["rubric_item"]),
                float(item.get("weight", 1)),
            )
    elif not any(name in given for name in LISTS):
        raise KeyError("rubrics")
    for name in LISTS:
        for item in given.get(name, ()):
            yield str(item.get("Handle") or ""), str(item["Ingredient"]), LISTS[name]


def _criteria(points: Sequence[tuple[str, str, float]]) -> tuple[Criterion, ...]:
    most = max(abs(value) for _, _, value in points)
    return tuple(
        Criterion(
            title=" ".join((title or description).split()[:TITLE_WORDS]),
            description=" ".join(description.split()),
            weight=LARGEST * abs(value) / most,
            positive=value > 0,
            persistent=True,
        )
        for title, description, value in points
        if value
    )


def _question(given: Row, row: Row) -> str:
    """What was asked: a text, or the messages of a conversation."""
    for place in (given, row):
        for name in ("query", "Question", "question"):
            if isinstance(place.get(name), str) and place[name].strip():
                return str(place[name]).strip()
    asked = row.get("prompt") or row.get("messages")
    if isinstance(asked, str):
        return asked.strip()
    said = [m for m in asked or () if m["role"] != "system"]
    if not said:
        raise KeyError("question")
    if len(said) == 1:
        return str(said[0]["content"]).strip()
    return "\n\n".join(f"{m['role']}: {m['content']}" for m in said)
