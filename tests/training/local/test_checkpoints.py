"""Checkpoints of the local engine: exact resume at every step, kills, damage."""

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.errors import SettingsError, StoreError, WeightsError
from rubricem.training.local import checkpoints
from rubricem.training.local.checkpoints import (
    Saved,
    TrainingFolder,
    fault,
    read_trainer,
    read_weights,
)
from rubricem.training.local.load import export_checkpoint
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.local.session import open_session
from rubricem.training.rounds.fit import Trained, train
from tests.conftest import ROOT
from tests.support.rows import config_of, lasting, policy_rows, quiet, row
from tests.support.waiting import Process
from tests.training.local.test_load import folder_of

SETTINGS = {"batch": 1, "epochs": 2, "schedule": "cosine", "objective": {"beta": 0.1}}
FULL = {"adaptation": "full", "rank": None, "alpha": None, "learning_rate": 0.001}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., TrainConfig]:
    """A run of four steps; of a folder, so that no canary row is compared."""
    folder_of(tmp_path / "base", "qwen2")

    def config(out: str, **settings: Any) -> TrainConfig:
        rows, settings = policy_rows(4), {**SETTINGS, "out": out, **settings}
        return config_of(tmp_path, Path("base"), rows, **settings)

    return config


async def interrupted(config: TrainConfig, step: int) -> None:
    """Train until a step is under way."""

    def interrupt(line: str) -> None:
        if line.startswith(f"step {step} of 4: row 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await train(config, "ss-grpo", interrupt)


def assert_alike(run: Trained, whole: Trained, adaptation: str = "lora") -> None:
    """To the last bit: weights, moments, random states, and what was measured."""
    ours, theirs = (read_weights(r.checkpoint, adaptation) for r in (run, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    mine, other = (read_trainer(r.checkpoint) for r in (run, whole))
    for number, state in other["optimizer"]["state"].items():
        moments = mine["optimizer"]["state"][number]
        assert all(torch.equal(moments[name], value) for name, value in state.items())
    assert torch.equal(mine["random"]["cpu"], other["random"]["cpu"])
    assert [lasting(m) for m in run.steps] == [lasting(m) for m in whole.steps]


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param(FULL, marks=pytest.mark.slow),
        pytest.param({"dtype": "bfloat16", **FULL}, marks=pytest.mark.slow),
        pytest.param({"save_every": 3}, marks=pytest.mark.slow),
    ],
)
async def test_a_run_stopped_in_any_step_ends_as_one_that_was_not(
    configured: Callable[..., TrainConfig], more: dict[str, Any]
) -> None:
    whole = await train(configured("whole", **more), "ss-grpo", quiet)
    config = configured("pieces", **more)
    for step in (1, 2, 3, 4):
        await interrupted(config, step)
    assert_alike(await train(config, "ss-grpo", quiet), whole, config.adaptation)
    assert [line["step"] for line in whole.steps] == [1, 2, 3, 4]


async def test_a_checkpoint_cut_short_is_passed_by_and_the_one_before_is_used(
    configured: Callable[..., TrainConfig],
) -> None:
    whole = await train(configured("whole"), "ss-grpo", quiet)
    config = configured("pieces")
    await interrupted(config, 4)
    cut = TrainingFolder(config.out).newest / "trainer.pt"
    cut.write_bytes(cut.read_bytes()[:1000])
    told: list[str] = []
    run = await train(config, "ss-grpo", told.append)
    assert "the checkpoint of step 3 is not whole (trainer.pt has 1,000 of " in told[0]
    assert told[0].endswith(": continuing from step 2")
    assert_alike(run, whole)


@pytest.mark.slow
async def test_without_any_whole_checkpoint_a_run_begins_anew(
    configured: Callable[..., TrainConfig],
) -> None:
    config = configured("pieces")
    await interrupted(config, 3)
    for place in (config.out / "checkpoints").iterdir():
        altered = place / "adapter_model.safetensors"
        altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    told: list[str] = []
    run = await train(config, "ss-grpo", told.append)
    assert "is not what was written" in told[0] and told[0].endswith("beginning anew")
    assert [line["step"] for line in run.steps] == [1, 2, 3, 4]


WRITER = """
import sys, torch
from pathlib import Path
from tests.training.local.test_checkpoints import saved
from rubricem.training.local.checkpoints import TrainingFolder
folder = TrainingFolder(Path(sys.argv[1]))
for step in range(1, 10_000):
    folder.save(saved(step, size=1_000_000))
"""


def saved(step: int, size: int = 10, **metrics: float) -> Saved:
    note = Checkpoint(
        base="b", base_sha256="", adapter_sha256="", method="sft", step=step, rank=1, alpha=1.0,
        served=False,
    )  # fmt: skip
    weights = {"w": torch.full((size,), float(step))}
    return Saved(note, weights, {"moment": weights["w"]}, {}, [{"step": step, **metrics}])


@pytest.mark.slow
def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WRITER, str(tmp_path))
    process = Process(command, cwd=ROOT)
    folder = TrainingFolder(tmp_path)
    while not _killed_in_the_middle(process, folder):
        assert process.poll() is None
        time.sleep(0.001)
    process.wait()
    step = folder.step()
    assert step >= 2 and folder.recover() == "", "the newest that is linked is whole"
    assert float(read_weights(folder.newest, "lora")["w"][0]) == step
    assert [line["step"] for line in folder.metrics()][-1] >= step
    assert list((tmp_path / "checkpoints").glob("*.part"))
    folder.save(saved(step + 1))
    assert folder.step() == step + 1 and not list((tmp_path / "checkpoints").glob("*.part"))
    assert [line["step"] for line in folder.metrics()] == list(range(1, step + 2))


