"""Rubric scaffolding: how much of a question's rubric each rollout of its group is shown.

Of n criteria, member i of G (i = 1 ... G) is shown, at progress t of the training in [0, 1],

    round(n * (G - i) / (G - 1) / (1 + exp(alpha * (t - t0))))    halves become the even number

so that the last member sees none, as does a group of one. The subsets of a group nest. Source:
RuscaRL (arXiv:2508.16949), section 3.2, by its linear share and its sigmoid.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pydantic import Field

from rubricem.agent.transcript.question import Ask
from rubricem.agent.transcript.scaffold import neutralise
from rubricem.memory.schema import AnswerFormat, Criterion, Value
from rubricem.memory.text import fill, one_line, prompt


@dataclass(frozen=True, slots=True)
class Scaffold:
    text: str = ""
    shown: int = 0


def ask_under(
    template: Ask, question: str, form: AnswerFormat | None, seed: int, shown: Scaffold
) -> Ask:
    """What a rollout is asked; `form` None: the template's."""
    return replace(
        template, question=question, answer_format=form or template.answer_format, seed=seed,
        scaffold=shown.text, criteria_shown=shown.shown,
    )  # fmt: skip


class ScaffoldRule(Value):
    """How strong the scaffold is over a group, and over the training."""

    share: str = "linear"
    """over the group; runs of ec15fe0e have others, by which no new one is collected"""
    decay: str = "sigmoid"
    """over the training; likewise"""
    steepness: float = Field(default=125.0, ge=0, allow_inf_nan=False)
    """alpha"""
    middle: float = Field(default=0.2, ge=0, le=1)
    """t0, the progress at which half is left"""
    progress: float = Field(default=0.0, ge=0, le=1)
    """t: 0 as the training begins, 1 at its end"""

    def scaffolds(self, criteria: Sequence[Criterion], size: int, seed: str) -> list[Scaffold]:
        counts = [criteria_shown(self, member, size, len(criteria)) for member in range(size)]
        return [Scaffold(scaffold_text(draw_nested(criteria, n, seed)), n) for n in counts]


def criteria_shown(rule: ScaffoldRule, member: int, size: int, criteria: int) -> int:
    """Of so many criteria, for a member of a group of `size`, counted from 0."""
    # The share is exact, so that a half is one until the decay has moved it.
    share = Fraction(size - 1 - member, size - 1) if size > 1 else Fraction(0)
    # exp(x) / (1 + exp(x)) in a form that overflows on neither side
    left = 0.5 * (1.0 + math.tanh(rule.steepness * (rule.middle - rule.progress) / 2))
    return round(float(criteria * share) * left)


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
