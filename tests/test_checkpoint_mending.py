"""What a training goes on from where its newest checkpoint is not there any more."""

import shutil
from pathlib import Path

from training.local.checkpointing import TrainingFolder


def left_with(folder: Path, *steps: int) -> TrainingFolder:
    """A training's folder whose `last` is the highest step; its checkpoints list no files."""
    for step in steps:
        place = folder / "checkpoints" / f"{step:06d}"
        place.mkdir(parents=True)
        (place / "files.json").write_text("{}")
    (folder / "last").symlink_to(place.relative_to(folder))
    return TrainingFolder(folder)


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
