"""How a collecting run goes, in one line for people: rates, cost, and the time that is left."""

import time
from dataclasses import dataclass, field

from training.meter import Meter


@dataclass
class Progress:
    """Counts the rollouts of a run."""

    rollouts: int
    """of all steps"""
    done: int
    """that ended, in this process or before it"""
    meter: Meter
    _began: float = field(default_factory=time.monotonic)
    _fresh: int = 0

    def __post_init__(self) -> None:
        self._written_before = self.meter.written

    def ended(self) -> None:
        """Another rollout has ended."""
        self.done += 1
        self._fresh += 1

    def line(self) -> str:
        """Counts and rates since this process began."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        a_second = self._fresh / seconds
        written = (self.meter.written - self._written_before) / seconds
        parts = [
            f"{self.done} of {self.rollouts} rollouts",
            f"{a_second * 60:.1f} a minute",
            f"{written:.0f} tokens/s",
        ]
        if self.meter.cost:
            parts.append(f"{self.meter.cost:.2f} US dollars so far")
        if self.done >= self.rollouts:
            parts.append("the last are being judged")
        elif a_second:
            parts.append(f"about {_lasting((self.rollouts - self.done) / a_second)} left")
        return ", ".join(parts)


def _lasting(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
