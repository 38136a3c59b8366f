"""Labelled pairs, read from rows in each published form."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.judge.evaluation.data import read_labelled
from rubricem.memory.errors import StoreError

LLMBAR = {"input": "ask", "output_1": "x", "output_2": "y", "label": 2}
JUDGEBENCH = {
    "pair_id": "p1",
    "question": "ask",
    "response_A": "x",
    "response_B": "y",
    "label": "B>A",
    "source": "mmlu-pro-law",
}
CHOSEN = {"id": 7, "prompt": "ask", "chosen": "x", "rejected": "y", "subset": "donotanswer"}
STYLED = {"id": "i", "prompt": "ask", "chosen": ["x0", "x1", "x2"], "rejected": ["y0", "y1", "y2"]}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("row", [LLMBAR, JUDGEBENCH])
def test_two_numbered_answers_are_a_pair_whose_label_is_the_better_side(
    tmp_path: Path, row: dict[str, Any]
):
    (one,) = read_labelled(write(tmp_path, row))
    assert (one.prompt, one.first, one.second, one.better) == ("ask", "x", "y", "second")
    assert one.subset == row.get("source", "")


def test_a_chosen_answer_or_the_end_of_a_chosen_conversation_is_the_first_and_the_better(
    tmp_path: Path,
):
    (one,) = read_labelled(write(tmp_path, CHOSEN))
    assert (one.id, one.first, one.second, one.better) == ("donotanswer/7", "x", "y", "first")
    before = [{"role": "user", "content": "ask"}]
    row = {
        "chosen": [*before, {"role": "assistant", "content": "x"}],
        "rejected": [*before, {"role": "assistant", "content": "y"}],
    }
    (one,) = read_labelled(write(tmp_path, row))
    assert (one.prompt, one.first, one.second) == ("ask", "x", "y")


def test_three_styles_of_each_are_nine_pairs_hard_where_the_rejected_one_is_fancier(
    tmp_path: Path,
):
    read = read_labelled(write(tmp_path, STYLED | {"domain": "math"}))
    subsets = [one.subset for one in read]
    assert [subsets.count(f"math {kind}") for kind in ("hard", "normal", "easy")] == [3, 3, 3]
    one = next(one for one in read if (one.first, one.second) == ("x0", "y2"))
    assert (one.id, one.better, one.subset) == ("math/i/02", "first", "math hard")


def test_rows_are_lines_or_a_list_whatever_they_hold_and_told_apart(tmp_path: Path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps([LLMBAR, LLMBAR], indent=1))
    assert [one.id for one in read_labelled(path)] == ["1", "2"]
    (one,) = read_labelled(write(tmp_path, LLMBAR | {"output_1": "a\u2028b\x85c"}))
    assert one.first == "a\u2028b\x85c"
    read = read_labelled(write(tmp_path, CHOSEN, CHOSEN | {"chosen": "z"}))
    assert [one.id for one in read] == ["donotanswer/7", "donotanswer/7#2"]


def test_what_cannot_be_read_is_named_by_its_place(tmp_path: Path):
    with pytest.raises(StoreError, match=r"row 2 .* label"):
        read_labelled(write(tmp_path, LLMBAR, LLMBAR | {"label": 3}))
    for name in ("prompt", "chosen"):
        with pytest.raises(StoreError, match="row 1"):
            read_labelled(write(tmp_path, CHOSEN | {name: [{"role": "user", "content": None}]}))
    path = write(tmp_path, LLMBAR)
    path.write_text(path.read_text() + '\n{"input": "cut')
    with pytest.raises(StoreError, match="line 3"):
        read_labelled(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError):
        read_labelled(path)
