"""A training run's steps by TRL: its loop, our rows, and our folder of checkpoints.

TRL keeps what it needs to go on in OUT/trl/checkpoint-N, N the updates so far; beside it the
session writes the checkpoint that everything else reads (`training.local.checkpoint_files`), and
in it what those files have to be (`training.trl_engine.going_on`).
"""

import gc
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl.trainer.grpo_config import GRPOConfig

from memory.errors import PolicyError, StoreError, boundary
from training.local.config import TrainConfig
from training.local.faults import check_rows, memory_told
from training.local.session import TrainingSession
from training.local.windows import Window
from training.trl_engine import going_on
from training.trl_engine.batches import parts_of, with_gradient
from training.trl_engine.model import described, load_policy, no_tokenizer, trained_state
from training.trl_engine.trainer import WINDOW, RowsTrainer
from training.trl_engine.watching import OnStep, Watch


def take_steps(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    on_step: OnStep,
    stopped: Callable[[], bool],
) -> None:
    """Take the steps of a plan that are left, and save them as the configuration says.

    Where all ranks hear that it is `stopped`, the step under way is saved and is the last.
    A window whose rows have no gradient is a step without an update. Raises SettingsError for rows
    that are not for this model, PolicyError when a step's numbers are not finite or it does not
    fit into memory; the last checkpoint is kept. Raises StoreError where TRL's own files are such
    that it can go on from no checkpoint.
    """
    going_on.stand(session)
    if config.threads:
        torch.set_num_threads(config.threads)
    session.tell(f"reading {session.base.path.name} as {session.config.dtype}, for TRL")
    place = session.ranks.device
    with boundary(PolicyError, "training by TRL"), memory_told(place), _hushed():
        model = load_policy(session.config, session.base.path)
        check_rows([row for window in plan for row in window], model)
        _train(session, config, plan, on_step, stopped, model)
    gc.collect()  # a wrapped model holds on to the group of ranks


def _train(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    on_step: OnStep,
    stopped: Callable[[], bool],
    model: Any,
) -> None:
    moving = [n for n, rows in enumerate(plan) if with_gradient(rows, config.objective)]
    beside = described(model, config, session.base.name)
    most_gap = math.log(model.get_input_embeddings().num_embeddings)
    watch = Watch(session, config, plan, moving, on_step, stopped, most_gap)
    trainer = build_trainer(session, config, [plan[number] for number in moving], model)
    watch.write = lambda serve: _write(session, config, trainer, beside, serve)
    trainer.add_callback(watch)
    updates = sum(number < session.done for number in moving) * config.passes
    trainer.train(resume_from_checkpoint=_left_by(config, updates))


def build_trainer(
    session: TrainingSession, config: TrainConfig, windows: Sequence[Window], model: Any
) -> RowsTrainer:
    """TRL's trainer for windows that each have a gradient; nothing is printed or sent by it."""
    ranks, count = session.ranks, 0
    for rows in windows:
        moving = with_gradient(rows, config.objective)
        count = max(count, parts_of(len(moving), ranks, config.micro_batch))
    if ranks.world * config.micro_batch * count == 1:
        count = 2  # TRL knows no group of one
    trainer = RowsTrainer(
        windows,
        config.objective,
        ranks,
        model=model,
        args=GRPOConfig(**_options(session, config, count, len(windows))),
        train_dataset=Dataset.from_dict(
            {"prompt": [""] * len(windows), WINDOW: list(range(len(windows)))}
        ),
        processing_class=no_tokenizer(),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _options(
    session: TrainingSession, config: TrainConfig, count: int, windows: int
) -> dict[str, Any]:
    """Of GRPOConfig, for `count` micro-batches a rank in each window."""
    ranks, objective, cpu = session.ranks, config.objective, session.ranks.device.type == "cpu"
    return {
        "output_dir": str(_folder(config)),
        "loss_type": "dapo",
        "epsilon": objective.clip[0],
        "epsilon_high": objective.clip[1],
        "delta": objective.dual_clip,
        "beta": objective.beta,
        "temperature": 1.0,
        "num_iterations": config.passes,
        "num_generations": ranks.world * config.micro_batch * count,
        "per_device_train_batch_size": config.micro_batch,
        "gradient_accumulation_steps": count,
        "steps_per_generation": count,
        "shuffle_dataset": False,
        "max_steps": windows * config.passes,
        "optim": "adamw_torch_fused",
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": config.gradient_checkpointing,
        "bf16": config.adaptation == "full" and session.config.dtype == "bfloat16",
        "use_cpu": cpu,
        "ddp_backend": "gloo" if cpu and ranks.world > 1 else None,
        "dataloader_pin_memory": not cpu,
        "seed": config.seed,
        "save_strategy": "no",
        "save_total_limit": 2,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "log_level": "error",
    }


@contextmanager
def _hushed() -> Iterator[None]:
    """Without what the packages say of each other's old names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def _write(
    session: TrainingSession,
    config: TrainConfig,
    trainer: RowsTrainer,
    beside: dict[str, Any],
    serve: bool,
) -> None:
    """Our checkpoint of what TRL has just saved for itself; all ranks take part."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    state = trained_state(model, whole, config.adaptation) if session.ranks.first else {}
    session.ranks.wait()  # each has files of its own among those of TRL
    updates = _folder(config) / f"checkpoint-{trainer.state.global_step}"
    kept = going_on.as_kept(config.out, updates) if session.ranks.first else {}
    session.write(state, beside, kept, serve)


def _folder(config: TrainConfig) -> Path:
    return config.out / "trl"


def _left_by(config: TrainConfig, updates: int) -> str | None:
    """Where TRL goes on after so many updates."""
    if not updates:
        return None
    found = _folder(config) / f"checkpoint-{updates}"
    if not (found / "trainer_state.json").is_file():
        raise StoreError(
            f"{found} is missing, which TRL goes on from",
            f"Put it back, or begin anew in another folder than {config.out}.",
        )
    return str(found)
