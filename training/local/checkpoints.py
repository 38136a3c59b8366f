"""A training run's folder: checkpoints that are whole or not there, and links to two of them.

    run.json                what the run is; going on with another is refused
    metrics.jsonl           one line for each finished step
    checkpoints/000003/     `training.local.checkpoints`
    last                    a link to the newest
    best                    a link to the best by a named metric, where one is named
    checkpoints/*.damaged   not whole any more; kept for people, and never read

A checkpoint is written beside its place and renamed into it, after all of it is on disk. A run
that was killed goes on from the newest; only the steps since are done again. One that was cut
short all the same, by a full disk or a copy, is known by its list of files, and the one before it
is gone on from.

The files of one checkpoint: written whole, and known to be whole when they are read.

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

A run's numbered checkpoints, and the links that name two of them.

A run's folder put in order before it is gone on with: after damage, a kill, or a copy.

Some copies leave links out, and some follow them, so that a whole checkpoint lies where a link
was. Nothing is deleted here: what cannot be gone on from keeps its files under another name.

What a training needs besides its weights to go on as if it had not stopped.

The optimizer's moments are written whole, so that a run may go on with other ranks than it had.

The rubric bank and the rubric buffers of a training run, kept with its weights.

A policy and what it learnt in words belong together, and the rubrics that it was judged by evolve
with it: each checkpoint holds both as they stood then, and a run that goes on from a checkpoint
goes back to that (RubricEM, arXiv:2605.10899, section 3.4).
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rubricem.agent.weights.checkpoints import ADAPTER, MODEL, NOTE, Checkpoint, note_of
from rubricem.memory.bank import restore, snapshot
from rubricem.memory.bank.store import BankStore
from rubricem.memory.errors import SettingsError, StoreError, WeightsError, boundary
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import writable, write_atomically
from rubricem.training.local.gguf import write_adapter, write_model
from rubricem.training.local.learner import Learner
from rubricem.training.local.ranks import put, whole
from rubricem.training.show.card import CARD, model_card
from rubricem.training.show.training import CANARY, kept_numbers

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


LAST, BEST, CHECKPOINTS = "last", "best", "checkpoints"


def places(run: Path) -> list[Path]:
    """The checkpoints, the first step first; none that is half written or was set aside."""
    found = (place for place in (run / CHECKPOINTS).glob("*") if place.name.isdecimal())
    return sorted(found, key=lambda place: int(place.name))


def place_of(run: Path, step: int) -> Path:
    """Where the checkpoint of a step belongs."""
    return run / CHECKPOINTS / f"{step:06d}"


def linked(link: Path) -> int:
    """The step that a link names, also where its checkpoint is gone; 0: it is no such link."""
    name = link.readlink().name if link.is_symlink() else ""
    return int(name) if name.isdecimal() else 0


def point(link: Path, place: Path) -> None:
    """Have a link name another checkpoint, at once."""
    temporary = link.with_name(f".{link.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(place.relative_to(link.parent))
    os.replace(temporary, link)
    sync(link.parent)


def set_aside(path: Path, ending: str) -> Path:
    """Rename to a name that nothing has yet, and that no checkpoint has; returns it."""
    names = (path.with_name(f"{path.name}.{ending}{number or ''}") for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    path.rename(free)
    sync(path.parent)
    return free


Better = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether a step's metrics are better than those of the best one before."""
DAMAGED, COPY = "damaged", "copy"


def mended(run: Path, better: Better | None = None) -> str:
    """Let `last` be the newest whole checkpoint, and `best` a whole one or none.

    Where `best` is none, `better` chooses it among those that are left. Returns what was wrong, in
    a sentence; empty where nothing was.
    """
    told = [*_relinked(run / LAST), *_relinked(run / BEST), *_mended_last(run)]
    told += _mended_best(run, better)
    step = linked(run / LAST)
    begun = f"going on from step {step}" if step else "beginning anew"
    return f"{' and '.join(told)}: {begun}" if told else ""


def _relinked(link: Path) -> list[str]:
    """Have a link again where a copy followed it; it takes the place of one that is not whole."""
    if link.is_symlink() or not link.exists():
        return []
    place = _place_of_copy(link)
    if place is not None and fault(place) and not fault(link):
        if place.exists():
            set_aside(place, DAMAGED)
        place.parent.mkdir(exist_ok=True)
        link.rename(place)
        told = f"{link.name} was no link"
    else:
        told = f"{link.name} was no link (what it was is now {set_aside(link, COPY).name})"
    if place is not None:
        point(link, place)
    return [told]


