"""Tables of rows and trajectories: what is written is read back, value by value."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Criterion, Judgement, Stage, StageScore, Usage, Verdict
from rubricem.training.rounds.fit import read_rows
from rubricem.training.rows.compile import JudgedTrajectory
from rubricem.training.rows.forms import write_dataset, write_parquet
from rubricem.training.rows.row import TrainRow
from tests.conftest import ROOT
from tests.support.values import trajectory
from tests.training.rows.test_credit import ONE, TWO, rollout

parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `data` is not installed")
ROWS = read_rows([ROOT / "tests" / "data" / "run_v1"])
VERDICT = Verdict(
    criterion=Criterion(title="t", description='quotes "\u2028" and \U0001f600'), points=1.5
)
JUDGEMENT = Judgement(
    trajectory_id="one",
    judge="fake",
    stages=(
        StageScore(stage=Stage.PLAN, score=0.25, verdicts=(VERDICT,), components={"a.b": 0.5}),
        StageScore(stage=Stage.RESEARCH, score=None, unscored_reason="cut off"),
        StageScore(stage=Stage.ANSWER, score=0.0, missing=True, spread=0.1),
    ),
    usage=Usage(prompt_tokens=3, cost=None, calls=1),
)
EAST = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))


def judged(number: int, judgement: Judgement | None) -> JudgedTrajectory:
    bare = [ONE, TWO, trajectory("An answer."), rollout("east", started_at=EAST)][number]
    return JudgedTrajectory(
        **dict(bare), group="g", step=number, question_id="q", judgement=judgement
    )


JUDGED = [judged(0, JUDGEMENT), judged(1, None), judged(2, None), judged(3, JUDGEMENT)]


def values(table: Any, kind: type[Any]) -> list[Any]:
    """What lies in a table; a mapping is a JSON text there."""
    listed = table.to_pylist()
    for fields in listed:
        for stage in (fields.get("judgement") or {}).get("stages", ()):
            stage["components"] = json.loads(stage["components"])
    return [kind.model_validate(fields) for fields in listed]


def read_parquet(path: Path, kind: type[Any]) -> list[Any]:
    return values(parquet.read_table(path), kind)


def test_what_a_parquet_file_holds_is_what_was_written(tmp_path: Path):
    assert write_parquet(tmp_path / "new" / "rows.parquet", ROWS, TrainRow) == 2
    assert read_parquet(tmp_path / "new" / "rows.parquet", TrainRow) == ROWS
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["rows.parquet"]
    write_parquet(tmp_path / "t.parquet", JUDGED, JudgedTrajectory)
    read = read_parquet(tmp_path / "t.parquet", JudgedTrajectory)
    assert read == JUDGED
    assert read[0].judgement and read[0].judgement.stages[1].score is None
    assert read[0].judgement.stages[2].score == 0.0
    assert read[0].segments[0].logprobs is None and read[2].segments[0].token_ids is None
    assert read[3].started_at == EAST and read[3].started_at.astimezone(UTC).microsecond == 678901


def test_a_dataset_holds_the_same(tmp_path: Path):
    datasets = pytest.importorskip("datasets", reason="the extra `data` is not installed")
    assert write_dataset(tmp_path / "rows", ROWS, TrainRow) == 2
    rows = datasets.load_from_disk(str(tmp_path / "rows"))
    assert values(rows.data.table, TrainRow) == ROWS
    write_dataset(tmp_path / "judged", JUDGED, JudgedTrajectory)
    judged = datasets.load_from_disk(str(tmp_path / "judged"))
    assert values(judged.data.table, JudgedTrajectory) == JUDGED


def test_what_is_no_number_stays_none(tmp_path: Path):
    odd = ROWS[0].model_copy(update={"behaviour_logprobs": (math.nan, -math.inf, 0.1 + 0.2)})
    write_parquet(tmp_path / "odd", [odd], TrainRow)
    (read,) = parquet.read_table(tmp_path / "odd")["behaviour_logprobs"].to_pylist()
    assert math.isnan(read[0]) and read[1:] == [-math.inf, 0.1 + 0.2]


def test_more_than_one_part_and_none_at_all(tmp_path: Path):
    many = [ROWS[0].model_copy(update={"id": str(n)}) for n in range(130)]
    assert write_parquet(tmp_path / "many", many, TrainRow) == 130
    assert [row.id for row in read_parquet(tmp_path / "many", TrainRow)] == [r.id for r in many]
    assert write_parquet(tmp_path / "none", [], TrainRow) == 0
    assert read_parquet(tmp_path / "none", TrainRow) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SettingsError, match="exists already"):
        write_dataset(tmp_path / "mine", ROWS, TrainRow)
    assert (tmp_path / "mine").read_text() == "x"


def test_a_table_that_breaks_off_leaves_the_one_before(tmp_path: Path):
    write_parquet(tmp_path / "t", ROWS, TrainRow)

    def failing():
        yield ROWS[0]
        raise StoreError("The disk is full.")

    with pytest.raises(StoreError, match="full"):
        write_parquet(tmp_path / "t", failing(), TrainRow)
    assert read_parquet(tmp_path / "t", TrainRow) == ROWS
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be used"):
        write_parquet(tmp_path / "file" / "t.parquet", ROWS, TrainRow)


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\r"])
def test_a_row_is_one_line_whatever_stands_in_its_names(mark: str, tmp_path: Path):
    rows = [ROWS[0].model_copy(update={"group": f"one{mark}group"}), ROWS[1]]
    (tmp_path / "rows.jsonl").write_bytes(
        "".join(f"{r.model_dump_json()}\n" for r in rows).encode()
    )
    assert read_rows([tmp_path]) == rows
    (tmp_path / "rows.jsonl").write_text("")
    assert read_rows([tmp_path]) == []


def test_groups_of_two_files_that_are_called_alike_are_two(tmp_path: Path):
    lines = [row.model_dump_json() for row in ROWS]
    other = [r.model_copy(update={"id": f"{r.id}'"}).model_dump_json() for r in ROWS]
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, written in zip(paths, (lines, other), strict=True):
        path.write_text("\n".join(written) + "\n", encoding="utf-8")
    found, groups = read_rows(paths), {row.group for row in ROWS}
    assert found[: len(ROWS)] == ROWS
    assert {row.group for row in found[len(ROWS) :]} == {f"1:{group}" for group in groups}
