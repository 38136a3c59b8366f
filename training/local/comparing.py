"""A finished training beside what was exported of it, by the canary row."""

import asyncio
import json
from contextlib import AbstractContextManager

import torch

from agent.weights.checkpoints import ADAPTER, MODEL
from memory.errors import PolicyError
from memory.runs import write_atomically
from training.local.base_model import load_base
from training.local.canary import Canary, Compared, canary
from training.local.checkpoint_files import read_weights
from training.local.learner import Learner
from training.local.loading import load_learner
from training.local.lora import Adapter
from training.local.ranks import ALONE
from training.local.session import TrainingSession
from training.rows import TrainRow


async def compare_once(session: TrainingSession, row: TrainRow | None) -> Canary | None:
    """The canary of the newest checkpoint, which is compared once, and told on its card.

    `row`: one that was trained; None: there is none at hand. Returns what was compared now or
    before, None where nothing was. Raises PolicyError where llama.cpp does not sample from what
    was trained.
    """
    folder = session.folder
    if session.ranks.first and session.done:
        if row is not None and session.base.gguf is not None and not folder.canary.exists():
            found = await _compared(session, row)
            write_atomically(folder.canary, json.dumps(found.as_dict(), indent=1))
        await asyncio.to_thread(folder.write_card, folder.newest)
    await asyncio.to_thread(session.ranks.wait)
    if not folder.canary.exists():
        return None
    return Canary(**json.loads(folder.canary.read_text(encoding="utf-8")))


async def _compared(session: TrainingSession, row: TrainRow) -> Canary:
    """Of a model that llama.cpp can serve."""
    session.tell("comparing the canary row")
    config, folder, gguf = session.config, session.folder.newest, session.base.gguf
    assert gguf is not None
    learner = await asyncio.to_thread(_learner, session)
    exported = folder / (ADAPTER if config.adaptation == "lora" else MODEL)
    sides = Compared(learner.model, _without(session, learner), gguf, exported)
    found = await canary(sides, row, config.threads or torch.get_num_threads())
    if not found.sound:
        raise PolicyError(
            f"llama.cpp does not sample from what was trained: its log-probabilities differ by "
            f"{found.mean:.3f} nats a token as trained, {found.without_adapter:.3f} from the base.",
            "Do not use this checkpoint; please report it with the run's folder.",
        )
    return found


def _learner(session: TrainingSession) -> Learner:
    """The model in memory; where it is not, or a part of it, it is read from the checkpoint."""
    whole = session.config.parallel == "ddp" or session.ranks.world == 1
    if whole and session.loaded:
        return session.learner
    learner = load_learner(session.config, session.base.path, ALONE)
    learner.weights.load(read_weights(session.folder.newest, session.config.adaptation))
    return learner


def _without(session: TrainingSession, learner: Learner) -> AbstractContextManager[None]:
    if isinstance(learner.weights, Adapter):
        return learner.weights.switched_off()
    base = load_base(session.base.path, session.config.dtype)
    return learner.weights.as_in(dict(base.named_parameters()))
