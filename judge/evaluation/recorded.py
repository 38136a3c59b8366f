"""Verdicts that were given before: our own lines, or result files of LLMBar and JudgeBench.

LLMBar's files name the winner in the unswapped numbering and stand in the order of the data;
JudgeBench's second judgement names it as shown, that is, swapped.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from judge.evaluation.labelled import Comparison, Mark, Pair, Winner, mirrored
from judge.evaluation.reading import read_rows, validated
from memory.errors import SettingsError, StoreError

NAMED: dict[str | None, Winner] = {"A>B": "first", "B>A": "second", "A=B": "tie"}
NUMBERED: dict[str, Winner] = {"1": "first", "2": "second"}


class _LlmBarWinner(BaseModel):
    winner: str | int | None = None


class _LlmBarResult(BaseModel):
    given: _LlmBarWinner = Field(alias="swap = False")
    swapped: _LlmBarWinner = Field(alias="swap = True")


class _LlmBarRow(BaseModel):
    label: Literal[1, 2]
    results: list[Any] = Field(min_length=1)

    def result(self) -> _LlmBarResult:
        """Multi-turn evaluators keep their questions before it: it is the last that fits."""
        for value in reversed(self.results):
            try:
                return _LlmBarResult.model_validate(value)
            except ValidationError:
                continue
        raise ValueError("no result names winners")


class _JudgeBenchJudgement(BaseModel):
    decision: str | None = None


class _JudgeBenchRow(BaseModel):
    pair_id: str
    judgments: list[_JudgeBenchJudgement | None] = Field(min_length=1, max_length=2)


def read_comparisons(path: Path, pairs: Sequence[Pair]) -> list[Comparison]:
    """Recorded comparisons of these pairs, at most one for each order."""
    rows = read_rows(path)
    first = rows[0] if isinstance(rows[0], dict) else {}
    if "results" in first and "label" in first:
        read = _llmbar(rows, path, pairs)
    elif "judgments" in first:
        read = _judgebench(rows, path)
    else:
        read = [validated(Comparison, row, path, place) for place, row in enumerate(rows, 1)]
    _check({c.pair for c in read}, {pair.id for pair in pairs}, path)
    return list({(c.pair, c.swapped): c for c in read}.values())


def read_marks(path: Path, items: Iterable[str]) -> list[Mark]:
    """Recorded marks of the items with these ids, at most one for each."""
    read = [validated(Mark, row, path, place) for place, row in enumerate(read_rows(path), 1)]
    _check({mark.item for mark in read}, set(items), path)
    return list({mark.item: mark for mark in read}.values())


def _llmbar(rows: Sequence[object], path: Path, pairs: Sequence[Pair]) -> list[Comparison]:
    if len(rows) != len(pairs):
        raise _foreign(path, f"it has {len(rows)} results, the data {len(pairs)} pairs")
    read = []
    for place, (row, pair) in enumerate(zip(rows, pairs, strict=True), start=1):
        parsed = validated(_LlmBarRow, row, path, place)
        if (parsed.label == 1) != (pair.better == "first"):
            raise _foreign(path, f"the label of its row {place} is not that of the data")
        try:
            result = parsed.result()
        except ValueError as error:
            raise StoreError(f"row {place} of {path} cannot be read: {error}") from error
        for swapped, given in ((False, result.given), (True, result.swapped)):
            read.append(_comparison(pair.id, swapped, NUMBERED.get(str(given.winner))))
    return read


def _judgebench(rows: Sequence[object], path: Path) -> list[Comparison]:
    read = []
    for place, row in enumerate(rows, start=1):
        parsed = validated(_JudgeBenchRow, row, path, place)
        for swapped, judgement in zip((False, True), parsed.judgments, strict=False):
            said = NAMED.get(judgement.decision) if judgement else None
            winner = mirrored(said) if swapped else said
            read.append(_comparison(parsed.pair_id, swapped, winner))
    return read


def _comparison(pair: str, swapped: bool, winner: Winner | None) -> Comparison:
    reason = "" if winner else "no verdict is recorded"
    return Comparison(pair=pair, swapped=swapped, winner=winner, reason=reason)


def _check(named: set[str], known: set[str], path: Path) -> None:
    if strange := sorted(named - known):
        raise _foreign(path, f"it speaks of {strange[0]!r}, which the data does not hold")


def _foreign(path: Path, why: str) -> SettingsError:
    return SettingsError(
        f"{path} was not recorded on this data: {why}.",
        "Name the data it was recorded on, or another --recorded file.",
    )
