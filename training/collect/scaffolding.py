"""Rubric scaffolding: how much of a question's rubric each rollout of its group is shown.

Of n criteria, member i of G (i = 1 ... G) is shown, at progress t of the training in [0, 1],

    round(n * share(i, G) * decay(t))        halves are rounded to the even number

- share: linear, (G - i) / (G - 1), so that the last member sees none; binary, 1 for the first
  members and 0 for the others; full, 1;
- decay: sigmoid, 1 / (1 + exp(alpha * (t - t0))); linear, 1 - t; power, (1 - t) ** n; constant, 1.

A group of one is shown nothing, unless its share is full. The subsets of a group nest. Source:
RuscaRL (arXiv:2508.16949), section 3.2.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field, ValidationError

from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Criterion, Value
from rubricem.memory.text import fill, one_line, prompt

Share = Literal["linear", "binary", "full"]
Decay = Literal["sigmoid", "linear", "power", "constant"]


@dataclass(frozen=True, slots=True)
class Scaffold:
    text: str = ""
    shown: int = 0


class ScaffoldRule(Value):
    """How strong the scaffold is over a group, and over the training."""

    share: Share = "linear"
    full: int = Field(default=1, ge=0)
    """binary: members that are shown everything"""
    decay: Decay = "sigmoid"
    steepness: float = Field(default=125.0, ge=0, allow_inf_nan=False)
    """sigmoid: alpha"""
    middle: float = Field(default=0.2, ge=0, le=1)
    """sigmoid: the progress t0 at which half is left"""
    exponent: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """power: n"""
    progress: float = Field(default=0.0, ge=0, le=1)
    """t: 0 as the training begins, 1 at its end"""

    def scaffolds(self, criteria: Sequence[Criterion], size: int, seed: str) -> list[Scaffold]:
        counts = [criteria_shown(self, member, size, len(criteria)) for member in range(size)]
        return [Scaffold(scaffold_text(draw_nested(criteria, n, seed)), n) for n in counts]


def group_share(rule: ScaffoldRule, member: int, size: int) -> Fraction:
    """The share of the criteria for a member, counted from 0, while nothing has decayed."""
    if rule.share == "full":
        return Fraction(1)
    if size == 1:
        return Fraction(0)
    if rule.share == "binary":
        return Fraction(member < rule.full)
    return Fraction(size - 1 - member, size - 1)


def decay(rule: ScaffoldRule) -> float:
    """What is left of every share at the rule's progress, in [0, 1]."""
    match rule.decay:
        case "sigmoid":
            # exp(x) / (1 + exp(x)) in a form that overflows on neither side
            return 0.5 * (1.0 + math.tanh(rule.steepness * (rule.middle - rule.progress) / 2))
        case "linear":
            return 1.0 - rule.progress
        case "power":
            return float((1.0 - rule.progress) ** rule.exponent)
        case "constant":
            return 1.0


def criteria_shown(rule: ScaffoldRule, member: int, size: int, criteria: int) -> int:
    # The share is exact, so that a half is one until the decay has moved it.
    return round(float(criteria * group_share(rule, member, size)) * decay(rule))


def draw_nested(criteria: Sequence[Criterion], count: int, seed: str) -> list[Criterion]:
    """`count` of the criteria, in their order; with one seed, more contain fewer."""
    order = random.Random(seed).sample(range(len(criteria)), len(criteria))
    return [criteria[place] for place in sorted(order[:count])]


def scaffold_text(criteria: Sequence[Criterion]) -> str:
    """The criteria, neutralised, as a part of a system prompt, in two sections; "" for none."""
    if not criteria:
        return ""
    parts = (
        _section("Points to fulfil:", [c for c in criteria if c.positive]),
        _section("Flaws to avoid:", [c for c in criteria if not c.positive]),
    )
    return "\n\n" + fill(
        prompt("training", "scaffold"), {"sections": "\n\n".join(filter(None, parts))}
    )


def _section(head: str, criteria: Sequence[Criterion]) -> str:
    if not criteria:
        return ""
    items = (one_line(neutralise(c.description or c.title)) for c in criteria)
    return "\n".join([head, *(f"{number}. {item}" for number, item in enumerate(items, start=1))])


_SHARES = {"linear": (), "binary": ("full",), "full": ()}
_DECAYS = {
    "sigmoid": ("steepness", "middle"),
    "linear": (),
    "power": ("exponent",),
    "constant": (),
}


def scaffold_rule(share: str | None, decay: str, progress: float) -> ScaffoldRule | None:
    """The rule in words: `binary:4` over the group, `sigmoid:125:0.2` over the training."""
    if share is None:
        return None
    fields = {**_fields("share", share, _SHARES), **_fields("decay", decay, _DECAYS)}
    try:
        return ScaffoldRule(**fields, progress=progress)
    except ValidationError as cause:
        first = cause.errors()[0]
        raise SettingsError(
            f"The scaffold's {first['loc'][0]} cannot be {first['input']}: {first['msg']}.",
            "Write it as binary:4, sigmoid:125:0.2 or power:2.",
        ) from cause


def _fields(what: str, said: str, known: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    kind, *numbers = said.split(":")
    if kind not in known or len(numbers) > len(known[kind]):
        raise SettingsError(
            f"There is no scaffold {said!r}.",
            f"Use one of {', '.join(':'.join((k, *map(str.upper, v))) for k, v in known.items())}.",
        )
    return {what: kind, **dict(zip(known[kind], numbers, strict=False))}
