"""A training in progress: its lines, and its numbers in the trackers of choice.

metrics.jsonl has everything; a tracker (TensorBoard, W&B, Trackio) gets the numbers by the same
names, with the training's own count as the step, and the results of held-out questions under
`held_out/` at the number of rounds before. docs/training_numbers.md explains the numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from rubricem.memory.errors import SettingsError, boundary, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Stage
from rubricem.memory.text import seed_of
from rubricem.training.extras import Pace, lasting
from rubricem.training.show.training import KeptNumbers, Metrics, finite, number, read_numbers

Tracker = Literal["tensorboard", "wandb", "trackio"]


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


class Progress:
    """Tells of a training, a line for each event, and logs its numbers. Called from any thread."""

    unit: Literal["step", "round"] = "step"
    """what is counted; a step is of given rows"""

    def __init__(self, tell: Callable[[str], None], logs: Sequence[Any] = ()) -> None:
        self._tell, self._logs, self._pace = tell, logs, Pace()

    def begin(self, number: int, of: int) -> None:
        """The step or round of this number begins, counted from 1."""
        self._pace.done, self._pace.of = number - 1, of

    def rows(self, done: int, total: int) -> None:
        """So many parts of its window are done."""
        now, of = self._pace.done + 1, self._pace.of
        self._tell(f"{self.unit} {now} of {of}: row {done} of {total}")

    def step(self, number: int, of: int, metrics: Metrics) -> None:
        """A step is done, and saved if it is due; a round is always saved."""
        self._pace.of = of
        self._pace.advance(number)
        left = self._pace.left
        told = describe_metrics(metrics) or "nothing to train on"
        ahead = f"; about {lasting(left)} left" if left else ""
        self._tell(f"{self.unit} {number} of {of}: {told}{ahead}")
        log(self._logs, metrics, number)

    def held_out(self, updates: int, metrics: Metrics) -> None:
        """The held-out questions are judged after so many rounds' updates."""
        why = ", since no stage has criteria" if number(metrics, "no_criteria_share") else ""
        told = describe_metrics(metrics) or f"none was scored{why}"
        self._tell(f"held-out questions after {updates} updates: {told}")
        log(self._logs, metrics, updates, HELD_OUT)


def log(to: Sequence[Any], metrics: Metrics, step: int, prefix: str = "") -> None:
    for each in to:
        with suppress(Exception):  # one that is away ends no training; the folder has all
            each.log({prefix + n: v for n, v in finite(metrics).items()}, step=step)


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
def open_progress(
    tell: Callable[[str], None], out: Path, trackers: Sequence[Tracker]
) -> Iterator[Progress]:
    """What tells, with a log in each of the trackers.

    TensorBoard's begins with what is stored so far, so a resumed training has every step once.
    """
    with ExitStack() as stack:
        logs: list[Any] = []
        kept = read_numbers(out) if trackers else KeptNumbers()
        for tracker in dict.fromkeys(trackers):
            logs.append(open_tracker(tracker, out, kept.record))
            stack.callback(logs[-1].finish)
        files = [each for each in logs if each.name == "tensorboard"]
        for step, metrics in kept.steps:
            log(files, metrics, step)
        for updates, metrics in kept.held_out:
            log(files, metrics, updates, HELD_OUT)
        yield Progress(tell, logs)
