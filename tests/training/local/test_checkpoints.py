"""Checkpoints of the local engine: exact resume at every step, kills, damage, best and last.

What a training goes on from where its checkpoints or links are damaged, gone or copied.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec.core import url_to_fs
from fsspec.implementations.memory import MemoryFileSystem

from rubricem.agent.weights.checkpoints import Checkpoint
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import RubricBuffer
from rubricem.training.local.checkpoints import (
    Mirror,
    Saved,
    SteppedBank,
    TrainingFolder,
    fault,
    read_trainer,
    read_weights,
)
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.local.session import open_session
from rubricem.training.rounds.fit import Trained, train
from tests.conftest import ROOT
from tests.support.rows import config_of, lasting, policy_rows, quiet
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


@pytest.mark.parametrize("more", [{}, FULL, {"dtype": "bfloat16", **FULL}, {"save_every": 3}])
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
        base="b",
        base_sha256="",
        adapter_sha256="",
        method="sft",
        step=step,
        rank=1,
        alpha=1.0,
        served=False,
    )
    weights = {"w": torch.full((size,), float(step))}
    return Saved(note, weights, {"moment": weights["w"]}, {}, [{"step": step, **metrics}])


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WRITER, str(tmp_path))
    process = Process(command, cwd=ROOT)
    folder = TrainingFolder(tmp_path)
    while not _killed_in_the_middle(process, folder):
        assert process.poll() is None
        time.sleep(0.001)
    process.wait()
    step = folder.step()
    assert step >= 2 and folder.mend() == "", "the newest that is linked is whole"
    assert float(read_weights(folder.newest, "lora")["w"][0]) == step
    assert [line["step"] for line in folder.metrics()][-1] >= step
    assert list((tmp_path / "checkpoints").glob("*.part"))
    folder.save(saved(step + 1))
    assert folder.step() == step + 1 and not list((tmp_path / "checkpoints").glob("*.part"))
    assert [line["step"] for line in folder.metrics()] == list(range(1, step + 2))


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


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    folder = TrainingFolder(tmp_path)
    for step, score in enumerate((0.1, 0.9, 0.3, 0.9, 0.2), start=1):
        better = lambda now, best: now["score"] > best.get("score", -1.0)  # noqa: E731
        folder.save(saved(step, score=score), better=better)
    assert folder.best.resolve().name == "000002", "the first of equals"
    assert folder.newest.resolve().name == "000005"
    kept = sorted(place.name for place in (tmp_path / "checkpoints").iterdir())
    assert kept == ["000002", "000004", "000005"]


async def test_the_best_step_is_told_by_its_metric(
    configured: Callable[..., TrainConfig],
) -> None:
    config = configured("run", best_by="policy_loss", best_is="lowest")
    run = await train(config, "ss-grpo", quiet)
    losses = [line["policy_loss"] for line in run.steps]
    best = TrainingFolder(config.out).best
    assert int(best.resolve().name) == 1 + losses.index(min(losses))


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


def test_rubric_buffers_go_back_with_the_weights(tmp_path: Path) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    store, memory = BufferStore(data / "buffers"), SteppedBank(data)
    store.save(RubricBuffer(question="a", version=1))
    checkpoint.mkdir()
    memory.keep(checkpoint)
    store.save(RubricBuffer(question="a", version=2))
    store.save(RubricBuffer(question="b", version=1))
    memory.go_back(checkpoint)
    assert [(b.question, b.version) for b in store.all()] == [("a", 1)]
    assert json.loads((checkpoint / "bank" / "snapshot.json").read_text())["generation"] == 0


def left_with(folder: Path, *steps: int) -> TrainingFolder:
    """A training's folder whose `last` is the highest step; its checkpoints list no files."""
    for step in steps:
        place = folder / "checkpoints" / f"{step:06d}"
        place.mkdir(parents=True)
        (place / "files.json").write_text("{}")
    (folder / "last").symlink_to(place.relative_to(folder))
    return TrainingFolder(folder)


