"""A model in training: loaded once, given windows as they come, saved when asked.

    async with open_session(config, "ss-grpo", tell, weights_dir) as session:
        while session.done < steps:
            await asyncio.to_thread(session.step, rows, rate)
            await asyncio.to_thread(session.save, place={"round": 3})

Opened again on the same folder it stands where its newest checkpoint does, with `place` as it was
given then. Under torchrun every process does the same, with the same rows.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agent.weights.checkpoints import Checkpoint
from memory.errors import PolicyError, SettingsError, boundary
from training.folder_tokeniser import vocabulary_of
from training.local.base_model import Base, faster_dtype, find_base
from training.local.checkpoint_files import (
    Saved,
    checked_note,
    read_step,
    read_trainer,
    read_weights,
)
from training.local.checkpointing import TrainingFolder
from training.local.config import EngineConfig, Method
from training.local.faults import check_rows, check_tokenizer, memory_told
from training.local.learner import Learner, Metrics, NotFinite, OnRow, unseen
from training.local.loading import described, load_learner
from training.local.mending import Better
from training.local.ranks import Ranks, check_together, joined
from training.local.stepped_bank import SteppedBank
from training.local.trainer_state import restore_trainer, trainer_state
from training.rows import TrainRow
from training.watching.memory_peak import forget_peak, memory_peak
from training.watching.names import of_held_out
from training.watching.window_numbers import window_numbers

Tell = Callable[[str], None]
RESUMABLE = {
    *("out", "threads", "bank", "device", "parallel", "gradient_checkpointing", "save_every"),
    *("pack_tokens", "micro_batch", "best_by", "best_is", "start_adapter", "judge"),
    *("tensorboard", "novelty"),
}
"""settings that may differ when a run goes on, since none changes what is learnt but by rounding;
a start adapter is compared by what it is"""


class TrainingSession:
    """One run's model, optimizer and folder. Its methods block: call them from a thread."""

    def __init__(
        self, config: EngineConfig, method: Method, tell: Tell, base: Base, ranks: Ranks
    ) -> None:
        """`config.dtype` is settled. Nothing is loaded before the first step."""
        self.config, self.method, self.tell = config, method, tell
        self.base, self.ranks = base, ranks
        self.note = first_note(config, method, base)
        self.folder = TrainingFolder(config.out)
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
        with memory_told(self.ranks.device):
            learner = load_learner(config, self.base.path, self.ranks)
            if self.done:
                learner.weights.load(read_weights(self.folder.newest, config.adaptation))
                restore_trainer(learner, read_trainer(self.folder.newest))
        return learner

    @cached_property
    def vocabulary(self) -> str:
        """Of the model's own ids; empty where a folder has no tokenizer."""
        return vocabulary_of(self.base.path)

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return "learner" in vars(self)

    def stand(self) -> None:
        """Stand where the newest whole checkpoint does.

        Raises SettingsError where the processes do not see the same one.
        """
        if self.ranks.first and (mended := self.folder.mend(self._better())):
            self.tell(mended)
        self.ranks.wait()
        self.done = self.folder.step()
        check_together(self.ranks, self.done, self.config.out)
        self.place = read_step(self.folder.newest)["place"] if self.done else {}

    def go_back(self) -> None:
        """Have the bank and the buffers of the newest checkpoint, where they are kept with it."""
        if self.memory is not None and self.done and self.ranks.first:
            self.memory.go_back(self.folder.newest)

    @property
    def memory(self) -> SteppedBank | None:
        return SteppedBank(self.config.bank) if self.config.bank else None

    def step(self, rows: Sequence[TrainRow], rate: float, on_row: OnRow = unseen) -> Metrics:
        """One window's update or updates.

        Raises SettingsError for rows that are not for this model, PolicyError when the update
        would not be finite or does not fit into memory. No weight has changed then, but by those
        of several `passes` that were made before: such a session is to be opened anew.
        """
        if any(row.tokenizer for row in rows):
            check_tokenizer(rows, self.vocabulary)
        number, learner = self.done + 1, self.learner
        forget_peak(self.ranks.device)
        check_rows(rows, learner.model)
        learner.on_row = on_row
        take = learner.sft_step if self.method == "sft" else learner.ss_grpo_step
        try:
            with boundary(PolicyError, f"training step {number}"), memory_told(self.ranks.device):
                metrics = take(rows, rate)
        except NotFinite as error:
            made, passes = learner.updates, self.config.passes
            how_far = f"left after {made} of {passes} updates" if made else "not made"
            raise PolicyError(
                f"training step {number} was {how_far}: {error}", f"{error.remedy} {self._good()}"
            ) from error
        return self.finished(metrics | window_numbers(rows))

    def finished(self, metrics: Metrics) -> Metrics:
        """Count a step, of this engine or another one's; returns all its numbers."""
        self.done += 1
        metrics = metrics | {"memory_peak": memory_peak(self.ranks.device)}
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
        weights = self.learner.weights.state(keep=self.ranks.first)
        config = described(self.learner, self.base.name)
        return self.write(weights, config, trainer_state(self.learner), serve)

    def write(
        self,
        weights: Mapping[str, Tensor],
        config: Mapping[str, Any],
        trainer: Mapping[str, Any],
        serve: bool = True,
    ) -> Path:
        """The same of weights that another engine trained; the first rank has them whole."""
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
            self.folder.save(saved, self.memory, self._better())
        self._lines = []
        self.ranks.wait()
        return self.folder.newest

    def _better(self) -> Better | None:
        name = self.config.best_by
        return None if name is None or of_held_out(name) else self.config.better(name)

    def _good(self) -> str:
        saved = self.folder.step()
        if not saved:
            return "No step was saved before."
        return f"The weights of step {saved} are kept in {self.folder.newest}."


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
    with joined(config.device) as ranks:
        base = await _found(config.model, weights_dir, ranks)
        config = await asyncio.to_thread(_with_dtype, config, ranks)
        session = TrainingSession(config, method, tell if ranks.first else _untold, base, ranks)
        held = {**_record(session), **(record or {})}
        with session.folder.begun(held) if ranks.first else nullcontext():
            await asyncio.to_thread(session.stand)
            yield session
            session.__dict__.pop("learner", None)


