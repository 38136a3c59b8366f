"""Which numbers of a step are shown to people, and how they are written."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from memory.schema import Stage

Metrics = Mapping[str, Any]
GIGABYTE = 1e9

_OF_STEP = (
    ("loss", "loss", ".4g"),
    ("grad norm", "grad_norm", ".3g"),
    ("rate", "rate", ".2g"),
    ("KL to old", "kl_old", ".2g"),
    ("KL to reference", "kl_reference", ".2g"),
    ("sampler gap", "sampler_gap", ".2g"),
)
_OF_VERDICTS = (
    ("right", "right", ".0%"),
    ("malformed", "malformed", ".0%"),
    ("unscored", "unscored", ".0%"),
    ("mean reward", "reward", ".2f"),
)


def number(metrics: Metrics, name: str) -> float | None:
    """A metric that is a finite number, or None."""
    value = metrics.get(name)
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def step_figures(metrics: Metrics) -> list[tuple[str, str]]:
    """Names and values of an update, those that it has; [] where no row had a gradient."""
    if number(metrics, "grad_norm") is None:
        return []
    found = _figures(metrics, _OF_STEP)
    low, high = number(metrics, "clipped_low"), number(metrics, "clipped_high")
    if low is not None or high is not None:
        found.append(("clipped", f"{(low or 0) + (high or 0):.1%}"))
    if (speed := number(metrics, "tokens_per_second")) is not None:
        found.append(("tokens/s", f"{speed:,.0f}"))
    if (peak := number(metrics, "memory_peak")) is not None:
        found.append(("memory peak", f"{peak / GIGABYTE:.1f} GB"))
    return found


def reward_figures(metrics: Metrics) -> list[tuple[str, str]]:
    """Mean rewards by stage, shares without a score and the staleness, those that there are.

    Of a judge that learns from its own verdicts, shares of those and their mean reward.
    """
    found = [
        (stage.value, f"{value:.2f}")
        for stage in Stage
        if (value := number(metrics, f"reward/{stage}/mean")) is not None
    ]
    if (unscored := number(metrics, "unscored_share")) is not None:
        found.append(("unscored", f"{unscored:.0%}"))
    if absent := number(metrics, "no_criteria_share"):
        found.append(("without criteria", f"{absent:.0%}"))
    if (stale := number(metrics, "staleness/mean")) is not None:
        most = number(metrics, "staleness/max")
        found.append(("staleness", f"{stale:.1f}" + (f" (at most {most:.0f})" if most else "")))
    return found + _figures(metrics, _OF_VERDICTS)


def _figures(metrics: Metrics, plan: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [
        (label, format(value, form))
        for label, name, form in plan
        if (value := number(metrics, name)) is not None
    ]


def lasting(seconds: float) -> str:
    """A time that is left, in its two largest units."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
