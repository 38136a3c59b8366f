"""How the rubrics of a question evolve: criteria are added, scored, and pruned by their variance.

A new criterion counts at once, as in the paper: none waits until a second group has confirmed it.

Pure functions from one `RubricBuffer` to the next. The number of criteria stays bounded, because
pruning follows every scoring of a group, even if too few rollouts were scored to compare them
(RubricEM, arXiv:2605.10899, appendix C). Every change is recorded in the buffer's history.

Rubrics can be read from these foreign files, and from our own exports:

    DR Tulu       {"query", "rubrics": [{"title", "description", "weight"}]}
    HealthBench   {"prompt": [{"role", "content"}], "rubrics": [{"criterion", "points", "tags"}]},
                  with the rubrics also within "reward_model", as RuscaRL has them
    ours          a `RubricBuffer`

Foreign ones become persistent criteria of the answer. Their points become weights, scaled so that
the largest of a question is 3; negative points make a flaw, and items with 0 points are ignored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import pvariance
from typing import Any

from pydantic import ValidationError

from rubricem.memory.asking import first_fault
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import ChangeKind, Criterion, RubricBuffer, Stage

CAPS: Mapping[Stage, int] = {Stage.PLAN: 3, Stage.RESEARCH: 2, Stage.REVIEW: 2, Stage.ANSWER: 3}
"""active criteria that survive pruning"""
LEAST_VARIANCE = 1e-4
"""of points (0 to 2): a probability read twice differs in its last digits"""

_Change = tuple[Stage, ChangeKind, Criterion, str]
Points = Mapping[Stage, Mapping[str, Sequence[float]]]
"""stage -> criterion's key -> its points, one for each trajectory scored on it"""


def add(
    buffer: RubricBuffer, proposed: Mapping[Stage, Sequence[Criterion]], step: int, reason: str
) -> RubricBuffer:
    """The buffer with new criteria; those that say the same as one in force are left out.

    The opposite of one in force counts as the same. A retired one that is proposed again returns.
    Persistent ones go where they are never pruned.
    """
    changes: list[_Change] = []
    for stage, criteria in proposed.items():
        known = {criterion.meaning for criterion in buffer.criteria(stage)}
        retired = {criterion.meaning for criterion in buffer.retired.get(stage, ())}
        for criterion in criteria:
            if criterion.meaning not in known:
                known.add(criterion.meaning)
                kind: ChangeKind = "returned" if criterion.meaning in retired else "added"
                changes.append((stage, kind, criterion, reason))
    return buffer.apply_changes(step, changes)


def prune(buffer: RubricBuffer, points: Points, step: int) -> RubricBuffer:
    """The buffer without active criteria that do not discriminate, and within the caps.

    First those on which all trajectories agree are removed, then over the cap those that tell the
    trajectories' rewards apart least: by the variance of their points times their weight, of equals
    the newest. What covers the question is persistent, and stays. If fewer than two trajectories
    have points on each active criterion of a stage, none of them is known to be worse: then the
    newest over the cap are removed.
    """
    changes: list[_Change] = []
    for stage, criteria in buffer.active.items():
        given = points.get(stage, {})
        if any(len(given.get(c.key, ())) < 2 for c in criteria):
            why = f"over the cap of {CAPS[stage]} (nothing was compared)"
            changes += [(stage, "retired", c, why) for c in criteria[CAPS[stage] :]]
            continue
        variance = {c.key: pvariance(given[c.key]) for c in criteria}
        gone = {c.key: "all runs agree on it" for c in criteria if variance[c.key] < LEAST_VARIANCE}
        told = {c.key: variance[c.key] * c.weight**2 for c in criteria}
        ranked = sorted((c for c in criteria if c.key not in gone), key=lambda c: -told[c.key])
        gone |= {c.key: f"over the cap of {CAPS[stage]}" for c in ranked[CAPS[stage] :]}
        changes += [
            (stage, "retired", c, f"{gone[c.key]} (variance {variance[c.key]:.4f})")
            for c in criteria
            if c.key in gone
        ]
    return buffer.apply_changes(step, changes)


def bring_in(
    buffer: RubricBuffer, criteria: Mapping[Stage, Sequence[Criterion]], reason: str
) -> RubricBuffer:
    """Add criteria from elsewhere; those that say the same as one in force are left out."""
    # What is imported counts to the preceding step.
    step = max((change.step for change in buffer.history), default=0)
    return add(buffer, criteria, step, reason)


