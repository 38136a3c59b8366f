"""Runs on the terminal: a training in progress, both kinds of run as tables, and event files.

A training in progress is reported on standard error, drawn in place or as plain lines (a log, a
pipe, a terminal that cannot draw); standard output stays free for what the command prints at its
end. TensorBoard's event files have the numbers by the names of metrics.jsonl, with the training's
own count as the step, and the results of held-out questions under `held_out/` at the number of
rounds before. A log begins with everything that the training has stored so far and replaces an
earlier log, so a training that was killed and resumed has every step once.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rubricem.agent.reports.display import print_heading
from rubricem.agent.reports.report import decimal, duration, price
from rubricem.memory.errors import SettingsError, boundary, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import NO_USAGE, Stage, Usage
from rubricem.memory.text import one_line, seed_of
from rubricem.training.extras import Pace, lasting
from rubricem.training.show.collected import (
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    unscored_share,
)
from rubricem.training.show.events import (
    HELD_OUT,
    Event,
    HeldOutJudged,
    Phase,
    PhaseChanged,
    RowsDone,
    StepTaken,
    Tracker,
    Watch,
)
from rubricem.training.show.training import (
    ASKED_HEADS,
    GIGABYTE,
    PAIR_HEADS,
    RECORD,
    KeptNumbers,
    Metrics,
    number,
    object_of,
    read_numbers,
)

Tell = Callable[[str], None]


@dataclass
class TrainProgress:
    """The state of a training, or of the rest of a resumed one, from its events so far."""

    pace: Pace = field(default_factory=Pace)
    unit: str = "step"
    """`step`, or `round` if the policy collects by itself"""
    rows: tuple[int, int] | None = None
    """finished parts of the current window, and all of them"""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """of the last step or round"""
    phases: dict[Phase, int] = field(default_factory=dict)
    """those in progress, each with its round"""
    held_out: HeldOutJudged | None = None

    def advance(self, event: Event) -> None:
        match event:
            case RowsDone():
                self.unit, self.rows = event.unit, (event.done, event.total)
                self.pace.done, self.pace.of = event.number - 1, event.of
            case StepTaken():
                self.unit, self.rows, self.metrics = event.unit, None, event.metrics
                self.pace.of = event.of
                self.pace.advance(event.number)
            case PhaseChanged(phase, number, True):
                self.phases[phase] = number
            case PhaseChanged(phase, number):
                if self.phases.get(phase) == number:
                    del self.phases[phase]
            case HeldOutJudged():
                self.held_out = event


_SAID_OF = {
    "step": ("", "no row had an advantage"),
    "round": (" is saved", "nothing to train on"),
}


class PlainTraining:
    """A listener that prints a line for each step, round and measuring of held-out questions."""

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
                kept, nothing = _SAID_OF[event.unit]
                parts = (reward_figures(event.metrics), step_figures(event.metrics))
                told = "; ".join(filter(None, map(join_figures, parts))) or nothing
                return f"{event.unit} {event.number} of {event.of}{kept}: {told}{self._time_left()}"
            case HeldOutJudged():
                told = join_figures(reward_figures(event.metrics)) or "none was scored"
                return f"held-out questions after {event.updates} updates: {told}"
            case PhaseChanged():
                return ""

    def _time_left(self) -> str:
        left = self._progress.pace.left
        return f"; about {lasting(left)} left" if left else ""


def join_figures(figures: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures)


SAID = 3
"""latest lines that stay visible"""
_HELD_OUT = {
    "held-out": "held-out questions after {} updates",
    "held-out pairs": "held-out pairs after {} rounds",
}
BAR = 30
"""most columns of the bar"""


@contextmanager
def training_view(
    title: str, tell: Tell, *, quiet: bool = False, console: Console | None = None
) -> Iterator[tuple[Tell, Watch]]:
    """Where lines and events go, for as long as the context lasts.

    `tell` prints a plain line, which is all there is if standard error is no terminal. `quiet`:
    draw nothing on a terminal either.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield tell, PlainTraining(tell)
        return
    progress, said = TrainProgress(), deque[str](maxlen=SAID)

    def draw() -> Group:
        return drawing(title, progress, tuple(said))

    # Standard output is the command's: what is written there must not pass through here.
    with Live(get_renderable=draw, console=console, refresh_per_second=4, redirect_stdout=False):
        yield said.append, progress.advance