def _place_of_copy(copy: Path) -> Path | None:
    """Where the checkpoint that this is a copy of belongs; None: it is no checkpoint."""
    try:
        return place_of(copy.parent, note_of(copy).step)
    except WeightsError:
        return None


def _mended_last(run: Path) -> list[str]:
    last, told = run / LAST, list[str]()
    step, found = linked(last), places(run)
    if step and not last.exists():
        told.append(f"the checkpoint of step {step} is missing")
    if found and not step:
        told.append(f"{LAST} is no link to a checkpoint")
    # A kill came before the link to a later one, or somebody went back: that step is done again.
    # Where nothing else is left, a later one is better than none.
    for place in sorted(found, key=lambda p: (int(p.name) <= step, int(p.name)), reverse=True):
        if not (wrong := fault(place)):
            point(last, place)
            return told
        told.append(_passed_by(place, wrong))
    last.unlink(missing_ok=True)
    return told


def _passed_by(place: Path, wrong: str) -> str:
    """Damaged checkpoints are put out of the way: they would be counted with the newest."""
    aside = set_aside(place, DAMAGED)
    return (
        f"the checkpoint of step {int(place.name)} is not whole ({wrong}; it is now {aside.name})"
    )


def _mended_best(run: Path, better: Better | None) -> list[str]:
    best, told = run / BEST, list[str]()
    step = linked(best)
    if step and not best.exists():
        told.append(f"{BEST} links to step {step}, which is missing")
    elif step and step != linked(run / LAST) and (wrong := fault(best)):
        told.append(f"{BEST} links to step {step}: {_passed_by(best.resolve(), wrong)}")
    if told:
        best.unlink()
    if better is None or best.exists() or not (chosen := _best_of(run, better)):
        return told
    point(best, chosen)
    return [*told, f"{BEST} links to step {int(chosen.name)} now"]


def _best_of(run: Path, better: Better) -> Path | None:
    """The best that is left: the best of all, if it is there, since it was kept for that."""
    chosen, before = None, dict[str, Any]()
    for place in places(run):
        if int(place.name) <= linked(run / LAST) and not fault(place):
            metrics = read_step(place)["metrics"]
            if better(metrics, before):
                chosen, before = place, metrics
    return chosen


BANK, BUFFERS = "bank", "buffers"


@dataclass(frozen=True, slots=True)
class SteppedBank:
    """The bank and buffers of a data directory. Blocking: call it from a worker thread."""

    data_dir: Path

    def keep(self, checkpoint: Path) -> None:
        """Copy both as they stand into a checkpoint's folder."""
        snapshot(self._bank(), checkpoint / BANK)
        self._buffers().copy_to(checkpoint / BUFFERS)

    def go_back(self, checkpoint: Path) -> None:
        """Have both as they stood at a checkpoint; what has no copy there, as it stands.

        Raises SettingsError where the copy is of another bank.
        """
        if (checkpoint / BANK).is_dir():
            restore(self._bank(), checkpoint / BANK)
        if (checkpoint / BUFFERS).is_dir():
            self._buffers().go_back_to(checkpoint / BUFFERS)

    def _bank(self) -> BankStore:
        return BankStore(self.data_dir / BANK)

    def _buffers(self) -> BufferStore:
        return BufferStore(self.data_dir / BUFFERS)


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

        `training.local.checkpoints` says how.
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


def trainer_state(learner: Learner) -> dict[str, Any]:
    """The optimizer's state and the random generators', in the processor's memory."""
    optimizer, keep = learner.optimizer.state_dict(), learner.ranks.first
    moments = {
        number: {name: whole(value, keep) for name, value in state.items()}
        for number, state in optimizer["state"].items()
    }
    random = {"cpu": torch.get_rng_state()}
    if learner.ranks.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(learner.ranks.device)
    return {"optimizer": {**optimizer, "state": moments}, "random": random}


def restore_trainer(learner: Learner, state: dict[str, Any]) -> None:
    """Take over what `trainer_state` gave, on these ranks."""
    optimizer, parameters = state["optimizer"], learner.weights.parameters()
    moments = {
        number: {name: _like(parameters[number], value) for name, value in held.items()}
        for number, held in optimizer["state"].items()
    }
    learner.optimizer.load_state_dict({**optimizer, "state": moments})
    torch.set_rng_state(state["random"]["cpu"])
    if learner.ranks.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"], learner.ranks.device)


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """A moment, divided as its parameter is; the number of steps is a scalar and stays."""
    if value.shape != parameter.shape:
        return value
    moment = torch.zeros_like(parameter)
    put(moment, value)
    return moment
