"""A run by TRL: going on after a stop, steps without a gradient, ranks, and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memory.errors import PolicyError, SettingsError, StoreError
from tests.train_rows import config_of, policy_rows, quiet, row
from training.local.checkpoint_files import read_weights
from training.local.config import TrainConfig
from training.local.training_run import train

ROOT = Path(__file__).parent.parent
TRL = {"engine": "trl", "batch": 1}
pytestmark = pytest.mark.usefixtures("one_thread")


async def stopped(config: TrainConfig, step: int) -> list[str]:
    """Train until a step is made, and not saved yet; returns what was told."""
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith(f"step {step} of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await train(config, "ss-grpo", tell)
    return told


async def test_a_stopped_run_by_trl_ends_as_one_that_was_not(tiny: Path, tmp_path: Path) -> None:
    rows = [*policy_rows(2), row(2, "policy", 0.0), row(3, "policy", 0.0), *_later(policy_rows(8))]
    whole = await train(config_of(tmp_path, tiny, rows, **TRL, passes=2), "ss-grpo", quiet)
    assert [step["rows_without_gradient"] for step in whole.steps].count(2) == 1
    config = config_of(tmp_path, tiny, rows, **TRL, passes=2, out="pieces")

    await stopped(config, 3)
    pieces = await train(config, "ss-grpo", quiet)
    told = [(step["step"], step["loss"], step.get("grad_norm")) for step in pieces.steps]
    assert told == [(step["step"], step["loss"], step.get("grad_norm")) for step in whole.steps]
    one, other = (read_weights(run.checkpoint, "lora") for run in (whole, pieces))
    assert all(one[name].equal(other[name]) for name in one)
    with pytest.raises(SettingsError, match="another engine"):
        await train(config.model_copy(update={"engine": "local"}), "ss-grpo", quiet)


def _later(rows: list[Any]) -> list[Any]:
    """The same in groups of their own."""
    return [one.model_copy(update={"id": f"{one.id}b", "group": f"{one.group}b"}) for one in rows][
        2:
    ]


async def test_what_trl_goes_on_from_is_missed_in_a_sentence(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), **TRL)
    await stopped(config, 2)
    state = config.out / "trl" / "checkpoint-1" / "trainer_state.json"
    kept = state.rename(tmp_path / state.name)
    with pytest.raises(StoreError, match=r"from step 1 .*state\.json is missing") as told:
        await train(config, "ss-grpo", quiet)
    assert "Put the files back" in told.value.remedy
    kept.rename(state)
    assert len((await train(config, "ss-grpo", quiet)).steps) == 2, "nothing was taken back"


async def test_files_of_trl_that_are_not_whole_cost_their_own_step(
    tiny: Path, tmp_path: Path
) -> None:
    """Without its moments TRL would go on by other steps; cut short, it could not read them."""
    rows = policy_rows(6)
    whole = await train(config_of(tmp_path, tiny, rows, **TRL), "ss-grpo", quiet)
    config = config_of(tmp_path, tiny, rows, **TRL, out="pieces")
    await stopped(config, 3)
    moments = config.out / "trl" / "checkpoint-2" / "optimizer.pt"
    for damage, wrong in ((cut, "has 1,000 of"), (Path.unlink, "is missing")):
        damage(moments)
        told = await stopped(config, 3)
        assert f"TRL cannot go on from step 2 (trl/checkpoint-2/optimizer.pt {wrong}" in told[0]
        assert told[0].endswith(": going on from step 1")
    pieces = await train(config, "ss-grpo", quiet)
    assert [step["loss"] for step in pieces.steps] == [step["loss"] for step in whole.steps]
    one, other = (read_weights(run.checkpoint, "lora") for run in (whole, pieces))
    assert all(one[name].equal(other[name]) for name in one)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pack_tokens": 100}, "does not pack"),
        ({"parallel": "fsdp"}, "told to accelerate"),
        ({"adaptation": "full", "rank": None, "alpha": None, "objective": {"beta": 0.1}}, "no ref"),
        ({"objective": {"beta": 0.1, "aggregation": "stage-mean"}}, "by all tokens alike"),
        ({"novelty": True}, "but for the divergence"),
        ({"objective": {"dual_clip": 1.1}}, "dual clip"),
    ],
)
async def test_what_trl_cannot_be_told_is_refused_before_anything_is_loaded(
    tiny: Path, tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    config = config_of(tmp_path, tiny, policy_rows(2), **TRL, **settings)
    with pytest.raises(SettingsError, match=reason) as error:
        await train(config, "ss-grpo", quiet)
    assert 'engine "local"' in error.value.remedy and not config.out.exists()


async def test_imitation_by_trl_is_refused(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, [row(0)], **TRL)
    with pytest.raises(SettingsError, match="sft is imitation"):
        await train(config, "sft", quiet)


async def test_rows_of_another_tokenizer_are_refused_by_trl_too(tiny: Path, tmp_path: Path) -> None:
    strange = row(0, "policy", ids=(999,) * 24)
    config = config_of(tmp_path, tiny, [strange], **TRL)
    with pytest.raises(SettingsError, match="of another tokenizer"):
        await train(config, "ss-grpo", quiet)


@pytest.mark.parametrize(
    "objective", [{}, {"importance": "none"}, {"correction": "bypass", "importance": "none"}]
)
async def test_rows_that_another_model_sampled_are_refused_by_trl_too(
    tiny: Path, tmp_path: Path, objective: dict[str, Any]
) -> None:
    far = [one.model_copy(update={"behaviour_logprobs": (-30.0,) * 24}) for one in policy_rows(2)]
    config = config_of(tmp_path, tiny, far, **TRL, objective=objective)
    with pytest.raises(PolicyError, match="not sampled from this model"):
        await train(config, "ss-grpo", quiet)
    assert not (config.out / "last").exists()


@pytest.mark.slow
async def test_two_ranks_by_trl_take_the_steps_of_one(tiny: Path, tmp_path: Path) -> None:
    rows = [*policy_rows(6), row(6, "policy", group="group2")]
    alone = await train(config_of(tmp_path, tiny, rows, **TRL), "ss-grpo", quiet)
    config = config_of(tmp_path, tiny, rows, **TRL, out="two", device="cpu")
    text = "".join(
        f"{name} = {json.dumps(value)}\n"
        for name, value in config.model_dump(
            mode="json", exclude_unset=True, exclude_none=True
        ).items()
    )
    (tmp_path / "two.toml").write_text(text)
    (tmp_path / "rubricem.py").write_text("from agent.cli import main\n\nmain()\n")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = (*torchrun, "rubricem.py", "train", "ss-grpo", "two.toml")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CI": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (config.out / "metrics.jsonl").read_text().splitlines()
    for wanted, found in zip(alone.steps, map(json.loads, lines), strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-3)
