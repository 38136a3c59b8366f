"""TRL and the local engine come to the same numbers from the same rows, five steps long.

A run by TRL: going on after a stop, steps without a gradient, ranks, and what it refuses.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricem.memory.errors import PolicyError, SettingsError, StoreError
from rubricem.training.local.checkpoints import read_weights
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.rounds.fit import Trained, train
from rubricem.training.rows.row import Objective, TrainRow
from tests.conftest import ROOT
from tests.support.rows import config_of, policy_rows, quiet, row

pytestmark = pytest.mark.usefixtures("one_thread")
FULL = {"adaptation": "full", "rank": None, "alpha": None, "learning_rate": 0.001}
GENTLE = 0.001
"""a learning rate at which rounding is not made larger from step to step"""


def uneven(sizes: tuple[int, ...] = (2, 3, 1, 4, 2)) -> list[TrainRow]:
    """A group for each step, of as many rows; lengths, masks, stages and objectives differ."""
    found = []
    for group, size in enumerate(sizes):
        for member in range(size):
            number = len(found)
            objective: Objective = "reflect" if group % 2 and member == 0 else "policy"
            found.append(_row(number, f"group{group}", objective))
    return found


def _row(number: int, group: str, objective: Objective) -> TrainRow:
    prompt, written, tool, rest = 5 + number % 4, 4 + number % 3, 2 + number % 5, 3 + number
    mask = (0,) * prompt + (1,) * written + (0,) * tool + (1,) * rest + (0,) * (number % 2)
    place = torch.arange(len(mask))
    stages = tuple(int(n) // 6 % 4 if on else -1 for n, on in zip(place, mask, strict=True))
    return row(
        number,
        objective,
        group=group,
        ids=tuple(((number + 1) * 31 + place * 7 % 113).remainder(120).tolist()),
        loss_mask=mask,
        advantages=tuple((-1.0) ** (number + s) * (1 + s / 2) * on
                         for s, on in zip(stages, mask, strict=True)),
        behaviour_logprobs=tuple(-(3.0 + n % 4) * on for n, on in enumerate(mask)),
        stages=stages,
        weight=1 + number / 4,
    )  # fmt: skip


async def both(
    folder: Path, tiny: Path, rows: list[TrainRow], **settings: Any
) -> tuple[Trained, Trained]:
    made = []
    for engine in ("local", "trl"):
        config = config_of(folder, tiny, rows, **{"batch": 1, "out": engine, **settings})
        made.append(await train(config.model_copy(update={"engine": engine}), "ss-grpo", quiet))
    return made[0], made[1]


def same(local: Trained, trl: Trained, kind: str = "lora") -> None:
    assert len(local.steps) == len(trl.steps) == 5
    for wanted, found in zip(local.steps, trl.steps, strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-3)
        assert found["tokens"] == wanted["tokens"] and found["rate"] == wanted["rate"]
        ratios = [name for name in wanted if name.startswith(("sequence_ratio", "novelty"))]
        assert "sequence_ratio_above_100" in ratios
        for name in (*ratios, "sampler_gap"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-3), name
    losses = {round(step["loss"], 3) for step in local.steps}
    assert len(losses) > 3, "the steps differ, so that agreeing says something"
    one, other = (read_weights(run.checkpoint, kind) for run in (local, trl))
    assert one.keys() == other.keys()
    for name, weight in one.items():
        torch.testing.assert_close(other[name], weight, atol=2e-4, rtol=0)


async def test_adapters_by_trl_take_the_steps_of_local(tiny: Path, tmp_path: Path) -> None:
    local, trl = await both(tmp_path, tiny, uneven(), schedule="cosine", warmup=0.4)
    same(local, trl)
    assert trl.canary is not None and trl.canary.sound, "llama.cpp answers with what TRL trained"


TWO = {"passes": 2, "learning_rate": GENTLE}


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ({}, {**FULL, "weight_decay": 0.1, "micro_batch": 2}),
        ({"clip": [0.01, 0.02], "importance": "none", "dual_clip": 1.5, "reflect_weight": 0.3},
         TWO),
        ({"clip": [0.01, 0.02], "correction": "bypass", "importance": "none",
          "aggregation": "sequence-mean"}, TWO),
        ({"clip": [0.01, 0.02], "importance": "mask", "band": [0.1, 3.0],
          "aggregation": "stage-mean"}, TWO),
    ],
    ids=["all weights", "dual-clip", "bypass", "icepop"],
)  # fmt: skip
async def test_all_weights_and_each_objective_by_trl_take_the_steps_of_local(
    tiny: Path, tmp_path: Path, objective: dict[str, Any], settings: dict[str, Any]
) -> None:
    local, trl = await both(tmp_path, tiny, uneven(), objective=objective, **settings)
    same(local, trl, settings.get("adaptation", "lora"))
    clipped = max(step["clipped_high"] for step in local.steps) > 0
    assert clipped or not objective, "the ratio is clipped"


async def test_a_divergence_by_trl_is_from_where_the_training_began(
    tiny: Path, tmp_path: Path
) -> None:
    rows, more = uneven(), {"objective": {"beta": 5.0}, "learning_rate": GENTLE / 5}
    local, trl = await both(tmp_path, tiny, rows, **more)
    same(local, trl)
    started = {"start_adapter": str(local.checkpoint), "objective": {"beta": 0.5}}
    config = config_of(tmp_path, tiny, uneven((2,)), **started, engine="trl", out="on")
    again = await train(config, "ss-grpo", quiet)
    assert again.steps[0]["kl"] == 0, "the adapter that it began with is the reference"


async def test_a_changed_tool_token_changes_no_loss_by_trl(tiny: Path, tmp_path: Path) -> None:
    rows = uneven((2,))
    config = config_of(tmp_path, tiny, rows, engine="trl", out="one")
    first = await train(config, "ss-grpo", quiet)
    blind = [
        one.model_copy(
            update={
                name: tuple(v if on else 9.0 for v, on in zip(values, one.loss_mask, strict=True))
                for name, values in (
                    ("advantages", one.advantages),
                    ("behaviour_logprobs", one.behaviour_logprobs),
                )
            }
        )
        for one in rows
    ]
    config = config_of(tmp_path, tiny, blind, engine="trl", out="other")
    second = await train(config, "ss-grpo", quiet)
    assert second.steps[0]["loss"] == first.steps[0]["loss"]
    assert second.steps[0]["grad_norm"] == first.steps[0]["grad_norm"]


TRL = {"engine": "trl", "batch": 1}


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
        assert told[0].endswith(": continuing from step 1")
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
        ({"share_prefixes": True}, "each row whole"),
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


async def test_imitation_and_rows_of_another_tokenizer_are_refused_by_trl(
    tiny: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="sft is imitation"):
        await train(config_of(tmp_path, tiny, [row(0)], **TRL), "sft", quiet)
    strange = row(0, "policy", ids=(999,) * 24)
    with pytest.raises(SettingsError, match="of another tokenizer"):
        await train(config_of(tmp_path, tiny, [strange], **TRL), "ss-grpo", quiet)


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
    (tmp_path / "command.py").write_text("from rubricem.agent.cli import main\n\nmain()\n")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    command = (*torchrun, "command.py", "train", "ss-grpo", "two.toml")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CI": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (config.out / "metrics.jsonl").read_text().splitlines()
    for wanted, found in zip(alone.steps, map(json.loads, lines), strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-3)
