"""The numbers that a training has stored, read from its folder without loading torch.

    run.json                        its settings
    metrics.jsonl                   a line for each update
    rounds.jsonl                    a line for each round, if the policy collects by itself
    held_out/NNN/numbers.json       the held-out questions after NNN rounds
    held_out/NNN.json               of a judge: the held-out pairs after NNN rounds
    lock                            held by the process that trains, as long as it does
    canary.json                     how far llama.cpp's log-probabilities are from the trainer's

A training in rounds is counted in rounds, since those are collected, judged and stored. The texts
of its numbers and its few facts are the same for its page, the terminal, the card of a checkpoint
and JSON.
"""

import json
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from rubricem.agent.reports.report import decimal, duration
from rubricem.memory.runs import ALTERED, value_in, value_of, writable
from rubricem.memory.schema import Stage
from rubricem.memory.text import with_leaves


def training_record(folder: Path) -> dict[str, Any]:
    """The run's settings, without its machine's paths; {} if it has not begun."""
    found: dict[str, Any] = with_leaves(object_of(folder / "run.json"), _shorten_path)
    return found


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return objects_of(folder / "metrics.jsonl")


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


RECORD, STEPS, ROUNDS, HELD_OUT = "run.json", "metrics.jsonl", "rounds.jsonl", "held_out"
NUMBERS, CANARY, LOCK = "numbers.json", "canary.json", "lock"
Numbered = list[tuple[int, dict[str, Any]]]
Metrics = Mapping[str, Any]
Fact = tuple[str, str, str]
"""name, value, and the text below it"""
ASKED_HEADS = ("after rounds", "questions", *Stage, "unscored", "malformed")
PAIR_HEADS = ("after rounds", "right", "the same in both orders", "without a verdict")
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class KeptNumbers:
    """One training's numbers, in order."""

    record: dict[str, Any] = field(default_factory=dict)
    unit: str = "step"
    """what `steps` counts: `step`, or `round`"""
    steps: Numbered = field(default_factory=list)
    held_out: Numbered = field(default_factory=list)
    """each under the number of rounds before it"""
    pairs: Numbered = field(default_factory=list)
    """of a judge: the results of its held-out pairs, likewise"""
    canary: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> dict[str, Any]:
        return self.steps[-1][1] if self.steps else {}

    def about(self) -> str:
        """In a sentence, what is trained by which method."""
        record = self.record
        method = f"{record.get('method', 'trained')}"
        if form := record.get("judge"):
            method = f"a judge of pairs ({form}), {'imitation' if method == 'sft' else 'GRPO'}"
        how = record.get("adaptation", "")
        how = f"LoRA of rank {record.get('rank')}" if how == "lora" else "all weights"
        parts = [method, f"{record.get('model', 'a model')}", how]
        if rate := number(record, "learning_rate"):
            parts.append(f"learning rate {rate:g}, {record.get('schedule', 'constant')}")
        return ", ".join(parts) + "."

    def facts(self) -> list[Fact]:
        """Its progress, and the latest main numbers."""
        last, count = self.last, len(self.steps)
        found = [(f"{self.unit.capitalize()}s done", f"{count}", "")]
        for name, metric, form in (
            ("Loss", "loss", ".4g"),
            ("Mean answer reward", "reward/answer/mean", ".2f"),
            ("Unscored stages", "unscored_share", ".0%"),
            ("Right verdicts", "right", ".0%"),
        ):
            if (value := number(last, metric)) is not None:
                first = next(v for _, m in self.steps if (v := number(m, metric)) is not None)
                since = f"{format(first, form)} at first" if count > 1 else ""
                found.append((name, format(value, form), since))
        if self.held_out:
            updates, asked = self.held_out[-1]
            mean = decimal(number(asked, "reward/answer/mean"))
            told = with_interval(asked, "reward/answer").removeprefix(mean).strip(" ()")
            more = f"{told}, after {updates} rounds" if told else f"after {updates} rounds"
            found.append(("Held-out answer score", mean, more))
        if self.pairs:
            after, right, _, _ = self.pair_rows()[-1]
            found.append(("Held-out pairs right", right, f"after {after} rounds"))
        if tokens := self._total("tokens"):
            found.append(("Tokens trained", f"{tokens:,.0f}", ""))
        if seconds := self._total("seconds"):
            found.append(("Time in updates", duration(seconds), ""))
        if (peak := number(last, "memory_peak")) is not None:
            found.append(("Memory peak", f"{peak / GIGABYTE:.1f} GB", ""))
        if (gap := number(self.canary, "mean")) is not None:
            found.append(("Canary", f"{gap:.4f}", "nats a token between sampler and trainer"))
        return found

    def asked_rows(self) -> list[list[str]]:
        """A row for each measuring of the held-out questions, in the order of `ASKED_HEADS`."""
        return [
            [
                f"{updates}",
                decimal(number(found, "rollouts"), ".0f"),
                *(with_interval(found, f"reward/{stage}") for stage in Stage),
                decimal(number(found, "unscored_share"), ".0%"),
                decimal(number(found, "malformed_share"), ".0%"),
            ]
            for updates, found in self.held_out
        ]

    def pair_rows(self) -> list[list[str]]:
        """A row for each judging of a judge's held-out pairs, in the order of `PAIR_HEADS`."""

        def share(found: Any) -> str:
            """A share, with the ends of its interval."""
            if not isinstance(found, Mapping) or (value := number(found, "value")) is None:
                return "none"
            low, high = (number(found, end) or 0.0 for end in ("low", "high"))
            return f"{value:.2f} of {found.get('n')} ({low:.2f} to {high:.2f})"

        measures = ("accuracy", "consistent", "unparsed")
        return [
            [f"{updates}", *(share(found.get(name)) for name in measures)]
            for updates, found in self.pairs
        ]

    def settings(self, besides: Collection[str] = ()) -> list[tuple[str, str]]:
        """The run's settings, without some of them, in the form of `settings_in`."""
        return settings_in({name: v for name, v in self.record.items() if name not in besides})

    def _total(self, metric: str) -> float:
        """Over all updates; a round reports its reflections' separately."""
        names = metric, f"reflect_{metric}"
        return sum(number(metrics, name) or 0.0 for _, metrics in self.steps for name in names)

    def as_json(self) -> dict[str, Any]:
        """Everything that is stored, as one JSON object, without numbers that are not finite."""
        return {
            "record": self.record,
            "unit": self.unit,
            "steps": [_finite(metrics) for _, metrics in self.steps],
            "held_out": [_finite(metrics) for _, metrics in self.held_out],
            "pairs": [metrics for _, metrics in self.pairs],
            "canary": self.canary or None,
        }


