"""All weights in training: float32 masters, and checkpoints to merge."""

from pathlib import Path

import pytest
import torch

from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import SettingsError, WeightsError
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.learner import Learner
from rubricem.training.local.load import export_checkpoint, load_base
from rubricem.training.local.local_config import EngineConfig
from rubricem.training.local.weights import FullWeights
from rubricem.training.rounds.fit import train
from tests.support.rows import config_of, policy_rows, quiet, row

FULL = {"adaptation": "full", "rank": None, "alpha": None, "learning_rate": 0.001}
pytestmark = pytest.mark.usefixtures("one_thread")


def full(tiny: Path, dtype: torch.dtype) -> Learner:
    model = load_base(tiny)
    return Learner(model, FullWeights(model, dtype), EngineConfig(out=Path("unused")))


def test_updates_too_small_for_bfloat16_are_not_lost(tiny: Path) -> None:
    one = full(tiny, torch.bfloat16)
    rounded = {n: w.detach().clone() for n, w in one.model.named_parameters()}
    before = {n: m.clone() for n, m in one.weights.state().items()}
    for _ in range(3):
        one.sft_step([row(0)], 1e-5)
    name = "model.layers.0.mlp.up_proj.weight"
    moved = (one.weights.state()[name] - before[name]).abs()
    assert 1e-5 < float(moved.median()) < 4e-5, "Adam moves each weight by about its rate"
    still = dict(one.model.named_parameters())[name]
    assert float((still == rounded[name]).float().mean()) > 0.9, "the rounded ones hardly move"
    for _ in range(60):
        one.sft_step([row(0)], 1e-5)
    assert float((still == rounded[name]).float().mean()) < 0.9, "until it adds up to a step"
    assert still.dtype == torch.bfloat16 and one.weights.parameters()[0].dtype == torch.float32


def test_bfloat16_over_masters_follows_float32(tiny: Path) -> None:
    exact, rounded = full(tiny, torch.float32), full(tiny, torch.bfloat16)
    for _ in range(3):
        wanted = exact.ss_grpo_step(policy_rows(4), 0.001)
        found = rounded.ss_grpo_step(policy_rows(4), 0.001)
    assert found["loss"] == pytest.approx(wanted["loss"], abs=0.02)
    assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)


async def test_full_training_goes_on_from_a_full_checkpoint(tiny: Path, tmp_path: Path) -> None:
    warm = await train(config_of(tmp_path, tiny, [row(0)], **FULL), "sft", quiet)
    begun = {**FULL, "model": str(warm.checkpoint), "out": "second"}
    trained = await train(config_of(tmp_path, tiny, policy_rows(2), **begun), "ss-grpo", quiet)
    with pytest.raises(WeightsError, match="it is for torch alone"):
        await WeightsStore().model_files(str(trained.checkpoint))
    first = read_weights(warm.checkpoint, "full")
    now = read_weights(trained.checkpoint, "full")
    moved = max(float((now[name] - first[name]).abs().max()) for name in first)
    assert 0 < moved < 0.002, "it began where the other ended"


async def test_a_merged_adapter_computes_as_the_adapter_did(tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    trained = await train(config_of(tmp_path, tiny, [row(0)], epochs=4), "sft", quiet)
    out = tmp_path / "merged"
    assert await export_checkpoint(trained.checkpoint, out) == out
    model = AutoModelForCausalLM.from_pretrained(out)
    with torch.no_grad():
        logits = model(torch.tensor([row(0).ids])).logits[0].log_softmax(-1)
    surprise = -logits[:-1].gather(1, torch.tensor(row(0).ids[1:]).unsqueeze(1)).squeeze(1)
    written = torch.tensor(row(0).loss_mask[1:]).bool()
    last = trained.steps[-1]["negative_log_likelihood"]
    assert float(surprise[written].mean()) < last, "better than before the last step"
    with pytest.raises(SettingsError, match="exists already"):
        await export_checkpoint(trained.checkpoint, out)
