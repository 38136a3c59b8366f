"""Questions from lines and JSON lines, and what is wrong with a file of them."""

from pathlib import Path

import pytest

from memory.errors import SettingsError
from training.questions import question_of, read_rows
from training.run_directory import Question


def written(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(named: str, column: str = "question") -> list[Question]:
    return [question_of(row, column) for row in read_rows(named, column)]


def test_a_text_file_has_one_question_a_line(tmp_path: Path):
    path = written(tmp_path, "q.txt", "\ufeffWhat is one?\n\n  What is two?  \r\n")
    assert read(path) == [
        Question(id="0", question="What is one?"), Question(id="1", question="What is two?"),
    ]  # fmt: skip


def test_json_lines_may_name_their_questions_and_what_they_ask_for(tmp_path: Path):
    lines = '{"question": "What is one?", "id": "first", "criteria": ["says 1"], "more": 2}\n'
    path = written(tmp_path, "q.jsonl", lines + '{"question": "What is two?", "id": 7}\n'
                   '{"question": "What is three?"}')  # fmt: skip
    assert read(path) == [
        Question(id="first", question="What is one?", criteria=("says 1",)),
        Question(id="7", question="What is two?"),
        Question(id="2", question="What is three?"),
    ]


def test_criteria_that_no_encoding_can_write_are_stored_without_what_cannot(tmp_path: Path):
    path = written(tmp_path, "q.jsonl", '{"question": "a?", "criteria": ["says \\ud800"]}')
    assert read(path)[0].criteria == ("says \ufffd",)


def test_the_column_of_questions_can_be_another(tmp_path: Path):
    path = written(tmp_path, "q.jsonl", '{"problem": "What is one?", "question": 3}')
    assert read(path, "problem") == [Question(id="0", question="What is one?")]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.jsonl", '{"question": "a?"}\n{"text": "b"}', "line 2 of .* has no 'question'; .*text"),
        ("q.jsonl", "What?", "line 1 of .* is no JSON object: Expecting value at"),
        ("q.jsonl", '{"question": "a?"}\n\n{"question": "hal', "line 3 of .*Unterminated string"),
        ("q.jsonl", "[1]", "line 1 of .*no JSON object"),
        ("q.jsonl", "[" * 100_000, "line 1 of "),
        ("q.jsonl", '{"question": " "}', "line 1 of .*no question"),
        ("q.jsonl", '{"question": null}', "line 1 of .*its question is empty instead of a text"),
        ("q.jsonl", '{"question": 3}', "line 1 of .*its question is a number instead of a text"),
        (
            "q.jsonl",
            '{"question": "a?", "criteria": "b"}',
            "line 1 of .*: its criteria are no list of texts",
        ),
        ("q.txt", "\n \n", "holds no question"),
        ("q.txt", "", "holds no question"),
        ("q.txt", "a?\n" + "x" * 20_001, "line 2 of .*20,001 characters"),
        ("q.jsonl", '{"question": ["a?"]}', "its question is a list or an object instead"),
        ("q.jsonl", '{"question": "a?", "criteria": [1]}', "its criteria are no list of texts"),
        ("q.doc", "What?", "not a .txt, .jsonl, .csv or .parquet file"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_a_remedy(
    tmp_path: Path, name: str, text: str, told: str
):
    with pytest.raises(SettingsError, match=told) as raised:
        read(written(tmp_path, name, text))
    assert raised.value.remedy and len(str(raised.value)) < 400


def test_a_suffix_in_capitals_is_the_same(tmp_path: Path):
    path = written(tmp_path, "Q.JSONL", '{"question": "What is one?"}')
    assert read(path) == [Question(id="0", question="What is one?")]


@pytest.mark.parametrize(
    ("named", "told"), [("", "What is named is not a .txt"), ("hf:", "'hf:' names no dataset")]
)
def test_a_name_that_is_empty_is_told(named: str, told: str):
    with pytest.raises(SettingsError, match=told) as raised:
        read(named)
    assert "hf:org/name" in raised.value.remedy


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read(str(tmp_path / "none.txt"))


@pytest.mark.parametrize("name", ["bad.txt", "bad.jsonl", "bad.csv"])
def test_another_encoding_is_told_with_its_line(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes("\nfür?".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"line 2 of .* no UTF-8: byte 0xfc at 1"):
        read(str(tmp_path / name))
    (tmp_path / name).write_bytes("question\nWhat?".encode("utf-16"))
    with pytest.raises(SettingsError, match=r"line 1 of .* no UTF-8: byte 0xff at 0"):
        read(str(tmp_path / name))
