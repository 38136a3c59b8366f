"""What can be trained: folders of other architectures on torch alone, adapters as peft's.

Bad input to the local engine: one sentence and a remedy each, and no weight is lost.
"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rubricem.agent.weights.checkpoints import note_of
from rubricem.agent.weights.store import WeightsStore
from rubricem.memory.errors import PolicyError, SettingsError, WeightsError
from rubricem.training.local import load
from rubricem.training.local.checkpoints import RECORD, read_weights
from rubricem.training.local.load import Base, load_base, load_learner, memory_told, row_limit
from rubricem.training.local.local_config import EngineConfig, Method
from rubricem.training.local.ranks import ALONE
from rubricem.training.local.session import open_session, settle
from rubricem.training.rounds.fit import read_rows, select, train
from rubricem.training.rows.row import TrainRow
from tests.support.rows import config_of, policy_rows, quiet, row, window_loss
from tests.support.tiny import write_tiny

PER_TOKEN = ("ids", "loss_mask", "advantages", "behaviour_logprobs", "stages")
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
    return EngineConfig(**{"out": Path("unused"), "dtype": "float32"} | settings)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
async def test_a_checkpoint_travels_with_its_base_and_opens_by_peft_alone(
    tiny: Path, tmp_path: Path
) -> None:
    from peft import AutoPeftModelForCausalLM

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    base = Path(shutil.copy(tiny, here / "tiny.gguf"))
    trained = await train(config_of(here, base, [row(0)]), "sft", quiet)
    model = AutoPeftModelForCausalLM.from_pretrained(trained.checkpoint, gguf_file="tiny.gguf")
    assert any("lora_A" in name for name, _ in model.named_parameters())
    here.rename(there)
    moved = there / trained.checkpoint.relative_to(here)
    assert str(tmp_path) not in (moved / "checkpoint.json").read_text()
    assert note_of(moved).base == str(there / "tiny.gguf")
    files = await WeightsStore().model_files(str(moved))
    assert files.path == there / "tiny.gguf"


async def test_a_folder_is_trained_for_torch_and_llama_is_told_of(tmp_path: Path) -> None:
    folder_of(tmp_path / "base", "llama")
    told: list[str] = []
    config = config_of(tmp_path, Path("base"), [row(0)], epochs=2)
    trained = await train(config, "sft", told.append)
    assert any("llama.cpp serves adapters of GGUF files alone" in line for line in told)
    with pytest.raises(WeightsError, match="cannot answer with the checkpoint"):
        await WeightsStore().model_files(str(trained.checkpoint))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.slow
async def test_peft_reads_the_adapter(tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM, PeftModel

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
    with torch.no_grad():
        alone = AutoPeftModelForCausalLM.from_pretrained(trained.checkpoint)(ids).logits
    torch.testing.assert_close(alone, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["folder", "gguf"])
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_a_step_of_another_decoder_has_the_loss_of_the_plain_computation(
    tmp_path: Path, kind: str, form: str
) -> None:
    base = tmp_path / f"{form}.gguf"
    _ = folder_of(base, kind) if form == "folder" else write_tiny(base, kind=kind)
    rows = policy_rows(4)
    learner = load_learner(engine(rank=4), base, ALONE)
    assert learner.model.config.model_type == kind
    model, terms = load_base(base), []
    for one in rows:
        ids, on = torch.tensor([one.ids]), torch.tensor(one.loss_mask[1:]).bool()
        plain = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0][on]
        sampled = torch.tensor(one.behaviour_logprobs[1:])[on]
        # In the first pass the ratio is 1; the sampler's token weight is held at 2.
        weight = (plain - sampled).exp().clamp(max=2.0)
        terms.append(-weight * torch.tensor(one.advantages[1:])[on])
    found = learner.ss_grpo_step(rows, 0.01)
    assert found["loss"] == pytest.approx(float(torch.cat(terms).mean()), abs=1e-5)
    assert found["tokens"] == len(torch.cat(terms)) == 44 and found["grad_norm"] > 0
    assert learner.ss_grpo_step(rows, 0.01)["surprise"] != found["surprise"], "its weights moved"


def test_what_is_no_decoder_is_refused(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8}
    T5ForConditionalGeneration(T5Config(vocab_size=32, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(SettingsError, match=r"a t5 model, which is no decoder of one text"):
        load_base(tmp_path)
    with pytest.raises(SettingsError, match="no decoder"):
        row_limit(engine(), tmp_path, 10**9)


@pytest.mark.parametrize("kind", ["qwen2", "opt", "phi"])
@pytest.mark.slow
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


async def test_a_folder_is_known_by_its_weights(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "llama")
    first = await Base.find(str(base))
    folder_of(base, "llama", num_hidden_layers=1)
    assert first.gguf is None and (await Base.find(str(base))).sha256 != first.sha256
    (base / "model.safetensors").write_bytes(b"short")
    with pytest.raises(WeightsError, match=r"reading .* for training failed"):
        load_base(base)


@pytest.mark.parametrize(
    ("rows", "method", "sentence"),
    [
        ([], "sft", "the files are empty"),
        ([row(0)], "ss-grpo", "1 sft rows"),
        ([row(0, ratio_allowed=False, objective="policy")], "ss-grpo", "retokenised or forced"),
        ([row(0, loss_mask=(0,) * 24)], "sft", "1 without a trained token"),
        ([row(0, "policy", 0.0)], "ss-grpo", "none of the 1 rows has an advantage other than 0"),
    ],
)
async def test_rows_with_nothing_to_learn_are_told_before_anything_is_loaded(
    tmp_path: Path, rows: list[TrainRow], method: Method, sentence: str
) -> None:
    config = config_of(tmp_path, Path("no model is read.gguf"), rows)
    with pytest.raises(SettingsError, match=sentence) as told:
        await train(config, method, quiet)
    assert told.value.remedy


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["advantages", "behaviour_logprobs"])
async def test_a_row_with_a_number_that_is_not_finite_is_left_out_and_counted(
    tmp_path: Path, field: str, number: str
) -> None:
    config = config_of(tmp_path, Path("unused"), policy_rows(2))
    bad = json.loads(policy_rows(3)[2].model_dump_json())
    bad[field][-1] = "?"
    with config.rows[0].open("a", encoding="utf-8") as file:
        file.write(json.dumps(bad).replace('"?"', number) + "\n")
    found = select(read_rows(config.rows), "ss-grpo", 100)
    assert found.dropped == {"with an advantage or a log-probability that is not finite": 1}
    assert [kept.id for kept in found.rows] == ["row0", "row1"]


@pytest.mark.parametrize(
    ("model", "of", "more", "fault", "remedy"),
    [
        ("base", row(0, ids=(*range(20), 5000, 1, 2, 3)), {},
         r"row0 has the token id 5000.*knows 131 tokens", "that the rows were collected with"),
        ("short", row(0), {"max_row_tokens": 24}, "has 24 tokens, and the model reads 16",
         "max_row_tokens to 16"),
        ("none.gguf", row(0), {}, "There is no file", ""),
    ],
    ids=["ids beyond the vocabulary", "a row beyond the context", "no model"],
)  # fmt: skip
async def test_what_a_training_cannot_take_is_told_with_the_remedy(
    tmp_path: Path, model: str, of: TrainRow, more: dict[str, Any], fault: str, remedy: str
) -> None:
    folder_of(tmp_path / "base", "qwen2")
    folder_of(tmp_path / "short", "qwen2", max_position_embeddings=16)
    with pytest.raises((SettingsError, WeightsError), match=fault) as told:
        await train(config_of(tmp_path, Path(model), [of], **more), "sft", quiet)
    assert remedy in told.value.remedy


async def test_rows_that_another_model_sampled_change_no_weight(tiny: Path, tmp_path: Path) -> None:
    sure = {"behaviour_logprobs": tuple(-0.01 * on for on in row(0).loss_mask)}
    config = config_of(tmp_path, tiny, policy_rows(2))
    async with open_session(config, "ss-grpo", quiet) as session:
        before = session.learner.weights.state()
        with pytest.raises(PolicyError, match="were not sampled from this model"):
            session.step([row(0, "policy", 1.0, **sure)], 0.01)
        after = session.learner.weights.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


async def test_a_loss_that_is_no_number_stops_and_says_where_the_last_good_weights_are(
    tiny: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, tiny, [row(0)])
    async with open_session(config, "sft", quiet) as session:
        session.step([row(0)], 0.01)
        session.save()
        good = session.learner.weights.state()
        with pytest.raises(PolicyError, match="step 2 was not made: the loss is") as told:
            session.step([row(1, weight=1e300)], 0.01)
        assert f"The weights of step 1 are kept in {config.out / 'last'}" in told.value.remedy
        kept = session.learner.weights.state()
        assert all(torch.equal(good[name], kept[name]) for name in good)
        assert session.step([row(1)], 0.01)["loss"] > 0, "it can go on with other rows"
        assert session.done == 2


def test_too_little_memory_is_told_with_the_remedy() -> None:
    with (
        pytest.raises(PolicyError, match="the memory is not enough") as told,
        memory_told(torch.device("cpu")),
    ):
        torch.empty(1 << 50)
    for key in ("gradient_checkpointing", "micro_batch", "max_row_tokens"):
        assert key in told.value.remedy
    with pytest.raises(RuntimeError, match="shapes"), memory_told(torch.device("cpu")):
        torch.ones(2, 3) @ torch.ones(2, 3)


async def test_an_unset_limit_is_the_models_context_and_stays_that_of_its_run(
    tmp_path: Path,
) -> None:
    folder_of(tmp_path / "base", "llama", max_position_embeddings=20)
    long, told = row(0), list[str]()
    short = row(1, **{name: getattr(long, name)[:20] for name in PER_TOKEN})
    config = config_of(tmp_path, Path("base"), [long, short])
    trained = await train(config, "sft", told.append)
    assert trained.dropped == {"longer than 20 tokens": 1}
    assert any("1 rows are longer than 20 tokens" in line for line in told)
    record = json.loads((config.out / RECORD).read_text(encoding="utf-8"))
    assert record["max_row_tokens"] == 20
    (config.out / RECORD).write_text(json.dumps(record | {"max_row_tokens": 22}), encoding="utf-8")
    assert (await settle(config)).max_row_tokens == 22
    short_rows = config.model_copy(update={"max_row_tokens": 9})
    assert (await settle(short_rows)).max_row_tokens == 9


@pytest.mark.slow
def test_the_weights_of_a_large_file_are_made_once_and_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(load, "CACHED_FROM", 1)
    monkeypatch.setattr(load.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    base = write_tiny(tmp_path / "tiny.gguf", kind="qwen3")
    made = load_base(base, "bfloat16")
    assert list((tmp_path / "kept" / "torch").iterdir()) == [], "the disk has no room"
    monkeypatch.undo()
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(load, "CACHED_FROM", 1)
    load_base(base, "bfloat16")
    whole = load._read_whole

    def read(path: Path, dtype: torch.dtype) -> Any:
        return pytest.fail("it is made again") if path.is_file() else whole(path, dtype)

    monkeypatch.setattr(load, "_read_whole", read)
    again = load_base(base, "bfloat16")
    assert again.lm_head.weight.dtype == torch.bfloat16 and not again.training
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in made.state_dict().items())
    assert torch.equal(again.model.rotary_emb.inv_freq, made.model.rotary_emb.inv_freq)
    write_tiny(base, seed=1, kind="qwen3")
    with pytest.raises(pytest.fail.Exception):
        load_base(base, "bfloat16")
