"""A training as lines of plain text: into a log, a pipe, or a terminal that cannot draw."""

from collections.abc import Callable, Iterable

from training.watching.events import (
    Event,
    HeldOutJudged,
    PhaseChanged,
    RoundTrained,
    RowsDone,
    StepTaken,
)
from training.watching.figures import lasting, reward_figures, step_figures
from training.watching.progress import Progress

Tell = Callable[[str], None]


class PlainLines:
    """A listener that tells a line of each step, round and asking."""

    def __init__(self, tell: Tell, progress: Progress | None = None) -> None:
        self._tell = tell
        self._progress = progress or Progress()

    def __call__(self, event: Event) -> None:
        self._progress.advance(event)
        if line := self._line(event):
            self._tell(line)

    def _line(self, event: Event) -> str:
        match event:
            case RowsDone():
                return (
                    f"{event.unit} {event.number} of {event.of}: row {event.done} of {event.total}"
                )
            case StepTaken():
                told = joined(step_figures(event.metrics)) or "no row had an advantage"
                return f"step {event.number} of {event.of}: {told}{self._left()}"
            case RoundTrained():
                parts = (reward_figures(event.metrics), step_figures(event.metrics))
                told = "; ".join(filter(None, map(joined, parts)))
                told = told or "nothing to train on"
                return f"round {event.number} of {event.of} is saved: {told}{self._left()}"
            case HeldOutJudged():
                told = joined(reward_figures(event.metrics)) or "none was scored"
                return f"held-out questions after {event.updates} updates: {told}"
            case PhaseChanged():
                return ""

    def _left(self) -> str:
        left = self._progress.left
        return f"; about {lasting(left)} left" if left else ""


def joined(figures: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures)
