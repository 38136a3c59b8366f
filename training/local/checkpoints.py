"""A training run's folder: checkpoints that are complete or absent, and links to two of them.

    run.json                what the run is; continuing with another is refused
    metrics.jsonl           one line for each finished step
    checkpoints/000003/     a checkpoint
    last                    a link to the newest
    best                    a link to the best by a named metric, if one is named
    checkpoints/*.damaged   incomplete ones; kept for people, and never read

The files of one checkpoint:

    files.json                  size and SHA-256 of each other file, written last
    checkpoint.json             which weights, which step of which training (`Checkpoint`)
    step.json                   the step's metrics, and the caller's position
    trainer.pt                  the optimizer and the random states; by TRL, which keeps those
                                itself, sizes and SHA-256 of its files
    adapter_model.safetensors   LoRA: the adapter, with adapter_config.json as peft reads them
    adapter.gguf                LoRA: the same for llama.cpp, if it can serve the model
    model.safetensors           full: all weights in float32, with config.json for transformers
    model.gguf                  full: the same for llama.cpp, if it was asked for
    bank/, buffers/             what the run had learnt in words, if that is kept with it
    README.md                   the card, as hubs show it, for people alone: it is not needed to
                                continue, nor in files.json, since it is rewritten when the canary
                                row has been compared

A checkpoint is written beside its place and renamed into it, after all of it is on disk. A run that
was killed continues from the newest; only the steps since are repeated. One that was cut short
nevertheless, by a full disk or a copy, is recognised by its list of files, and the run continues
from the one before it. Some copies omit links, and some follow them, so that a whole checkpoint is
where a link was: a folder is repaired before it is continued, and nothing is deleted then; what
cannot be continued from keeps its files under another name.

GGUF files are laid out as by llama.cpp's own converter. An adapter has two matrices for each
adapted tensor: `<tensor>.lora_a` is (r, in) and `<tensor>.lora_b` is (out, r), with
`adapter.lora.alpha`; the scale alpha / r is applied by llama.cpp. Numbers stay float32. A whole
model is the trained weights under the metadata of the base: tokenizer, chat template and sizes are
copied from that file; matrices are written as float16 and all else as float32, and nothing is
quantised.

Above 600 lines, with the copy of such a folder from which another machine can continue (`Mirror`).
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path, PurePosixPath
from socket import gethostname
from typing import Any

import gguf
import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor

from rubricem.agent.weights.checkpoints import ADAPTER, MODEL, NOTE, Checkpoint, note_of
from rubricem.memory.bank.store import BankStore
from rubricem.memory.errors import SettingsError, StoreError, WeightsError, boundary
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import hash_of, hold_lock, sync, writable, write_atomically
from rubricem.training.show.card import CARD, model_card
from rubricem.training.show.training import (
    CANARY,
    LOCK,
    RECORD,
    STEPS,
    object_of,
    read_numbers,
    steps_of,
)

FILES, STEP, TRAINER = "files.json", "step.json", "trainer.pt"
WEIGHTS = {"lora": "adapter_model.safetensors", "full": "model.safetensors"}
CONFIG = {"lora": "adapter_config.json", "full": "config.json"}
Listed = Mapping[str, tuple[int, str]]
"""size and SHA-256 of files, by their paths below a folder"""
_LISTED = TypeAdapter(dict[str, tuple[int, str]])


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
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """counts and hashes of the rows' sources"""
    template: Path | None = None
    """full: the file under whose metadata all weights are also written for llama.cpp"""


def write_files(folder: Path, saved: Saved) -> None:
    """Write a checkpoint into an empty folder; the note gets the hash of the weights."""
    note, kind = saved.note, saved.note.adaptation
    weights = folder / WEIGHTS[kind]
    save_file(dict(saved.weights), weights, metadata={"format": "pt"})
    if kind == "lora" and note.served:
        _write_adapter(folder / ADAPTER, saved.weights, note.alpha)
        weights = folder / ADAPTER
    torch.save(dict(saved.trainer), folder / TRAINER)
    (folder / CONFIG[kind]).write_text(json.dumps(saved.config, indent=1), encoding="utf-8")
    step = {
        "metrics": saved.lines[-1] if saved.lines else {},
        "place": saved.place,
        "trained_on": saved.trained_on,
    }
    (folder / STEP).write_text(json.dumps(step), encoding="utf-8")
    hashes = {"adapter_sha256": hash_of(weights)}
    if kind == "full" and saved.template is not None:
        _write_model(folder / MODEL, saved.template, saved.weights)
        hashes["model_sha256"] = hash_of(folder / MODEL)
    note = note.model_copy(update=hashes)
    write_note(folder, note)