def first_note(config: EngineConfig, method: Method, base: Base) -> Checkpoint:
    """The note of a training's start; each step's differs from it in step and hashes."""
    full = config.adaptation == "full"
    lineage: tuple[str, ...] = ()
    if config.start_adapter is not None:
        start = checked_note(config.start_adapter)
        if (start.base_sha256, start.rank, start.alpha) != (base.sha256, config.rank, config.alpha):
            raise SettingsError(
                f"the adapter in {config.start_adapter} belongs to another model, "
                f"or has another rank or alpha ({start.rank}, {start.alpha:g}).",
                "Give this training the same model, rank and alpha.",
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
        lineage=lineage,
        adaptation=config.adaptation,
        served=base.gguf is not None,
        judge=config.judge,
    )


def check_best(best_by: str | None, metrics: Mapping[str, Any]) -> None:
    """Raise SettingsError where a step that was taken has no number of that name."""
    if best_by is not None and best_by not in metrics and "grad_norm" in metrics:
        raise SettingsError(
            f"there is no metric {best_by!r} to choose the best checkpoint by.",
            f"Set best_by to one of {', '.join(sorted(metrics))}.",
        )


async def _found(name: str, weights_dir: Path | None, ranks: Ranks) -> Base:
    """The weights; the first process of a machine fetches them where they are not on disk."""
    if ranks.local:
        await asyncio.to_thread(ranks.wait)
    base = await find_base(name, weights_dir)
    if not ranks.local:
        await asyncio.to_thread(ranks.wait)
    return base


def _with_dtype(config: EngineConfig, ranks: Ranks) -> EngineConfig:
    """Settled once: a run that goes on must not change its arithmetic."""
    if config.dtype != "auto":
        return config
    dtype = TrainingFolder(config.out).record().get("dtype")
    if dtype is None:
        dtype = "bfloat16" if ranks.device.type == "cuda" else faster_dtype()
    return config.model_copy(update={"dtype": ranks.gathered(dtype)[0]})


def _record(session: TrainingSession) -> dict[str, Any]:
    """What another run in the same folder must agree with."""
    settings = session.config.model_dump(mode="json", exclude=RESUMABLE)
    return {
        **settings,
        "method": session.method,
        "base_sha256": session.note.base_sha256,
        "start_adapter": list(session.note.lineage),
    }


def _untold(line: str) -> None:
    """The first rank tells."""
