"""TRL and the local engine come to the same numbers from the same rows, five steps long."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train_rows import config_of, quiet, row
from training.local.checkpoint_files import read_weights
from training.local.training_run import Trained, train
from training.rows import Objective, TrainRow

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


async def test_all_weights_by_trl_take_the_steps_of_local(tiny: Path, tmp_path: Path) -> None:
    local, trl = await both(tmp_path, tiny, uneven(), **FULL, weight_decay=0.1, micro_batch=2)
    same(local, trl, "full")


@pytest.mark.parametrize(
    "objective",
    [
        {"importance": "none", "dual_clip": 1.5, "reflect_weight": 0.3},
        {"correction": "bypass", "importance": "none", "aggregation": "sequence-mean"},
        {"importance": "mask", "band": [0.1, 3.0], "aggregation": "stage-mean"},
    ],
    ids=["dual-clip", "bypass", "icepop"],
)
async def test_each_objective_by_trl_takes_the_steps_of_local(
    tiny: Path, tmp_path: Path, objective: dict[str, Any]
) -> None:
    objective = {"clip": [0.01, 0.02], **objective}
    more = {"passes": 2, "learning_rate": GENTLE}
    local, trl = await both(tmp_path, tiny, uneven(), objective=objective, **more)
    same(local, trl)
    assert max(step["clipped_high"] for step in local.steps) > 0, "the ratio is clipped"


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