def higher(now: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
    return bool(now["score"] > best.get("score", -1.0))


def scored(folder: Path, *scores: float) -> TrainingFolder:
    """A training whose steps have these scores, the best of which is kept."""
    run = TrainingFolder(folder)
    for step, score in enumerate(scores, start=1):
        run.save(saved(step, score=score), better=higher)
    return run


def cut(run: TrainingFolder, *steps: int, file: str = "step.json") -> None:
    """Damage checkpoints."""
    for step in steps:
        path = run.folder / "checkpoints" / f"{step:06d}" / file
        path.write_bytes(path.read_bytes()[:10])


def kept(run: TrainingFolder) -> list[str]:
    return sorted(place.name for place in (run.folder / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("steps", "left", "told"), [((2, 3), 2, "continuing from step 2"), ((3,), 0, "beginning anew")]
)
def test_a_checkpoint_that_is_gone_costs_its_own_step_and_no_other(
    tmp_path: Path, steps: tuple[int, ...], left: int, told: str
) -> None:
    run = left_with(tmp_path, *steps)
    shutil.rmtree(tmp_path / "checkpoints" / "000003")
    assert run.mend() == f"the checkpoint of step 3 is missing: {told}"
    assert run.step() == left and run.mend() == "" and run.newest.is_symlink() is bool(left)


def test_what_a_run_that_begins_anew_writes_is_kept(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.2, 0.3, 0.4)
    cut(run, 3, 4)
    told = run.mend()
    assert "step.json has 10 of" in told and "it is now 000003.damaged" in told
    assert told.endswith(": beginning anew")
    for step in (1, 2, 3):
        run.save(saved(step))
        assert run.step() == step and run.mend() == ""
    assert kept(run) == ["000002", "000003", "000003.damaged", "000004.damaged"]


def test_what_is_written_after_going_back_to_the_best_is_kept(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.9, 0.3, 0.4, 0.5, 0.6)
    cut(run, 5, 6)
    assert run.mend().endswith("continuing from step 2")
    run.save(saved(3, score=0.2), better=higher)
    assert kept(run) == ["000002", "000003", "000005.damaged", "000006.damaged"]
    cut(run, 3)
    assert "it is now 000003.damaged" in run.mend()


def test_a_second_damaged_checkpoint_of_a_step_lies_beside_the_first(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.2)
    for _ in range(2):
        cut(run, 2)
        assert run.mend().endswith("continuing from step 1")
        run.save(saved(2))
    assert kept(run) == ["000001", "000002", "000002.damaged", "000002.damaged1"]


def test_a_run_that_somebody_took_back_keeps_what_it_writes(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.9, 0.1, 0.2, 0.3, 0.4)
    run.newest.unlink()
    run.newest.symlink_to("checkpoints/000001")
    assert run.mend() == "" and run.step() == 1
    run.save(saved(2, score=0.1), better=higher)
    assert kept(run) == ["000001", "000002", "000004", "000005"]


def test_a_copy_without_links_goes_on_from_its_newest_and_knows_its_best(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.9, 0.3, 0.4)
    run.newest.unlink()
    run.best.unlink()
    assert run.mend(higher) == (
        "last is no link to a checkpoint and best links to step 2 now: continuing from step 4"
    )
    assert (run.step(), run.best.resolve().name) == (4, "000002")
    run.save(saved(5, score=0.2), better=higher)
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5]


def test_a_copy_that_followed_links_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    scored(tmp_path / "run", 0.1, 0.9, 0.3, 0.4)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=False)
    run = TrainingFolder(tmp_path / "copy")
    assert run.step() == 0
    assert run.mend(higher) == (
        "last was no link (what it was is now last.copy) and "
        "best was no link (what it was is now best.copy): continuing from step 4"
    )
    assert (run.step(), run.best.resolve().name) == (4, "000002") and run.mend(higher) == ""
    run.save(saved(5, score=0.2), better=higher)
    assert kept(run) == ["000002", "000004", "000005"]


def test_a_followed_link_takes_the_place_of_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    scored(tmp_path / "run", 0.1, 0.2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=False)
    run = TrainingFolder(tmp_path / "copy")
    cut(run, 1, 2)
    shutil.rmtree(run.best)
    assert run.mend() == "last was no link: continuing from step 2"
    assert kept(run) == ["000001", "000002", "000002.damaged"] and run.newest.is_symlink()


