"""Tables of rows and trajectories: what is written is read back, value by value."""

import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Criterion, Judgement, Stage, StageScore, Usage, Verdict
from rubricem.training.local.local_config import read_rows
from rubricem.training.rows.forms import JudgedTrajectory
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.tables import read_dataset, read_parquet, write_dataset, write_parquet
from tests.conftest import ROOT
from tests.support.values import trajectory
from tests.training.rows.test_compile import ONE, TWO, rollout

pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
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


def test_rows_of_a_parquet_file_are_those_that_were_written(tmp_path: Path):
    assert write_parquet(tmp_path / "new" / "rows.parquet", ROWS, TrainRow) == 2
    assert read_parquet(tmp_path / "new" / "rows.parquet", TrainRow) == ROWS
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["rows.parquet"]


def test_trajectories_of_a_parquet_file_are_those_that_were_written(tmp_path: Path):
    write_parquet(tmp_path / "t.parquet", JUDGED, JudgedTrajectory)
    read = read_parquet(tmp_path / "t.parquet", JudgedTrajectory)
    assert read == JUDGED
    assert read[0].judgement and read[0].judgement.stages[1].score is None
    assert read[0].judgement.stages[2].score == 0.0
    assert read[0].segments[0].logprobs is None and read[2].segments[0].token_ids is None
    assert read[3].started_at == EAST and read[3].started_at.astimezone(UTC).microsecond == 678901


def test_a_dataset_holds_the_same(tmp_path: Path):
    pytest.importorskip("datasets", reason="the extra `data` is not installed")
    assert write_dataset(tmp_path / "rows", ROWS, TrainRow) == 2
    assert read_dataset(tmp_path / "rows", TrainRow) == ROWS
    write_dataset(tmp_path / "judged", JUDGED, JudgedTrajectory)
    assert read_dataset(tmp_path / "judged", JudgedTrajectory) == JUDGED


def test_what_is_no_number_stays_none(tmp_path: Path):
    odd = ROWS[0].model_copy(update={"behaviour_logprobs": (math.nan, -math.inf, 0.1 + 0.2)})
    write_parquet(tmp_path / "odd", [odd], TrainRow)
    import pyarrow.parquet

    (read,) = pyarrow.parquet.read_table(tmp_path / "odd")["behaviour_logprobs"].to_pylist()
    assert math.isnan(read[0]) and read[1:] == [-math.inf, 0.1 + 0.2]


def test_more_than_one_part_and_none_at_all(tmp_path: Path):
    many = [ROWS[0].model_copy(update={"id": str(n)}) for n in range(130)]
    assert write_parquet(tmp_path / "many", many, TrainRow) == 130
    assert [row.id for row in read_parquet(tmp_path / "many", TrainRow)] == [r.id for r in many]
    assert write_parquet(tmp_path / "none", [], TrainRow) == 0
    assert read_parquet(tmp_path / "none", TrainRow) == []


def test_a_table_of_an_older_schema_is_read_and_a_newer_one_refused(tmp_path: Path):
    import pyarrow.parquet

    write_parquet(tmp_path / "new", ROWS, TrainRow)
    table = pyarrow.parquet.read_table(tmp_path / "new")
    old = table.drop_columns(["schema_version", "prompt_tokens", "scaffolded_prompt"])
    pyarrow.parquet.write_table(old, tmp_path / "old")
    assert read_parquet(tmp_path / "old", TrainRow) == ROWS
    later = [row.model_copy(update={"schema_version": 9}) for row in ROWS]
    write_parquet(tmp_path / "later", later, TrainRow)
    with pytest.raises(StoreError, match="This TrainRow is of schema 9"):
        read_parquet(tmp_path / "later", TrainRow)


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
