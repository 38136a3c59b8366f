"""Stored values of earlier and later schemas."""

import json
import math
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ValidationError

from rubricem.memory.errors import StoreError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Fields, Stage, Upgrade, Value, Versioned, read
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rounds.fit import read_rows
from rubricem.training.rows.row import TrainRow
from tests.conftest import ROOT
from tests.support.values import trajectory

OLD = ROOT / "tests" / "data" / "run_v1"


def renamed(fields: Fields) -> Fields:
    return {"told": fields["said"], **fields}


def doubled(fields: Fields) -> Fields:
    return {**fields, "told": fields["told"] * 2}


class Third(Versioned):
    upgrades: ClassVar[tuple[Upgrade, ...]] = (renamed, doubled)
    schema_version: int = 3
    told: float


class Plain(Value):
    told: float


def test_older_fields_go_through_every_upgrade_they_lack_and_newer_ones_are_refused():
    assert read('{"said": 2}', Third) == Third(told=4)
    assert read('{"schema_version": 1, "said": 2}', Third) == Third(told=4)
    assert read('{"schema_version": 2, "told": 2}', Third) == Third(told=4)
    assert read('{"schema_version": 3, "told": 2}', Third) == Third(told=2)
    with pytest.raises(StoreError, match=r"^This Third is of schema 4, and schemas up to 3 are"):
        read('{"schema_version": 4}', Third)
    assert read('{"schema_version": 9, "told": 1}', Plain) == Plain(told=1)
    again = read(Plain(told=math.nan).model_dump_json(), Plain)
    assert math.isnan(again.told)
    assert read(Plain(told=-math.inf).model_dump_json(), Plain) == Plain(told=-math.inf)


@pytest.mark.parametrize("text", ["?", "[]", '{"schema_version": "new"}', '{"schema_version": 3}'])
def test_what_is_no_such_value_is_told_by_validation(text: str):
    with pytest.raises(ValidationError):
        read(text, Third)


def test_a_run_of_version_1_is_read_as_it_was_written():
    run = RunDirectory(OLD)
    assert (run.manifest().schema_version, run.manifest().group_size) == (1, 2)
    assert run.manifest().scaffold is None
    (record,) = run.groups()
    assert [t.id for t in run.trajectories()] == list(record.trajectories)
    assert [j.score(Stage.ANSWER) for j in run.judgements()] == [0.0, 0.1]
    assert [c.accepted for c in run.reflections()] == [True]
    assert [q.question for q in run.questions()] == ["What is one?"]


def test_rows_of_version_1_are_given_the_length_of_their_prompt():
    first, second = read_rows([OLD])
    assert (first.schema_version, first.prompt_tokens) == (4, 12)
    assert bytes(first.ids[:12]) == bytes(second.ids[:12]) == b"What is one?"
    assert first.stages[11] == -1 and first.stages[12] == 0
    assert (first.scaffolded_prompt, first.recompute_logprobs) == ((), False)
    again = read(first.model_dump_json(), TrainRow)
    assert again == first


def test_a_reflection_row_of_version_1_begins_where_it_is_trained():
    fields = json.loads((OLD / "rows.jsonl").read_text().splitlines()[0])
    length = len(fields["ids"])
    fields |= {"stages": [-1] * length, "loss_mask": [0] * 20 + [1] * (length - 20)}
    assert read(json.dumps(fields), TrainRow).prompt_tokens == 20


def test_a_newer_trajectory_names_itself_wherever_it_is_read(tmp_path: Path):
    store = RunStore(tmp_path)
    kept = trajectory("An answer.").model_copy(update={"schema_version": 2})
    store.save(kept)
    with pytest.raises(StoreError, match="This Trajectory is of schema 2"):
        store.load(kept.thread)
