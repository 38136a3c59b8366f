"""A training in a few facts, for its page, the terminal and JSON alike."""

import json
from collections.abc import Mapping
from typing import Any

from agent.reports.report import duration
from memory.schema import Stage
from training.watching.figures import GIGABYTE, number
from training.watching.kept import KeptNumbers

SAVED_AT = "saved_at"
"""the metric that says when a round was saved, in seconds since 1970"""
ROUNDING = 1e-12
Fact = tuple[str, str, str]
"""name, value, and what is said below it"""


def about(kept: KeptNumbers) -> str:
    """What is trained by which method, in a sentence."""
    record = kept.record
    method = f"{record.get('method', 'trained')}"
    if form := record.get("judge"):
        method = f"a judge of pairs ({form}), {'imitation' if method == 'sft' else 'GRPO'}"
    how = record.get("adaptation", "")
    how = f"LoRA of rank {record.get('rank')}" if how == "lora" else "all weights"
    parts = [method, f"{record.get('model', 'a model')}", how]
    if rate := number(record, "learning_rate"):
        parts.append(f"learning rate {rate:g}, {record.get('schedule', 'constant')}")
    return ", ".join(parts) + "."


def facts(kept: KeptNumbers) -> list[Fact]:
    """How far it is, and where the main numbers stand."""
    last, count = kept.last, len(kept.steps)
    found = [(f"{kept.unit.capitalize()}s done", f"{count}", "")]
    for name, metric, form in (
        ("Loss", "loss", ".4g"),
        ("Mean answer reward", "reward/answer/mean", ".2f"),
        ("Unscored stages", "unscored_share", ".0%"),
        ("Right verdicts", "right", ".0%"),
    ):
        if (value := number(last, metric)) is not None:
            found.append((name, format(value, form), _since(kept, metric, form)))
    if kept.held_out:
        updates, asked = kept.held_out[-1]
        mean = shown(number(asked, "reward/answer/mean"), ".2f")
        told = with_interval(asked, "reward/answer").removeprefix(mean).strip(" ()")
        more = f"{told}, after {updates} rounds" if told else f"after {updates} rounds"
        found.append(("Held-out answer score", mean, more))
    if kept.pairs:
        after, right, _, _ = pair_rows(kept)[-1]
        found.append(("Held-out pairs right", right, f"after {after} rounds"))
    tokens = _total(kept, "tokens")
    if tokens:
        found.append(("Tokens trained", f"{tokens:,.0f}", ""))
    if seconds := _total(kept, "seconds"):
        found.append(("Time in updates", duration(seconds), ""))
    if (peak := number(last, "memory_peak")) is not None:
        found.append(("Memory peak", f"{peak / GIGABYTE:.1f} GB", ""))
    if (gap := number(kept.canary, "mean")) is not None:
        found.append(("Canary", f"{gap:.4f}", "nats a token between sampler and trainer"))
    return found


def asked_rows(kept: KeptNumbers) -> list[list[str]]:
    """A line for each asking of the held-out questions."""
    return [
        [
            f"{updates}",
            shown(number(found, "rollouts"), ".0f"),
            *(with_interval(found, f"reward/{stage}") for stage in Stage),
            shown(number(found, "unscored_share"), ".0%"),
            shown(number(found, "malformed_share"), ".0%"),
        ]
        for updates, found in kept.held_out
    ]


PAIR_HEADS = ("after rounds", "right", "the same in both orders", "without a verdict")


def pair_rows(kept: KeptNumbers) -> list[list[str]]:
    """A line for each judging of a judge's held-out pairs, in the order of `PAIR_HEADS`."""
    return [
        [
            f"{updates}",
            *(_share(found.get(name)) for name in ("accuracy", "consistent", "unparsed")),
        ]
        for updates, found in kept.pairs
    ]


def _share(found: Any) -> str:
    """A share of so many, with the ends of its interval."""
    if not isinstance(found, Mapping) or (value := number(found, "value")) is None:
        return "none"
    low, high = (number(found, end) or 0.0 for end in ("low", "high"))
    return f"{value:.2f} of {found.get('n')} ({low:.2f} to {high:.2f})"


def with_interval(found: Mapping[str, Any], name: str) -> str:
    """A mean, and the ends of its interval where they are known."""
    mean, low, high = (number(found, f"{name}/{part}") for part in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return shown(mean, ".2f")
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def settings(record: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Names with dots, and values as JSON writes them, texts without quotes; none that is empty."""
    found: list[tuple[str, str]] = []
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            found += settings(value, f"{before}{name}.")
        elif value not in (None, {}, [], ""):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append((f"{before}{name}", text))
    return found


def shown(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def shown_numbers(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every number of a step by its name, in order."""
    known = ((name, number(metrics, name)) for name in sorted(metrics) if name != SAVED_AT)
    return [(name, _figure(value)) for name, value in known if value is not None]


def _figure(value: float) -> str:
    """Sums that come to nothing but rounding are 0, and large numbers have all their digits."""
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.6g}"


def training_json(kept: KeptNumbers) -> dict[str, Any]:
    """All that is kept, as one JSON object; what is no finite number is left out."""
    return {
        "record": kept.record,
        "unit": kept.unit,
        "steps": [_finite(metrics) for _, metrics in kept.steps],
        "held_out": [_finite(metrics) for _, metrics in kept.held_out],
        "pairs": [metrics for _, metrics in kept.pairs],
        "canary": kept.canary or None,
    }


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name in metrics if (value := number(metrics, name)) is not None}


def _since(kept: KeptNumbers, metric: str, form: str) -> str:
    first = next((v for _, m in kept.steps if (v := number(m, metric)) is not None), None)
    return f"{format(first, form)} at first" if first is not None and len(kept.steps) > 1 else ""


def _total(kept: KeptNumbers, metric: str) -> float:
    """Over all updates; a round tells of its reflections' apart."""
    names = metric, f"reflect_{metric}"
    return sum(number(metrics, name) or 0.0 for _, metrics in kept.steps for name in names)
