"""When the rows of a distilling stand: from the beginning of the training on them.

A pair whose teacher failed is asked about again by the next call, so that more rows may come. A
training goes on with the very rows that it began with, so from then on none is made, and what
the rows were made of is compared instead: OUT/distilled/made_of.json has it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judge.evaluation.labelled import Pair
from memory.errors import SettingsError
from memory.runs import write_atomically
from training.judge_training.config import DistilConfig, TeacherConfig
from training.judge_training.pairs import digest
from training.local.config import TrainConfig
from training.trained_numbers import object_of
from training.watching.kept import RECORD

MADE_OF = "made_of.json"


def made_of(config: TrainConfig, told: DistilConfig, pairs: Sequence[Pair]) -> dict[str, Any]:
    """What the rows follow from.

    Where a model that is named is served, and what the calls may cost, changes no row.
    """
    second = told.second_teacher
    return {
        "model": _placed(config.model, config.out),
        "judge": config.judge,
        "seed": config.seed,
        "distil.pairs": digest(pairs),
        "distil.teacher": _teacher(told.teacher, config.out),
        "distil.second_teacher": second and _teacher(second, config.out),
    }


def keep_made_of(config: TrainConfig, made: Mapping[str, Any]) -> None:
    """Beside the rows, before anybody trains on them."""
    write_atomically(_path(config), json.dumps(made, indent=1))


def stands(config: TrainConfig, made: Mapping[str, Any]) -> bool:
    """Whether the training on the rows has begun.

    Raises SettingsError where what has begun is the training on rows that are made of other things.
    """
    if not (config.out / RECORD).exists():
        return False
    if not (held := object_of(_path(config))):
        raise SettingsError(
            f"{config.out} holds a training, and nothing there tells what its rows were made of.",
            "Name another folder as `out`, or go on with it by `rubricem train` on its own rows.",
        )
    if other := [name for name in made if held.get(name) != made[name]]:
        raise SettingsError(
            f"{config.out} holds a training on rows of another {', '.join(other)}.",
            "Put those back to go on with it, or name another folder as `out`.",
        )
    return True


def _teacher(teacher: TeacherConfig, out: Path) -> dict[str, Any]:
    if teacher.model is None:
        return teacher.model_dump(mode="json")
    told = {"model": _placed(teacher.model, out), "served": teacher.base_url is not None}
    return {**told, "max_tokens": teacher.max_tokens}


def _placed(model: str, out: Path) -> str:
    """Where weights lie as seen from `out`, wherever that is; any other name as it stands."""
    is_path = model.lower().endswith(".gguf") or Path(model).is_dir()
    return os.path.relpath(model, out) if is_path else model


def _path(config: TrainConfig) -> Path:
    return config.rows[0].parent / MADE_OF
