"""A training run's folder: checkpoints that are whole or not there, and links to two of them.

    run.json                what the run is; going on with another is refused
    metrics.jsonl           one line for each finished step
    checkpoints/000003/     `training.local.checkpoint_files`
    last                    a link to the newest
    best                    a link to the best by a named metric, where one is named

A checkpoint is written beside its place and renamed into it, after all of it is on disk. A run
that was killed goes on from the newest; only the steps since are done again. One that was cut
short all the same, by a full disk or a copy, is known by its list of files, and the one before it
is gone on from.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.weights.checkpoints import NOTE, Checkpoint
from memory.errors import SettingsError, StoreError, boundary
from memory.runs import writable, write_atomically
from training.local.checkpoint_files import Saved, fault, read_step, sync, write_files
from training.local.stepped_bank import SteppedBank
from training.watching.kept import CANARY, kept_numbers
from training.watching.model_card import CARD, model_card

KEPT = 2
Better = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a step's metrics are better than those of the best one before."""


class TrainingFolder:
    """One run's folder. Raises StoreError where it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest, self.best = folder / "last", folder / "best"
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
        return int(self.newest.resolve().name) if self.newest.exists() else 0

    def mend(self) -> str:
        """Let `last` be the newest whole checkpoint.

        Returns what was wrong with those passed by, in a sentence; empty where nothing was.
        """
        told, linked = [], self._linked()
        if linked and not self.newest.exists():
            told.append(f"the checkpoint of step {linked} is missing")
        for place in sorted((self.folder / "checkpoints").glob("*[0-9]"), reverse=True):
            if int(place.name) > linked:
                continue  # a kill came before the link; the step is done again
            if not (wrong := fault(place)):
                self._point(self.newest, place)
                break
            told.append(f"the checkpoint of step {int(place.name)} is not whole ({wrong})")
        else:
            if told:
                self.newest.unlink(missing_ok=True)
        begun = f"going on from step {self.step()}" if self.step() else "beginning anew"
        return f"{' and '.join(told)}: {begun}" if told else ""

    def save(
        self, saved: Saved, memory: SteppedBank | None = None, better: Better | None = None
    ) -> None:
        """Write a checkpoint and the lines of its steps; `better` decides on the link `best`."""
        place = self.folder / "checkpoints" / f"{saved.note.step:06d}"
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
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            sync(place.parent)
            self._append(saved.lines)
            self._point(self.newest, place)
            if better is not None and self._is_best(saved, better):
                self._point(self.best, place)
            self._prune(place.parent)

    def keep_best(self) -> None:
        """Point `best` to the newest checkpoint, which another judgement than its step's chose."""
        with writable(self.best):
            self._point(self.best, self.newest.resolve())

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

    def _is_best(self, saved: Saved, better: Better) -> bool:
        before = read_step(self.best)["metrics"] if self.best.exists() else {}
        return better(saved.lines[-1], before)

    def _point(self, link: Path, place: Path) -> None:
        temporary = self.folder / f".{link.name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(place.relative_to(self.folder))
        os.replace(temporary, link)
        sync(self.folder)

    def _linked(self) -> int:
        """The step that `last` names, also where its checkpoint is gone; 0: none."""
        return int(self.newest.readlink().name) if self.newest.is_symlink() else 0

    def _prune(self, checkpoints: Path) -> None:
        for old in sorted(checkpoints.glob("*[0-9]"))[:-KEPT]:
            if old.resolve() != self.best.resolve():
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
