"""A training run's folder: checkpoints that are whole or not there, and links to two of them.

    run.json                what the run is; going on with another is refused
    metrics.jsonl           one line for each finished step
    checkpoints/000003/     `training.local.checkpoint_files`
    last                    a link to the newest
    best                    a link to the best by a named metric, where one is named
    checkpoints/*.damaged   not whole any more; kept for people, and never read

A checkpoint is written beside its place and renamed into it, after all of it is on disk. A run
that was killed goes on from the newest; only the steps since are done again. One that was cut
short all the same, by a full disk or a copy, is known by its list of files, and the one before it
is gone on from.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.weights.checkpoints import NOTE, Checkpoint
from memory.errors import SettingsError, StoreError, boundary
from memory.runs import writable, write_atomically
from training.local.checkpoint_files import Saved, read_step, sync, write_files
from training.local.checkpoint_links import BEST, LAST, linked, place_of, places, point
from training.local.mending import Better, mended
from training.local.stepped_bank import SteppedBank
from training.watching.kept import CANARY, kept_numbers
from training.watching.model_card import CARD, model_card

KEPT = 2


class TrainingFolder:
    """One run's folder. Raises StoreError where it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest, self.best = folder / LAST, folder / BEST
        self.canary = folder / CANARY
        """how far llama.cpp is from the trainer, of the newest checkpoint where it is compared"""

    @contextmanager
    def begun(self, record: Mapping[str, Any]) -> Iterator[None]:
        """Hold the folder for this process, for the run of this record and no other."""
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        with lock:
            _lock(lock.fileno(), self.folder)
            self._claim(record)
            yield

    def record(self) -> dict[str, Any]:
        """What the run of this folder is; empty before it has begun."""
        path = self.folder / "run.json"
        if not path.exists():
            return {}
        with boundary(StoreError, f"reading {path}"):
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record

    def step(self) -> int:
        """How many steps are finished and saved."""
        return linked(self.newest) if self.newest.exists() else 0

    def so_far(self) -> list[Path]:
        """The checkpoints up to the newest, the first step first.

        Later ones are of steps that a run went back from; they are replaced as it comes to them.
        """
        return [place for place in places(self.folder) if int(place.name) <= self.step()]

    def mend(self, better: Better | None = None) -> str:
        """Let `last` be the newest whole checkpoint, and `best` a whole one; tells what was wrong.

        `training.local.mending` says how.
        """
        with writable(self.folder):
            return mended(self.folder, better)

    def save(
        self, saved: Saved, memory: SteppedBank | None = None, better: Better | None = None
    ) -> None:
        """Write a checkpoint and the lines of its steps; `better` decides on the link `best`."""
        place = place_of(self.folder, saved.note.step)
        temporary = place.with_suffix(".part")
        with writable(place):
            for left in place.parent.glob("*.part"):
                shutil.rmtree(left)
            temporary.mkdir(parents=True)
            if memory is not None:
                memory.keep(temporary)
            write_files(temporary, saved)
            self.canary.unlink(missing_ok=True)
            self.write_card(temporary)
            # Lines first: whoever finds the checkpoint, though no link names it yet, has them too.
            self._append(saved.lines)
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            sync(place.parent)
            point(self.newest, place)
            if better is not None and better(saved.lines[-1], self._best_before()):
                point(self.best, place)
            self._prune()

    def keep_best(self) -> None:
        """Point `best` to the newest checkpoint, which another judgement than its step's chose."""
        with writable(self.best):
            point(self.best, place_of(self.folder, self.step()))

    def write_card(self, checkpoint: Path) -> None:
        """Write a whole checkpoint's card, from it and from what this folder holds by now."""
        note = Checkpoint.model_validate_json((checkpoint / NOTE).read_bytes())
        step = read_step(checkpoint)
        told = step.get("trained_on", {})
        card = model_card(note, kept_numbers(self.folder), told, step["metrics"])
        write_atomically(checkpoint / CARD, card)

    def metrics(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def _append(self, lines: list[dict[str, Any]]) -> None:
        # A line without its checkpoint is of a step that a kill took back.
        first = lines[0]["step"] if lines else 0
        kept = [line for line in self.metrics() if not lines or line["step"] < first]
        text = "".join(json.dumps(line) + "\n" for line in [*kept, *lines])
        write_atomically(self.folder / "metrics.jsonl", text)

    def _best_before(self) -> Mapping[str, Any]:
        """The metrics of the best checkpoint; {} where there is none that can be read."""
        try:
            metrics: dict[str, Any] = read_step(self.best)["metrics"]
        except (FileNotFoundError, ValueError):
            return {}
        return metrics

    def _prune(self) -> None:
        named = {self.newest.resolve(), self.best.resolve()}
        for old in self.so_far()[:-KEPT]:
            if old.resolve() not in named:
                shutil.rmtree(old)

    def _claim(self, record: Mapping[str, Any]) -> None:
        held = self.record()
        if not held:
            write_atomically(self.folder / "run.json", json.dumps(record, indent=1))
            return
        other = [name for name in record if held.get(name) != record[name]]
        if other:
            raise SettingsError(
                f"{self.folder} holds a training run with another {', '.join(other)}.",
                "Put those back to go on with it, or name another folder as `out`.",
            )


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder} is being trained by another process", "Wait for it, or name another `out`."
        ) from None