def test_what_is_no_checkpoint_in_the_place_of_a_link_is_put_aside(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1)
    run.newest.unlink()
    run.newest.write_text("checkpoints/000001")
    assert run.mend() == (
        "last was no link (what it was is now last.copy) and "
        "last is no link to a checkpoint: continuing from step 1"
    )


def test_a_best_checkpoint_that_is_not_whole_is_told_and_another_one_chosen(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.9, 0.3, 0.2)
    cut(run, 2)
    told = run.mend(higher)
    assert told.startswith("best links to step 2: the checkpoint of step 2 is not whole (step.json")
    assert told.endswith(" and best links to step 3 now: continuing from step 4")
    run.save(saved(5, score=0.25), better=higher)
    assert run.best.resolve().name == "000003", "it is still better"


def test_a_best_checkpoint_damaged_while_training_fails_no_save(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.9, 0.3)
    cut(run, 2)
    run.save(saved(4, score=0.2), better=higher)
    assert run.best.resolve().name == "000004"


def test_without_a_judgement_a_best_that_is_gone_is_unlinked(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.9, 0.1, 0.2)
    shutil.rmtree(tmp_path / "checkpoints" / "000001")
    assert run.mend() == "best links to step 1, which is missing: continuing from step 3"
    assert not run.best.is_symlink() and run.mend() == ""


def test_a_checkpoint_is_in_its_place_only_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "000001").write_text("in the way")
    run = TrainingFolder(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        run.save(saved(1))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1]