def write_whole(
    out: Path,
    note: Checkpoint,
    weights: Mapping[str, Tensor],
    config: Mapping[str, Any],
    template: Path | None,
    beside: Sequence[Path],
) -> None:
    """Write a checkpoint as a model of its own into a new folder.

    `template`: the file under whose metadata it is written for llama.cpp. `beside`: additional
    files to copy. The note becomes one of full weights, with the adapter's version at the end of
    the lineage.
    """
    temporary = out.with_name(f".{out.name}.part")
    with writable(out):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(dict(weights), temporary / WEIGHTS["full"], metadata={"format": "pt"})
        (temporary / CONFIG["full"]).write_text(json.dumps(config, indent=1), encoding="utf-8")
        if template is not None:
            _write_model(temporary / MODEL, template, weights)
        for path in beside:
            shutil.copy2(path, temporary / path.name)
        changed = {
            "adaptation": "full",
            "adapter_sha256": hash_of(temporary / WEIGHTS["full"]),
            "model_sha256": hash_of(temporary / MODEL) if template is not None else "",
            "lineage": (*note.lineage, note.version),
        }
        write_note(temporary, note.model_copy(update=changed))
        temporary.rename(out)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file: gigabytes are copied only if the disk supports no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_note(folder: Path, note: Checkpoint) -> None:
    """Write a checkpoint's note, and then the list of all its files."""
    text = note.beside(folder).model_dump_json(indent=1)
    (folder / NOTE).write_text(text, encoding="utf-8")
    _seal(folder)


MOST_BLOCKS = 256
"""in a model"""


@cache
def _names() -> gguf.TensorNameMap:
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, MOST_BLOCKS)


def llama_name(weight: str) -> str | None:
    """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`; None: unknown to llama.cpp."""
    return _names().get_name(weight, (".weight", ".bias"))


def _write_adapter(path: Path, state: Mapping[str, Tensor], alpha: float) -> None:
    """Write an adapter's state, by peft's names. Raises ValueError for a layer outside a block."""
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for name, tensor in state.items():
        writer.add_tensor(tensor_name(name), np.ascontiguousarray(tensor.float().numpy()))
    _finish(writer)


def tensor_name(name: str) -> str:
    """`...layers.3.mlp.up_proj.lora_A.weight` -> `blk.3.ffn_up.weight.lora_a`."""
    layer, _, part = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
    tensor = llama_name(f"{layer}.weight") or ""
    if not tensor.startswith("blk.") or part not in ("lora_A", "lora_B"):
        raise ValueError(f"{name} is not a matrix of an adapter in a block")
    return f"{tensor}.{part.lower()}"


def _write_model(path: Path, template: Path, state: Mapping[str, Tensor]) -> None:
    """Write all weights, with transformers' names. Raises SettingsError if one is missing."""
    reader = gguf.GGUFReader(template)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(str(path), architecture)
    keys = gguf.Keys.General
    own = (keys.ARCHITECTURE, keys.FILE_TYPE, keys.QUANTIZATION_VERSION)
    for told in reader.fields.values():
        if told.name.startswith("GGUF.") or told.name in own:
            continue
        kind = told.types[0]
        inner = told.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(told.name, told.contents(), kind, sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    named = {llama_name(name): values for name, values in state.items()}
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, values_of(tensor.name, named))
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def values_of(tensor: str, named: Mapping[str | None, Tensor]) -> np.ndarray:
    """The values written for a tensor, from weights by llama.cpp's names."""
    if tensor not in named:
        raise SettingsError(
            f"the trained model has nothing that the tensor {tensor} is made of.",
            "Train an adapter, which llama.cpp applies to the file as it is.",
        )
    values = named[tensor].float().numpy()
    return values.astype(np.float16) if values.ndim > 1 else values


