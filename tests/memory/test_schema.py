"""Stored values of other schemas."""

import math
from pathlib import Path

import pytest

from rubricem.memory.errors import StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Value, Versioned, read
from tests.support.values import trajectory


class Third(Versioned):
    schema_version: int = 3
    told: float


class Plain(Value):
    told: float


def test_a_value_of_another_schema_is_refused_and_no_number_survives_json():
    assert read('{"schema_version": 3, "told": 2}', Third) == Third(told=2)
    for version in (1, 4):
        with pytest.raises(StoreError, match=rf"^This Third is of schema {version}, and schema 3"):
            read(f'{{"schema_version": {version}}}', Third)
    assert read('{"schema_version": 9, "told": 1}', Plain) == Plain(told=1)
    assert math.isnan(read(Plain(told=math.nan).model_dump_json(), Plain).told)
    assert read(Plain(told=-math.inf).model_dump_json(), Plain) == Plain(told=-math.inf)


def test_a_newer_trajectory_names_itself_wherever_it_is_read(tmp_path: Path):
    store = RunStore(tmp_path)
    kept = trajectory("An answer.").model_copy(update={"schema_version": 2})
    store.save(kept)
    with pytest.raises(StoreError, match="This Trajectory is of schema 2"):
        store.load(kept.thread)
