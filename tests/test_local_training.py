"""The local engine on a tiny random model: steps, resume, export, and llama.cpp beside torch."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.weights.checkpoints import is_checkpoint, read_checkpoint
from agent.weights.resolving import resolve_files
from memory.errors import PolicyError, SettingsError, StoreError, WeightsError
from tests.tiny_model import write_tiny
from training.local.adapter_gguf import tensor_name
from training.local.base_model import load_base
from training.local.canary import Canary, canary
from training.local.checkpointing import TrainingFolder
from training.local.config import TrainConfig, build_config
from training.local.learner import Learner, StepConfig
from training.local.logprobs import batch_logprobs
from training.local.lora import Adapter
from training.local.training_run import Trained, train
from training.rows import Objective, TrainRow
from training.tensors import collate

ROOT = Path(__file__).parent.parent
LENGTH, PROMPT = 24, 10


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    held = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(held)


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
    return TrainRow(**values | more)


def policy_rows(count: int) -> list[TrainRow]:
    return [row(n, "policy", 1.0 if n % 2 else -1.0) for n in range(count)]


def learner(tiny: Path, **settings: Any) -> Learner:
    model = load_base(tiny)
    return Learner(model, Adapter.attach(model, 4, 8.0, seed=0), StepConfig(**settings))


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
    return build_config(values | settings, folder)


def quiet(line: str) -> None:
    pass


def test_a_fresh_adapter_changes_nothing_and_a_trained_one_does(tiny: Path) -> None:
    one, rows = learner(tiny), [row(0), row(1)]
    fresh = logprobs(one, rows)
    with one.adapter.switched_off():
        torch.testing.assert_close(logprobs(one, rows), fresh)
    one.sft_step(rows, 0.01)
    trained = logprobs(one, rows)
    assert float((trained - fresh).sum()) > 0.1, "imitated tokens are likelier"
    with one.adapter.switched_off():
        torch.testing.assert_close(logprobs(one, rows), fresh, msg="the base is frozen")


def test_logprobs_are_those_of_the_whole_softmax_and_zero_where_not_trained(tiny: Path) -> None:
    none = (0.0,) * 3
    short = {"advantages": none, "behaviour_logprobs": none, "stages": (-1,) * 3}
    one = learner(tiny)
    rows = [row(0), row(1, ids=(5, 9, 7), loss_mask=(0, 1, 1), **short)]
    found = logprobs(one, rows)
    for line, one_row in zip(found, rows, strict=True):
        with torch.no_grad():
            whole = torch.log_softmax(one.model(torch.tensor([one_row.ids])).logits[0], -1)
        for place, token in enumerate(one_row.ids):
            wanted = float(whole[place - 1, token]) if one_row.loss_mask[place] else 0.0
            assert float(line[place]) == pytest.approx(wanted, abs=1e-5)


def test_the_gradient_of_an_adapter_is_that_of_plain_matrices(tiny: Path) -> None:
    one = learner(tiny)
    layer = next(iter(one.adapter.layers.values()))
    torch.nn.init.normal_(layer.lora_b)
    x = torch.randn(2, 3, layer.linear.in_features, requires_grad=True)
    plain = layer.linear(x) + layer.scale * (x @ layer.lora_a.T) @ layer.lora_b.T
    torch.testing.assert_close(layer(x), plain)
    inputs = (x, layer.lora_a, layer.lora_b)
    ours = torch.autograd.grad(layer(x).square().sum(), inputs)
    for mine, theirs in zip(ours, torch.autograd.grad(plain.square().sum(), inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_the_policy_gradient_raises_good_tokens_and_lowers_bad_ones(tiny: Path) -> None:
    one, rows = learner(tiny), policy_rows(2)
    before = logprobs(one, rows).sum(1)
    metrics = one.ss_grpo_step(rows, 0.01)
    after = logprobs(one, rows).sum(1)
    assert after[1] > before[1] and after[0] < before[0]
    assert metrics["ratio"] == pytest.approx(1.0), "old and new are one policy in the first pass"
    assert metrics["tokens"] == 22


def test_a_window_gives_one_gradient_however_its_rows_lie(tiny: Path) -> None:
    rows = policy_rows(4)
    states = []
    for order in (rows, rows[::-1]):
        one = learner(tiny)
        one.ss_grpo_step(order, 0.01)
        states.append(one.adapter.state())
    one = learner(tiny)
    batch = collate(rows)
    loss = -(batch_logprobs(one.model, batch) * batch.advantages * _weights(one, rows)).sum() / 44
    loss.backward()
    torch.nn.utils.clip_grad_norm_(one.adapter.parameters(), 1.0)
    for group in one.optimizer.param_groups:
        group["lr"] = 0.01
    one.optimizer.step()
    for state in states:
        for name, value in one.adapter.state().items():
            torch.testing.assert_close(state[name], value, rtol=1e-3, atol=1e-5)


def _weights(one: Learner, rows: list[TrainRow]) -> torch.Tensor:
    """min(exp(old - behaviour), 2), the truncated correction for the sampler."""
    return (logprobs(one, rows) - collate(rows).behaviour).exp().clamp(max=2.0)


def test_rows_without_advantage_cost_nothing_and_are_counted(tiny: Path) -> None:
    one = learner(tiny)
    before = one.adapter.state()
    metrics = one.ss_grpo_step([row(0, "policy", 0.0), row(1, "policy", 0.0)], 0.01)
    assert (metrics["rows"], metrics["rows_without_gradient"]) == (2, 2)
    assert all(torch.equal(before[n], value) for n, value in one.adapter.state().items())


def test_what_a_tool_wrote_has_no_gradient(tiny: Path) -> None:
    """Other advantages and log-probabilities on masked tokens change nothing."""
    states = []
    for noise in (0.0, 9.0):
        one, rows = learner(tiny), []
        for r in policy_rows(2):
            loud = tuple(a if m else noise for a, m in zip(r.advantages, r.loss_mask, strict=True))
            rows.append(r.model_copy(update={"advantages": loud, "behaviour_logprobs": loud}))
        one.ss_grpo_step(rows, 0.01)
        states.append(one.adapter.state())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_further_passes_keep_the_first_policy_as_the_old_one(tiny: Path) -> None:
    one = learner(tiny, passes=3)
    metrics = one.ss_grpo_step(policy_rows(2), 0.01)
    assert metrics["ratio_max"] > 1.01 and metrics["kl_old"] > 0


def test_the_reference_is_the_adapter_at_the_start(tiny: Path) -> None:
    one = learner(tiny, beta=0.5)
    first = one.ss_grpo_step(policy_rows(2), 0.01)
    second = one.ss_grpo_step(policy_rows(2), 0.01)
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert second["kl_reference"] > 1e-3
    fresh = learner(tiny, beta=0.5)
    fresh.start_from(one.adapter.state())
    again = fresh.ss_grpo_step(policy_rows(2), 0.01)
    assert again["kl_reference"] == pytest.approx(0.0, abs=1e-6)


async def test_llama_samples_from_the_exported_adapter(tiny: Path, tmp_path: Path) -> None:
    trained = await train(config_of(tmp_path, tiny, [row(0)], epochs=8), "sft", quiet)
    found = trained.canary
    assert found.mean < 0.01 and found.base_mean < 0.01, found
    assert found.moved > 10 * found.mean, "the adapter is at work on both sides"
    assert found.without_adapter > 10 * found.mean
    assert found.sound


async def test_an_adapter_that_is_not_the_trained_one_is_found(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, [row(0)], epochs=8)
    trained = await train(config, "sft", quiet)
    untrained = learner(tiny)
    exported = trained.checkpoint / "adapter.gguf"
    found = await canary(untrained.model, untrained.adapter, tiny, exported, row(0), 1)
    assert found.mean > 0.1
    assert not Canary(0.3, 1.0, 0.3, 0.02, 0.01, 32).sound, "the sampler has no adapter"
    assert not Canary(0.8, 1.0, 0.9, 0.9, 0.01, 32).sound, "the gap is too wide"
    assert Canary(0.02, 0.1, 0.001, 0.02, 0.02, 32).sound, "an adapter that moved nothing yet"


async def test_a_checkpoint_is_the_name_of_a_model(tiny: Path, tmp_path: Path) -> None:
    trained = await train(config_of(tmp_path, tiny, [row(0)]), "sft", quiet)
    assert is_checkpoint(str(trained.checkpoint)) and not is_checkpoint(str(tmp_path))
    files = await resolve_files(str(trained.checkpoint))
    assert files.path == tiny and files.adapter and files.adapter.name == "adapter.gguf"
    note = read_checkpoint(trained.checkpoint)
    assert (note.step, note.method, note.lineage) == (1, "sft", ())
    assert note.version in files.version
    (trained.checkpoint / "adapter.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(WeightsError, match="hash differs"):
        read_checkpoint(trained.checkpoint)


async def test_training_goes_on_from_an_adapter_and_remembers_it(
    tiny: Path, tmp_path: Path
) -> None:
    warm = await train(config_of(tmp_path, tiny, [row(0)]), "sft", quiet)
    first = read_checkpoint(warm.checkpoint)
    start = {"start_adapter": str(warm.checkpoint), "out": "second"}
    config = config_of(tmp_path, tiny, policy_rows(2), **start)
    trained = await train(config, "ss-grpo", quiet)
    assert read_checkpoint(trained.checkpoint).lineage == (first.version,)
    other = config_of(tmp_path, tiny, policy_rows(2), **start, rank=2)
    with pytest.raises(SettingsError, match="another rank"):
        await train(other, "ss-grpo", quiet)


async def test_a_finished_run_trains_nothing_again(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), batch=1)
    first = await train(config, "ss-grpo", quiet)
    told: list[str] = []
    assert await train(config, "ss-grpo", told.append) == first
    assert told == [] and [line["step"] for line in first.steps] == [1, 2]
    with pytest.raises(SettingsError, match="another learning_rate"):
        await train(config.model_copy(update={"learning_rate": 0.1}), "ss-grpo", quiet)


async def test_a_second_process_cannot_train_in_the_same_folder(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, [row(0)])
    with (
        TrainingFolder(config.out).begun({"seed": 0}),
        pytest.raises(StoreError, match="another process"),
        TrainingFolder(config.out).begun({"seed": 0}),
    ):
        pass


def trained_in_pieces(folder: Path, config: Path, kills: int) -> None:
    """Run the command, kill it as soon as another step is saved, and at last let it end."""
    command = (sys.executable, "-c", "from agent.cli import main; main()", "train", "ss-grpo")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for wanted in range(1, kills + 1):
        process = subprocess.Popen((*command, config), env=environment, stderr=subprocess.DEVNULL)
        while TrainingFolder(folder).step() < wanted and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run((*command, config), env=environment, check=True, capture_output=True)


@pytest.mark.slow
async def test_a_killed_run_ends_as_one_that_was_not(tiny: Path, tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", policy_rows(8))
    settings = {"rows": [str(rows)], "model": str(tiny), "batch": 1, "epochs": 2, "rank": 4}
    settings |= {"threads": 1, "dtype": "float32", "alpha": 8.0, "schedule": "cosine"}
    whole = await train(build_config({**settings, "out": "whole"}, tmp_path), "ss-grpo", quiet)
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (tmp_path / "train.toml").write_text(f'out = "pieces"\n{text}', encoding="utf-8")
    trained_in_pieces(tmp_path / "pieces", tmp_path / "train.toml", kills=3)
    pieces = TrainingFolder(tmp_path / "pieces")
    assert pieces.step() == 8
    for name in ("adapter.gguf", "adapter_model.safetensors"):
        theirs = (whole.checkpoint / name).read_bytes()
        assert (pieces.newest / name).read_bytes() == theirs
    assert [_lasting(line) for line in pieces.metrics()] == [_lasting(m) for m in whole.steps]


async def test_an_interrupted_run_ends_as_one_that_was_not(tiny: Path, tmp_path: Path) -> None:
    rows = policy_rows(6)
    whole = await train(config_of(tmp_path, tiny, rows, batch=1, out="whole"), "ss-grpo", quiet)
    config = config_of(tmp_path, tiny, rows, batch=1, out="pieces")

    def interrupt(line: str) -> None:
        if line.startswith("step 2 of 3: row 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await train(config, "ss-grpo", interrupt)
    assert TrainingFolder(config.out).step() == 1
    pieces = await train(config, "ss-grpo", quiet)
    assert _hash(pieces) == _hash(whole)
    assert [_lasting(m) for m in pieces.steps] == [_lasting(m) for m in whole.steps]


def _hash(trained: Trained) -> str:
    return read_checkpoint(trained.checkpoint).adapter_sha256


def _lasting(metrics: dict[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in metrics.items() if n not in ("seconds", "tokens_per_second")}


async def test_a_gradient_that_is_not_finite_ends_the_run_in_a_sentence(
    tiny: Path, tmp_path: Path
) -> None:
    bad = row(0, weight=1e300)
    with pytest.raises(PolicyError, match="training step 1 failed"):
        await train(config_of(tmp_path, tiny, [bad]), "sft", quiet)


def test_names_of_tensors_are_those_of_llama() -> None:
    name = "base_model.model.model.layers.3.mlp.up_proj.lora_A.weight"
    assert tensor_name(name) == "blk.3.ffn_up.weight.lora_a"
    with pytest.raises(ValueError, match="lm_head"):
        tensor_name("base_model.model.lm_head.lora_A.weight")


@pytest.mark.model
@pytest.mark.slow
async def test_the_real_model_learns_a_row_and_llama_follows(
    weights_05b: Path, tmp_path: Path
) -> None:
    """One step on some 40 tokens in bfloat16: the quantised sampler and the trainer agree."""
    ids = tuple(1000 + 17 * place for place in range(LENGTH))
    settings = {"model": str(weights_05b), "rank": 16, "alpha": 32.0, "dtype": "bfloat16"}
    config = config_of(tmp_path, weights_05b, [row(0, ids=ids)], **settings, epochs=2)
    trained = await train(config.model_copy(update={"learning_rate": 3e-4}), "sft", quiet)
    first, second = trained.steps
    assert second["negative_log_likelihood"] < first["negative_log_likelihood"] - 0.1
    found = trained.canary
    assert found.mean < 0.2 and found.base_mean < 0.2, "quantised activations, bfloat16 weights"
    assert found.sound
