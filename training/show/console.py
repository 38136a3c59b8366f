"""A training in progress: its events, its lines, and its numbers in the trackers of choice.

metrics.jsonl has everything; a tracker (TensorBoard, W&B, Trackio) gets the numbers by the same
names, with the training's own count as the step, and the results of held-out questions under
`held_out/` at the number of rounds before. A listener is called from worker threads, so it must
return at once. docs/training_numbers.md explains the numbers that events carry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rubricem.memory.errors import SettingsError, boundary, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Stage
from rubricem.memory.text import seed_of
from rubricem.training.extras import Pace, lasting
from rubricem.training.show.training import Metrics, finite, number, read_numbers

Tracker = Literal["tensorboard", "wandb", "trackio"]


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


_FIGURES = (
    *((stage.value, f"reward/{stage}/mean", "{:.2f}") for stage in Stage),
    ("unscored", "unscored_share", "{:.0%}"),
    ("right", "right", "{:.0%}"),
    ("malformed", "malformed", "{:.0%}"),
    ("unscored", "unscored", "{:.0%}"),
    ("mean reward", "reward", "{:.2f}"),
    ("staleness", "staleness/mean", "{:.1f}"),
    ("loss", "loss", "{:.4g}"),
    ("grad norm", "grad_norm", "{:.3g}"),
    ("KL to old", "kl_old", "{:.2g}"),
    ("KL to reference", "kl_reference", "{:.2g}"),
    ("sampler gap", "sampler_gap", "{:.2g}"),
    ("tokens/s", "tokens_per_second", "{:,.0f}"),
)


def describe_metrics(metrics: Metrics) -> str:
    """The main numbers of a step, a round or an asking, those that are known; "" of none."""
    known = ((label, form, number(metrics, name)) for label, name, form in _FIGURES)
    return ", ".join(f"{label} {form.format(v)}" for label, form, v in known if v is not None)


class PlainTraining:
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._pace = Pace()

    def __call__(self, event: Event) -> None:
        match event:
            case RowsDone():
                self._pace.done, self._pace.of = event.number - 1, event.of
                place = f"{event.unit} {event.number} of {event.of}"
                self._tell(f"{place}: row {event.done} of {event.total}")
            case StepTaken():
                self._pace.of = event.of
                self._pace.advance(event.number)
                left = self._pace.left
                told = describe_metrics(event.metrics) or "nothing to train on"
                ahead = f"; about {lasting(left)} left" if left else ""
                self._tell(f"{event.unit} {event.number} of {event.of}: {told}{ahead}")
            case HeldOutJudged():
                bare = number(event.metrics, "no_criteria_share")
                why = ", since no stage has criteria" if bare else ""
                told = describe_metrics(event.metrics) or f"none was scored{why}"
                self._tell(f"held-out questions after {event.updates} updates: {told}")


FOLDER, SUFFIX = "tensorboard", ".rubricem"
"""in a training's folder, and how our event files end, which a new log replaces"""
_INIT: Mapping[Tracker, Mapping[str, Any]] = {
    "wandb": {"resume": "allow"},
    "trackio": {"resume": "allow", "embed": False},
}


def check_tracker(tracker: Tracker) -> None:
    """Raises SettingsError if its package is not installed."""
    import_extra(tracker, "train" if tracker == "tensorboard" else None, "That tracker")


def open_tracker(tracker: Tracker, out: Path, record: Mapping[str, Any]) -> Any:
    """A run of a tracker, by accelerate; W&B and Trackio get the record's numbers, and no paths.

    Raises SettingsError if it is not installed or does not begin, StoreError if the folder cannot
    be used.
    """
    check_tracker(tracker)
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # which trackers ask for the process they are in
    if tracker == "tensorboard":
        with writable(out):
            for earlier in (out / FOLDER).glob(f"events.out.tfevents.*{SUFFIX}"):
                earlier.unlink()
        found = LOGGER_TYPE_TO_CLASS[tracker](FOLDER, str(out), filename_suffix=SUFFIX)
    else:
        plain = {name: value for name, value in record.items() if isinstance(value, (int, float))}
        own = {"id": f"{seed_of(out.resolve()):08x}"} if tracker == "wandb" else {}
        found = LOGGER_TYPE_TO_CLASS[tracker](
            "rubricem", name=out.name, config=plain, **_INIT[tracker], **own
        )
    with boundary(SettingsError, f"beginning a run of {tracker}"):
        found.start()
    return found


@contextmanager
def with_event_files(watch: Watch, out: Path, trackers: Sequence[Tracker]) -> Iterator[Watch]:
    """The listener, together with a log in each of the trackers.

    TensorBoard's begins with what is stored so far, so a resumed training has every step once.
    """
    kept = read_numbers(out) if trackers else None
    with ExitStack() as stack:
        logs: list[Any] = []
        for tracker in dict.fromkeys(trackers):
            assert kept is not None
            logs.append(open_tracker(tracker, out, kept.record))
            stack.callback(logs[-1].finish)

        def log(to: Sequence[Any], metrics: Metrics, step: int, prefix: str = "") -> None:
            for each in to:
                with suppress(Exception):  # one that is away ends no training; the folder has all
                    each.log({prefix + n: v for n, v in finite(metrics).items()}, step=step)

        files = [each for each in logs if each.name == "tensorboard"]
        for step, metrics in kept.steps if kept else ():
            log(files, metrics, step)
        for updates, metrics in kept.held_out if kept else ():
            log(files, metrics, updates, HELD_OUT)

        def tell(event: Event) -> None:
            watch(event)
            if isinstance(event, StepTaken):
                log(logs, event.metrics, event.number)
            elif isinstance(event, HeldOutJudged):
                log(logs, event.metrics, event.updates, HELD_OUT)

        yield tell
