"""A training run's folder: one checkpoint for each finished step, whole or not there.

    run.json                what the run is; going on with another is refused
    metrics.jsonl           one line for each finished step
    checkpoints/000003/     adapter (torch and llama.cpp), optimizer, checkpoint.json, bank/
    checkpoint              a link to the newest

A checkpoint is written beside its place and renamed into it, after all of it is on disk. A run
that was killed goes on from the newest; only the step that was under way is done again. Nothing
random happens after the adapter's start, so there is no state but this.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agent.weights.checkpoints import ADAPTER, NOTE, Checkpoint
from memory.errors import SettingsError, StoreError, boundary
from memory.runs import writable, write_atomically
from training.local.adapter_gguf import write_adapter
from training.local.lora import TARGETS
from training.local.stepped_bank import SteppedBank

KEPT = 2
WEIGHTS, OPTIMIZER, PEFT = "adapter_model.safetensors", "optimizer.pt", "adapter_config.json"


class TrainingFolder:
    """One run's folder. Raises StoreError where it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def newest(self) -> Path:
        return self.folder / "checkpoint"

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
        if not self.newest.exists():
            return 0
        return Checkpoint.model_validate_json((self.newest / NOTE).read_bytes()).step

    def restore(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The newest checkpoint's adapter, and its optimizer's state."""
        optimizer = torch.load(self.newest / OPTIMIZER, weights_only=True)
        return load_file(self.newest / WEIGHTS), optimizer

    def save(
        self,
        note: Checkpoint,
        adapter: Mapping[str, Tensor],
        optimizer: Mapping[str, Any],
        metrics: Mapping[str, Any],
        memory: SteppedBank | None = None,
    ) -> None:
        """Write one step's checkpoint and metrics; the adapter's hash is filled into the note."""
        place = self.folder / "checkpoints" / f"{note.step:06d}"
        temporary = place.with_suffix(".part")
        with writable(place):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            if memory is not None:
                memory.keep(temporary)
            _write_checkpoint(temporary, note, adapter, optimizer)
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            self._append(metrics, note.step)
            self._point_to(place)
            for old in sorted(place.parent.iterdir())[:-KEPT]:
                shutil.rmtree(old)

    def metrics(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def _append(self, metrics: Mapping[str, Any], step: int) -> None:
        # A line without its checkpoint is of a step that a kill took back.
        lines = [line for line in self.metrics() if line["step"] < step]
        text = "".join(json.dumps(line) + "\n" for line in [*lines, {"step": step, **metrics}])
        write_atomically(self.folder / "metrics.jsonl", text)

    def _point_to(self, place: Path) -> None:
        temporary = self.folder / ".checkpoint"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(place.relative_to(self.folder))
        os.replace(temporary, self.newest)
        _sync(self.folder)

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


def _write_checkpoint(
    folder: Path, note: Checkpoint, adapter: Mapping[str, Tensor], optimizer: Mapping[str, Any]
) -> None:
    write_adapter(folder / ADAPTER, adapter, note.alpha)
    digest = hashlib.sha256((folder / ADAPTER).read_bytes()).hexdigest()
    save_file(dict(adapter), folder / WEIGHTS)
    torch.save(dict(optimizer), folder / OPTIMIZER)
    peft = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": note.rank,
        "lora_alpha": note.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(TARGETS),
        "base_model_name_or_path": note.base,
    }
    (folder / PEFT).write_text(json.dumps(peft, indent=1), encoding="utf-8")
    note = note.model_copy(update={"adapter_sha256": digest})
    (folder / NOTE).write_text(note.model_dump_json(indent=1), encoding="utf-8")
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder} is being trained by another process", "Wait for it, or name another `out`."
        ) from None
