"""What a training goes on from where its checkpoints or links are damaged, gone or copied."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memory.errors import StoreError
from tests.test_local_checkpoints import saved
from training.local.checkpointing import TrainingFolder


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


def test_a_checkpoint_that_is_gone_costs_its_own_step_and_no_other(tmp_path: Path) -> None:
    run = left_with(tmp_path, 2, 3)
    shutil.rmtree(tmp_path / "checkpoints" / "000003")
    assert run.mend() == "the checkpoint of step 3 is missing: going on from step 2"
    assert run.step() == 2 and run.mend() == ""


def test_with_none_left_a_training_says_that_it_begins_anew(tmp_path: Path) -> None:
    run = left_with(tmp_path, 3)
    shutil.rmtree(tmp_path / "checkpoints" / "000003")
    assert run.mend() == "the checkpoint of step 3 is missing: beginning anew"
    assert run.step() == 0 and not run.newest.is_symlink()


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
    assert run.mend().endswith("going on from step 2")
    run.save(saved(3, score=0.2), better=higher)
    assert kept(run) == ["000002", "000003", "000005.damaged", "000006.damaged"]
    cut(run, 3)
    assert "it is now 000003.damaged" in run.mend()


def test_a_second_damaged_checkpoint_of_a_step_lies_beside_the_first(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.2)
    for _ in range(2):
        cut(run, 2)
        assert run.mend().endswith("going on from step 1")
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
        "last is no link to a checkpoint and best links to step 2 now: going on from step 4"
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
        "best was no link (what it was is now best.copy): going on from step 4"
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
    assert run.mend() == "last was no link: going on from step 2"
    assert kept(run) == ["000001", "000002", "000002.damaged"] and run.newest.is_symlink()


def test_what_is_no_checkpoint_in_the_place_of_a_link_is_put_aside(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1)
    run.newest.unlink()
    run.newest.write_text("checkpoints/000001")
    assert run.mend() == (
        "last was no link (what it was is now last.copy) and "
        "last is no link to a checkpoint: going on from step 1"
    )


def test_a_best_checkpoint_that_is_not_whole_is_told_and_another_one_chosen(tmp_path: Path) -> None:
    run = scored(tmp_path, 0.1, 0.9, 0.3, 0.2)
    cut(run, 2)
    told = run.mend(higher)
    assert told.startswith("best links to step 2: the checkpoint of step 2 is not whole (step.json")
    assert told.endswith(" and best links to step 3 now: going on from step 4")
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
    assert run.mend() == "best links to step 1, which is missing: going on from step 3"
    assert not run.best.is_symlink() and run.mend() == ""


def test_a_checkpoint_is_in_its_place_only_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "000001").write_text("in the way")
    run = TrainingFolder(tmp_path)
    with pytest.raises(StoreError, match="cannot be used"):
        run.save(saved(1))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1]
