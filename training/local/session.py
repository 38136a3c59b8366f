"""A model in training: loaded once, given windows as they come, saved on request.

    async with open_session(config, "ss-grpo", tell, weights_dir) as session:
        while session.done < steps:
            await asyncio.to_thread(session.step, rows, rate)
            await asyncio.to_thread(session.save, place={"round": 3})

Opened again on the same folder, it continues from the newest checkpoint, with `place` as it was
saved there. Under torchrun every process does the same, with the same rows.

When a training is finished, its canary row tells whether llama.cpp samples from the policy that was
trained: llama.cpp continues a fixed prompt, and the trainer computes the log-probabilities of the
same tokens. A small gap between the quantised sampler and the trainer is expected; an adapter that
was not applied, or applied to the wrong layers, shows as a gap as large as the adapter's effect.
All figures are in nats per token.

It is longer than most modules: opening, resuming, updating and keeping are one object's life.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.weights.catalogue import lookup
from rubricem.agent.weights.checkpoints import ADAPTER, MODEL, NOTE, Checkpoint, note_of
from rubricem.memory.errors import PolicyError, RubricemError, SettingsError, WeightsError, boundary
from rubricem.memory.runs import value_in, write_atomically
from rubricem.memory.schema import Sampling
from rubricem.training.local.checkpoints import (
    RENEWED,
    WEIGHTS,
    Better,
    Mirror,
    Saved,
    SteppedBank,
    TrainingFolder,
    fault,
    read_trainer,
    read_weights,
)
from rubricem.training.local.learner import Learner, Metrics, NotFinite, OnRow
from rubricem.training.local.load import (
    Base,
    check_rows,
    find_weights,
    load_base,
    load_learner,
    memory_told,
    row_limit,
)
from rubricem.training.local.local_config import Config, EngineConfig, Method
from rubricem.training.local.passes import batch_logprobs
from rubricem.training.local.ranks import ALONE, Ranks
from rubricem.training.local.weights import Adapter, adapter_config
from rubricem.training.objective.batch import Batch
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import gguf_vocabulary, is_folder, read_tokeniser
from rubricem.training.show.events import of_held_out
from rubricem.training.statistics import Numbers, advantage_numbers, spread

Tell = Callable[[str], None]
RESUMABLE = {
    "out", "threads", "bank", "device", "parallel", "gradient_checkpointing", "save_every",
    "cpu_offload", "pack_tokens", "micro_batch", "share_prefixes", "best_by", "best_is",
    "start_adapter", "judge", "tensorboard", "trackers", "novelty", "mirror",
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
        self.mirror: Mirror | None = None
        self.done = 0
        """steps finished, saved or not"""
        self.place: dict[str, Any] = {}
        """what `save` was last given as such, with the newest checkpoint"""
        self.trained_on: dict[str, Any] = {}
        """counts and hashes of what the rows are made from, for the card of each checkpoint"""
        self._lines: list[dict[str, Any]] = []

    @cached_property
    def learner(self) -> Learner:
        """The model as the newest checkpoint has it, or as the training begins."""
        config = self.config
        if config.threads:
            torch.set_num_threads(config.threads)
        self.tell(f"reading {self.base.path.name} as {config.dtype}; half a minute for the 0.5b")
        with memory_told(self.ranks.device), self.ranks.report_lost():
            learner = load_learner(config, self.base.path, self.ranks)
            if self.done:
                learner.weights.load(read_weights(self.folder.newest, config.adaptation))
                learner.restore(read_trainer(self.folder.newest))
        return learner

    @property
    def longest(self) -> int:
        """Tokens of the longest row that is trained."""
        assert self.config.max_row_tokens is not None, "it is settled"
        return self.config.max_row_tokens

    @cached_property
    def vocabulary(self) -> str:
        """Of the model's own ids; empty where a folder has no tokenizer."""
        return vocabulary_of(self.base.path)

    @property
    def loaded_whole(self) -> bool:
        """Whether the model, and not just a part of it, is in memory."""
        whole = self.config.parallel == "ddp" or self.ranks.world == 1
        return whole and "learner" in vars(self)

    def stand(self) -> None:
        """Stand where the newest whole checkpoint does.

        Raises SettingsError where the processes do not see the same one.
        """
        if self.ranks.first and (mended := self.folder.mend(self._better())):
            self.tell(mended)
        self.ranks.wait()
        self.done = self.folder.step()
        self.ranks.check_together(self.done, self.config.out)
        self.place = self.folder.caller()

    def go_back(self) -> None:
        """Have the bank and the buffers of the newest checkpoint, where they are kept with it."""
        if self.memory is not None and self.done and self.ranks.first:
            self.memory.go_back(self.folder.newest)

    @property
    def memory(self) -> SteppedBank | None:
        return SteppedBank(self.config.bank) if self.config.bank else None

    def step(
        self, rows: Sequence[TrainRow], rate: float, on_row: OnRow = lambda done, total: None
    ) -> Metrics:
        """One window's update or updates.

        Raises SettingsError for rows that are not for this model, PolicyError when the update
        would not be finite or does not fit into memory. No weight has changed then, but by those
        of several `passes` that were made before: such a session is to be opened anew.
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
        learner.on_row = on_row
        take = learner.sft_step if self.method == "sft" else learner.ss_grpo_step
        try:
            with (
                boundary(PolicyError, f"training step {number}"),
                memory_told(self.ranks.device),
                self.ranks.report_lost(),
            ):
                metrics = take(rows, rate)
        except NotFinite as error:
            made, passes = learner.updates, self.config.passes
            how_far = f"left after {made} of {passes} updates" if made else "not made"
            kept = "No step was saved before."
            if saved := self.folder.step():
                kept = f"The weights of step {saved} are kept in {self.folder.newest}."
            raise PolicyError(
                f"training step {number} was {how_far}: {error}", f"{error.remedy} {kept}"
            ) from error
        return self.count_step(metrics, rows)

    def count_step(self, metrics: Metrics, rows: Sequence[TrainRow]) -> Metrics:
        """Count a step, of this engine or another one's; returns all its numbers."""
        self.done += 1
        peak = {"memory_peak": memory_peak(self.ranks.device)}
        metrics = metrics | window_numbers(rows) | peak
        self._lines.append({"step": self.done, **metrics})
        return metrics

    def save(
        self,
        more: Mapping[str, Any] | None = None,
        place: Mapping[str, Any] | None = None,
        serve: bool = True,
    ) -> Path:
        """Write a checkpoint of the last step; returns the link to the newest.

        `more`: numbers of this step that the caller measured. `place`: where the caller stands.
        `serve`: whether fully trained weights are written for llama.cpp too; adapters always are.
        """
        if more and self._lines:
            self._lines[-1] |= more
        self.place = dict(place or {})
        with self.ranks.report_lost():
            weights = self.learner.weights.state(keep=self.ranks.first)
            trainer = self.learner.state()
        if isinstance(adapter := self.learner.weights, Adapter):
            config = self.adapter_config(adapter.layers)
        else:
            config = self.learner.model.config.to_dict() | {"dtype": "float32"}
        return self.write(weights, config, trainer, serve)

    def adapter_config(self, layers: Iterable[str]) -> dict[str, Any]:
        """Of the adapter of those layers, as peft reads it, who knows no catalogue."""
        told, name = self.config, self.base.name
        if (weights := lookup(name)) is not None:
            base = weights.repo
        else:  # of a GGUF file peft is given the folder or repository, and its name apart
            base = str(Path(name).parent) if Path(name).is_file() else name.partition(":")[0]
        return adapter_config(told.rank, told.alpha, layers, base, told.adapted_blocks)

    def write(
        self,
        weights: Mapping[str, Tensor],
        config: Mapping[str, Any],
        trainer: Mapping[str, Any],
        serve: bool = True,
    ) -> Path:
        """The same of weights that another engine trained; the first rank has them whole.

        What is wrong with the folder then is raised on all ranks.
        """
        fault: RubricemError | None = None
        if self.ranks.first:
            saved = Saved(
                note=self.note.model_copy(update={"step": self.done}),
                trained_on=self.trained_on,
                weights=weights,
                trainer=trainer,
                config=config,
                lines=self._lines,
                place=self.place,
                template=self.base.gguf if serve else None,
            )
            try:
                self.folder.save(saved, self.memory, self._better())
                self.send()
            except RubricemError as error:
                fault = error
        self.ranks.raise_first(fault)
        self._lines = []
        return self.folder.newest

    def send(self) -> None:
        """Bring the folder's mirror up to date, where it has one.

        Raises StoreError where another session has taken it.
        """
        if self.mirror is not None:
            self.mirror.send()

    def _better(self) -> Better | None:
        name = self.config.best_by
        return None if name is None or of_held_out(name) else self.config.better(name)


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
    if path.is_dir() and is_folder(str(path)):
        with suppress(SettingsError):
            return read_tokeniser(path).vocabulary
        return ""
    return gguf_vocabulary(path / MODEL if path.is_dir() else path)