def test_a_disk_that_is_full_in_the_middle_of_a_checkpoint_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TrainingFolder(tmp_path)
    folder.save(saved(1))

    def full(held: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.torch, "save", full)
        with pytest.raises(StoreError, match="No space left on device") as told:
            folder.save(saved(2))
    assert told.value.remedy
    assert folder.step() == 1 and not fault(folder.newest.resolve()) and folder.recover() == ""
    assert [line["step"] for line in folder.metrics()] == [1]
    folder.save(saved(2))
    assert folder.step() == 2 and not list((tmp_path / "checkpoints").glob("*.part"))


async def test_a_checkpoint_of_another_base_is_neither_gone_on_with_nor_begun_with_nor_merged(
    tmp_path: Path,
) -> None:
    folder_of(tmp_path / "base", "qwen2")
    trained = await train(config_of(tmp_path, Path("base"), [row(0)]), "sft", quiet)
    folder_of(tmp_path / "base", "qwen2", num_hidden_layers=1)
    with pytest.raises(SettingsError, match="with another base_sha256"):
        await train(config_of(tmp_path, Path("base"), [row(0)]), "sft", quiet)
    with pytest.raises(WeightsError, match="was trained on other weights than base"):
        await export_checkpoint(trained.checkpoint, tmp_path / "merged")
    begun = {"out": "other", "start_adapter": str(trained.checkpoint)}
    with pytest.raises(SettingsError, match="belongs to another model"):
        await train(config_of(tmp_path, Path("base"), [row(0)], **begun), "sft", quiet)
    assert not (tmp_path / "merged").exists() and not fault(trained.checkpoint.resolve())


def _killed_in_the_middle(process: "subprocess.Popen[bytes]", folder: TrainingFolder) -> bool:
    """Stop it, and kill it where a checkpoint is half written then."""

    def parts() -> list[Path]:
        return list((folder.folder / "checkpoints").glob("*.part"))

    if folder.step() < 2 or not parts():
        return False
    process.send_signal(signal.SIGSTOP)
    if parts() and fault(parts()[0]):
        process.send_signal(signal.SIGKILL)
        return True
    process.send_signal(signal.SIGCONT)
    return False


async def test_a_session_goes_on_where_its_caller_stood(
    configured: Callable[..., TrainConfig],
) -> None:
    config, told = configured("run"), list[str]()
    async with open_session(config, "ss-grpo", told.append) as session:
        session.step(policy_rows(2), 0.01)
        session.step(policy_rows(4), 0.01)
        session.save({"valid": 0.5}, place={"round": 1})
        expected = torch.rand(3)
    torch.rand(7)
    async with open_session(config, "ss-grpo", told.append) as session:
        assert (session.done, session.place) == (2, {"round": 1})
        session.step(policy_rows(2), 0.01)
        assert torch.equal(expected, torch.rand(3)), "the random state is that of the checkpoint"
        lines = session.folder.metrics()
    assert [line["step"] for line in lines] == [1, 2] and lines[1]["valid"] == 0.5
    assert "valid" not in lines[0]
    assert sum(line.startswith("reading") for line in told) == 2, "once for each session"


def test_a_copy_without_its_link_goes_on_and_one_that_followed_it_is_told_what_to_remove(
    tmp_path: Path,
) -> None:
    run = TrainingFolder(tmp_path)
    for step in (1, 2, 3):
        run.save(saved(step))
    run.newest.unlink()
    assert run.recover() == "" and run.step() == 3
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "000002", "000003",
    ]  # fmt: skip
    run.newest.unlink()
    shutil.copytree(tmp_path / "checkpoints" / "000003", run.newest)
    with pytest.raises(StoreError, match="is no link") as told:
        run.recover()
    assert "Remove it" in told.value.remedy


def test_a_checkpoint_is_in_its_place_only_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "000001").write_text("in the way")
    run = TrainingFolder(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        run.save(saved(1))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1]


async def test_a_run_of_ec15fe0e_is_refused_and_told_what_goes_on_with_it(tmp_path: Path) -> None:
    kept = ROOT / "tests" / "data" / "ec15fe0e" / "training"
    shutil.copytree(kept, tmp_path, symlinks=True, dirs_exist_ok=True)
    config = config_of(tmp_path, Path("base"), policy_rows(4), batch=1, epochs=2, rank=2, alpha=4.0)
    with pytest.raises(SettingsError, match="that another version of rubricem began") as told:
        await train(config, "ss-grpo", quiet)
    assert "ec15fe0e" in told.value.remedy
    begun = {"out": "on", "rank": 2, "alpha": 4.0, "start_adapter": str(tmp_path / "run" / "last")}
    on = await train(config_of(tmp_path, Path("base"), policy_rows(4), **begun), "ss-grpo", quiet)
    assert on.steps, "its checkpoints open"
