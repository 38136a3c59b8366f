"""What a training tells while it goes on, to whoever watches: a terminal, a log, event files.

A listener is called from the threads that work, so it must return at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["collect", "judge", "reflect", "update", "held-out", "held-out pairs"]
Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowsDone:
    """So many parts of a step's window have been through the model."""

    unit: Literal["step", "round"]
    number: int
    """of the step or the round, from 1"""
    of: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step on given rows is done, and kept where one is kept then."""

    number: int
    of: int
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class RoundTrained:
    """A round's updates are done and kept."""

    number: int
    of: int
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """A phase of a round began or ended; several go on at the same time."""

    phase: Phase
    number: int
    """of the round, from 1; of what is held out the updates or rounds before it"""
    running: bool


@dataclass(frozen=True, slots=True)
class HeldOutJudged:
    """The held-out questions are judged after so many rounds' updates."""

    updates: int
    metrics: Metrics


Event = RowsDone | StepTaken | RoundTrained | PhaseChanged | HeldOutJudged
Watch = Callable[[Event], None]


def unwatched(event: Event) -> None:
    """The `Watch` of a caller that shows nothing."""


def watched_by(*watches: Watch) -> Watch:
    """One listener that tells several, in order."""

    def tell(event: Event) -> None:
        for watch in watches:
            watch(event)

    return tell