@asynccontextmanager
async def open_session(
    config: EngineConfig,
    method: Method,
    tell: Tell,
    weights_dir: Path | None = None,
    record: Mapping[str, Any] | None = None,
) -> AsyncIterator[TrainingSession]:
    """A session that holds its folder; `record`: what else must be the same when it goes on.

    Raises SettingsError for a configuration or a folder that do not fit, WeightsError for weights
    that cannot be had, StoreError for a folder in use.
    """
    with Ranks.join(config.device) as ranks:
        # The first process of a machine fetches weights that are not on disk.
        if ranks.local:
            await asyncio.to_thread(ranks.wait)
        base = await Base.find(config.model, weights_dir)
        if not ranks.local:
            await asyncio.to_thread(ranks.wait)
        told = tell if ranks.first else lambda line: None
        async with _mirror_held(config, ranks, told) as mirror:
            config = await settle(config, ranks, weights_dir)
            session = TrainingSession(config, method, told, base, ranks)
            session.mirror = mirror
            held = {**_record(session), **(record or {})}
            await asyncio.to_thread(ranks.check_alike, held)
            with session.folder.hold(held) if ranks.first else nullcontext():
                await asyncio.to_thread(session.stand)
                try:
                    yield session
                finally:
                    await asyncio.to_thread(session.send)
                session.__dict__.pop("learner", None)


