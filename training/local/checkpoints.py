"""A training run's folder: checkpoints that are complete or absent, and a link to the newest.

docs/training.md lists its files. `files.json` has size and SHA-256 of each other file of a
checkpoint. A checkpoint is written beside its place and renamed into it; one that was cut short is
recognised by that list, and the run continues from the one before it.

GGUF files are laid out as by llama.cpp's own converter. An adapter has two float32 matrices for
each adapted tensor, `<tensor>.lora_a` (r, in) and `<tensor>.lora_b` (out, r), and
`adapter.lora.alpha`. A whole model is for transformers alone.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from rubricem.agent.weights.checkpoints import ADAPTER, NOTE, Checkpoint, gguf_fields
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import hash_of, hold_lock, sync, writable, write_atomically
from rubricem.training.show.training import LOCK, RECORD, STEPS, object_of, objects_of

FILES, STEP, TRAINER = "files.json", "step.json", "trainer.pt"
WEIGHTS = {"lora": "adapter_model.safetensors", "full": "model.safetensors"}
CONFIG = {"lora": "adapter_config.json", "full": "config.json"}
_LISTED = TypeAdapter(dict[str, tuple[int, str]])
"""size and SHA-256 of files, by their paths below a folder"""


@dataclass(frozen=True, slots=True)
class Saved:
    """A training's state after a step, as it is saved."""

    note: Checkpoint
    weights: Mapping[str, Tensor]
    trainer: Mapping[str, Any]
    config: Mapping[str, Any]
    """of the adapter for peft, or of the model for transformers"""
    lines: list[dict[str, Any]]
    """the metrics of the steps since the last checkpoint, this step's last"""
    place: Mapping[str, Any] = field(default_factory=dict)
    """the caller's position: in its curriculum, its round"""
    template: Path | None = None
    """the GGUF file whose adapter is written for llama.cpp too; None: it is not"""


def write_files(folder: Path, saved: Saved) -> None:
    """Write a checkpoint into an empty folder; the note gets the hash of the weights."""
    note, weights = saved.note, folder / WEIGHTS[saved.note.adaptation]
    save_file(dict(saved.weights), weights, metadata={"format": "pt"})
    config = json.dumps(saved.config, indent=1)
    (folder / CONFIG[note.adaptation]).write_text(config, encoding="utf-8")
    if saved.template is not None:
        weights = folder / ADAPTER
        _write_adapter(weights, saved.template, saved.weights, note.alpha)
    torch.save(dict(saved.trainer), folder / TRAINER)
    (folder / STEP).write_text(json.dumps({"place": saved.place}), encoding="utf-8")
    told = note.model_copy(update={"adapter_sha256": hash_of(weights)}).beside(folder)
    (folder / NOTE).write_text(told.model_dump_json(indent=1), encoding="utf-8")
    _seal(folder)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file: gigabytes are copied only if the disk supports no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


MOST_BLOCKS = 256
"""in a model"""


@cache
def _names() -> gguf.TensorNameMap:
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, MOST_BLOCKS)  # and so those of SERVED


SERVED = ("qwen2", "qwen3", "llama")
"""architectures whose tensors are written for llama.cpp"""


def _layout_of(path: Path) -> tuple[str, Mapping[str, int]]:
    """A GGUF file's architecture, and heads by the tensors whose rows it has in another order.

    Of Llama's rotary positions the two halves of each head alternate there.
    """
    names = [b"general.architecture", b"llama.attention.head_count"]
    with path.open("rb") as file:
        found = gguf_fields(file, [*names, names[1] + b"_kv"])
    if (architecture := found[names[0]].decode()) != "llama":
        return architecture, {}
    many = int.from_bytes(found[names[1]], "little")
    few = int.from_bytes(found.get(names[1] + b"_kv", found[names[1]]), "little")
    return architecture, {"attn_q": many, "attn_k": few}


