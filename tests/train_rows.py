"""Small training rows, and a learner of the tiny model to train on them."""

from pathlib import Path
from typing import Any

import torch

from training.local.base_model import load_base
from training.local.config import TrainConfig, build_config
from training.local.learner import Learner, StepConfig
from training.local.logprobs import batch_logprobs
from training.local.lora import Adapter
from training.rows import Objective, TrainRow
from training.tensors import collate

LENGTH, PROMPT = 24, 10


def row(number: int, objective: Objective = "sft", advantage: float = 1.0, **more: Any) -> TrainRow:
    """Ten tokens of prompt, six written, three of a tool, five written; two rows make a group."""
    mask = (0,) * PROMPT + (1,) * 6 + (0,) * 3 + (1,) * 5
    values: dict[str, Any] = {
        "id": f"row{number}",
        "group": f"group{number // 2}",
        "trajectory": f"t{number}",
        "objective": objective,
        "policy_version": "v",
        "ids": tuple((number * 31 + place * 7) % 120 for place in range(LENGTH)),
        "loss_mask": mask,
        "advantages": tuple(advantage * bit for bit in mask),
        "behaviour_logprobs": tuple(-4.0 * bit for bit in mask),
        "stages": (-1,) * LENGTH,
    }
    values |= more
    prompt = (*values["loss_mask"], 1).index(1)
    return TrainRow(prompt_tokens=min(prompt, len(values["ids"])), **values)


def policy_rows(count: int) -> list[TrainRow]:
    return [row(n, "policy", 1.0 if n % 2 else -1.0) for n in range(count)]


def learner(tiny: Path, **settings: Any) -> Learner:
    model = load_base(tiny)
    return Learner(model, Adapter.attach(model, 4, 8.0, seed=0), StepConfig(**settings))


def adapter_of(one: Learner) -> Adapter:
    assert isinstance(one.weights, Adapter)
    return one.weights


def logprobs(one: Learner, rows: list[TrainRow]) -> torch.Tensor:
    with torch.no_grad():
        return batch_logprobs(one.model, collate(rows))


def written(path: Path, rows: list[TrainRow]) -> Path:
    path.write_text("".join(r.model_dump_json() + "\n" for r in rows), encoding="utf-8")
    return path


def config_of(folder: Path, tiny: Path, rows: list[TrainRow], **settings: Any) -> TrainConfig:
    values = {
        "out": "run",
        "rows": [written(folder / "rows.jsonl", rows).name],
        "model": str(tiny),
        "learning_rate": 0.01,
        "rank": 4,
        "alpha": 8.0,
        "threads": 1,
        "dtype": "float32",
    }
    given = {name: value for name, value in (values | settings).items() if value is not None}
    return build_config(given, folder)


def quiet(line: str) -> None:
    pass


def window_loss(metrics: dict[str, float]) -> tuple[float, float]:
    return metrics["loss"], metrics["grad_norm"]


def lasting(metrics: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a step that do not depend on the machine's speed and memory."""
    measured = ("seconds", "reference_seconds", "tokens_per_second", "trained_per_second")
    return {n: value for n, value in metrics.items() if n not in (*measured, "memory_peak")}
