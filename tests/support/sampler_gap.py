"""How far llama.cpp's log-probabilities are from the trainer's, with and without what was trained.

llama.cpp continues the beginning of a row, and torch scores the same tokens; in nats a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.weights.checkpoints import note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.schema import Sampling
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.load import load_base
from rubricem.training.local.weights import Adapter
from rubricem.training.rows.row import TrainRow


@dataclass(frozen=True, slots=True)
class SamplerGap:
    """Mean sizes of differences of log-probabilities."""

    mean: float
    """of the sampler from the trainer, both with what was trained"""
    moved: float
    """of the trainer from its base model"""


async def sampler_gap(checkpoint: Path, row: TrainRow) -> SamplerGap:
    """Of a checkpoint that llama.cpp serves; `row`: its beginning is gone on with."""
    files, note = await WeightsStore().model_files(str(checkpoint)), note_of(checkpoint)
    config = LlamaConfig(context_tokens=1024, threads=1, adapter=files.adapter)
    policy = await LlamaPolicy.load(files.path, files.name, "", config)
    prompt = row.ids[: row.prompt_tokens]
    try:
        written = await policy.complete(prompt, Sampling(max_tokens=32, seed=0))
    finally:
        await policy.aclose()
    ids, logprobs = written.token_ids or (), torch.tensor(written.logprobs)
    base = Path(note.base)
    bare = load_base(base)
    plain = _score(bare, prompt, ids)
    Adapter.restore(bare, read_weights(checkpoint, "lora"), note.alpha)
    trained = _score(bare, prompt, ids)
    return SamplerGap(
        float((logprobs - trained).abs().mean()), float((trained - plain).abs().mean())
    )


def _score(model: Any, prompt: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0].float().log_softmax(-1)
    places = torch.arange(len(prompt) - 1, len(prompt) + len(ids) - 1)
    found: torch.Tensor = logits[places, torch.tensor(ids)]
    return found
