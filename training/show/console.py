"""A training in progress: its lines, and its numbers in the trackers that were asked for.

metrics.jsonl has everything; a tracker (TensorBoard, W&B, Trackio) gets the numbers by the same
names, with the training's own count as the step, and the results of held-out questions under
`held_out/` at the number of rounds before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from rubricem.memory.errors import SettingsError, boundary, import_extra
from rubricem.memory.runs import writable
from rubricem.memory.schema import Stage
from rubricem.memory.text import seed_of
from rubricem.training.extras import Pace, lasting
from rubricem.training.show.events import (
    HELD_OUT,
    Event,
    HeldOutJudged,
    RowsDone,
    StepTaken,
    Tracker,
    Watch,
)
from rubricem.training.show.training import Metrics, number, read_numbers

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
                told = describe_metrics(event.metrics) or "none was scored"
                self._tell(f"held-out questions after {event.updates} updates: {told}")


class TrackerLog(Protocol):
    def log(self, metrics: Mapping[str, float], step: int) -> None: ...
    def close(self) -> None: ...


FOLDER, SUFFIX = "tensorboard", ".rubricem"
"""in a training's folder, and how our event files end, which a new log replaces"""


class TensorBoardLog:
    def __init__(self, folder: Path) -> None:
        """Raises SettingsError without the extra, StoreError if the folder cannot be used."""
        import_extra("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for earlier in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
                earlier.unlink()
        self._file: Any = SummaryWriter(str(folder), filename_suffix=SUFFIX)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._file.add_scalar(name, value, step)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


_INIT: Mapping[Tracker, Mapping[str, Any]] = {
    "wandb": {"resume": "allow"},
    "trackio": {"resume": "allow", "embed": False},
}


class OnlineLog:
    """A run of W&B or Trackio, which share `init`, `log` and `finish`."""

    def __init__(self, tracker: Tracker, out: Path, record: Mapping[str, Any]) -> None:
        """Raises SettingsError if the tracker is not installed."""
        module = import_extra(tracker, None, "That tracker")
        own = {"id": f"{seed_of(out.resolve()):08x}"} if tracker == "wandb" else {}
        plain = {name: value for name, value in record.items() if isinstance(value, (int, float))}
        with boundary(SettingsError, f"beginning a run of {tracker}"):
            self._run = module.init(
                project="rubricem", name=out.name, config=plain, **_INIT[tracker], **own
            )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        with suppress(Exception):  # a tracker that is away ends no training; the folder has all
            self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


@contextmanager
def with_event_files(watch: Watch, out: Path, trackers: Sequence[Tracker]) -> Iterator[Watch]:
    """The listener, together with a log in each of the trackers.

    TensorBoard's begins with what is stored so far, so a resumed training has every step once.
    """
    kept = read_numbers(out) if trackers else None
    with ExitStack() as stack:
        logs: list[TrackerLog] = []
        for tracker in dict.fromkeys(trackers):
            assert kept is not None
            if tracker == "tensorboard":
                log: TrackerLog = TensorBoardLog(out / FOLDER)
                for step, metrics in kept.steps:
                    log.log(_finite(metrics), step)
                for updates, metrics in kept.held_out:
                    log.log(_finite(metrics, HELD_OUT), updates)
            else:
                log = OnlineLog(tracker, out, kept.record)
            stack.callback(log.close)
            logs.append(log)

        def tell(event: Event) -> None:
            watch(event)
            for log in logs:
                if isinstance(event, StepTaken):
                    log.log(_finite(event.metrics), event.number)
                elif isinstance(event, HeldOutJudged):
                    log.log(_finite(event.metrics, HELD_OUT), event.updates)

        yield tell


def _finite(metrics: Metrics, prefix: str = "") -> dict[str, float]:
    return {prefix + n: value for n in metrics if (value := number(metrics, n)) is not None}