def _write_adapter(path: Path, base: Path, state: Mapping[str, Tensor], alpha: float) -> None:
    """Write an adapter's state, by peft's names. Raises ValueError for a layer outside a block."""
    architecture, heads = _layout_of(base)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for name, values in state.items():
        tensor = tensor_name(name)
        many = 0 if tensor.endswith("lora_a") else heads.get(tensor.split(".")[2], 0)
        if many:
            halves = values.reshape(many, 2, -1, values.shape[1])
            values = halves.transpose(1, 2).reshape(values.shape)
        writer.add_tensor(tensor, np.ascontiguousarray(values.float().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(name: str) -> str:
    """`...layers.3.mlp.up_proj.lora_A.weight` -> `blk.3.ffn_up.weight.lora_a`."""
    layer, _, part = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
    tensor = _names().get_name(f"{layer}.weight", (".weight",)) or ""
    if not tensor.startswith("blk.") or part not in ("lora_A", "lora_B"):
        raise ValueError(f"{name} is not a matrix of an adapter in a block")
    return f"{tensor}.{part.lower()}"


def fault(folder: Path, needed: Collection[str] = ()) -> str:
    """What is wrong with a checkpoint's files, in a clause; empty if they are intact.

    `needed`: the names of those to check; none: all.
    """
    try:
        text = (folder / FILES).read_text(encoding="utf-8")
        written = _LISTED.validate_json(text)
    except (OSError, ValueError):
        return f"it has no {FILES} that can be read"
    if missing := sorted(set(needed) - set(written)):
        return f"{FILES} does not list {missing[0]}"
    for name in needed or written:
        size, sha256 = written[name]
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (there := path.stat().st_size) != size:
            return f"{name} has {there:,} of {size:,} bytes"
        if hash_of(path) != sha256:
            return f"{name} is not what was written"
    return ""


def read_weights(folder: Path, adaptation: str) -> dict[str, Tensor]:
    return load_file(folder / WEIGHTS[adaptation])


def read_trainer(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / TRAINER, weights_only=True)
    return found


def _seal(folder: Path) -> None:
    """Flush all files to disk, and then the list of them."""
    found = folder.rglob("*")
    paths = sorted(p for p in found if p.is_file() and p.name != FILES)
    for path in paths:
        sync(path)
    written = {p.relative_to(folder).as_posix(): (p.stat().st_size, hash_of(p)) for p in paths}
    write_atomically(folder / FILES, json.dumps(written, indent=1))
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        sync(path)


LAST = "last"
KEPT = 2
FORM = 2
"""of a run's record, by which a run is told to be the same"""


class TrainingFolder:
    """One run's folder. Raises StoreError if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.newest = folder, folder / LAST

    @contextmanager
    def hold(self, record: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder for this process, and for the run of this record and no other."""
        busy = StoreError(
            f"{self.folder} is being trained by another process",
            "Wait for it, or name another `out`.",
        )
        with hold_lock(self.folder / LOCK, busy):
            self._claim(record)
            yield

    def _claim(self, record: Mapping[str, Any]) -> None:
        held, record = self.record(), {"form": FORM, **record}
        if not held:
            write_atomically(self.folder / RECORD, json.dumps(record, indent=1))
        elif held.get("form") != FORM:
            raise SettingsError(
                f"{self.folder} holds a training that another version of rubricem began.",
                "Continue it by that version, such as commit ec15fe0e, or begin in another folder.",
            )
        elif other := [name for name in record if held.get(name) != record[name]]:
            raise SettingsError(
                f"{self.folder} holds a training run with another {', '.join(other)}.",
                "Restore those to continue it, or name another folder as `out`.",
            )

    def record(self) -> dict[str, Any]:
        """The record of this folder's run; empty before it has begun."""
        return object_of(self.folder / RECORD)

    def metrics(self) -> list[dict[str, Any]]:
        return objects_of(self.folder / STEPS)

    def step(self) -> int:
        """The number of finished and saved steps."""
        return int(self.newest.readlink().name) if self.newest.exists() else 0

    def caller(self) -> dict[str, Any]:
        """The caller's position at the newest checkpoint; {} before the first."""
        if not self.step():
            return {}
        step: dict[str, Any] = json.loads((self.newest / STEP).read_text(encoding="utf-8"))
        return dict(step["place"])

    def _places(self) -> list[Path]:
        """The checkpoints in order of steps, without half-written ones."""
        found = (p for p in (self.folder / "checkpoints").glob("*") if p.name.isdecimal())
        return sorted(found, key=lambda place: int(place.name))

    def save(self, saved: Saved) -> None:
        """Write a checkpoint and the lines of its steps; the two newest checkpoints are kept."""
        place = self.folder / "checkpoints" / f"{saved.note.step:06d}"
        temporary = place.with_suffix(".part")
        with writable(place):
            for left in place.parent.glob("*.part"):
                shutil.rmtree(left)
            temporary.mkdir(parents=True)
            write_files(temporary, saved)
            # Lines first: whoever finds the checkpoint, though no link names it yet, has them too.
            first = saved.lines[0]["step"] if saved.lines else 0
            # A line without its checkpoint is of a step that a kill took back.
            kept = [line for line in self.metrics() if not saved.lines or line["step"] < first]
            text = "".join(json.dumps(line) + "\n" for line in [*kept, *saved.lines])
            write_atomically(self.folder / STEPS, text)
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            sync(place.parent)
            self._point_to(place)
            earlier = [old for old in self._places() if int(old.name) <= saved.note.step]
            for old in earlier[:-KEPT]:
                shutil.rmtree(old)

    def recover(self) -> str:
        """Let `last` be the newest complete checkpoint, or none.

        Returns what was wrong with later ones, in a sentence; empty if nothing was. They stay until
        their steps are taken again. Raises StoreError if `last` is a folder, as some copies make.
        """
        if self.newest.exists() and not self.newest.is_symlink():
            raise StoreError(
                f"{self.newest} is no link, as where it was copied.",
                f"Remove it: the checkpoints are in {self.folder / 'checkpoints'}.",
            )
        told: list[str] = []
        with writable(self.folder):
            for place in reversed(self._places()):
                if not (wrong := fault(place)):
                    self._point_to(place)
                    break
                told.append(f"the checkpoint of step {int(place.name)} is not whole ({wrong})")
            else:
                self.newest.unlink(missing_ok=True)
        step = self.step()
        begun = f"continuing from step {step}" if step else "beginning anew"
        return f"{' and '.join(told)}: {begun}" if told else ""

    def _point_to(self, place: Path) -> None:
        """Make a checkpoint the newest, atomically."""
        temporary = self.newest.with_name(f".{LAST}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(place.relative_to(self.folder))
        os.replace(temporary, self.newest)
        sync(self.folder)
