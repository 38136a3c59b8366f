"""The numbers that a training has stored, read from its folder without loading torch.

run.json is its settings; metrics.jsonl and rounds.jsonl have a line for each update and each round;
held_out/NNN/numbers.json and held_out/NNN.json are held-out questions, or a judge's pairs, after
NNN rounds; lock is held as long as a process trains. A training in rounds is counted in rounds.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from rubricem.memory.runs import ALTERED, value_in, value_of, writable
from rubricem.memory.text import with_leaves

RECORD, STEPS, ROUNDS, HELD_OUT = "run.json", "metrics.jsonl", "rounds.jsonl", "held_out"
NUMBERS, LOCK = "numbers.json", "lock"
SAVED_AT = "saved_at"
"""the metric with the time at which a round was saved, in seconds since 1970"""
Numbered = list[tuple[int, dict[str, Any]]]
Metrics = Mapping[str, Any]


def object_of(path: Path) -> dict[str, Any]:
    """A file's one JSON object; {} if there is no file, StoreError if it is damaged."""
    return value_in(path, dict[str, Any], what=f"{path.parent.name}/{path.name}") or {}


def objects_of(path: Path) -> list[dict[str, Any]]:
    """The same for a file with an object in each line; [] if there is no file."""
    with writable(path), suppress(FileNotFoundError):
        lines, what = path.read_bytes().splitlines(), f"{path.parent.name}/{path.name}"
        return [value_of(one, dict[str, Any], ALTERED, what) for one in lines if one.strip()]
    return []


def _shorten_path(held: Any) -> Any:
    """The last part of a path; anything else unchanged."""
    return PurePath(held).name if isinstance(held, str) and PurePath(held).is_absolute() else held


@dataclass(frozen=True, slots=True)
class KeptNumbers:
    """One training's numbers, in order."""

    record: dict[str, Any] = field(default_factory=dict)
    """its settings, without its machine's paths; {} if it has not begun"""
    unit: str = "step"
    """what `steps` counts: `step`, or `round`"""
    steps: Numbered = field(default_factory=list)
    held_out: Numbered = field(default_factory=list)
    """each under the number of rounds before it"""
    pairs: Numbered = field(default_factory=list)
    """of a judge: the results of its held-out pairs, likewise"""

    def lines(self) -> list[str]:
        told = [f"{self.record.get('method', 'trained')}, {self.record.get('model', 'a model')}"]
        told += [f"{self.unit} {n}: {join_metrics(found)}" for n, found in self.steps[-1:]]
        told += [
            f"held out after {n} rounds: {join_metrics(dict(found))}"
            for n, found in (*self.held_out, *self.pairs)
        ]
        return told

    def as_json(self) -> dict[str, Any]:
        return {
            "record": self.record,
            "unit": self.unit,
            "steps": [{**finite(metrics), "step": n} for n, metrics in self.steps],
            "held_out": [finite(metrics) for _, metrics in self.held_out],
            "pairs": [metrics for _, metrics in self.pairs],
        }


def read_numbers(folder: Path) -> KeptNumbers:
    """Read a training; what it has not stored yet is empty. Raises StoreError for damaged files."""
    unit = "round" if (folder / ROUNDS).exists() else "step"
    asked = sorted((folder / HELD_OUT).glob(f"[0-9]*/{NUMBERS}"))
    judged = sorted((folder / HELD_OUT).glob("[0-9]*.json"))
    lines = objects_of(folder / (ROUNDS if unit == "round" else STEPS))
    return KeptNumbers(
        record=with_leaves(object_of(folder / RECORD), _shorten_path),
        unit=unit,
        steps=[(int(line.get(unit, place)), line) for place, line in enumerate(lines, start=1)],
        held_out=[(int(path.parent.name), object_of(path)) for path in asked],
        # The measures of `judge.evaluation.report.PairReport`, by their names.
        pairs=[(int(p.stem), dict(object_of(p).get("measures", {}))) for p in judged],
    )


def number(metrics: Metrics, name: str) -> float | None:
    """A metric that is a finite number, or None; of a share with its interval the value."""
    value = metrics.get(name)
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def join_metrics(metrics: Metrics) -> str:
    told = ((n, v) for n, v in sorted(finite(metrics).items()) if n != SAVED_AT)
    return ", ".join(f"{n} {f'{v:,.0f}' if abs(v) >= 1e6 else f'{v:.6g}'}" for n, v in told)


def finite(metrics: Metrics) -> dict[str, float]:
    return {name: value for name in metrics if (value := number(metrics, name)) is not None}
