"""Which questions are asked: filters, duplicates, the held-out split, and what is recorded."""

import json
from pathlib import Path

import pytest

from memory.errors import SettingsError
from training.questions_rows import Row
from training.questions_selecting import Filter, is_held_out, normal, select_questions
from training.selection import Selection


def written(tmp_path: Path, *rows: dict[str, object]) -> str:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def texts(tmp_path: Path, *rows: dict[str, object], **chosen: object) -> list[str]:
    selected = select_questions(written(tmp_path, *rows), **chosen)  # type: ignore[arg-type]
    return [question.question for question in selected.questions]


def test_duplicates_are_told_by_their_words_and_the_first_stands(tmp_path: Path):
    selected = select_questions(
        written(
            tmp_path,
            {"question": "What is one?"},
            {"question": "WHAT  is\none? "},
            {"question": "What is two?"},
            {"question": "What is one?"},
        )
    )
    assert [q.question for q in selected.questions] == ["What is one?", "What is two?"]
    assert [q.id for q in selected.questions] == ["0", "2"], "called by its row"
    assert selected.selection == Selection(read=4, filtered=0, duplicates=2, held_out=0)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("level=hard", ["Two?"]),
        ("level = HARD", ["Two?"]),
        ("level!=hard", ["One?", "Three in all?"]),
        ("year>=2020", ["Two?", "Three in all?"]),
        ("year<=2020", ["One?", "Two?"]),
        ("year=2020.0", ["Two?"]),
        ("length<=4", ["One?", "Two?"]),
        ("open=true", ["One?"]),
    ],
)
def test_a_filter_is_a_condition_on_a_field(tmp_path: Path, condition: str, kept: list[str]):
    rows: tuple[dict[str, object], ...] = (
        {"question": "One?", "level": "easy", "year": 2019, "open": True},
        {"question": "Two?", "level": "hard", "year": "2020"},
        {"question": "Three in all?", "year": 2021.5},
    )
    assert texts(tmp_path, *rows, filters=[condition]) == kept


def test_all_filters_must_hold_and_are_applied_before_a_question_is_checked(tmp_path: Path):
    rows: tuple[dict[str, object], ...] = (
        {"question": "x" * 30_000, "level": "easy"},
        {"question": "One?", "level": "easy"},
        {"question": "Two?", "level": "hard"},
    )
    assert texts(tmp_path, *rows, filters=["level=easy", "length<=20000"]) == ["One?"]


def test_a_column_called_length_goes_before_the_questions_own():
    row = Row(0, "line 1", {"question": "One?", "length": 900})
    assert not Filter.parse("length<=100").holds(row, "question")


@pytest.mark.parametrize("text", ["level", "=hard", "year<=soon", "length>=", ""])
def test_what_is_no_condition_is_told(text: str):
    with pytest.raises(SettingsError, match="is no condition on a field"):
        Filter.parse(text)


def test_a_field_that_no_row_has_is_told(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"No row of .* has a field 'levl'") as raised:
        texts(tmp_path, {"question": "One?", "level": "easy"}, filters=["levl=easy"])
    assert "level, question" in raised.value.remedy


def test_nothing_left_to_ask_is_told_with_the_counts(tmp_path: Path):
    with pytest.raises(SettingsError, match="is left to ask: 1 questions read, 1 filtered out"):
        texts(tmp_path, {"question": "One?", "level": "easy"}, filters=["level=hard"])


def test_a_question_is_held_out_by_its_words_whatever_else_is_asked(tmp_path: Path):
    rows = [{"question": f"What is {n}?"} for n in range(400)]
    whole = select_questions(written(tmp_path, *rows), held_out=0.1)
    part = select_questions(written(tmp_path, *rows[::-2]), held_out=0.1)
    more = select_questions(written(tmp_path, *rows), held_out=0.3)
    held = {q.question for q in whole.held_out}
    assert 20 <= len(held) <= 60, "some 40 of 400"
    assert held.isdisjoint(q.question for q in whole.questions)
    assert len(whole.questions) + len(held) == 400
    assert {q.question for q in part.held_out} == held & {r["question"] for r in rows[::-2]}
    assert held < {q.question for q in more.held_out}
    assert whole.selection is not None
    assert (whole.selection.held_out, whole.selection.held_out_share) == (len(held), 0.1)


def test_the_hash_of_a_known_question_stays_what_it_is():
    # sha256("what is one?") begins 50 b7, 0.315 of the way.
    share = 0x50B7 / 0x10000
    assert normal(" What  is ONE?\n") == "what is one?"
    assert is_held_out("what is one?", share + 0.001)
    assert not is_held_out("what is one?", share - 0.001)
    assert not is_held_out("what is one?", 0.0)
