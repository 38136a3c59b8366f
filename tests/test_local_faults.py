"""Bad input to the local engine: one sentence and a remedy each, and no weight is lost."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from memory.errors import PolicyError, SettingsError, WeightsError
from tests.test_local_bases import folder_of
from tests.train_rows import config_of, policy_rows, quiet, row, written
from training.local.base_model import load_base
from training.local.config import Method
from training.local.faults import memory_told
from training.local.ranks import check_gpu, joined
from training.local.session import open_session
from training.local.training_run import train
from training.local.windows import read_rows, select
from training.rows import TrainRow

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_a_weight_that_is_not_finite_is_refused_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", [row(0), row(1)])
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"weight":1.0', '"weight":NaN'), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"line 1 of .* finite number"):
        read_rows([path])


async def test_ids_beyond_the_vocabulary_are_told_by_row_and_number(tmp_path: Path) -> None:
    folder_of(tmp_path / "base", "qwen2")
    wrong = row(0, ids=(*range(20), 5000, 1, 2, 3))
    with pytest.raises(SettingsError, match=r"row0 has the token id 5000.*knows 131 tokens"):
        await train(config_of(tmp_path, Path("base"), [wrong]), "sft", quiet)


async def test_rows_beyond_the_model_s_context_are_told(tmp_path: Path) -> None:
    folder_of(tmp_path / "base", "qwen2", max_position_embeddings=16)
    with pytest.raises(SettingsError, match="has 24 tokens, and the model reads 16") as told:
        await train(config_of(tmp_path, Path("base"), [row(0)]), "sft", quiet)
    assert "max_row_tokens to 16" in told.value.remedy


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


async def test_a_step_that_fails_in_a_later_pass_says_how_far_it_came(
    tiny: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, tiny, policy_rows(2), passes=2)
    async with open_session(config, "ss-grpo", quiet) as session:
        with pytest.raises(PolicyError, match="step 1 was left after 1 of 2 updates: the loss is"):
            session.step(policy_rows(2), 1e30)
        with pytest.raises(PolicyError, match="step 1 was not made: the loss is"):
            session.step(policy_rows(2), 0.01)
        assert (session.done, session.folder.step()) == (0, 0)


def test_too_little_memory_is_told_with_the_remedy() -> None:
    with (
        pytest.raises(PolicyError, match="the memory is not enough") as told,
        memory_told(torch.device("cpu")),
    ):
        torch.empty(1 << 50)
    for key in ("pack_tokens", "gradient_checkpointing", "micro_batch", "max_row_tokens"):
        assert key in told.value.remedy
    with pytest.raises(RuntimeError, match="shapes"), memory_told(torch.device("cpu")):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_weights_too_large_for_the_memory_are_told_with_the_remedy(tmp_path: Path) -> None:
    base = folder_of(tmp_path / "base", "llama")
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    # Tensors that the file lacks are made anew, of the size that the configuration asks for.
    huge = config | {"vocab_size": 1 << 44}
    (base / "config.json").write_text(json.dumps(huge), encoding="utf-8")
    weights = load_file(base / "model.safetensors")
    kept = {name: w for name, w in weights.items() if len(w) != config["vocab_size"]}
    save_file(kept, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match="the memory is not enough") as told:
        load_base(base)
    assert "max_row_tokens" in told.value.remedy


async def test_an_unknown_metric_for_the_best_checkpoint_is_told_with_those_there_are(
    tmp_path: Path,
) -> None:
    folder_of(tmp_path / "base", "qwen2")
    config = config_of(tmp_path, Path("base"), [row(0)], best_by="accuracy")
    with pytest.raises(SettingsError, match="no metric 'accuracy'") as told:
        await train(config, "sft", quiet)
    assert "negative_log_likelihood" in told.value.remedy


async def test_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="There is no file"):
        await train(config_of(tmp_path, Path("none.gguf"), [row(0)]), "sft", quiet)


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SettingsError, match="no GPU"), joined("cuda"):
        pass


def test_more_processes_than_gpus_are_told() -> None:
    check_gpu(1, 2)
    with pytest.raises(SettingsError, match=r"process 3 of its machine, .* finds 2 GPUs") as told:
        check_gpu(2, 2)
    assert "--nproc-per-node=2" in told.value.remedy
