"""The events of a training in progress.

A listener is called from worker threads, so it must return at once. docs/training_numbers.md
explains the numbers that events carry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Tracker = Literal["tensorboard", "wandb", "trackio"]
Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowsDone:
    unit: Literal["step", "round"]
    number: int
    """of the step or the round, from 1"""
    of: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step on given rows is done, and saved if it is due; a round is always saved."""

    number: int
    of: int
    metrics: Metrics
    unit: Literal["step", "round"] = "step"


@dataclass(frozen=True, slots=True)
class HeldOutJudged:
    """The held-out questions are judged after this many rounds' updates."""

    updates: int
    metrics: Metrics


Event = RowsDone | StepTaken | HeldOutJudged
Watch = Callable[[Event], None]


def watch_nothing(event: Event) -> None:
    """A `Watch` that shows nothing."""


HELD_OUT = "held_out/"
