"""A training's lines and folder, and its numbers in a tracker."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.rounds.fit import train
from rubricem.training.show.console import (
    FOLDER,
    SUFFIX,
    Progress,
    open_progress,
)
from tests.support.collected import show
from tests.support.rows import config_of, quiet, row


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """By tag, the steps and values of all event files in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 0}, purge_orphaned_data=False)
    found.Reload()
    tags: list[str] = found.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in tags}


@pytest.mark.usefixtures("one_thread")
async def test_a_training_that_was_stopped_and_goes_on_has_every_number_once(
    tiny: Path, tmp_path: Path
) -> None:
    rows = [row(n) for n in range(4)]
    config = config_of(tmp_path, tiny, rows, batch=1, trackers=("tensorboard",), save_every=2)

    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        if line.startswith("step 3 of 4: loss"):
            raise Stopped  # step 3 is done and not saved

    with pytest.raises(Stopped):
        await train(config, "sft", stop)
    assert TrainingFolder(config.out).step() == 2
    await train(config, "sft", quiet)
    found, kept = read(config.out / FOLDER), TrainingFolder(config.out).metrics()
    assert set(found) == set(kept[-1]), "the names are those of metrics.jsonl"
    assert found["loss"] == [(line["step"], pytest.approx(line["loss"], rel=1e-6)) for line in kept]
    assert len(list((config.out / FOLDER).glob(f"*{SUFFIX}"))) == 1


def test_rounds_are_logged_by_their_number_and_askings_under_a_name_of_their_own(tmp_path: Path):
    out = tmp_path / "out"
    (out / "held_out" / "002").mkdir(parents=True)
    (out / "run.json").write_text('{"method": "ss-grpo", "model": "/home/me/tiny.gguf"}')
    lines = [{"round": 1.0, "step": 1, "loss": 0.5}, {"round": 2.0, "loss": float("nan"), "x": 1}]
    (out / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    numbers = {"updates": 2, "reward/answer/mean": 0.25}
    (out / "held_out" / "002" / "numbers.json").write_text(json.dumps(numbers))
    with open_progress(quiet, out, ("tensorboard",)) as progress:
        progress.held_out(3, {"reward/answer/mean": 0.5})
    found = read(out / FOLDER)
    assert found["loss"] == [(1, 0.5)], "what is no finite number is left out"
    assert found["held_out/reward/answer/mean"] == [(2, 0.25), (3, 0.5)]
    told = show(out).stdout
    assert told.startswith("ss-grpo, tiny.gguf\nround 2: ") and "/home/me" not in told
    assert json.loads(show(out, "--json").stdout)["steps"][0]["loss"] == 0.5


def test_that_nothing_was_scored_is_told_with_what_it_lacks():
    told: list[str] = []
    for metrics in ({"no_criteria_share": 1.0}, {"failed_share": 1.0}):
        Progress(told.append).held_out(0, metrics)
    assert [line.partition(": ")[2] for line in told] == [
        "none was scored, since no stage has criteria",
        "none was scored",
    ]


def test_an_online_tracker_gets_numbers_alone_and_ends_no_training_by_being_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    logged: list[Any] = []

    class Run:
        def log(self, metrics: dict[str, float], step: int) -> None:
            logged.append((metrics, step))
            raise OSError("away")

        def finish(self) -> None:
            logged.append("finished")

    class Module:
        @staticmethod
        def init(**told: Any) -> Run:
            logged.append(told["config"])
            return Run()

    monkeypatch.setitem(__import__("sys").modules, "trackio", Module)
    (tmp_path / "run.json").write_text('{"rank": 8, "model": "/home/me/w.gguf"}')
    with open_progress(quiet, tmp_path, ("trackio",)) as progress:
        progress.step(1, 2, {"loss": 0.5})
    assert logged == [{"rank": 8}, ({"loss": 0.5}, 1), "finished"]
