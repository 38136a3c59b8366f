"""What can be trained: folders of other architectures on torch alone, adapters as peft's."""

from pathlib import Path
from typing import Any

import pytest
import torch

from agent.weights.resolving import resolve_files
from memory.errors import SettingsError, WeightsError
from tests.train_rows import config_of, policy_rows, quiet, row, window_loss
from training.local.base_model import find_base, load_base
from training.local.checkpoint_files import read_weights
from training.local.config import EngineConfig
from training.local.faults import check_packing
from training.local.loading import load_learner
from training.local.ranks import ALONE
from training.local.training_run import train

pytestmark = pytest.mark.usefixtures("one_thread")


def folder_of(path: Path, kind: str, **settings: Any) -> Path:
    """A tiny random model of a kind, as transformers saves it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 131, "hidden_size": 32, "num_hidden_layers": 2, **settings}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    config = AutoConfig.for_model(kind, **(heads | sizes))
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


def engine(**settings: Any) -> EngineConfig:
    return EngineConfig(out=Path("unused"), dtype="float32", device="cpu", **settings)


async def test_a_folder_is_trained_for_torch_and_llama_is_told_of(tmp_path: Path) -> None:
    folder_of(tmp_path / "base", "llama")
    told: list[str] = []
    config = config_of(tmp_path, Path("base"), [row(0)], epochs=2)
    trained = await train(config, "sft", told.append)
    assert trained.canary is None
    assert any("llama.cpp cannot serve what was trained of base" in line for line in told)
    with pytest.raises(WeightsError, match="cannot answer with the checkpoint"):
        await resolve_files(str(trained.checkpoint))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
async def test_peft_reads_the_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    base = folder_of(tmp_path / "base", "llama")
    config = config_of(tmp_path, Path("base"), [row(0)], epochs=3)
    trained = await train(config, "sft", quiet)
    learner = load_learner(engine(rank=4, alpha=8.0), base, ALONE)
    learner.weights.load(read_weights(trained.checkpoint, "lora"))
    model = PeftModel.from_pretrained(load_base(base), trained.checkpoint)
    ids = torch.tensor([row(0).ids])
    with torch.no_grad():
        ours, theirs = learner.model(ids).logits, model(ids).logits
        bare = load_base(base)(ids).logits
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-5)
    assert float((bare - ours).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", ["qwen2", "opt", "phi"])
def test_other_architectures_learn(tmp_path: Path, kind: str) -> None:
    more = {"word_embed_proj_dim": 32, "ffn_dim": 48} if kind == "opt" else {}
    base = folder_of(tmp_path / "base", kind, **more)
    for settings in ({"rank": 4}, {"adaptation": "full"}):
        learner = load_learner(engine(**settings), base, ALONE)
        first = learner.sft_step([row(0)], 0.01)["loss"]
        assert learner.sft_step([row(0)], 0.01)["loss"] < first


def test_a_model_without_linear_layers_is_trained_whole(tmp_path: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4}
    base = folder_of(tmp_path / "base", "gpt2", **sizes)
    with pytest.raises(SettingsError, match="no linear layer"):
        load_learner(engine(), base, ALONE)
    learner = load_learner(engine(adaptation="full"), base, ALONE)
    first = learner.sft_step([row(0)], 0.01)["loss"]
    assert learner.sft_step([row(0)], 0.01)["loss"] < first


def test_a_model_that_caps_its_logits_is_refused(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "gemma2", head_dim=8, final_logit_softcapping=0.1)
    with pytest.raises(SettingsError, match="scales or caps its logits"):
        load_learner(engine(), base, ALONE)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("opt", {"word_embed_proj_dim": 32, "ffn_dim": 48}),
        ("mamba", {}),
        ("bloom", {"n_head": 4, "initializer_range": 0.2}),
    ],
)
def test_a_model_that_mixes_packed_rows_is_refused(
    tmp_path: Path, kind: str, sizes: dict[str, Any]
) -> None:
    base = folder_of(tmp_path / "base", kind, **sizes)
    load_learner(engine(rank=4, micro_batch=2), base, ALONE)
    with pytest.raises(SettingsError, match=f"{kind} model mixes rows") as told:
        load_learner(engine(rank=4, pack_tokens=64), base, ALONE)
    assert "set micro_batch" in told.value.remedy


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "mistral", "phi", "granite"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_keeps_packed_rows_apart_is_packed(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    base = folder_of(tmp_path / "base", kind, initializer_range=0.2)
    check_packing(load_base(base, dtype))


def test_checkpointed_activations_change_no_gradient_and_no_dropout_comes_back(
    tmp_path: Path,
) -> None:
    more = {"word_embed_proj_dim": 32, "ffn_dim": 48, "dropout": 0.5}
    base = folder_of(tmp_path / "base", "opt", **more)
    losses = []
    for checkpointed in (False, True):
        config = engine(adaptation="full", gradient_checkpointing=checkpointed)
        learner = load_learner(config, base, ALONE)
        losses.append([learner.ss_grpo_step(policy_rows(2), 0.01) for _ in range(2)])
    for plain, again in zip(*losses, strict=True):
        assert window_loss(plain) == window_loss(again)


def test_activations_are_computed_again_where_they_are_checkpointed(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "llama")
    counts = []
    for checkpointed in (False, True):
        config = engine(adaptation="full", gradient_checkpointing=checkpointed)
        learner = load_learner(config, base, ALONE)
        calls: list[int] = []
        layer = learner.model.model.layers[0].mlp
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        learner.sft_step([row(0)], 0.01)
        counts.append(len(calls))
    assert counts == [1, 2]


def test_bfloat16_leaves_the_rotary_frequencies_exact(tiny: Path) -> None:
    exact, rounded = (load_base(tiny, dtype) for dtype in ("float32", "bfloat16"))
    assert rounded.lm_head.weight.dtype == torch.bfloat16
    frequencies = (model.model.rotary_emb.inv_freq for model in (exact, rounded))
    assert torch.equal(*frequencies)


async def test_a_folder_is_known_by_its_weights(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "llama")
    first = await find_base(str(base))
    folder_of(base, "llama", num_hidden_layers=1)
    assert first.gguf is None and (await find_base(str(base))).sha256 != first.sha256
    (base / "model.safetensors").write_bytes(b"short")
    with pytest.raises(WeightsError, match=r"reading .* for training failed"):
        load_base(base)