@asynccontextmanager
async def _mirror_held(
    config: EngineConfig, ranks: Ranks, tell: Tell
) -> AsyncIterator[Mirror | None]:
    """The first rank's mirror, held alone until the end; None: the run has none."""
    mirror = await asyncio.to_thread(_open_mirror, config, ranks, tell)
    if mirror is None:
        yield None
        return

    async def renewing() -> None:
        while True:
            await asyncio.sleep(RENEWED)
            await asyncio.to_thread(mirror.renew)

    task = asyncio.create_task(renewing())
    try:
        yield mirror
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(mirror.release)


def _open_mirror(config: EngineConfig, ranks: Ranks, tell: Tell) -> Mirror | None:
    """The mirror of the first rank, from which an empty folder is filled before all go on."""
    ranks.check_alike({"mirror": config.mirror})
    if config.mirror is None:
        return None
    mirror: Mirror | None = None
    fault: RubricemError | None = None
    if ranks.first:
        try:
            mirror = Mirror(config.out, config.mirror, tell)
            mirror.bring()
        except RubricemError as error:
            fault = error
            if mirror is not None:
                mirror.release()
    ranks.raise_first(fault)
    return mirror


def _load_note(folder: Path) -> Checkpoint:
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


def first_note(config: EngineConfig, method: Method, base: Base) -> Checkpoint:
    """The note of a training's start; each step's differs from it in step and hashes."""
    full = config.adaptation == "full"
    lineage: tuple[str, ...] = ()
    if config.start_adapter is not None:
        start = _load_note(config.start_adapter)
        mine = (base.sha256, config.rank, config.alpha, config.adapted_blocks)
        if (start.base_sha256, start.rank, start.alpha, start.adapted_blocks) != mine:
            raise SettingsError(
                f"the adapter in {config.start_adapter} belongs to another model, "
                f"or has another rank, alpha or adapted_blocks ({start.rank}, {start.alpha:g}, "
                f"{start.adapted_blocks or 'all'}).",
                "Give this training the same model, rank, alpha and adapted_blocks.",
            )
        lineage = (*start.lineage, start.version)
    return Checkpoint(
        base=base.name,
        base_sha256=base.sha256,
        adapter_sha256="",
        method=method,
        step=0,
        rank=0 if full else config.rank,
        alpha=0.0 if full else config.alpha,
        adapted_blocks=config.adapted_blocks,
        lineage=lineage,
        adaptation=config.adaptation,
        served=base.gguf is not None,
        judge=config.judge,
    )


UNIT = 1 if sys.platform == "darwin" else 1024
"""bytes in what the system counts a process's memory by"""


