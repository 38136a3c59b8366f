"""A training shown while it goes on, on standard error: drawn in place, or as plain lines.

Standard output stays free for what the command prints at its end.

A training on the terminal: facts, a table of its last steps, and the held-out questions.

A training as lines of plain text: into a log, a pipe, or a terminal that cannot draw.

How far a training is: what its events so far come to, and the time that is left.

The numbers of a training as TensorBoard's event files, by the names that metrics.jsonl has.

A step is what the training counts: steps on given rows, or rounds; what the held-out questions
came to stands under `held_out/` at the number of rounds before it. A log is opened with all that
the training has kept so far and takes the place of an earlier one, so a training that was killed
and goes on has every step once.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rubricem.memory.runs import writable
from rubricem.memory.schema import Stage
from rubricem.memory.text import one_line
from rubricem.training.extras import needed
from rubricem.training.show.collected_page import LAST, PIPED_WIDTH
from rubricem.training.show.events import (
    Event,
    HeldOutJudged,
    Phase,
    PhaseChanged,
    RoundTrained,
    RowsDone,
    StepTaken,
    Watch,
    watched_by,
)
from rubricem.training.show.training import (
    GIGABYTE,
    PAIR_HEADS,
    KeptNumbers,
    about,
    asked_rows,
    facts,
    kept_numbers,
    lasting,
    number,
    pair_rows,
    reward_figures,
    shown,
    step_figures,
)

Clock = Callable[[], float]


@dataclass
class TrainProgress:
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


Tell = Callable[[str], None]


class PlainTraining:
    """A listener that tells a line of each step, round and asking."""

    def __init__(self, tell: Tell, progress: TrainProgress | None = None) -> None:
        self._tell = tell
        self._progress = progress or TrainProgress()

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


SAID = 3
"""lines told last that stay in sight"""
_HELD_OUT = {
    "held-out": "held-out questions after {} updates",
    "held-out pairs": "held-out pairs after {} rounds",
}
BAR = 30
"""columns of the bar at most"""


@contextmanager
def training_view(
    title: str, tell: Tell, *, quiet: bool = False, console: Console | None = None
) -> Iterator[tuple[Tell, Watch]]:
    """Where lines and events go, for as long as the context lasts.

    `tell` prints a plain line, which is all there is where standard error is no terminal.
    `quiet`: draw nothing on a terminal either.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield tell, PlainTraining(tell)
        return
    view = _View(title)
    # Standard output is the command's: what is written there must not pass through here.
    with Live(
        get_renderable=view.draw, console=console, refresh_per_second=4, redirect_stdout=False
    ):
        yield view.say, view.listen


class _View:
    def __init__(self, title: str) -> None:
        self._title = title
        self._progress = TrainProgress()
        self._said: deque[str] = deque(maxlen=SAID)

    def say(self, line: str) -> None:
        self._said.append(line)

    def listen(self, event: Event) -> None:
        self._progress.advance(event)

    def draw(self) -> Group:
        return drawing(self._title, self._progress, tuple(self._said))


def drawing(title: str, progress: TrainProgress, said: Iterable[str] = ()) -> Group:
    """The live view: how far it is, the phases, the last numbers, and the last lines told."""
    parts: list[RenderableType] = [Text(one_line(title), style="bold"), _how_far(progress)]
    if progress.phases:
        parts.append(Text(f"  now    {_phases(progress)}", style="cyan"))
    if rewards := reward_figures(progress.metrics):
        parts.append(_line("reward", rewards))
    if figures := step_figures(progress.metrics):
        parts.append(_line("update", figures))
    if (held := progress.held_out) is not None:
        scored = [one for one in reward_figures(held.metrics) if one[0] in set(Stage)]
        parts.append(_line("held out", [*scored, ("after", f"{held.updates} updates")]))
    parts += [Text(f"  {one_line(line)}", style="dim") for line in said]
    for part in parts:
        if isinstance(part, Text) and part.style:
            # Numbers go on in the next line; words are cut.
            part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def _how_far(progress: TrainProgress) -> RenderableType:
    told = f"  {progress.unit} {progress.done} of {progress.of}" if progress.of else "  beginning"
    part = progress.rows[0] / max(progress.rows[1], 1) if progress.rows else 0.0
    after = f"row {progress.rows[0]} of {progress.rows[1]}" if progress.rows else ""
    if (left := progress.left) is not None and progress.done < progress.of:
        after += f"{', ' if after else ''}about {lasting(left)} left"
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=len(told))
    table.add_column(max_width=BAR)
    table.add_column(no_wrap=True)
    bar = ProgressBar(max(progress.of, 1), progress.done + part)
    table.add_row(Text(told), bar, Text(after, style="dim"))
    return table


def _phases(progress: TrainProgress) -> str:
    return " · ".join(
        _HELD_OUT.get(phase, f"{phase} round {{}}").format(number)
        for phase, number in progress.phases.items()
    )


def _line(name: str, figures: Iterable[tuple[str, str]]) -> Text:
    text = Text(f"  {name}")
    for label, value in figures:
        text.append(f"  {label} ", style="dim").append(value, style="bold")
    return text


