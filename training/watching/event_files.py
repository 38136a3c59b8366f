"""The numbers of a training as TensorBoard's event files, by the names that metrics.jsonl has.

A step is what the training counts: steps on given rows, or rounds; what the held-out questions
came to stands under `held_out/` at the number of rounds before it. A log is opened with all that
the training has kept so far and takes the place of an earlier one, so a training that was killed
and goes on has every step once.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory.runs import writable
from training.extra_packages import needed
from training.watching.events import (
    Event,
    HeldOutJudged,
    RoundTrained,
    StepTaken,
    Watch,
    watched_by,
)
from training.watching.figures import number
from training.watching.kept import KeptNumbers, kept_numbers

EXTRA, SUFFIX = "tensorboard", ".rubricem"
"""the ending of the event files that are ours, and that a new log replaces"""
HELD_OUT = "held_out/"
FOLDER = "tensorboard"
"""in a training's folder"""


class EventLog:
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
def event_log(folder: Path, kept: KeptNumbers) -> Iterator[EventLog]:
    """A log that is whole on disk at the end of the context."""
    log = EventLog(folder, kept)
    try:
        yield log
    finally:
        log.close()
