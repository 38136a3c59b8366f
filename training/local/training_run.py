"""A training run from its configuration to a checkpoint that llama.cpp answers with.

Every step is saved; the same command goes on after an interruption, and ends where an
uninterrupted run would have ended. When the last step is done the canary row is compared.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from agent.weights.checkpoints import ADAPTER, Checkpoint, read_checkpoint
from agent.weights.resolving import base_sha256, resolve_model
from memory.errors import PolicyError, SettingsError, boundary
from memory.runs import write_atomically
from training.local.base_model import faster_dtype, give_back, load_base
from training.local.canary import Canary, canary
from training.local.checkpointing import WEIGHTS, TrainingFolder
from training.local.config import Method, TrainConfig
from training.local.learner import Learner, OnRow
from training.local.lora import Adapter
from training.local.stepped_bank import SteppedBank
from training.local.windows import Selection, Window, rate_at, read_rows, select, windows

Tell = Callable[[str], None]
RESUMABLE = {"out", "threads", "bank"}
"""settings that may differ when a run goes on"""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished run gave."""

    checkpoint: Path
    steps: tuple[dict[str, Any], ...]
    """the metrics of each"""
    dropped: dict[str, int]
    canary: Canary


@dataclass(frozen=True, slots=True)
class _Job:
    """A run with everything that it needs to know before weights are loaded."""

    config: TrainConfig
    method: Method
    base: Path
    note: Checkpoint
    """of the start; each step's differs from it in step and hash"""
    selection: Selection
    windows: list[Window]
    folder: TrainingFolder


async def train(
    config: TrainConfig, method: Method, tell: Tell, weights_dir: Path | None = None
) -> Trained:
    """Train to the end, from the newest checkpoint if there is one.

    Raises SettingsError for a configuration, rows or a folder that do not fit, PolicyError when
    a step gives no finite gradient or the exported adapter is not the one that was trained.
    """
    selection = await asyncio.to_thread(_selected, config, method)
    base = await resolve_model(config.model, directory=weights_dir)
    sha256 = await base_sha256(config.model, base)
    folder = TrainingFolder(config.out)
    if config.dtype == "auto":
        # Measured once: a run that goes on must not change its arithmetic.
        dtype = folder.record().get("dtype") or faster_dtype()
        config = config.model_copy(update={"dtype": dtype})
    job = _Job(
        config=config,
        method=method,
        base=base,
        note=_first_note(config, method, sha256),
        selection=selection,
        windows=windows(selection.rows, method, config),
        folder=folder,
    )
    with folder.begun(_record(job)):
        return await _trained(job, tell)


async def _trained(job: _Job, tell: Tell) -> Trained:
    path = job.folder.folder / "canary.json"
    if job.folder.step() < len(job.windows) or not path.exists():
        threads = job.config.threads or torch.get_num_threads()
        learner = await asyncio.to_thread(_learner, job, threads, tell)
        await asyncio.to_thread(_steps, job, learner, tell)
        exported = job.folder.newest / ADAPTER
        tell("comparing the canary row")
        rows = job.selection.rows
        found = await canary(learner.model, learner.adapter, job.base, exported, rows[0], threads)
        _check(found)
        write_atomically(path, json.dumps(found.as_dict(), indent=1))
        del learner
        give_back()
    return Trained(
        checkpoint=job.folder.newest,
        steps=tuple(job.folder.metrics()),
        dropped=job.selection.dropped,
        canary=Canary(**json.loads(path.read_text(encoding="utf-8"))),
    )


def _learner(job: _Job, threads: int, tell: Tell) -> Learner:
    """The model with the adapter as the newest checkpoint, or the beginning, has it."""
    config = job.config
    torch.set_num_threads(threads)
    tell(f"reading {job.base.name} as {config.dtype}; half a minute for the 0.5b")
    model = load_base(job.base, config.dtype)
    adapter = Adapter.attach(model, config.rank, config.alpha, config.seed)
    learner = Learner(model, adapter, config.step_config())
    with boundary(SettingsError, "taking over the start adapter"):
        if config.start_adapter is not None:
            learner.start_from(load_file(config.start_adapter / WEIGHTS))
    if job.folder.step():
        state, optimizer = job.folder.restore()
        adapter.load(state)
        learner.optimizer.load_state_dict(optimizer)
    return learner


def _steps(job: _Job, learner: Learner, tell: Tell) -> None:
    total, begun = len(job.windows), job.folder.step()
    memory = SteppedBank(job.config.bank) if job.config.bank else None
    if memory is not None and 0 < begun < total:
        memory.go_back(job.folder.newest)
    for step in range(begun, total):
        learner.on_row = _row_told(f"step {step + 1} of {total}", tell)
        rate = rate_at(step, total, job.config)
        with boundary(PolicyError, f"training step {step + 1}"):
            take = learner.sft_step if job.method == "sft" else learner.ss_grpo_step
            metrics = take(job.windows[step], rate)
        note = job.note.model_copy(update={"step": step + 1})
        optimizer = learner.optimizer.state_dict()
        job.folder.save(note, learner.adapter.state(), optimizer, metrics, memory)
        tell(_step_told(step + 1, total, metrics))


def _selected(config: TrainConfig, method: Method) -> Selection:
    return select(read_rows(config.rows), method, config.max_row_tokens)


def _first_note(config: TrainConfig, method: Method, sha256: str) -> Checkpoint:
    lineage: tuple[str, ...] = ()
    if config.start_adapter is not None:
        start = read_checkpoint(config.start_adapter)
        if (start.base_sha256, start.rank, start.alpha) != (sha256, config.rank, config.alpha):
            raise SettingsError(
                f"the adapter in {config.start_adapter} belongs to another model, "
                f"or has another rank or alpha ({start.rank}, {start.alpha:g}).",
                "Give this training the same model, rank and alpha.",
            )
        lineage = (*start.lineage, start.version)
    return Checkpoint(
        base=config.model,
        base_sha256=sha256,
        adapter_sha256="",
        method=method,
        step=0,
        rank=config.rank,
        alpha=config.alpha,
        lineage=lineage,
    )


def _record(job: _Job) -> dict[str, Any]:
    """What another run in the same folder must agree with."""
    settings = job.config.model_dump(mode="json", exclude={*RESUMABLE, "rows", "start_adapter"})
    rows = hashlib.sha256()
    for row in job.selection.rows:
        rows.update(row.model_dump_json().encode())
    return {
        **settings,
        "method": job.method,
        "rows": rows.hexdigest(),
        "base_sha256": job.note.base_sha256,
        "start_adapter": list(job.note.lineage),
    }


def _check(found: Canary) -> None:
    if not found.sound:
        raise PolicyError(
            f"llama.cpp does not sample from the trained policy: its log-probabilities differ by "
            f"{found.mean:.3f} nats a token with the adapter, {found.without_adapter:.3f} without.",
            "Do not use this checkpoint; please report it with the run's folder.",
        )


def _row_told(step: str, tell: Tell) -> OnRow:
    return lambda done, total: tell(f"{step}: row {done} of {total}")


def _step_told(step: int, steps: int, metrics: dict[str, float]) -> str:
    shown: Sequence[str] = ("loss", "grad_norm", "tokens_per_second")
    told = ", ".join(f"{name} {metrics[name]:.4g}" for name in shown if name in metrics)
    return f"step {step} of {steps} saved: {told or 'no row had an advantage'}"