def memory_peak(device: torch.device) -> float:
    """Bytes: on a GPU of its tensors since the step began, else of the process since it began."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)


def check_best(best_by: str | None, metrics: Mapping[str, Any]) -> None:
    """Raise SettingsError where a step that was taken has no number of that name."""
    if best_by is not None and best_by not in metrics and "grad_norm" in metrics:
        raise SettingsError(
            f"there is no metric {best_by!r} to choose the best checkpoint by.",
            f"Set best_by to one of {', '.join(sorted(metrics))}.",
        )


@asynccontextmanager
async def settle_before(config: Config, weights_dir: Path | None = None) -> AsyncIterator[Config]:
    """What a session in there will have, for who has to know it before one is opened."""
    with Ranks.join(config.device) as ranks:
        yield await settle(config, ranks, weights_dir)


async def settle(config: Config, ranks: Ranks, weights_dir: Path | None = None) -> Config:
    """The configuration with the type and the longest row that a run in its folder has.

    Raises SettingsError and WeightsError as `row_limit` does, and SettingsError where the ranks
    were not given the same.
    """
    await asyncio.to_thread(ranks.check_alike, _common_facts(config))
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


PLACES = {"out", "bank", "threads", "start_adapter", "rows", "judge"}
"""settings that may differ between ranks, or are compared by what they name"""


def _common_facts(config: EngineConfig) -> dict[str, Any]:
    """What the ranks of a training must have alike before they send each other anything."""
    packages = {name: version(name) for name in ("rubricem", "torch", "transformers")}
    return {**config.model_dump(mode="json", exclude=PLACES), **packages}


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
        # Measured on a layer of the 0.5B's size: not every processor has instructions for it.
        faster = on_gpu or _seconds(torch.bfloat16) < _seconds(torch.float32) / 1.3
        dtype = "bfloat16" if faster else "float32"
    return str(dtype)


def _seconds(dtype: torch.dtype) -> float:
    x, weight = torch.ones(512, 896, dtype=dtype), torch.ones(4864, 896, dtype=dtype)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        nn.functional.linear(x, weight)
        times.append(time.perf_counter() - began)
    return min(times)


def products_per_second(config: EngineConfig) -> float:
    """Operations of a matrix product that this machine does in a second, by the settled type."""
    dtype = torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
    return 2 * 512 * 896 * 4864 / _seconds(dtype)


def _record(session: TrainingSession) -> dict[str, Any]:
    """What another run in the same folder must agree with."""
    settings = session.config.model_dump(mode="json", exclude=RESUMABLE)
    return {
        **settings,
        "method": session.method,
        "base_sha256": session.note.base_sha256,
        "start_adapter": list(session.note.lineage),
    }


PROMPT, WRITTEN = 256, 32
"""tokens of a row's beginning that are read, and tokens that are then sampled"""
LEAST, SEEDS = 8, 8
"""tokens that a sample must have, and samples that are tried for it"""
MOST = 0.5
"""mean gap beyond which the exported adapter is not the trained one"""


@dataclass(frozen=True, slots=True)
class Canary:
    """How far the sampler and the trainer are apart on the same tokens."""

    mean: float
    """mean size of the difference of log-probabilities, with the adapter on both sides"""
    max: float
    moved: float
    """mean size of what the training changed, both times by the trainer"""
    without_adapter: float
    """mean gap to the trainer's base model: about `mean` where the training moved nothing"""
    base_mean: float
    """mean gap of the base model, without an adapter on either side"""
    tokens: int

    @property
    def sound(self) -> bool:
        """Whether the gap is small, and the adapter explains the sampler better than none."""
        told_apart = self.moved <= 2 * self.base_mean or self.mean < self.without_adapter
        return self.mean <= MOST and told_apart

    def sentence(self) -> str:
        return (
            f"canary row: sampler and trainer differ by {self.mean:.4f} nats a token (largest "
            f"{self.max:.4f}); the training moved them by {self.moved:.4f}"
        )


