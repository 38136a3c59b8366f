"""Two processes of torchrun take the steps of one: DDP and FSDP2, adapters and all weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rubricem.training.local.checkpoints import read_trainer, read_weights
from rubricem.training.local.local_config import TrainConfig, check_config
from rubricem.training.local.ranks import ALONE, Ranks
from rubricem.training.objective.batch import cut
from rubricem.training.rounds.fit import train
from tests.conftest import ROOT
from tests.programs.ranks import CASES, Steps, run_settings, steps, window
from tests.support.rows import policy_rows, quiet, row, written

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def two(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two processes did."""
    folder = tmp_path_factory.mktemp("ranks")
    written(folder / "rows.jsonl", policy_rows(6))
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    program = (str(ROOT / "tests" / "programs" / "ranks.py"), str(tiny), str(folder))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        (*torchrun, *program), env=environment, cwd=folder,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(two: Path, tiny: Path) -> None:
    theirs: Steps = json.loads((two / "steps.json").read_text())
    alone = steps(tiny, ALONE)
    for name in CASES:
        # Processors multiply bfloat16 by kernels of their own, which round by the shape.
        near = 5e-3 if "bfloat16" in name else 1e-5
        for ours, step in zip(alone[name], theirs[name], strict=True):
            assert step == pytest.approx(ours, rel=near, abs=near), name


@pytest.mark.slow
async def test_a_sharded_run_is_gone_on_with_by_one_process(two: Path, tiny: Path) -> None:
    """Its checkpoint is whole: weights, moments, llama.cpp's adapter; and it is the same run."""
    settings = run_settings(tiny)
    whole = await train(
        check_config({**settings, "out": "whole"}, two, TrainConfig), "ss-grpo", quiet
    )
    again = await train(
        check_config({**settings, "out": "sharded"}, two, TrainConfig), "ss-grpo", quiet
    )
    for ours, theirs in zip(whole.steps, again.steps, strict=True):
        assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-5, abs=1e-5)
        assert theirs["grad_norm"] == pytest.approx(ours["grad_norm"], rel=1e-5)
    mine, sharded = (read_weights(run.checkpoint, "lora") for run in (whole, again))
    assert all(float((mine[name] - sharded[name]).abs().max()) < 1e-4 for name in mine)
    moments = read_trainer(again.checkpoint)["optimizer"]["state"]
    shapes = sorted(tuple(state["exp_avg"].shape) for state in moments.values())
    assert shapes == sorted(tuple(weight.shape) for weight in mine.values())


@pytest.mark.slow
def test_processes_that_do_not_share_their_folder_are_told(two: Path) -> None:
    for rank, out in enumerate(("sharded", "elsewhere")):
        told = (two / f"refused{rank}").read_text(encoding="utf-8")
        assert "do not see the same step of the run in" in told and out in told


def test_ranks_have_equally_many_parts_and_silent_ones_to_fill_up() -> None:
    parts = cut(window(), 1)
    mine, others = (Ranks(rank, 2).share(parts) for rank in (0, 1))
    assert len(mine) == len(others) == 3
    filler = others[-1][0]
    assert not any(filler.loss_mask) and len(filler.ids) == 17, "the shortest row, nothing trained"
    real = [part[0].id for part in (*mine, *others) if any(part[0].loss_mask)]
    assert sorted(real) == [f"row{number}" for number in range(5)]
    one = [Ranks(rank, 2).share([[row(0)]])[0][0] for rank in (0, 1)]
    assert [any(part.loss_mask) for part in one] == [True, False]


def test_windows_are_cut_by_rows_of_a_length() -> None:
    rows = window()
    assert [len(part) for part in cut(rows, 2)] == [2, 2, 1]
    assert [part[0].id for part in cut(rows, 1)] == [r.id for r in rows]
