from pathlib import Path

import pytest

from memory.errors import SettingsError
from training.questions import read_questions
from training.run_directory import Question


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_text_file_has_one_question_a_line(tmp_path: Path):
    path = written(tmp_path, "q.txt", "What is one?\n\n  What is two?  \n")
    assert read_questions(path) == [
        Question(id="0", question="What is one?"), Question(id="1", question="What is two?"),
    ]  # fmt: skip


def test_json_lines_may_name_their_questions_and_what_they_ask_for(tmp_path: Path):
    lines = '{"question": "What is one?", "id": "first", "criteria": ["says 1"], "more": 2}\n'
    path = written(tmp_path, "q.jsonl", lines + '{"question": "What is two?"}')
    assert read_questions(path) == [
        Question(id="first", question="What is one?", criteria=("says 1",)),
        Question(id="1", question="What is two?"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.jsonl", '{"question": "a?"}\n{"text": "b"}', "line 2 of .*: question: Field required"),
        ("q.jsonl", "What?", "line 1 of .*Expecting value"),
        ("q.jsonl", "[1]", "line 1 of .*no JSON object"),
        ("q.jsonl", '{"question": " "}', "line 1 of .*no question"),
        ("q.txt", "\n \n", "holds no question"),
        ("q.txt", "x" * 20_001, "line 1 of .*20,001 characters"),
        ("q.csv", "What?", "not a .txt or .jsonl file"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, name: str, text: str, told: str):
    with pytest.raises(SettingsError, match=told):
        read_questions(written(tmp_path, name, text))


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path):
    with pytest.raises(SettingsError, match="cannot be read"):
        read_questions(tmp_path / "none.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_questions(tmp_path / "bad.txt")
