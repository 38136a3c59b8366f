"""TensorBoard's event files, read back by TensorBoard itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import main
from tests.train_rows import config_of, policy_rows, quiet, row
from training.local.checkpointing import TrainingFolder
from training.local.training_run import train
from training.watching.event_files import FOLDER, SUFFIX

pytestmark = pytest.mark.usefixtures("one_thread")


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By tag, the steps and values of all event files in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 0}, purge_orphaned_data=False)
    found.Reload()
    tags: list[str] = found.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in tags}


def kept(out: Path, name: str) -> list[tuple[int, Any]]:
    return [(line["step"], line[name]) for line in TrainingFolder(out).metrics()]


async def test_every_number_of_every_step_is_in_the_event_files(tiny: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, tiny, policy_rows(4), batch=1, tensorboard=True)
    await train(config, "ss-grpo", quiet)
    found, out = read(config.out / FOLDER), config.out
    last = TrainingFolder(out).metrics()[-1]
    assert set(found) == set(last) - {"step"}, "the names are those of metrics.jsonl"
    for name in ("loss", "grad_norm", "memory_peak", "padding_share"):
        assert found[name] == [(s, pytest.approx(v, rel=1e-6)) for s, v in kept(out, name)]
    assert [step for step, _ in found["loss"]] == [1, 2]


async def test_a_training_that_was_stopped_and_goes_on_has_no_step_twice(
    tiny: Path, tmp_path: Path
) -> None:
    rows = [row(n) for n in range(4)]
    config = config_of(tmp_path, tiny, rows, batch=1, tensorboard=True, save_every=2)

    class Stopped(Exception):
        pass

    def stop(event: Any) -> None:
        if getattr(event, "metrics", None) and event.number == 3:
            raise Stopped  # step 3 is done and not saved

    with pytest.raises(Stopped):
        await train(config, "sft", quiet, watch=stop)
    assert TrainingFolder(config.out).step() == 2
    await train(config, "sft", quiet)
    found = read(config.out / FOLDER)
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4]
    assert len(list((config.out / FOLDER).glob(f"*{SUFFIX}"))) == 1


async def test_a_finished_training_is_exported_and_other_peoples_files_stay(
    tiny: Path, tmp_path: Path
) -> None:
    config = config_of(tmp_path, tiny, [row(n) for n in range(2)], batch=1)
    await train(config, "sft", quiet)
    assert not (config.out / FOLDER).exists(), "it was not asked for"
    place = tmp_path / "board"
    place.mkdir()
    (place / "events.out.tfevents.1.other").write_bytes(b"")
    for _ in range(2):
        arguments = ["runs", "show", str(config.out), "--tensorboard", str(place)]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
    found = read(place)
    assert [step for step, _ in found["loss"]] == [1, 2], "twice exported is once there"
    assert (place / "events.out.tfevents.1.other").exists()


def test_rounds_are_exported_by_their_number_and_askings_under_a_name_of_their_own(tmp_path: Path):
    out = tmp_path / "out"
    (out / "held_out" / "002").mkdir(parents=True)
    (out / "run.json").write_text("{}")
    lines = [{"round": 1.0, "step": 1, "loss": 0.5}, {"round": 2.0, "loss": float("nan"), "x": 1}]
    (out / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    numbers = {"updates": 2, "reward/answer/mean": 0.25}
    (out / "held_out" / "002" / "numbers.json").write_text(json.dumps(numbers))
    show = ["runs", "show", str(out), "--tensorboard", str(tmp_path / "board")]
    assert CliRunner().invoke(main, show).exit_code == 0
    found = read(tmp_path / "board")
    assert found["loss"] == [(1, 0.5)], "what is no finite number is left out"
    assert found["x"] == [(2, 1.0)]
    assert found["held_out/reward/answer/mean"] == [(2, 0.25)]


def test_event_files_of_what_is_no_training_are_refused(tmp_path: Path):
    (tmp_path / "manifest.json").write_text("{}")
    show = ["runs", "show", f"{tmp_path}/", "--tensorboard", str(tmp_path / "board")]
    done = CliRunner().invoke(main, show)
    assert done.exit_code == 2 and "no folder of a training" in done.stderr
    assert not (tmp_path / "board").exists()