def drawing(title: str, progress: TrainProgress, said: Iterable[str] = ()) -> Group:
    """The live view: progress, phases, the latest numbers, and the latest lines."""
    parts: list[RenderableType] = [Text(one_line(title), style="bold"), _how_far(progress)]
    if progress.phases:
        told = " · ".join(
            _HELD_OUT.get(phase, f"{phase} round {{}}").format(number)
            for phase, number in progress.phases.items()
        )
        parts.append(Text(f"  now    {told}", style="cyan"))
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


_OF_STEP = (
    ("loss", "loss", "{:.4g}"),
    ("grad norm", "grad_norm", "{:.3g}"),
    ("rate", "rate", "{:.2g}"),
    ("KL to old", "kl_old", "{:.2g}"),
    ("KL to reference", "kl_reference", "{:.2g}"),
    ("sampler gap", "sampler_gap", "{:.2g}"),
    ("clipped", "clipped", "{:.1%}"),
    ("tokens/s", "tokens_per_second", "{:,.0f}"),
    ("memory peak", "gigabytes", "{:.1f} GB"),
)
_OF_STAGES = tuple((stage.value, f"reward/{stage}/mean", "{:.2f}") for stage in Stage)
_OF_VERDICTS = (
    ("right", "right", "{:.0%}"),
    ("malformed", "malformed", "{:.0%}"),
    ("unscored", "unscored", "{:.0%}"),
    ("mean reward", "reward", "{:.2f}"),
)


def reward_figures(metrics: Metrics) -> list[tuple[str, str]]:
    """Mean rewards by stage, shares without a score and the staleness, as far as available.

    For a judge that learns from its own verdicts, shares of those and their mean reward.
    """
    found = _figures(metrics, (*_OF_STAGES, ("unscored", "unscored_share", "{:.0%}")))
    if absent := number(metrics, "no_criteria_share"):
        found.append(("without criteria", f"{absent:.0%}"))
    if (stale := number(metrics, "staleness/mean")) is not None:
        most = number(metrics, "staleness/max")
        found.append(("staleness", f"{stale:.1f}" + (f" (at most {most:.0f})" if most else "")))
    return found + _figures(metrics, _OF_VERDICTS)


def step_figures(metrics: Metrics) -> list[tuple[str, str]]:
    """Names and values of an update that are known; [] if no row had a gradient."""
    if number(metrics, "grad_norm") is None:
        return []
    return _figures(_with_derived(metrics), _OF_STEP)


def _figures(metrics: Metrics, plan: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [
        (label, form.format(value))
        for label, name, form in plan
        if (value := number(metrics, name)) is not None
    ]


def _how_far(progress: TrainProgress) -> RenderableType:
    done, of = progress.pace.done, progress.pace.of
    told = f"  {progress.unit} {done} of {of}" if of else "  beginning"
    rows, rows_in_all = progress.rows or (0, 0)
    after = [f"row {rows} of {rows_in_all}"] if progress.rows else []
    if (left := progress.pace.left) is not None and done < of:
        after.append(f"about {lasting(left)} left")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=len(told))
    table.add_column(max_width=BAR)
    table.add_column(no_wrap=True)
    bar = ProgressBar(max(of, 1), done + rows / max(rows_in_all, 1))
    table.add_row(Text(told), bar, Text(", ".join(after), style="dim"))
    return table


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

LAST = 20
"""steps that are shown"""
PIPED_WIDTH = 160
"""columns of a table in a file or a pipe"""
MOST_ROWS = 8
"""reasons of one kind that are shown"""


