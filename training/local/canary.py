"""The canary row: does llama.cpp sample from the policy that was trained?

llama.cpp continues a fixed prompt, and the trainer computes the log-probabilities of the same
tokens. Between the quantised sampler and the trainer a small gap is expected; an adapter that was
not applied, or applied to the wrong layers, shows as a gap of the size of what the adapter moved.
All figures are in nats per token.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from agent.llama import LlamaConfig, LlamaPolicy
from agent.weights.checkpoints import MODEL
from memory.errors import PolicyError
from memory.interfaces import Sampling
from training.local.logprobs import batch_logprobs
from training.rows import TrainRow
from training.tensors import collate

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

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Compared:
    """The two sides: what was trained, and what was exported of it."""

    model: Any
    without: AbstractContextManager[None]
    """within it the model is what the training began with"""
    base: Path
    """what llama.cpp sampled from as the training began"""
    exported: Path
    """an adapter of that, or a whole model"""


async def canary(sides: Compared, row: TrainRow, threads: int) -> Canary:
    """Compare on the beginning of a row. Raises PolicyError when llama.cpp writes nothing."""
    first, model = row.loss_mask.index(1), sides.model
    prompt = row.ids[max(0, first - PROMPT) : first]
    whole = sides.exported.name == MODEL
    loaded, adapter = (sides.exported, None) if whole else (sides.base, sides.exported)
    adapted = await _sampled(loaded, adapter, prompt, threads)
    plain = await _sampled(sides.base, None, prompt, threads)
    with torch.no_grad():
        trained = _trained(model, prompt, adapted)
        with sides.without:
            off, bare = _trained(model, prompt, adapted), _trained(model, prompt, plain)
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


async def _sampled(
    base: Path, adapter: Path | None, prompt: Sequence[int], threads: int
) -> Sampled:
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


def _trained(model: Any, prompt: Sequence[int], sampled: Sampled) -> torch.Tensor:
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
    batch = collate([row]).to(model.device)
    return batch_logprobs(model, batch)[batch.mask].cpu()
