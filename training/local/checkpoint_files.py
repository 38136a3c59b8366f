"""The files of one checkpoint: written whole, and known to be whole when they are read.

files.json                  size and SHA-256 of each other file, written last
checkpoint.json             which weights, which step of which training (`Checkpoint`)
step.json                   the step's metrics, and where the caller stood
trainer.pt                  the optimizer and the random states; by TRL, which keeps those itself,
                            sizes and SHA-256 of its files
adapter_model.safetensors   LoRA: the adapter, with adapter_config.json as peft reads them
adapter.gguf                LoRA: the same for llama.cpp, where it can serve the model
model.safetensors           full: all weights in float32, with config.json for transformers
model.gguf                  full: the same for llama.cpp, where it was asked for
bank/, buffers/             what the run had learnt in words, where that is kept with it
MODEL_CARD.md               all of it for people; it is not needed to go on, nor in files.json,
                            since it is written anew when the canary row has been compared
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agent.weights.checkpoints import ADAPTER, MODEL, NOTE, Checkpoint, note_of
from memory.errors import WeightsError
from memory.runs import write_atomically
from training.local.adapter_gguf import write_adapter
from training.local.model_gguf import write_model
from training.watching.model_card import CARD

FILES, STEP, TRAINER = "files.json", "step.json", "trainer.pt"
WEIGHTS = {"lora": "adapter_model.safetensors", "full": "model.safetensors"}
CONFIG = {"lora": "adapter_config.json", "full": "config.json"}
Listed = Mapping[str, tuple[int, str]]
"""size and SHA-256 of files, by their paths below a folder"""


@dataclass(frozen=True, slots=True)
class Saved:
    """A training's state after a step, as it is written down."""

    note: Checkpoint
    weights: Mapping[str, Tensor]
    trainer: Mapping[str, Any]
    config: Mapping[str, Any]
    """of the adapter as for peft, or of the model as for transformers"""
    lines: list[dict[str, Any]]
    """the metrics of the steps since the last checkpoint, this step's last"""
    place: Mapping[str, Any] = field(default_factory=dict)
    """where the caller stood: its curriculum's position, its round"""
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """counts and hashes of what the rows were made from"""
    template: Path | None = None
    """full: the file under whose metadata all weights are written for llama.cpp too"""


def write_files(folder: Path, saved: Saved) -> None:
    """Write a checkpoint into an empty folder; the weights' hash is filled into the note."""
    note, kind = saved.note, saved.note.adaptation
    weights = folder / WEIGHTS[kind]
    save_file(dict(saved.weights), weights, metadata={"format": "pt"})
    if kind == "lora" and note.served:
        write_adapter(folder / ADAPTER, saved.weights, note.alpha)
        weights = folder / ADAPTER
    torch.save(dict(saved.trainer), folder / TRAINER)
    (folder / CONFIG[kind]).write_text(json.dumps(saved.config, indent=1), encoding="utf-8")
    step = {
        "metrics": saved.lines[-1] if saved.lines else {},
        "place": saved.place,
        "trained_on": saved.trained_on,
    }
    (folder / STEP).write_text(json.dumps(step), encoding="utf-8")
    hashes = {"adapter_sha256": hashed(weights)}
    if kind == "full" and saved.template is not None:
        write_model(folder / MODEL, saved.template, saved.weights)
        hashes["model_sha256"] = hashed(folder / MODEL)
    note = note.model_copy(update=hashes)
    (folder / NOTE).write_text(note.model_dump_json(indent=1), encoding="utf-8")
    seal(folder)


def fault(folder: Path, needed: Collection[str] = ()) -> str:
    """What is wrong with a checkpoint's files, in a clause; empty where they are whole.

    `needed`: the names of those that are looked at; none: all.
    """
    try:
        written = json.loads((folder / FILES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"it has no {FILES} that can be read"
    if missing := sorted(set(needed) - set(written)):
        return f"{FILES} does not list {missing[0]}"
    return unlike(folder, {name: written[name] for name in needed or written})


def unlike(folder: Path, written: Listed) -> str:
    """What is wrong with the listed files below a folder, in a clause; empty where nothing is."""
    for name, (size, sha256) in written.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (there := path.stat().st_size) != size:
            return f"{name} has {there:,} of {size:,} bytes"
        if hashed(path) != sha256:
            return f"{name} is not what was written"
    return ""


def checked_note(folder: Path) -> Checkpoint:
    """The note of a checkpoint to begin with, whose weights for torch are those that were written.

    Whether llama.cpp can answer with it does not matter. Raises WeightsError where one is not.
    """
    note = note_of(folder)
    if wrong := fault(folder, (NOTE, WEIGHTS[note.adaptation])):
        raise WeightsError(
            f"{folder} is not a whole checkpoint: {wrong}.",
            "Go on with the training that wrote it once more, or name another checkpoint.",
        )
    return note


def read_weights(folder: Path, adaptation: str) -> dict[str, Tensor]:
    return load_file(folder / WEIGHTS[adaptation])


def read_trainer(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / TRAINER, weights_only=True)
    return found


def read_step(folder: Path) -> dict[str, Any]:
    """`metrics` and `place` of a checkpoint."""
    found: dict[str, Any] = json.loads((folder / STEP).read_text(encoding="utf-8"))
    return found


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def seal(folder: Path) -> None:
    """Have all files on disk, and then the list of them."""
    written = listed(folder, folder, apart=(FILES, CARD))
    write_atomically(folder / FILES, json.dumps(written, indent=1))
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        sync(path)


def listed(folder: Path, root: Path, apart: Sequence[str] = ()) -> Listed:
    """All files in a folder but those of some names, put on disk; by their paths below `root`."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in apart)
    for path in paths:
        sync(path)
    return {
        path.relative_to(root).as_posix(): (path.stat().st_size, hashed(path)) for path in paths
    }


def hashed(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