def print_training(kept: KeptNumbers, title: str, console: Console | None = None) -> None:
    """Print facts, the last steps, and every measuring of the held-out questions."""
    told = (f"{name} {value}{f' ({more})' if more else ''}" for name, value, more in kept.facts())
    console = print_heading(title, [one_line(kept.about()), "; ".join(told)], PIPED_WIDTH, console)
    if kept.steps:
        last = [(step, _with_derived(metrics)) for step, metrics in kept.steps[-LAST:]]
        # The columns that have a value in any of the last steps.
        there = [c for c in _COLUMNS if any(number(m, c[1]) is not None for _, m in last)]
        rows = [[f"{step}", *(decimal(number(m, name), form, "-") for _, name, form in there)]
                for step, m in last]  # fmt: skip
        heads = [kept.unit, *(head for head, _, _ in there)]
        console.print(_table(heads, rows, of=len(kept.steps)))
    if kept.held_out:
        head = "held-out questions, mean scores (95%)"
        console.print(_table(ASKED_HEADS, kept.asked_rows(), head))
    if kept.pairs:
        console.print(_table(PAIR_HEADS, kept.pair_rows(), "held-out pairs, shares (95%)"))


def _with_derived(metrics: Metrics) -> Metrics:
    """The metrics with `clipped`, both sides together, and the memory peak in `gigabytes`."""
    clipped = [number(metrics, "clipped_low"), number(metrics, "clipped_high")]
    peak = number(metrics, "memory_peak")
    return {
        **metrics,
        "clipped": None if clipped == [None, None] else sum(part or 0.0 for part in clipped),
        "gigabytes": None if peak is None else peak / GIGABYTE,
    }


def print_collected(run: RunNumbers, title: str, console: Console | None = None) -> None:
    """Print facts, the last steps, reasons, and the best and worst of the groups farthest apart."""
    console = print_heading(title, _facts(run), PIPED_WIDTH, console)
    if run.rollouts:
        heads = ("step", "rollouts", "failed", *Stage, "unscored", "malformed", "searches",
                 "tokens", "cost", "rubric")  # fmt: skip
        rows = [_row(step) for step in run.steps[-LAST:]]
        console.print(_table(heads, rows, of=len(run.steps)))
    for line in run.variety.describe():
        console.print(Text(line))
    for head, reasons in (
        ("failed", run.failures),
        ("ended early", run.early),
        ("broke a rejection rule", run.faults),
        ("stages unscored", run.unscored),
    ):
        for line in _reasons(head, reasons):
            console.print(Text(line))
    for found in run.extremes[:MOST_ROWS]:
        best, worst = found.values
        told = (
            f"step {found.step + 1}, {found.by} {best:.2f} ({found.best.thread}) against "
            f"{worst:.2f} ({found.worst.thread}): {one_line(found.question, 80)}"
        )
        console.print(Text(told))


def _facts(run: RunNumbers) -> list[str]:
    manifest, spent = run.manifest, sum(run.usage().values(), NO_USAGE)
    judge = f"judged by {manifest.judge} ({manifest.judge_kind})" if manifest.judge else "unjudged"
    return [
        one_line(f"{manifest.policy}, {manifest.decoding} decoding, {judge}"),
        f"{len(run.rollouts)} rollouts, {run.failures.total()} failed, in {run.groups} groups and "
        f"{len(run.steps)} steps of {run.asked} questions; {duration(run.seconds)}",
        f"{spent.completion_tokens:,} tokens written, {spent.prompt_tokens:,} read, "
        f"{_cost(spent) or 'nothing spent'}; {run.candidates} reflections, {run.accepted} accepted",
    ]


def _row(step: StepNumbers) -> list[str]:
    rollouts = step.rollouts
    searches = mean([r.tool_calls for r in rollouts])
    written = mean([r.usage.completion_tokens for r in rollouts])
    return [
        str(step.step + 1),
        str(len(rollouts)),
        str(len(step.failures) or ""),
        *(decimal(mean(step.scores(place)), ".2f", "-") for place in range(len(Stage))),
        decimal(unscored_share(rollouts), ".0%", "-"),
        decimal(malformed_share(rollouts), ".0%", "-"),
        decimal(searches, ".1f", "-"),
        decimal(written, ",.0f", "-"),
        _cost(step.usage),
        f"+{step.count_changes('added', 'returned', 'pinned')} -{step.count_changes('retired')}",
    ]