def fault(folder: Path, needed: Collection[str] = ()) -> str:
    """What is wrong with a checkpoint's files, in a clause; empty if they are intact.

    `needed`: the names of those to check; none: all.
    """
    try:
        text = (folder / FILES).read_text(encoding="utf-8")
        written: Listed = _LISTED.validate_json(text)
    except (OSError, ValueError):
        return f"it has no {FILES} that can be read"
    if missing := sorted(set(needed) - set(written)):
        return f"{FILES} does not list {missing[0]}"
    return _unlike(folder, {name: written[name] for name in needed or written})


def _unlike(folder: Path, written: Listed) -> str:
    """What is wrong with the listed files below a folder, in a clause; empty if nothing is."""
    for name, (size, sha256) in written.items():
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


def _read_step(folder: Path) -> dict[str, Any]:
    """`metrics` and `place` of a checkpoint."""
    found: dict[str, Any] = json.loads((folder / STEP).read_text(encoding="utf-8"))
    return found


def _seal(folder: Path) -> None:
    """Flush all files to disk, and then the list of them."""
    written = _list_files(folder, folder, apart=(FILES, CARD))
    write_atomically(folder / FILES, json.dumps(written, indent=1))
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        sync(path)


def _list_files(folder: Path, root: Path, apart: Sequence[str] = ()) -> Listed:
    """All files in a folder except some names, flushed to disk; by their paths below `root`."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in apart)
    for path in paths:
        sync(path)
    return {
        path.relative_to(root).as_posix(): (path.stat().st_size, hash_of(path)) for path in paths
    }


BANK, BUFFERS = "bank", "buffers"


@dataclass(frozen=True, slots=True)
class SteppedBank:
    """The rubric bank and buffers of a data directory. Blocking: call it from a worker thread.

    A policy and what it learnt in words belong together, and the rubrics by which it was judged
    evolve with it: each checkpoint contains both as of its step, and a run that continues from a
    checkpoint restores them (RubricEM, arXiv:2605.10899, section 3.4).
    """

    data_dir: Path

    def keep(self, checkpoint: Path) -> None:
        """Copy both into a checkpoint's folder."""
        BankStore(self.data_dir / BANK).snapshot(checkpoint / BANK)
        BufferStore(self.data_dir / BUFFERS).copy_to(checkpoint / BUFFERS)

    def go_back(self, checkpoint: Path) -> None:
        """Restore both as of a checkpoint; one without a copy there stays as it is.

        Raises SettingsError if the copy is of another bank.
        """
        if (checkpoint / BANK).is_dir():
            BankStore(self.data_dir / BANK).restore(checkpoint / BANK)
        if (checkpoint / BUFFERS).is_dir():
            BufferStore(self.data_dir / BUFFERS).go_back_to(checkpoint / BUFFERS)


LAST, BEST = "last", "best"
DAMAGED, COPY = "damaged", "copy"
KEPT = 2
Better = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a step's metrics are better than those of the best earlier one."""


