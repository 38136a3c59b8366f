"""^C during a training: the step under way is saved, and the same command goes on."""

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.rounds_parts import Parts
from tests.test_local_training import ROOT
from tests.train_rows import config_of, policy_rows, quiet, row, written
from tests.waiting import Process, wait_for
from training.flow import RunStopped
from training.local.checkpoint_files import read_weights
from training.local.checkpointing import TrainingFolder
from training.local.training_run import train
from training.rounds.updating import Metrics
from training.rows import TrainRow
from training.watching.events import Event, StepTaken, Watch

pytestmark = pytest.mark.usefixtures("one_thread")
COMMAND = (sys.executable, "-c", "from agent.cli import main; main()", "train", "sft")


def stopping(stop: asyncio.Event, step: int, told: list[int]) -> Watch:
    """Who watches, and has the training stopped while the step after that one goes on."""

    def watch(event: Event) -> None:
        if isinstance(event, StepTaken):
            told.append(event.number)
            if event.number == step:
                stop.set()

    return watch


@pytest.mark.parametrize("engine", ["local", "trl"])
async def test_the_step_under_way_is_saved_and_the_rest_comes_later(
    tiny: Path, tmp_path: Path, engine: str
) -> None:
    rows = policy_rows(8)
    settings = {"batch": 1, "engine": engine, "save_every": 100}
    whole = await train(config_of(tmp_path, tiny, rows, **settings), "ss-grpo", quiet)
    config = config_of(tmp_path, tiny, rows, **settings, out="pieces")
    stop, told = asyncio.Event(), list[int]()
    with pytest.raises(RunStopped, match="its first 2 of 4 steps are saved") as stopped:
        await train(config, "ss-grpo", quiet, watch=stopping(stop, 1, told), stop=stop)
    assert stopped.value.by_person and told == [1, 2]
    assert TrainingFolder(config.out).step() == 2
    pieces = await train(config, "ss-grpo", quiet)
    one, other = (read_weights(run.checkpoint, "lora") for run in (whole, pieces))
    assert all(one[name].equal(other[name]) for name in one)
    assert len(pieces.steps) == 4


async def test_a_training_that_is_stopped_before_its_first_step_takes_none(
    tiny: Path, tmp_path: Path
) -> None:
    stop = asyncio.Event()
    stop.set()
    config = config_of(tmp_path, tiny, policy_rows(2))
    with pytest.raises(RunStopped, match="its first 0 of 1 steps are saved"):
        await train(config, "ss-grpo", quiet, stop=stop)
    assert not TrainingFolder(config.out).metrics()


async def test_a_training_that_is_cancelled_ends_with_its_step(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, [row(n) for n in range(8)], batch=1, epochs=50)
    told: list[str] = []
    task = asyncio.ensure_future(train(config, "sft", told.append))
    while not any(line.startswith("step 3 of") for line in told):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    saved = TrainingFolder(config.out).step()
    assert 3 <= saved < 400
    await asyncio.sleep(0.2)
    assert TrainingFolder(config.out).step() == saved, "nothing goes on behind"


def begun(folder: Path, log: IO[str]) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = Process((*COMMAND, folder / "train.toml"), env=environment, stderr=log)
    out = TrainingFolder(folder / "out")
    wait_for(lambda: out.step() >= 1 or process.poll() is not None)
    assert process.poll() is None
    return process


def test_the_command_ends_by_one_interruption_and_leaves_its_folder_free(
    tiny: Path, tmp_path: Path
) -> None:
    rows = written(tmp_path / "rows.jsonl", [row(n) for n in range(8)])
    settings = {"out": "out", "rows": [str(rows)], "model": str(tiny), "batch": 1, "epochs": 500,
                "rank": 4, "threads": 1, "dtype": "float32"}  # fmt: skip
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (tmp_path / "train.toml").write_text(text, encoding="utf-8")
    with (tmp_path / "log").open("w+") as log:
        process = begun(tmp_path, log)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        log.seek(0)
        said = log.read()
    assert "Finishing the step under way; ^C again stops at once." in said
    assert "are saved. The same command goes on" in said and "Traceback" not in said
    saved = TrainingFolder(tmp_path / "out").step()
    assert [line["step"] for line in TrainingFolder(tmp_path / "out").metrics()][-1] == saved
    with (tmp_path / "out" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "log").open("w+") as log:
        process = begun(tmp_path, log)
        out = TrainingFolder(tmp_path / "out")
        wait_for(lambda: out.step() > saved)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


async def test_rounds_that_are_stopped_in_an_update_keep_it(tmp_path: Path) -> None:
    stop, parts = asyncio.Event(), Parts(tmp_path, 3)
    loop, train_rows = asyncio.get_running_loop(), parts.updates.update

    def update(rows: Sequence[TrainRow]) -> Metrics:
        if rows:
            loop.call_soon_threadsafe(stop.set)
            time.sleep(0.3)
        return train_rows(rows)

    parts.updates.update = update  # type: ignore[method-assign]
    with pytest.raises(RunStopped, match="interrupted"):
        await parts.rounds(stop).run()
    assert parts.updates.done == 1, "the first update was under way"
    parts = Parts(tmp_path, 3)
    await parts.rounds().run()
    assert parts.updates.done == 3
