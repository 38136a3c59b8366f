"""From weights on disk to a learner: on its device, divided over its ranks, where it stood."""

import math
from pathlib import Path
from typing import Any

import torch

from memory.errors import SettingsError, boundary
from training.local.base_model import checkpoint_activations, load_base
from training.local.checkpoint_files import read_weights
from training.local.config import EngineConfig
from training.local.faults import check_output, check_packing
from training.local.fsdp import sharded
from training.local.full_weights import FullWeights
from training.local.learner import Learner, Score, StepConfig
from training.local.lora import Adapter
from training.local.ranks import Ranks


def load_learner(config: EngineConfig, path: Path, ranks: Ranks) -> Learner:
    """The model of a path with what is to be trained of it, as a training begins.

    `config.dtype` is settled. Raises WeightsError for weights that cannot be read, SettingsError
    for a model or a start adapter that does not suit the configuration.
    """
    full, divided = config.adaptation == "full", config.parallel == "fsdp" and ranks.world > 1
    model = load_base(path, "float32" if full else config.dtype)
    check_output(model)
    if config.pack_tokens:
        check_packing(model)
    if config.gradient_checkpointing:
        checkpoint_activations(model)
    adapter = None if full else Adapter.attach(model, config.rank, config.alpha, config.seed)
    score: Score | None = None
    dtype = getattr(torch, config.dtype)
    if not divided:
        model.to(ranks.device)
    else:  # block by block, so that no device ever holds all weights
        score = sharded(model, ranks, dtype if full else None)
    # A sampler is some hundredths of a nat from its own trainer; ids of another tokenizer are as
    # unlikely as by chance.
    most_gap = math.log(model.get_input_embeddings().num_embeddings)
    weights = adapter or FullWeights(model, torch.float32 if divided else dtype)
    learner = Learner(model, weights, step_config(config, most_gap), ranks, score)
    if config.start_adapter is not None:
        with boundary(SettingsError, "taking over the start adapter"):
            learner.start_from(read_weights(config.start_adapter, "lora"))
    return learner


def step_config(config: EngineConfig, most_gap: float = math.inf) -> StepConfig:
    """The part of a configuration that is about one step."""
    return StepConfig(
        objective=config.objective,
        passes=config.passes,
        novelty=config.novelty,
        max_grad_norm=config.max_grad_norm,
        weight_decay=config.weight_decay,
        pack_tokens=config.pack_tokens,
        micro_batch=config.micro_batch,
        most_gap=most_gap,
    )


def described(learner: Learner, base: str) -> dict[str, Any]:
    """What stands beside the weights: an adapter's configuration as peft's, or the model's."""
    weights = learner.weights
    if isinstance(weights, Adapter):
        return adapter_config(weights.rank, weights.alpha, weights.targets, base)
    config: dict[str, Any] = learner.model.config.to_dict()
    return config | {"dtype": "float32"}


def adapter_config(rank: int, alpha: float, targets: list[str], base: str) -> dict[str, Any]:
    """An adapter's configuration as peft reads it."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": targets,
        "base_model_name_or_path": base,
    }
