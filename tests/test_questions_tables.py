"""Questions from CSV, Parquet and datasets, and what is wrong with such tables."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory.errors import SettingsError
from tests.conftest import ROOT
from training.questions import question_of, read_rows
from training.questions_rows import Row
from training.run_directory import Question


def csv_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "q.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def parquet_of(tmp_path: Path, **columns: Sequence[Any]) -> str:
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "q.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def saved_dataset(tmp_path: Path, *splits: str) -> str:
    import datasets

    datasets.disable_progress_bars()
    asked = {"question": ["What is one?", "What is two?"], "level": ["easy", "hard"]}
    one = datasets.Dataset.from_dict(asked)
    made = datasets.DatasetDict(dict.fromkeys(splits, one)) if splits else one
    made.save_to_disk(str(tmp_path / "saved"))
    return str(tmp_path / "saved")


def asked(named: str, column: str = "question") -> list[Question]:
    return [question_of(row, column) for row in read_rows(named, column)]


def test_csv_rows_have_the_columns_of_the_first_line(tmp_path: Path):
    path = csv_of(
        tmp_path,
        '\ufeffid, question ,level\r\nq1,"What is ""one"",\r\nexactly?",easy\r\n\r\n'
        "q2,What is two?,hard\r\n",
    )
    rows = read_rows(path)
    assert [question_of(row) for row in rows] == [
        Question(id="q1", question='What is "one",\r\nexactly?'),
        Question(id="q2", question="What is two?"),
    ]
    assert rows[1].place == f"line 5 of {path}"
    assert rows[0].fields["level"] == "easy"


def test_criteria_stand_in_a_csv_cell_as_json(tmp_path: Path):
    path = tmp_path / "q.csv"
    path.write_text('question,criteria\na?,"[""says a"", ""says b""]"\nb?,\n')
    assert [question_of(row).criteria for row in read_rows(str(path))] == [("says a", "says b"), ()]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no question"),
        ("question\n", "holds no question"),
        ("id,text\n1,What?\n", "line 1 of .* has no 'question'; it has id, text"),
        ("id,question\n1,What?\n2\n", "line 3 of .* has 1 cells instead of 2"),
        ("question\nWhat?\nThis, that?\n", "line 3 of .* has 2 cells instead of 1"),
        ('question\nWhat?\n"half-writ', "line 3 of .* is malformed: unexpected end"),
        ("id,question\n1,\n", "line 2 of .*no question"),
        ("question\n" + "x" * 20_001, "line 2 of .*20,001 characters"),
    ],
)
def test_a_wrong_csv_file_is_told_with_its_line(tmp_path: Path, text: str, told: str):
    with pytest.raises(SettingsError, match=told) as raised:
        asked(csv_of(tmp_path, text))
    assert raised.value.remedy


def test_parquet_columns_are_read_as_they_are(tmp_path: Path):
    path = parquet_of(
        tmp_path, problem=["What is one?", "What is two?"], id=[4, 5], criteria=[["says 1"], []],
        picture=[b"png", b"png"],
    )  # fmt: skip
    assert asked(path, "problem") == [
        Question(id="4", question="What is one?", criteria=("says 1",)),
        Question(id="5", question="What is two?"),
    ]
    assert "picture" not in read_rows(path, "problem")[0].fields


def test_a_wrong_parquet_file_is_told(tmp_path: Path):
    path = parquet_of(tmp_path, text=["What?"])
    with pytest.raises(SettingsError, match="has no 'question'; it has text"):
        asked(path)
    with pytest.raises(SettingsError, match=r"row 2 of .* its question is empty instead of a text"):
        asked(parquet_of(tmp_path, question=["What?", None]))
    whole = Path(path).read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"question\nWhat?"):
        Path(path).write_bytes(damaged)
        with pytest.raises(SettingsError, match="is no whole Parquet file: "):
            asked(path)


@pytest.mark.parametrize("splits", [(), ("train", "test"), ("only",)])
def test_a_folder_that_datasets_saved_is_read(tmp_path: Path, splits: tuple[str, ...]):
    folder = saved_dataset(tmp_path, *splits)
    rows: list[Row] = read_rows(folder)
    assert [question_of(row).question for row in rows] == ["What is one?", "What is two?"]
    assert rows[1].fields["level"] == "hard" and rows[1].place == f"row 2 of {folder}"


def test_the_split_of_a_dataset_can_be_named(tmp_path: Path):
    folder = saved_dataset(tmp_path, "dev", "test")
    assert len(read_rows(f"hf:{folder}:test")) == 2
    with pytest.raises(SettingsError, match="no split 'train'; it has dev, test") as raised:
        read_rows(folder)
    assert f"hf:{folder}:SPLIT" in raised.value.remedy
    with pytest.raises(SettingsError, match="has no 'problem'; it has question, level"):
        read_rows(f"hf:{folder}:dev", "problem")


def test_a_folder_that_is_no_dataset_is_told(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"cannot be had: Directory .* is neither"):
        read_rows(str(tmp_path))


READ = "from training.questions import read_rows\nread_rows({!r})"


def told_by(code: str, **environment: str) -> str:
    """The last line that another process ends with: these settings are read at import."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_a_dataset_that_cannot_be_had_is_told(tmp_path: Path):
    told = told_by(READ.format("hf:no/such:dev"), HF_HUB_OFFLINE="1", HOME=str(tmp_path))
    assert "SettingsError: The dataset 'no/such' cannot be had: Couldn't reach" in told


@pytest.mark.parametrize(("named", "needs"), [("q.parquet", "pyarrow"), ("hf:a/b", "datasets")])
def test_a_reader_that_is_not_installed_is_told(tmp_path: Path, named: str, needs: str):
    absent = f"import sys\nsys.modules[{needs!r}] = None\n"
    told = told_by(absent + READ.format(named), HOME=str(tmp_path))
    assert f"SettingsError: This needs {needs}, which is not installed." in told