_COLUMNS = (
    ("loss", "loss", ".4g"),
    ("grad norm", "grad_norm", ".3g"),
    ("rate", "rate", ".2g"),
    ("KL old", "kl_old", ".2g"),
    ("KL ref", "kl_reference", ".2g"),
    ("clipped", "clipped", ".1%"),
    *((stage.value, f"reward/{stage}/mean", ".2f") for stage in Stage),
    ("unscored", "unscored_share", ".0%"),
    ("right", "right", ".0%"),
    ("malformed", "malformed", ".0%"),
    ("written", "tokens/policy/mean", ",.0f"),
    ("stale", "staleness/mean", ".1f"),
    ("tokens/s", "tokens_per_second", ",.0f"),
    ("GB", "gigabytes", ".1f"),
)


def print_training(kept: KeptNumbers, title: str, console: Console | None = None) -> None:
    """Facts, the last steps, and every asking of the held-out questions."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(title), style="bold"))
    console.print(Text(one_line(about(kept)), style="dim"))
    told = (f"{name} {value}{f' ({more})' if more else ''}" for name, value, more in facts(kept))
    console.print(Text("; ".join(told), style="dim"))
    if kept.steps:
        console.print(_steps(kept))
    if kept.held_out:
        heads = ("after", "questions", *Stage, "unscored", "malformed")
        console.print(_table("held-out questions, mean scores (95%)", heads, asked_rows(kept)))
    if kept.pairs:
        console.print(_table("held-out pairs, shares (95%)", PAIR_HEADS, pair_rows(kept)))


def _steps(kept: KeptNumbers) -> Table:
    """The columns that have a value in any of the last steps."""
    last = [
        (step, {**metrics, "clipped": _clipped(metrics), "gigabytes": _gigabytes(metrics)})
        for step, metrics in kept.steps[-LAST:]
    ]
    there = [c for c in _COLUMNS if any(number(m, c[1]) is not None for _, m in last)]
    rows = [
        [f"{step}", *(shown(number(m, name), form).replace("none", "-") for _, name, form in there)]
        for step, m in last
    ]
    table = _table("", [kept.unit, *(head for head, _, _ in there)], rows)
    if len(kept.steps) > LAST:
        table.caption = f"the last {LAST} of {len(kept.steps)} {kept.unit}s"
    return table


def _clipped(metrics: dict[str, float]) -> float | None:
    low, high = number(metrics, "clipped_low"), number(metrics, "clipped_high")
    return None if low is None and high is None else (low or 0.0) + (high or 0.0)


def _gigabytes(metrics: dict[str, float]) -> float | None:
    peak = number(metrics, "memory_peak")
    return None if peak is None else peak / GIGABYTE


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


EXTRA, SUFFIX = "tensorboard", ".rubricem"
"""the ending of the event files that are ours, and that a new log replaces"""
HELD_OUT = "held_out/"
FOLDER = "tensorboard"
"""in a training's folder"""


class TensorBoardLog:
    """An open event file; it listens to the training whose numbers it takes."""

    def __init__(self, folder: Path, kept: KeptNumbers) -> None:
        """Raises SettingsError without the extra, StoreError where the folder cannot be used."""
        writer = needed("tensorboard.summary.writer.event_file_writer", EXTRA)
        self._events = needed("tensorboard.compat.proto.event_pb2", EXTRA)
        self._summaries = needed("tensorboard.compat.proto.summary_pb2", EXTRA)
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for earlier in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
                earlier.unlink()
            self._file = writer.EventFileWriter(str(folder), filename_suffix=SUFFIX)
        for step, metrics in kept.steps:
            self._add(step, metrics)
        for updates, metrics in kept.held_out:
            self._add(updates, metrics, HELD_OUT)
        self._file.flush()

    def __call__(self, event: Event) -> None:
        match event:
            case StepTaken() | RoundTrained():
                self._add(event.number, event.metrics)
            case HeldOutJudged():
                self._add(event.updates, event.metrics, HELD_OUT)
            case _:
                return
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, step: int, metrics: Mapping[str, Any], prefix: str = "") -> None:
        """One point of each metric that is a finite number."""
        values = [
            self._summaries.Summary.Value(tag=prefix + name, simple_value=value)
            for name in metrics
            if (value := number(metrics, name)) is not None
        ]
        summary = self._summaries.Summary(value=values)
        self._file.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))


@contextmanager
def with_event_files(watch: Watch, out: Path, wanted: bool) -> Iterator[Watch]:
    """The listener, and beside it a log in the training's folder where one is wanted."""
    if not wanted:
        yield watch
        return
    with event_log(out / FOLDER, kept_numbers(out)) as log:
        yield watched_by(watch, log)


@contextmanager
def event_log(folder: Path, kept: KeptNumbers) -> Iterator[TensorBoardLog]:
    """A log that is whole on disk at the end of the context."""
    log = TensorBoardLog(folder, kept)
    try:
        yield log
    finally:
        log.close()