async def canary(
    model: Any,
    without: AbstractContextManager[None],
    base: Path,
    exported: Path,
    row: TrainRow,
    threads: int,
) -> Canary:
    """Compare on the beginning of a row what was trained, and what was exported of it.

    Within `without` the model is what the training began with, as llama.cpp samples from `base`;
    `exported` is an adapter of that, or a whole model. Raises PolicyError when llama.cpp writes
    nothing.
    """
    first = row.loss_mask.index(1)
    prompt = row.ids[max(0, first - PROMPT) : first]
    loaded, adapter = (exported, None) if exported.name == MODEL else (base, exported)
    adapted = await _sample(loaded, adapter, prompt, threads)
    plain = await _sample(base, None, prompt, threads)
    with torch.no_grad():
        trained = _score(model, prompt, adapted)
        with without:
            off, bare = _score(model, prompt, adapted), _score(model, prompt, plain)
    sampler, sampler_bare = torch.tensor(adapted[1]), torch.tensor(plain[1])
    gap = (sampler - trained).abs()
    return Canary(
        mean=float(gap.mean()),
        max=float(gap.max()),
        moved=float((trained - off).abs().mean()),
        without_adapter=float((sampler - off).abs().mean()),
        base_mean=float((sampler_bare - bare).abs().mean()),
        tokens=len(gap),
    )


Sampled = tuple[tuple[int, ...], tuple[float, ...]]


async def _sample(base: Path, adapter: Path | None, prompt: Sequence[int], threads: int) -> Sampled:
    config = LlamaConfig(context_tokens=1024, threads=threads, adapter=adapter)
    policy = await LlamaPolicy.load(base, base.stem, "", config)
    try:
        for seed in range(SEEDS):
            written = await policy.complete(prompt, Sampling(max_tokens=WRITTEN, seed=seed))
            ids, logprobs = written.token_ids or (), written.logprobs or ()
            # Of a character in several tokens the server names only the last.
            if len(ids) >= LEAST and await policy.encode(written.text) == ids:
                return ids, logprobs
    finally:
        await policy.aclose()
    raise PolicyError(
        f"the canary row cannot be compared: llama.cpp wrote nothing usable in {SEEDS} samples.",
        "See what the checkpoint answers before using it.",
    )


def _score(model: Any, prompt: Sequence[int], sampled: Sampled) -> torch.Tensor:
    tokens, blank = sampled[0], (0.0,) * (len(prompt) + len(sampled[0]))
    row = TrainRow(
        id="canary",
        group="canary",
        trajectory="canary",
        objective="policy",
        policy_version="",
        ids=(*prompt, *tokens),
        prompt_tokens=len(prompt),
        loss_mask=(0,) * len(prompt) + (1,) * len(tokens),
        advantages=blank,
        behaviour_logprobs=blank,
        stages=(-1,) * len(blank),
    )
    batch = Batch.collate([row]).to(model.device)
    return batch_logprobs(model, batch)[batch.mask].cpu()


async def compare_once(session: TrainingSession, row: TrainRow | None) -> Canary | None:
    """The canary of the newest checkpoint, which is compared once, and told on its card.

    `row`: one that was trained; None: there is none at hand. Returns what was compared now or
    before, None where nothing was. Raises PolicyError where llama.cpp does not sample from what
    was trained.
    """
    folder = session.folder
    if session.ranks.first and session.done:
        if row is not None and session.base.gguf is not None and not folder.canary.exists():
            found = await _compare(session, row)
            write_atomically(folder.canary, json.dumps(asdict(found), indent=1))
        await asyncio.to_thread(folder.write_card, folder.newest)
    await asyncio.to_thread(session.ranks.wait)
    return value_in(folder.canary, Canary)


async def _compare(session: TrainingSession, row: TrainRow) -> Canary:
    """Of a model that llama.cpp can serve."""
    session.tell("comparing the canary row")
    config, folder, gguf = session.config, session.folder.newest, session.base.gguf
    assert gguf is not None
    if session.loaded_whole:
        learner = session.learner
    else:  # from the checkpoint
        learner = await asyncio.to_thread(load_learner, config, session.base.path, ALONE)
        learner.weights.load(read_weights(folder, config.adaptation))
    exported = folder / (ADAPTER if config.adaptation == "lora" else MODEL)
    if isinstance(learner.weights, Adapter):
        without = learner.weights.switch_off()
    else:
        base = load_base(session.base.path, config.dtype)
        without = learner.weights.as_in(dict(base.named_parameters()))
    threads = config.threads or torch.get_num_threads()
    found = await canary(learner.model, without, gguf, exported, row, threads)
    if not found.sound:
        raise PolicyError(
            f"llama.cpp does not sample from what was trained: its log-probabilities differ by "
            f"{found.mean:.3f} nats a token as trained, {found.without_adapter:.3f} from the base.",
            "Do not use this checkpoint; please report it with the run's folder.",
        )
    return found
