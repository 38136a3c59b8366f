"""The canary row: whether llama.cpp samples from the policy that was trained.

llama.cpp continues a fixed prompt, and the trainer computes the log-probabilities of the same
tokens. A small gap between the quantised sampler and the trainer is expected; an adapter that was
not applied, or applied to the wrong layers, shows as a gap as large as the adapter's effect. All
figures are in nats per token.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rubricem.agent.models.llama import LlamaConfig, LlamaPolicy
from rubricem.agent.weights.checkpoints import ADAPTER, MODEL
from rubricem.memory.errors import PolicyError
from rubricem.memory.runs import value_in, write_atomically
from rubricem.memory.schema import Sampling
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.load import load_base, load_learner
from rubricem.training.local.logprobs import batch_logprobs
from rubricem.training.local.ranks import ALONE
from rubricem.training.local.session import TrainingSession
from rubricem.training.local.weights import Adapter
from rubricem.training.objective.batch import Batch
from rubricem.training.rows.row import TrainRow

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
    threads = torch.get_num_threads()
    found = await canary(learner.model, without, gguf, exported, row, threads)
    if not found.sound:
        raise PolicyError(
            f"llama.cpp does not sample from what was trained: its log-probabilities differ by "
            f"{found.mean:.3f} nats a token as trained, {found.without_adapter:.3f} from the base.",
            "Do not use this checkpoint; please report it with the run's folder.",
        )
    return found
