"""How far a training is: what its events so far come to, and the time that is left."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.watching.events import (
    Event,
    HeldOutJudged,
    Phase,
    PhaseChanged,
    RoundTrained,
    RowsDone,
    StepTaken,
)

Clock = Callable[[], float]


@dataclass
class Progress:
    """One training, or the rest of one that goes on."""

    clock: Clock = time.monotonic
    unit: str = "step"
    """`step`, or `round` where the policy collects by itself"""
    done: int = 0
    of: int = 0
    """0: not known yet"""
    rows: tuple[int, int] | None = None
    """parts of the window under way that are done, and all of them"""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """of the last step or round"""
    phases: dict[Phase, int] = field(default_factory=dict)
    """those that go on, each with its round"""
    held_out: HeldOutJudged | None = None
    _fresh: int = 0

    def __post_init__(self) -> None:
        self._began = self._last = self.clock()

    def advance(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case RowsDone():
                self.unit, self.of, self.rows = event.unit, event.of, (event.done, event.total)
                self.done = event.number - 1
            case StepTaken() | RoundTrained():
                self.unit = "step" if isinstance(event, StepTaken) else "round"
                self.done, self.of, self.metrics = event.number, event.of, event.metrics
                self.rows, self._last = None, self.clock()
                self._fresh += 1
            case PhaseChanged(phase, number, True):
                self.phases[phase] = number
            case PhaseChanged(phase, number):
                if self.phases.get(phase) == number:
                    del self.phases[phase]
            case HeldOutJudged():
                self.held_out = event

    @property
    def left(self) -> float | None:
        """Seconds to the end at the speed since this process began; None: nothing was done yet."""
        if not self._fresh or not self.of:
            return None
        each = (self._last - self._began) / self._fresh
        return max(each * (self.of - self.done) - (self.clock() - self._last), 0.0)
