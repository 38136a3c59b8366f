"""Questions from lines and tables, what is wrong with a file, and which are asked."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubricem.judge.checklist import ChecklistItem
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import AnswerFormat
from rubricem.training.collect.questions import (
    Curriculum,
    Question,
    is_held_out,
    normal,
    read_questions,
    select_questions,
)
from rubricem.training.rounds.rounds import recalls_after
from tests.support.rows import ASKED


def written(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def read(named: str, column: str = "question") -> list[Question]:
    return read_questions(named, column)


SAYS_TWO = ChecklistItem(criterion="says 2", points=-5)
ONE, TWO = Question(id="0", question="What is one?"), Question(id="1", question="What is two?")


@pytest.mark.parametrize(
    ("name", "text", "questions"),
    [
        ("q.txt", "\ufeffWhat is one?\n\n  What is two?  \r\n", [ONE, TWO]),
        ("q.jsonl", '{"question": "What is one?", "id": "first", '
         '"criteria": ["says 1", {"criterion": "says 2", "points": -5}], "more": 2}\n'
         '{"question": "What is two?", "id": 7}\n{"question": "What is three?"}',
         [Question(id="first", question="What is one?", criteria=("says 1", SAYS_TWO)),
          Question(id="7", question="What is two?"), Question(id="2", question="What is three?")]),
        ("Q.JSONL", '{"question": "What is one?"}', [ONE]),
        ("q.jsonl", '{"question": "What is one?", "criteria": ["says \\ud800"]}',
         [ONE.model_copy(update={"criteria": ("says \ufffd",)})]),
        ("q.jsonl", '{"question": "What is one?", "answer_format": "exact"}\n'
         '{"question": "What is two?", "answer_format": ""}',
         [ONE.model_copy(update={"answer_format": AnswerFormat.EXACT}), TWO]),
        ("q.jsonl", '{"question": "What is one?", "facts": {"answer": "1"}}\n'
         '{"question": "What is two?", "facts": {}}',
         [ONE.model_copy(update={"facts": {"answer": "1"}}), TWO]),
    ],
    ids=["one a line", "JSON lines may name them and what they ask for", "a suffix in capitals",
         "what no encoding can write", "a form of its own",
         "facts"],
)  # fmt: skip
def test_questions_are_read_from_lines_and_cells(
    tmp_path: Path, name: str, text: str, questions: list[Question]
):
    assert read(written(tmp_path, name, text)) == questions


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("q.jsonl", '{"question": "a?"}\n{"text": "b"}', "line 2 of .* has no 'question'; .*text"),
        ("q.jsonl", "What?", "line 1 of .* is no JSON object: Expecting value"),
        ("q.jsonl", '{"question": "a?"}\n\n{"question": "hal', "line 3 of .*Unterminated string"),
        ("q.jsonl", '{"question": null}', "line 1 of .*its question is no text"),
        ("q.jsonl", '{"question": "a?", "criteria": [{"criterion": "b", "points": 11}]}',
         "its criteria"),
        ("q.jsonl", '{"question": "a?", "criteria": 5}', "its criteria cannot be '5'"),
        ("q.jsonl", '{"question": "a?", "criteria": ["b", " "]}', "one of its criteria is empty"),
        ("q.jsonl", '{"question": "a?", "answer_format": "haiku"}', "its answer_format .*'haiku'"),
        ("q.jsonl", '{"question": "a?", "facts": "b"}', "line 1 of .*: its facts"),
        ("q.txt", "\n \n", "holds no question"),
        ("q.txt", "a?\n" + "x" * 20_001, r"line 2 of .*20,001 characters.*at once\.\n"),
        ("q.doc", "What?", "not a .txt, .jsonl or .parquet file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_a_remedy(
    tmp_path: Path, name: str, text: str, told: str
):
    with pytest.raises(SettingsError, match=told) as raised:
        read(written(tmp_path, name, text))
    assert raised.value.remedy and len(str(raised.value)) < 500


def rows_file(tmp_path: Path, *rows: dict[str, object]) -> str:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_duplicates_are_told_by_their_words_and_the_first_stands(tmp_path: Path):
    selected = select_questions(
        rows_file(
            tmp_path,
            {"question": "What is one?"},
            {"question": "WHAT  is\none? "},
            {"question": "What is two?"},
            {"question": "What is one?"},
        )
    )
    assert [q.question for q in selected.questions] == ["What is one?", "What is two?"]
    assert [q.id for q in selected.questions] == ["0", "2"], "called by its row"
    assert selected.told.startswith("4 questions read, 0 over the limit, 2 duplicates dropped")


@pytest.mark.parametrize("rows", [({"id": "a"}, {"id": "a"}), ({"id": 1}, {})])
def test_questions_that_are_called_alike_are_refused(
    tmp_path: Path, rows: tuple[dict[str, object], ...]
):
    named = [{"question": f"What is {place}?", **row} for place, row in enumerate(rows)]
    with pytest.raises(SettingsError, match=r"2 questions of .* have the id '(a|1)'\.\nGive each"):
        select_questions(rows_file(tmp_path, *named))
    repeated = [{"id": "a", "question": "What is one?"}] * 2
    assert len(select_questions(rows_file(tmp_path, *repeated)).questions) == 1


def test_a_question_is_held_out_by_its_words_whatever_else_is_asked(tmp_path: Path):
    rows = [{"question": f"What is {n}?"} for n in range(400)]
    whole = select_questions(rows_file(tmp_path, *rows), held_out=0.1)
    part = select_questions(rows_file(tmp_path, *rows[::-2]), held_out=0.1)
    more = select_questions(rows_file(tmp_path, *rows), held_out=0.3)
    held = {q.question for q in whole.held_out}
    assert 20 <= len(held) <= 60, "some 40 of 400"
    assert held.isdisjoint(q.question for q in whole.questions)
    assert len(whole.questions) + len(held) == 400
    assert {q.question for q in part.held_out} == held & {r["question"] for r in rows[::-2]}
    assert held < {q.question for q in more.held_out}
    assert f"{len(held)} held out" in whole.told


def test_the_hash_of_a_known_question_stays_what_it_is():
    # sha256("what is one?") begins 50 b7, 0.315 of the way.
    share = 0x50B7 / 0x10000
    assert normal(" What  is ONE?\n") == "what is one?"
    assert is_held_out("what is one?", share + 0.001)
    assert not is_held_out("what is one?", share - 0.001)
    assert not is_held_out("what is one?", 0.0)


def parquet_of(tmp_path: Path, **columns: Sequence[Any]) -> str:
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "q.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_columns_are_read_as_they_are(tmp_path: Path):
    path = parquet_of(
        tmp_path, problem=["What is one?", "What is two?"], id=[4, 5], criteria=[["says 1"], []],
        picture=[b"png", b"png"],
    )  # fmt: skip
    assert read(path, "problem") == [
        Question(id="4", question="What is one?", criteria=("says 1",)),
        Question(id="5", question="What is two?"),
    ]


def asked(names: str) -> list[Question]:
    return [Question(id=name, question=f"What is {name}?") for name in names]


def shown(curriculum: Curriculum, steps: int) -> list[tuple[str, int | None]]:
    batches = [curriculum.batch(step) for step in range(steps)]
    return [("".join(q.id for q in batch.questions), batch.replay_of) for batch in batches]


@pytest.mark.parametrize(
    ("names", "size", "window", "steps", "batches"),
    [
        ("abcde", 2, 0, 3, [("ab", None), ("cd", None), ("e", None)]),
        ("abaab", 3, 0, 3, [("ab", None), ("a", None), ("ab", None)]),
        ("ab", 1, 0, 2, [("a", None), ("b", None)]),
        (
            "abcdefgh", 2, 3, 8,
            [("ab", None), ("cd", None), ("ef", None), ("ab", 0), ("cd", 1), ("ef", 2),
             ("gh", None), ("gh", 6)],
        ),
        (
            "abc", 2, 1, 4,
            [("ab", None), ("ab", 0), ("c", None), ("c", 2), ("ab", None), ("ab", 4)],
        ),
    ],
    ids=[
        "each once a pass in its order", "no step holds a question twice", "one a step",
        "a window asks K new batches, then the same", "a second pass goes on counting steps",
    ],
)  # fmt: skip
def test_the_batches_of_steps_by_hand(
    names: str, size: int, window: int, steps: int, batches: list[tuple[str, int | None]]
):
    curriculum = Curriculum(asked(names), size, window)
    assert (curriculum.steps, shown(curriculum, len(batches))) == (steps, batches)


def test_a_round_recalls_what_is_surely_over_and_waits_for_its_own_questions():
    fresh = Curriculum(ASKED, 1)
    assert [recalls_after(fresh, n, 0) for n in range(3)] == [-1, 0, 1]
    assert [recalls_after(fresh, n, 1) for n in range(5)] == [-1, -1, -1, 0, 1]
    again = Curriculum(ASKED, 2, window=1)
    assert [recalls_after(again, n, 1) for n in range(4)] == [-1, 0, 0, 2]