def _reasons(head: str, reasons: Counter[str]) -> Iterator[str]:
    common = reasons.most_common(MOST_ROWS)
    for reason, count in common:
        yield f"{count} {head}: {one_line(reason, 200) or 'no reason given'}"
    if (others := len(reasons) - len(common)) > 0:
        left = reasons.total() - sum(count for _, count in common)
        yield f"{left} {head} for {'another reason' if others == 1 else f'{others} other reasons'}"


def _cost(usage: Usage) -> str:
    return price(usage) if usage.calls else ""


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, of: int = 0
) -> Table:
    """`of`: the number of all rows, if only the last are shown."""
    table = Table(title=title, title_justify="left")
    if of > LAST:
        table.caption = f"the last {LAST} of {of} {heads[0]}s"
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


EXTRA, SUFFIX = "tensorboard", ".rubricem"
"""the suffix of our event files, which a new log replaces"""
FOLDER = "tensorboard"
"""in a training's folder"""


class TensorBoardLog:
    """An open event file; it listens to a training and records its numbers."""

    def __init__(self, folder: Path, kept: KeptNumbers) -> None:
        """Raises SettingsError without the extra, StoreError if the folder cannot be used."""
        writer = import_extra("tensorboard.summary.writer.event_file_writer", EXTRA)
        self._events = import_extra("tensorboard.compat.proto.event_pb2", EXTRA)
        self._summaries = import_extra("tensorboard.compat.proto.summary_pb2", EXTRA)
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
            case StepTaken():
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


ONLINE: Mapping[Tracker, Mapping[str, Any]] = {
    "wandb": {"resume": "allow"},
    "trackio": {"resume": "allow", "embed": False},
}
"""trackers, whose modules have their names, with additional arguments for beginning a run"""


class OnlineLog:
    """A run of W&B or Trackio, which share `init`, `log` and `finish`; it listens to a training.

    Where and under whose account it is stored is up to that tracker's own variables. It receives
    the numbers and the training's settings, without the paths of this machine.
    """

    def __init__(self, tracker: Tracker, out: Path) -> None:
        """Raises SettingsError if the tracker is not installed."""
        module = import_extra(tracker, tracker, "That tracker")
        kept = object_of(out / RECORD)
        own = {"id": f"{seed_of(out.resolve()):08x}"} if tracker == "wandb" else {}
        plain = {name: value for name, value in kept.items() if isinstance(value, (int, float))}
        with boundary(SettingsError, f"beginning a run of {tracker}"):
            self._run = module.init(
                project="rubricem", name=out.name, config=plain, **ONLINE[tracker], **own
            )

    def __call__(self, event: Event) -> None:
        match event:
            case StepTaken():
                self._log(event.number, event.metrics)
            case HeldOutJudged():
                self._log(event.updates, event.metrics, HELD_OUT)

    def close(self) -> None:
        self._run.finish()

    def _log(self, step: int, metrics: Mapping[str, Any], prefix: str = "") -> None:
        found = {prefix + name: number(metrics, name) for name in metrics}
        told = {name: value for name, value in found.items() if value is not None}
        with suppress(Exception):  # a tracker that is away ends no training; the folder has all
            self._run.log(told, step=step)


@contextmanager
def with_event_files(watch: Watch, out: Path, trackers: Sequence[Tracker]) -> Iterator[Watch]:
    """The listener, together with a log in each of the trackers."""
    with ExitStack() as stack:
        listening = [watch]
        for tracker in dict.fromkeys(trackers):
            log: TensorBoardLog | OnlineLog
            if tracker == "tensorboard":
                log = TensorBoardLog(out / FOLDER, read_numbers(out))
            else:
                log = OnlineLog(tracker, out)
            listening.append(stack.enter_context(closing(log)))

        def tell(event: Event) -> None:
            for each in listening:
                each(event)

        yield tell