LARGEST = 3.0
TITLE_WORDS = 8
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FoundRubrics:
    """The rubrics of one question in a file; `buffer` if they were exported here."""

    question: str
    criteria: Mapping[Stage, tuple[Criterion, ...]]
    buffer: RubricBuffer | None = None

    @classmethod
    def all_in(cls, text: str) -> Iterator["FoundRubrics"]:
        """Every question's rubrics in a file's text; a StoreError names the invalid row."""
        for number, row in json_rows(text, "the file").items():
            try:
                yield _parse_row(row)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                why = row_fault(error).splitlines()[0]
                raise StoreError(
                    f"row {number} holds no rubrics of a known form: {why}",
                    "Known are DR Tulu's and HealthBench's rows, and our own exports.",
                ) from error


def read_rows(path: Path, nothing: str, remedy: str) -> list[Any]:
    """The rows of a JSON list or of JSON lines.

    Raises StoreError if the file cannot be read, SettingsError with the remedy if it holds
    `nothing`, such as "no rows".
    """
    try:
        if not path.is_file():  # a device has no end
            raise OSError("it is no plain file")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read: {error}", "Name a file in UTF-8.") from error
    if rows := json_rows(text, str(path)) if text.strip() else {}:
        return list(rows.values())
    raise SettingsError(f"{path} holds {nothing}.", remedy)


def row_fault(error: Exception) -> str:
    """Why a row cannot be read, in a few words."""
    if isinstance(error, ValidationError):
        return first_fault(error)
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def json_rows(text: str, named: str) -> dict[int, Any]:
    """The rows of a JSON list, one JSON object, or JSON lines, by their places or lines from 1 on.

    Raises StoreError, with the line.
    """
    try:
        whole = json.loads(text)
        return dict(enumerate(whole if isinstance(whole, list) else [whole], start=1))
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("["):
            raise StoreError(f"{named} is no valid JSON: {error}", "Download it again.") from error
    rows = dict[int, Any]()
    # Not splitlines: texts may hold separators that end a line for it but not for JSON.
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            rows |= {number: json.loads(line)} if line.strip() else {}
        except (ValueError, RecursionError) as error:
            message = f"line {number} of {named} is no valid JSON: {error}"
            raise StoreError(message, "Fix the line, or leave it out.") from error
    return rows


def _parse_row(row: Any) -> FoundRubrics:
    if not isinstance(row, Mapping):
        raise ValueError("a row must be an object")
    if "history" in row and "question" in row:
        buffer = RubricBuffer.model_validate(row)
        criteria = {stage: buffer.criteria(stage) for stage in Stage if buffer.criteria(stage)}
        return FoundRubrics(buffer.question, criteria, buffer)
    reward = row.get("reward_model")
    given: Row = reward if isinstance(reward, Mapping) and "rubrics" in reward else row
    points = list(_points(given))
    if not any(value for _, _, value in points):
        raise ValueError("no criterion has points")
    return FoundRubrics(_question(given, row), {Stage.ANSWER: persistent_criteria(points)})


def _points(given: Row) -> Iterator[tuple[str, str, float]]:
    """Title, description and points of each criterion."""
    for item in given["rubrics"]:
        if "criterion" in item:
            yield "", str(item["criterion"]), float(item["points"])
        else:
            yield str(item.get("title") or ""), str(item["description"]), float(item["weight"])


def persistent_criteria(points: Sequence[tuple[str, str, float]]) -> tuple[Criterion, ...]:
    """Persistent criteria from title, description and points; those worth 0 are left out."""
    most = max((abs(value) for _, _, value in points), default=0.0)
    return tuple(
        Criterion(
            title=" ".join((title or description).split()[:TITLE_WORDS]),
            description=" ".join(description.split()),
            weight=LARGEST * abs(value) / most,
            given=value,
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
    asked = row.get("prompt") or row.get("messages") or ()
    said = asked if isinstance(asked, str) else [m for m in asked if m["role"] != "system"]
    if not said:
        raise KeyError("question")
    return conversation_text(said).strip()


def conversation_text(prompt: str | Sequence[Row]) -> str:
    """A prompt as one text: a single message as it is, several with the role before each.

    Raises ValueError for a message that is no text.
    """
    if isinstance(prompt, str):
        return prompt
    if not all(isinstance(turn["content"], str) for turn in prompt):
        raise ValueError("a message of its conversation is no text")
    if len(prompt) == 1:
        return str(prompt[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