class TrainingFolder:
    """One run's folder. Raises StoreError if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest, self.best = folder / LAST, folder / BEST
        self.canary = folder / CANARY
        """how far llama.cpp is from the trainer, for the newest compared checkpoint"""

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
        held = self.record()
        if not held:
            write_atomically(self.folder / RECORD, json.dumps(record, indent=1))
        elif other := [name for name in record if held.get(name) != record[name]]:
            raise SettingsError(
                f"{self.folder} holds a training run with another {', '.join(other)}.",
                "Restore those to continue it, or name another folder as `out`.",
            )

    def record(self) -> dict[str, Any]:
        """The record of this folder's run; empty before it has begun."""
        return object_of(self.folder / RECORD)

    def metrics(self) -> list[dict[str, Any]]:
        return steps_of(self.folder)

    def step(self) -> int:
        """The number of finished and saved steps."""
        return _step_of_link(self.newest) if self.newest.exists() else 0

    def caller(self) -> dict[str, Any]:
        """The caller's position at the newest checkpoint; {} before the first."""
        return dict(_read_step(self.newest)["place"]) if self.step() else {}

    def list_files(self, below: Path) -> Listed:
        """All files in a folder of this one, flushed to disk."""
        return _list_files(below, self.folder)

    def compare(self, written: Listed) -> str:
        """What is wrong with files listed by `list_files`, in a clause; empty: nothing."""
        return _unlike(self.folder, written)

    def so_far(self) -> list[Path]:
        """The checkpoints up to the newest, in order of steps.

        Later ones are of steps that a run went back from; they are replaced when it reaches them.
        """
        return [place for place in self._places() if int(place.name) <= self.step()]

    def stand_at(self, place: Path) -> None:
        """Make a checkpoint the newest."""
        _point(self.newest, place)

    def _places(self) -> list[Path]:
        """The checkpoints in order of steps, without half-written ones and those set aside."""
        found = (p for p in (self.folder / "checkpoints").glob("*") if p.name.isdecimal())
        return sorted(found, key=lambda place: int(place.name))

    def _place(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / "checkpoints" / f"{step:06d}"

    def save(
        self, saved: Saved, memory: SteppedBank | None = None, better: Better | None = None
    ) -> None:
        """Write a checkpoint and the lines of its steps; `better` decides on the link `best`."""
        place = self._place(saved.note.step)
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
            first = saved.lines[0]["step"] if saved.lines else 0
            # A line without its checkpoint is of a step that a kill took back.
            kept = [line for line in self.metrics() if not saved.lines or line["step"] < first]
            text = "".join(json.dumps(line) + "\n" for line in [*kept, *saved.lines])
            write_atomically(self.folder / STEPS, text)
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            sync(place.parent)
            self.stand_at(place)
            before: Mapping[str, Any] = {}
            with suppress(FileNotFoundError, ValueError):
                before = _read_step(self.best)["metrics"]
            if better is not None and better(saved.lines[-1], before):
                _point(self.best, place)
            named = {self.newest.resolve(), self.best.resolve()}
            for old in self.so_far()[:-KEPT]:
                if old.resolve() not in named:
                    shutil.rmtree(old)

    def keep_best(self) -> None:
        """Point `best` to the newest checkpoint, by a measure other than its step's metrics."""
        with writable(self.best):
            _point(self.best, self._place(self.step()))

    def write_card(self, checkpoint: Path) -> None:
        """Write a complete checkpoint's card, from it and the folder's present contents."""
        step = _read_step(checkpoint)
        told = step.get("trained_on", {})
        card = model_card(note_of(checkpoint), read_numbers(self.folder), told, step["metrics"])
        write_atomically(checkpoint / CARD, card)

    def mend(self, better: Better | None = None) -> str:
        """Let `last` be the newest complete checkpoint, and `best` a complete one or none.

        If `best` is none, `better` chooses it among the remaining ones. Returns what was wrong, in
        a sentence; empty if nothing was.
        """
        with writable(self.folder):
            told = [*self._relink(self.newest), *self._relink(self.best), *self._mend_last()]
            told += self._mend_best(better)
        step = _step_of_link(self.newest)
        begun = f"continuing from step {step}" if step else "beginning anew"
        return f"{' and '.join(told)}: {begun}" if told else ""

    def _relink(self, link: Path) -> list[str]:
        """Restore a link that a copy followed; its folder replaces a damaged checkpoint.

        Anything that is no checkpoint is set aside.
        """
        if link.is_symlink() or not link.exists():
            return []
        place: Path | None = None
        with suppress(WeightsError):
            place = self._place(note_of(link).step)
        if place is not None and fault(place) and not fault(link):
            if place.exists():
                _set_aside(place, DAMAGED)
            place.parent.mkdir(exist_ok=True)
            link.rename(place)
            told = f"{link.name} was no link"
        else:
            told = f"{link.name} was no link (what it was is now {_set_aside(link, COPY).name})"
        if place is not None:
            _point(link, place)
        return [told]

    def _mend_last(self) -> list[str]:
        told: list[str] = []
        step, found = _step_of_link(self.newest), self._places()
        if step and not self.newest.exists():
            told.append(f"the checkpoint of step {step} is missing")
        if found and not step:
            told.append(f"{LAST} is no link to a checkpoint")
        # A kill came before the link to a later one, or somebody went back: that step is done
        # again. Where nothing else is left, a later one is better than none.
        for place in sorted(found, key=lambda p: (int(p.name) <= step, int(p.name)), reverse=True):
            if not (wrong := fault(place)):
                self.stand_at(place)
                return told
            told.append(_pass_by(place, wrong))
        self.newest.unlink(missing_ok=True)
        return told

    def _mend_best(self, better: Better | None) -> list[str]:
        told: list[str] = []
        step = _step_of_link(self.best)
        if step and not self.best.exists():
            told.append(f"{BEST} links to step {step}, which is missing")
        elif step and step != _step_of_link(self.newest) and (wrong := fault(self.best)):
            told.append(f"{BEST} links to step {step}: {_pass_by(self.best.resolve(), wrong)}")
        if told:
            self.best.unlink()
        if better is None or self.best.exists() or not (chosen := self._choose_best(better)):
            return told
        _point(self.best, chosen)
        return [*told, f"{BEST} links to step {int(chosen.name)} now"]

    def _choose_best(self, better: Better) -> Path | None:
        """The best remaining one: the best of all, if it is there, since it was kept for that."""
        chosen, before = None, dict[str, Any]()
        for place in self._places():
            if int(place.name) <= _step_of_link(self.newest) and not fault(place):
                metrics = _read_step(place)["metrics"]
                if better(metrics, before):
                    chosen, before = place, metrics
        return chosen


_CHECKPOINTS, _POLICY, _STEPS, _DATA = "checkpoints", "policy", "steps", "data"
LEASE = "lease.json"
"""names the session that copies to a mirror, and keeps changing while it does"""
_NUMBERS = "/proc/self/ns/pid"
RENEWED, EXPIRED = 20.0, 60.0
"""seconds between two changes of a lease; and without one, after which it has expired"""
_APART = {LOCK, LAST, BEST, LEASE, "served", "index", "tensorboard"}
"""names below a run's folder that are not mirrored: links, and what can be made again"""
_LEARNT = {BANK, BUFFERS}
"""the parts of a data directory that a run learns; the rest are indexes of its sources"""


class Mirror:
    """A copy of a run's folder at an address that fsspec knows: another folder, an object store.

    It is updated after each checkpoint and when a session ends, and fills an empty folder, so that
    another machine can continue. It blocks: call it from a worker thread.

    One session at a time copies there. It holds a lease, which it keeps changing: another session
    that finds one waits to see whether it changes, since the clocks of two machines may differ.

    Rounds continue while they are copied. What records that something is finished is therefore
    copied before the thing itself, which only grows or stays, and a checkpoint's list of files
    after them. That list shows what earlier sessions copied, too: stores have no hashes or times in
    common, and a repeated step has files of the same sizes.
    """

    def __init__(self, folder: Path, address: str, tell: Callable[[str], None]) -> None:
        """Raises SettingsError for an address that cannot be used here."""
        from fsspec.core import url_to_fs

        self._folder, self._address, self._tell = folder, address, tell
        try:
            self._store, root = url_to_fs(address)
        except (ImportError, OSError, ValueError) as error:
            raise SettingsError(
                f"the mirror {address} cannot be used: {error}.",
                "Name an address that fsspec knows, and install the package of its kind.",
            ) from error
        self._root = root.rstrip("/")
        self._sent: dict[str, tuple[int, int]] = {}
        """size and time of each file that this process has copied"""
        self._token, self._renewals = uuid.uuid4().hex, 0
        self._taken_by = ""
        """the machine that has taken over the lease"""

    def bring(self) -> None:
        """Take the mirror, and fill the folder if it contains no run.

        If it contains one, its damaged checkpoints are fetched.

        Raises StoreError if the mirror cannot be read, is held by another session, contains
        something else, or is of a later step than the folder.
        """
        with boundary(StoreError, f"reading the mirror {self._address}"):
            there = self._there()
            if there and RECORD not in there:
                raise StoreError(
                    f"{self._address} holds files, and no run.", "Name an empty place as mirror."
                )
            self._take()
            there = self._there()
            if (self._folder / RECORD).exists():
                self._check_newest(there)
                self._bring_damaged(there)
                return
            # What says that a run lies there comes last: a kill before it begins anew.
            for name in sorted(there, key=lambda name: (name == RECORD, name)):
                place = self._folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                self._store.get_file(f"{self._root}/{name}", str(place))
        if there:
            self._tell(f"{len(there)} files were brought from {self._address}")

    def _bring_damaged(self, there: Mapping[str, int]) -> None:
        """Replace damaged checkpoints of the run by those of the mirror.

        Otherwise they would be given up here, and then there.
        """
        run = TrainingFolder(self._folder)
        for place in run.so_far():
            below = f"{place.relative_to(self._folder).as_posix()}/"
            if f"{below}{FILES}" not in there or not (wrong := fault(place)):
                continue
            temporary = place.with_suffix(".part")
            shutil.rmtree(temporary, ignore_errors=True)
            for name in sorted(name for name in there if name.startswith(below)):
                path = temporary / name.removeprefix(below)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._store.get_file(f"{self._root}/{name}", str(path))
            if fault(temporary):
                shutil.rmtree(temporary)
                continue
            aside = _set_aside(place, DAMAGED).name
            temporary.rename(place)
            step = f"the checkpoint of step {int(place.name)}"
            self._tell(f"{step} was not whole ({wrong}; it is now {aside}), and was brought")

    def _take(self) -> None:
        """Take the lease, once nobody else holds it."""
        found, until = self._lease(), time.monotonic() + EXPIRED
        if found is not None and not _is_gone(found):
            where = f"the mirror {self._address} was left by a session on {found.get('host')}"
            self._tell(f"{where}, or that goes on: waiting for {EXPIRED:g} s")
        while found is not None and not _is_gone(found) and time.monotonic() < until:
            time.sleep(min(RENEWED, EXPIRED) / 10)
            if (now := self._lease()) != found and now is not None:
                raise StoreError(
                    f"a session on {now.get('host')} trains with the mirror {self._address}.",
                    "Wait until it has ended, or name another mirror.",
                )
            found = now
        self._write_lease()

    def renew(self) -> None:
        """Renew the lease, unless another session has taken it."""
        with suppress(Exception):  # the store is away, as `send` tells
            found = self._lease()
            if found is not None and found["token"] != self._token:
                self._taken_by = str(found["host"])
            elif not self._taken_by:
                self._write_lease()

    def release(self) -> None:
        """Give up the lease."""
        with suppress(Exception):
            found = self._lease()
            if found is not None and found["token"] == self._token:
                self._store.rm_file(f"{self._root}/{LEASE}")

    def _lease(self) -> dict[str, Any] | None:
        self._store.invalidate_cache()
        try:
            found = json.loads(self._store.cat_file(f"{self._root}/{LEASE}"))
            return found if isinstance(found, dict) else None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def _write_lease(self) -> None:
        self._renewals += 1
        told = {**_session(), "token": self._token, "renewals": self._renewals}
        with suppress(Exception):  # where nothing can be written nothing is copied either
            self._store.makedirs(self._root, exist_ok=True)
            self._store.pipe_file(f"{self._root}/{LEASE}", json.dumps(told).encode())

    def send(self) -> None:
        """Copy what has changed. A failure is reported, and retried at the next checkpoint.

        Raises StoreError if another session has taken the mirror.
        """
        self.renew()
        if self._taken_by:
            raise StoreError(
                f"a session on {self._taken_by} has taken the mirror {self._address}, since this "
                f"one did not renew it for {EXPIRED:g} s.",
                "Continue there, or end that session and run the same command again.",
            )
        try:
            there, here = self._there(), self._here()
            held = self._files_there(there, here)
            for name in sorted(here, key=_after):
                self._send(name, here[name], held=name in held)
            for name in there.keys() - here.keys():
                if not {_CHECKPOINTS, _POLICY}.isdisjoint(name.split("/")):  # the run let it go
                    self._store.rm_file(f"{self._root}/{name}")
        except Exception as error:
            # Every store has errors of its own, and none of them ends a training.
            self._tell(f"the mirror {self._address} is behind: {error}")

    def _files_there(self, there: Mapping[str, int], here: Mapping[str, Path]) -> set[str]:
        """The files of checkpoints that the mirror has as they are here: by one list of them."""
        found = set[str]()
        for name, path in here.items():
            listing = path.name == FILES and name.startswith(_CHECKPOINTS)
            if listing and there.get(name) and name not in self._sent:
                with suppress(FileNotFoundError, ValueError):  # let go of meanwhile, or no list
                    text, below = path.read_bytes(), name.removesuffix(FILES)
                    if self._store.cat_file(f"{self._root}/{name}") == text:
                        listed: Listed = _LISTED.validate_json(text)
                        sizes = {below + each: size for each, (size, _) in listed.items()}
                        found |= {name, *(n for n, size in sizes.items() if there.get(n) == size)}
        return found

    def _send(self, name: str, path: Path, *, held: bool) -> None:
        try:
            told = path.stat()
            state = told.st_size, told.st_mtime_ns
            if self._sent.get(name) == state:
                return
            if not held:
                place = f"{self._root}/{name}"
                self._store.makedirs(str(PurePosixPath(place).parent), exist_ok=True)
                self._store.put_file(str(path), place)
            self._sent[name] = state
        except FileNotFoundError:
            if path.exists():  # else a round has let it go meanwhile
                raise

    def _there(self) -> dict[str, int]:
        """Sizes of mirrored files, by their paths below the folder."""
        self._store.invalidate_cache()
        found = self._store.find(self._root, detail=True) if self._store.exists(self._root) else {}
        sizes = {name[len(self._root) + 1 :]: int(one["size"]) for name, one in found.items()}
        sizes.pop(LEASE, None)
        return sizes

    def _here(self) -> dict[str, Path]:
        """The files to mirror, by their paths below the folder."""
        named = (p.relative_to(self._folder) for p in self._folder.rglob("*") if p.is_file())
        return {path.as_posix(): self._folder / path for path in named if _is_mirrored(path.parts)}

    def _check_newest(self, there: Iterable[str]) -> None:
        """Raise StoreError if another session has continued the run."""
        lists = (PurePosixPath(n) for n in there if n.startswith(_CHECKPOINTS))
        steps = (int(path.parts[1]) for path in lists if path.name == FILES)
        own = TrainingFolder(self._folder).step()
        if (newest := max(steps, default=0)) > own:
            raise StoreError(
                f"{self._address} has step {newest} of the run, and {self._folder} step {own}: it "
                "was continued elsewhere.",
                "Name an empty folder as `out` to continue from there, or another mirror.",
            )


def _session() -> dict[str, Any]:
    """This process, as named in a lease."""
    numbers = ""
    with suppress(OSError):  # processes of two containers may have one number
        numbers = os.readlink(_NUMBERS)
    return {"host": gethostname(), "process": os.getpid(), "of": numbers}


def _is_gone(lease: Mapping[str, Any]) -> bool:
    """Whether a lease is of a process of this machine that has ended."""
    own = _session()
    if not own["of"] or (lease.get("host"), lease.get("of")) != (own["host"], own["of"]):
        return False
    return not Path(f"/proc/{lease.get('process')}").exists()


def _is_mirrored(parts: Sequence[str]) -> bool:
    """Whether a file of a run's folder is mirrored, by the parts of its path below it."""
    hidden = any(part.startswith((".", "catalogue.db")) for part in parts)
    left = hidden or any(part.endswith((".part", f".{DAMAGED}")) for part in parts)
    below = parts[parts.index(_DATA) + 1] if _DATA in parts else BANK
    return not left and below in _LEARNT and not _APART & {*parts}


def _after(name: str) -> tuple[int, str]:
    """Sort key for copying; first comes what shows that there is a run."""
    parts = name.split("/")
    if name == RECORD or _STEPS in parts:
        return int(name != RECORD) - 1, name
    if parts[0] != _CHECKPOINTS:
        return 1, name
    return 2 + (parts[-1] == FILES), name


def _step_of_link(link: Path) -> int:
    """The step of a link's checkpoint, even if that is gone; 0: it is no such link."""
    name = link.readlink().name if link.is_symlink() else ""
    return int(name) if name.isdecimal() else 0


def _point(link: Path, place: Path) -> None:
    """Point a link to another checkpoint, atomically."""
    temporary = link.with_name(f".{link.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(place.relative_to(link.parent))
    os.replace(temporary, link)
    sync(link.parent)


def _set_aside(path: Path, ending: str) -> Path:
    """Rename to an unused name that no checkpoint can have; returns it."""
    names = (path.with_name(f"{path.name}.{ending}{number or ''}") for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    path.rename(free)
    sync(path.parent)
    return free


def _pass_by(place: Path, wrong: str) -> str:
    """Move damaged checkpoints away: they would be counted with the newest."""
    aside = _set_aside(place, DAMAGED).name
    return f"the checkpoint of step {int(place.name)} is not whole ({wrong}; it is now {aside})"