async def test_another_machine_goes_on_from_the_mirror_and_ends_as_one_that_was_not_left(
    configured: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    whole = await train(configured("whole"), "ss-grpo", quiet)
    there = f"memory://{tmp_path}/run"
    await interrupted(configured("first", mirror=there), 3)
    told: list[str] = []
    second = await train(configured("second", mirror=there), "ss-grpo", told.append)
    assert any(line.endswith(f"were brought from {there}") for line in told)
    assert not any(line.startswith("step 2 of 4") for line in told), "nothing is done again"
    assert_alike(second, whole)
    store, root = url_to_fs(there)
    held = {name.removeprefix(f"{root}/") for name in store.find(root)}
    assert {"run.json", "metrics.jsonl", "checkpoints/000003/files.json"} <= held
    assert {name.split("/")[1] for name in held if "/" in name} == {"000003", "000004"}
    assert not {"lock", "last", "best"} & held
    with pytest.raises(StoreError, match=r"has step 4 of the run, and .* step 2: .* elsewhere"):
        await train(configured("first", mirror=there), "ss-grpo", quiet)


async def test_a_mirror_that_is_cut_off_in_a_checkpoint_gives_the_one_before(
    configured: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    there = f"memory://{tmp_path}/run"
    await interrupted(configured("first", mirror=there), 4)
    store, root = url_to_fs(there)
    store.rm_file(f"{root}/checkpoints/000003/files.json")
    told: list[str] = []
    await train(configured("second", mirror=there), "ss-grpo", told.append)
    assert any("continuing from step 2" in line for line in told)


def mirrored(there: str) -> dict[str, bytes]:
    store, root = url_to_fs(there)
    return {name.removeprefix(f"{root}/"): store.cat_file(name) for name in store.find(root)}


def test_a_step_that_is_done_again_takes_the_place_of_the_one_in_the_mirror(tmp_path: Path) -> None:
    run, there = scored(tmp_path / "run", 0.1), f"memory://{tmp_path}/run"
    (run.folder / "run.json").write_text("{}")
    first = Mirror(run.folder, there, quiet)
    first.send()
    for weight in (7.0, 8.0):
        again = saved(1, score=0.2)
        run.save(replace(again, weights={"w": torch.full((10,), weight)}), better=higher)
        mirror = first if weight == 7 else Mirror(run.folder, there, quiet)
        mirror.send()
        mirror.release()
        held, place = mirrored(there), run.folder / "checkpoints" / "000001"
        here = {f"checkpoints/000001/{p.name}": p.read_bytes() for p in place.iterdir()}
        assert {name: held[name] for name in here} == here


def test_what_an_earlier_session_has_copied_of_a_checkpoint_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, there = scored(tmp_path / "run", 0.1), f"memory://{tmp_path}/run"
    (run.folder / "run.json").write_text("{}")
    first, copied = Mirror(run.folder, there, quiet), list[str]()
    first.send()
    first.release()
    put, second = MemoryFileSystem.put_file, Mirror(run.folder, there, quiet)
    monkeypatch.setattr(
        MemoryFileSystem, "put_file",
        lambda store, path, place: (copied.append(Path(path).name), put(store, path, place)),
    )  # fmt: skip
    second.bring()
    second.send()
    assert sorted(copied) == ["README.md", "metrics.jsonl", "run.json"]


def test_a_checkpoint_that_is_not_whole_any_more_is_brought_from_the_mirror(tmp_path: Path) -> None:
    run, there, told = scored(tmp_path / "run", 0.1, 0.2), f"memory://{tmp_path}/run", list[str]()
    (run.folder / "run.json").write_text("{}")
    first = Mirror(run.folder, there, quiet)
    first.send()
    first.release()
    before = mirrored(there)
    cut(run, 1, 2)
    Mirror(run.folder, there, told.append).bring()
    assert run.mend() == "" and run.step() == 2
    assert float(read_weights(run.newest, "lora")["w"][0]) == 2
    assert "step 2 was not whole (step.json has 10 of" in told[-1] and "was brought" in told[-1]
    second = Mirror(run.folder, there, quiet)
    second.bring()
    second.send()
    second.release()
    assert mirrored(there).keys() == before.keys(), "it lets go of nothing"


async def test_two_sessions_do_not_train_out_of_one_mirror_whatever_their_clocks_say(
    configured: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rubricem.training.local.checkpoints.EXPIRED", 1.0)
    monkeypatch.setattr("rubricem.training.local.checkpoints.RENEWED", 0.2)
    there = f"memory://{tmp_path}/run"
    other = Mirror(tmp_path / "other", there, quiet)
    other.bring()
    ended = threading.Event()

    def renewing() -> None:
        while not ended.wait(0.05):
            other.renew()

    renewal = threading.Thread(target=renewing)
    renewal.start()
    try:
        with pytest.raises(StoreError, match=f"a session on .* trains with the mirror {there}"):
            await train(configured("run", mirror=there), "ss-grpo", quiet)
    finally:
        ended.set()
        renewal.join()
    # It was killed: nobody renews its lease, and after a while the mirror is anybody's.
    assert len((await train(configured("run", mirror=there), "ss-grpo", quiet)).steps) == 4
    store, root = url_to_fs(there)
    assert not store.exists(f"{root}/lease.json"), "who ends leaves it to others"
    mine, theirs = (Mirror(tmp_path / name, f"{there}2", quiet) for name in ("mine", "theirs"))
    mine.bring()
    theirs.bring()
    with pytest.raises(StoreError, match="has taken the mirror") as caught:
        mine.send()
    assert "Continue there" in caught.value.remedy


def test_the_lease_of_a_process_that_was_killed_here_is_not_waited_for(tmp_path: Path) -> None:
    there, child = f"file://{tmp_path}/run", os.fork()
    if not child:
        Mirror(tmp_path / "one", there, quiet).bring()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "run" / "lease.json").exists()
    began = time.monotonic()
    Mirror(tmp_path / "two", there, quiet).bring()
    assert time.monotonic() - began < 5


async def test_a_mirror_that_cannot_be_written_is_told_and_ends_nothing(
    configured: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    told: list[str] = []
    config = configured("run", mirror=f"file://{tmp_path}/file/run")
    done = await train(config, "ss-grpo", told.append)
    assert len(done.steps) == 4
    assert any("is behind: [Errno 20] Not a directory" in line for line in told)


async def test_a_mirror_that_is_none_is_told_before_anything_is_trained(
    configured: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("keep me")
    with pytest.raises(StoreError, match=r"/other holds files, and no run\."):
        await train(configured("run", mirror=f"file://{tmp_path}/other"), "ss-grpo", quiet)
    with pytest.raises(SettingsError, match=r"the mirror nowhere://run cannot be used: .*nowhere"):
        await train(configured("run", mirror="nowhere://run"), "ss-grpo", quiet)
    assert (tmp_path / "other" / "mine.txt").read_text() == "keep me"
