"""A model in training: loaded once, given windows as they come, saved on request.

    async with open_session(config, "ss-grpo", tell, weights_dir) as session:
        while session.done < steps:
            await asyncio.to_thread(session.step, rows, rate)
            await asyncio.to_thread(session.save, place={"round": 3})

Opened again on the same folder, it continues from the newest checkpoint, with `place` as it was
saved there. Under torchrun every process does the same, with the same rows.
"""

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rubricem.agent.transcript.events import Tell
from rubricem.agent.weights.catalogue import lookup
from rubricem.agent.weights.checkpoints import NOTE, Checkpoint, note_of
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, WeightsError, boundary
from rubricem.training.local.checkpoints import (
    WEIGHTS,
    Saved,
    TrainingFolder,
    fault,
    read_trainer,
    read_weights,
)
from rubricem.training.local.learner import Learner, Metrics, NotFinite
from rubricem.training.local.load import (
    Base,
    MemoryNeed,
    check_rows,
    find_weights,
    load_learner,
    memory_told,
    row_limit,
)
from rubricem.training.local.local_config import Config, EngineConfig, Method
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.weights import Adapter, adapter_config
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import gguf_vocabulary, read_tokeniser
from rubricem.training.show.console import Progress, open_progress
from rubricem.training.statistics import Numbers, advantage_numbers, spread

RESUMABLE = {
    "out", "parallel", "gradient_checkpointing", "save_every", "micro_batch",
    "start_adapter", "judge", "trackers",
}  # fmt: skip
"""settings that may differ when a run goes on, since none changes what is learnt but by rounding;
a start adapter is compared by what it is"""