def read_numbers(folder: Path) -> KeptNumbers:
    """Read a training; what it has not stored yet is empty. Raises StoreError for damaged files."""
    unit = "round" if (folder / ROUNDS).exists() else "step"
    asked = sorted((folder / HELD_OUT).glob(f"[0-9]*/{NUMBERS}"))
    judged = sorted((folder / HELD_OUT).glob("[0-9]*.json"))
    lines = objects_of(folder / (ROUNDS if unit == "round" else STEPS))
    return KeptNumbers(
        record=training_record(folder),
        unit=unit,
        steps=[(int(line.get(unit, place)), line) for place, line in enumerate(lines, start=1)],
        held_out=[(int(path.parent.name), object_of(path)) for path in asked],
        # The measures of `judge.evaluation.report.PairReport`, by their names.
        pairs=[(int(p.stem), dict(object_of(p).get("measures", {}))) for p in judged],
        canary=object_of(folder / CANARY),
    )


def number(metrics: Metrics, name: str) -> float | None:
    """A metric that is a finite number, or None."""
    value = metrics.get(name)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


SAVED_AT = "saved_at"
"""the metric with the time at which a round was saved, in seconds since 1970"""
ROUNDING = 1e-12


def with_interval(found: Mapping[str, Any], name: str) -> str:
    """A mean, and the ends of its interval if they are known."""
    mean, low, high = (number(found, f"{name}/{part}") for part in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return decimal(mean)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def format_numbers(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every number of a step by its name, in order.

    Sums that differ from 0 only by rounding are 0, and large numbers have all their digits.
    """
    found = []
    for name, value in sorted(_finite(metrics).items()):
        told = "0" if abs(value) < ROUNDING else f"{value:.6g}"
        found.append((name, f"{value:,.0f}" if abs(value) >= 1e6 else told))
    return [one for one in found if one[0] != SAVED_AT]


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name in metrics if (value := number(metrics, name)) is not None}


def settings_in(record: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Dotted names, and values as in JSON, but strings without quotes; empty ones are left out."""
    found: list[tuple[str, str]] = []
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            found += settings_in(value, f"{before}{name}.")
        elif value not in (None, {}, [], ""):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append((f"{before}{name}", text))
    return found