class TrainingSession:
    """One run's model, optimizer and folder. Its methods block: call them from a thread."""

    def __init__(
        self, config: EngineConfig, method: Method, tell: Tell, base: Base, ranks: Ranks
    ) -> None:
        """`config` is one of `settle`. Nothing is loaded before the first step."""
        self.config, self.method, self.tell = config, method, tell
        self.base, self.ranks = base, ranks
        self.note = first_note(config, method, base)
        self.folder = TrainingFolder(config.out)
        self.done = 0
        """steps finished, saved or not"""
        self.place: dict[str, Any] = {}
        """what `save` was last given as such, with the newest checkpoint"""
        self.progress = Progress(tell)
        self._lines: list[dict[str, Any]] = []

    @cached_property
    def learner(self) -> Learner:
        """The model as the newest checkpoint has it, or as the training begins."""
        config = self.config
        self.tell(f"reading {self.base.path.name} as {config.dtype}; half a minute for the 0.5b")
        with memory_told(self.ranks.device), self.ranks.report_lost():
            free = free_memory(self.ranks.device)
            learner = load_learner(config, self.base.path, self.ranks)
            if config.micro_batch is None and self.ranks.device.type == "cuda":
                room = MemoryNeed.of(config, self.base.path, self.ranks.world).room(free)
                learner.room = min(self.ranks.gather(max(room, 1)))
            if self.done:
                learner.weights.load(read_weights(self.folder.newest, config.adaptation))
                learner.restore(read_trainer(self.folder.newest))
        return learner

    @cached_property
    def vocabulary(self) -> str:
        """Of the model's own ids; empty where a folder has no tokenizer."""
        return vocabulary_of(self.base.path)

    def recover(self) -> None:
        """Continue from the newest whole checkpoint.

        Raises SettingsError where the processes do not see the same one.
        """
        if self.ranks.first and (wrong := self.folder.recover()):
            self.tell(wrong)
        self.ranks.wait()
        self.done = self.folder.step()
        self.ranks.check_alike({f"step of the run in {self.config.out}": self.done})
        self.place = self.folder.caller()

    def step(self, rows: Sequence[TrainRow], rate: float) -> Metrics:
        """One window's update; returns its numbers.

        Raises SettingsError for rows that are not for this model, PolicyError when the update
        would not be finite or does not fit into memory. No weight has changed then.
        """
        own = self.vocabulary if any(row.tokenizer for row in rows) else ""
        if wrong := [row for row in rows if own and row.tokenizer not in ("", own)]:
            raise SettingsError(
                f"the ids of row {wrong[0].id} are of another tokenizer than the model's.",
                "Name the collected run itself under rows, or export it by --model with this "
                "model.",
            )
        number, learner = self.done + 1, self.learner
        if self.ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.ranks.device)
        check_rows(rows, learner.model)
        learner.on_row = self.progress.rows
        take = learner.sft_step if self.method == "sft" else learner.ss_grpo_step
        try:
            with (
                boundary(PolicyError, f"training step {number}"),
                memory_told(self.ranks.device),
                self.ranks.report_lost(),
            ):
                metrics = take(rows, rate)
        except NotFinite as error:
            kept = "No step was saved before."
            if saved := self.folder.step():
                kept = f"The weights of step {saved} are kept in {self.folder.newest}."
            raise PolicyError(
                f"training step {number} was not made: {error}", f"{error.remedy} {kept}"
            ) from error
        self.done += 1
        peak = {"memory_peak": memory_peak(self.ranks.device)}
        metrics = metrics | window_numbers(rows) | peak
        self._lines.append({"step": self.done, **metrics})
        return metrics

    def save(
        self,
        more: Mapping[str, Any] | None = None,
        place: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint of the last step; returns the link to the newest.

        `more`: numbers of this step that the caller measured. `place`: where the caller stands.
        """
        if more and self._lines:
            self._lines[-1] |= more
        self.place = dict(place or {})
        with self.ranks.report_lost():
            weights = self.learner.weights.state(keep=self.ranks.first)
            trainer = self.learner.state()
        if isinstance(adapter := self.learner.weights, Adapter):
            names, told = adapter.layers, self.config
            config = adapter_config(told.rank, told.alpha, names, base_for_peft(self.base.name))
        else:
            config = self.learner.model.config.to_dict() | {"dtype": "float32"}
        wrong: RubricemError | None = None
        if self.ranks.first:
            saved = Saved(
                note=self.note.model_copy(update={"step": self.done}), weights=weights,
                trainer=trainer, config=config, lines=self._lines, place=self.place,
                template=self.base.gguf if self.config.adaptation == "lora" else None,
            )  # fmt: skip
            try:
                self.folder.save(saved)
            except RubricemError as error:
                wrong = error
        if (found := self.ranks.broadcast(wrong)) is not None:
            raise found
        self._lines = []
        return self.folder.newest


def base_for_peft(name: str) -> str:
    """A model's name for peft, which knows no catalogue, and is given a GGUF file's name apart."""
    if (weights := lookup(name)) is not None:
        return weights.repo
    return str(Path(name).parent) if Path(name).is_file() else name.partition(":")[0]


def window_numbers(rows: Sequence[TrainRow]) -> Numbers:
    """Rows and groups, lengths in tokens, advantages by stage."""
    lengths = [float(len(row.ids)) for row in rows]
    return {
        "rows": float(len(rows)),
        "groups": float(len({row.group for row in rows})),
        **spread("row_tokens", lengths, ("mean", "max")),
        **spread("prompt_tokens", [float(row.prompt_tokens) for row in rows], ("mean",)),
        **advantage_numbers(rows),
    }


def vocabulary_of(path: Path) -> str:
    """The hash of a model's vocabulary, of a GGUF file or a folder; empty where it is not known."""
    if path.is_file():
        return gguf_vocabulary(path)
    with suppress(SettingsError):
        return read_tokeniser(path).vocabulary
    return ""


@asynccontextmanager
async def open_session(
    config: EngineConfig, method: Method, tell: Tell, weights_dir: Path | None = None,
    record: Mapping[str, Any] | None = None,
) -> AsyncIterator[TrainingSession]:  # fmt: skip
    """A session that holds its folder; `record`: what else must be the same when it goes on.

    Raises SettingsError for a configuration or a folder that do
    not fit, WeightsError for weights that cannot be had, StoreError for a folder in use.
    """
    ranks = Ranks.join()
    # The first process of a machine fetches weights that are not on disk.
    if ranks.local:
        await asyncio.to_thread(ranks.wait)
    base = await Base.find(config.model, weights_dir)
    if not ranks.local:
        await asyncio.to_thread(ranks.wait)
    config = await settle(config, weights_dir)
    told = tell if ranks.first else lambda line: None
    session = TrainingSession(config, method, told, base, ranks)
    note = session.note
    held = {
        **config.model_dump(mode="json", exclude=RESUMABLE), "method": method,
        "base_sha256": note.base_sha256, "start_adapter": list(note.lineage), **(record or {}),
    }  # fmt: skip
    await asyncio.to_thread(ranks.check_alike, held)
    with session.folder.hold(held) if ranks.first else nullcontext():
        await asyncio.to_thread(session.recover)
        trackers = config.trackers if ranks.first else ()
        with open_progress(told, config.out, trackers) as session.progress:
            yield session
        session.__dict__.pop("learner", None)


def first_note(config: EngineConfig, method: Method, base: Base) -> Checkpoint:
    """The note of a training's start; each step's differs from it in step and hashes."""
    full = config.adaptation == "full"
    lineage: tuple[str, ...] = ()
    if config.start_adapter is not None:
        start = note_of(config.start_adapter)
        # Whether llama.cpp can answer with it does not matter.
        if wrong := fault(config.start_adapter, (NOTE, WEIGHTS[start.adaptation])):
            raise WeightsError(
                f"{config.start_adapter} is not a whole checkpoint: {wrong}.",
                "Go on with the training that wrote it once more, or name another checkpoint.",
            )
        mine = (base.sha256, config.rank, config.alpha)
        if (start.base_sha256, start.rank, start.alpha) != mine:
            raise SettingsError(
                f"the adapter in {config.start_adapter} belongs to another model, "
                f"or has another rank or alpha ({start.rank}, {start.alpha:g}).",
                "Give this training the same model, rank and alpha.",
            )
        if config.judge and start.judge not in (None, config.judge):
            raise SettingsError(
                f"the judge in {config.start_adapter} writes the form {start.judge!r}, not "
                f"{config.judge!r}.",
                f'Set judge = "{start.judge}", or begin with another checkpoint.',
            )
        lineage = (*start.lineage, start.version)
    return Checkpoint(
        base=base.name, base_sha256=base.sha256, adapter_sha256="", method=method, step=0,
        rank=0 if full else config.rank, alpha=0.0 if full else config.alpha, lineage=lineage,
        adaptation=config.adaptation, served=bool(base.gguf) and not full, judge=config.judge,
    )  # fmt: skip


def memory_peak(device: torch.device) -> float:
    """Bytes: on a GPU of its tensors since the step began, else of the process since it began."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


PLACES = {"out", "start_adapter", "rows", "judge"}
"""settings that may differ between ranks, or are compared by what they name"""


async def settle(config: Config, weights_dir: Path | None = None) -> Config:
    """The configuration with the type and the longest row that a run in its folder has.

    Raises SettingsError and WeightsError as `row_limit` does, and SettingsError where the ranks
    were not given the same.
    """
    ranks = Ranks.join()
    facts = {name: version(name) for name in ("rubricem", "torch", "transformers")}
    facts |= config.model_dump(mode="json", exclude=PLACES)
    await asyncio.to_thread(ranks.check_alike, facts)
    if config.dtype == "auto":
        on_gpu = ranks.device.type == "cuda"
        dtype = str(ranks.gather(await asyncio.to_thread(settle_dtype, config, on_gpu))[0])
        config = config.model_copy(update={"dtype": dtype})
    if config.max_row_tokens is None:
        # Once for a run, too: it is to leave out the same rows when less memory is free.
        most: Any = TrainingFolder(config.out).record().get("max_row_tokens")
        if most is None:
            path = await find_weights(config.model, weights_dir)
            free = free_memory(ranks.device)
            most = await asyncio.to_thread(row_limit, config, path, free, ranks.world)
        config = config.model_copy(update={"max_row_tokens": min(ranks.gather(int(most)))})
    return config


def free_memory(device: torch.device) -> int:
    """Bytes for this process, at most; of a processor's an equal share for each on the machine."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo, found = Path("/proc/meminfo"), list[int]()
    if meminfo.is_file():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    else:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container
        with suppress(OSError, ValueError):
            found.append(int((Path("/sys/fs/cgroup") / path).read_text()))
    return min(found) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def settle_dtype(config: EngineConfig, on_gpu: bool = False) -> str:
    """Once for a run: when it goes on it must not change its arithmetic."""
    if config.dtype != "auto":
        return config.dtype
    dtype = TrainingFolder(config.out).record().get("dtype")
    if dtype is None:
        told = torch.cpu.get_capabilities()  # a processor without instructions for it is slower
        fast = on_gpu or any(told.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        dtype = "bfloat16" if fast else "float32"
    return str(dtype)
