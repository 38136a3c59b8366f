"""Labelled data and recorded verdicts, read from rows in each published form."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledMark,
    LabelledPair,
    read_comparisons,
    read_labelled,
    read_marks,
)
from rubricem.judge.evaluation.run import VerdictFile
from rubricem.memory.errors import SettingsError, StoreError
from tests.support.values import pair, said

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

PHYSICIANS = {
    "prompt": [{"role": "user", "content": "ask"}],
    "completion": "x",
    "rubric": "says x",
    "binary_labels": [True, False],
    "category": "cluster:hedging",
}


def written(folder: Path, *rows: object, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def pairs_in(path: Path) -> Sequence[LabelledPair]:
    return read_labelled(path).pairs


@pytest.mark.parametrize("row", [LLMBAR, JUDGEBENCH])
def test_two_numbered_answers_are_a_pair_whose_label_is_the_better_side(
    tmp_path: Path, row: dict[str, Any]
):
    (one,) = pairs_in(written(tmp_path, row))
    assert (one.prompt, one.first, one.second, one.better) == ("ask", "x", "y", "second")
    assert one.subset == row.get("source", "")


def test_a_chosen_answer_or_the_end_of_a_chosen_conversation_is_the_first_and_the_better(
    tmp_path: Path,
):
    (one,) = pairs_in(written(tmp_path, CHOSEN))
    assert (one.id, one.first, one.second, one.better) == ("donotanswer/7", "x", "y", "first")
    before = [{"role": "user", "content": "ask"}]
    row = {
        "chosen": [*before, {"role": "assistant", "content": "x"}],
        "rejected": [*before, {"role": "assistant", "content": "y"}],
    }
    (one,) = pairs_in(written(tmp_path, row))
    assert (one.prompt, one.first, one.second) == ("ask", "x", "y")


def test_three_styles_of_each_are_nine_pairs(tmp_path: Path):
    read = pairs_in(written(tmp_path, STYLED | {"domain": "math"}))
    assert len(read) == 9
    assert {one.styles for one in read} == {(r, c) for r in range(3) for c in range(3)}
    one = next(one for one in read if one.styles == (0, 2))
    assert (one.first, one.second, one.better, one.subset) == ("x0", "y2", "first", "math")


def test_physicians_labels_are_a_labelled_criterion(tmp_path: Path):
    (one,) = read_labelled(written(tmp_path, PHYSICIANS)).criteria
    assert (one.criterion, one.labels, one.subset) == (
        "says x",
        (True, False),
        "cluster:hedging",
    )


def test_a_healthbench_row_is_an_answer_with_its_checklist(tmp_path: Path):
    items = [
        {"criterion": "says x", "points": 5, "tags": ["axis:a"]},
        {"criterion": "y", "points": -2},
    ]
    row = {"prompt": PHYSICIANS["prompt"], "rubrics": items, "example_tags": ["theme:t"]}
    ideal = {"ideal_completions_data": {"ideal_completion": "best"}}
    rows = [row, row | {"completion": "mine"} | ideal, row | ideal]
    read = read_labelled(written(tmp_path, *rows)).answers
    assert [one.completion for one in read] == ["mine", "best"], "a row without answer is left out"
    assert [item.points for item in read[0].items] == [5, -2]
    assert (read[0].items[0].tags, read[0].tags) == (("axis:a",), ("theme:t",))
    with pytest.raises(SettingsError, match="without answers"):
        read_labelled(written(tmp_path, row))


def test_rows_are_lines_or_a_list_whatever_they_hold_and_told_apart(tmp_path: Path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps([LLMBAR, LLMBAR], indent=1))
    assert [one.id for one in pairs_in(path)] == ["1", "2"]
    (one,) = pairs_in(written(tmp_path, LLMBAR | {"output_1": "a\u2028b\x85c"}))
    assert one.first == "a\u2028b\x85c"
    read = pairs_in(written(tmp_path, CHOSEN, CHOSEN | {"chosen": "z"}))
    assert [one.id for one in read] == ["donotanswer/7", "donotanswer/7#2"]


@pytest.mark.parametrize("rows", [[], [{"text": "x"}], [["x"]]])
def test_a_file_of_another_kind_is_misuse(tmp_path: Path, rows: list[object]):
    with pytest.raises(SettingsError) as caught:
        read_labelled(written(tmp_path, *rows))
    assert "LLMBar" in caught.value.remedy


def test_what_cannot_be_read_is_named_by_its_place(tmp_path: Path):
    with pytest.raises(StoreError, match=r"row 2 .* label"):
        read_labelled(written(tmp_path, LLMBAR, LLMBAR | {"label": 3}))
    path = written(tmp_path, LLMBAR)
    path.write_text(path.read_text() + '\n{"input": "cut')
    with pytest.raises(StoreError, match="line 3"):
        read_labelled(path)
    with pytest.raises(StoreError, match="No such file"):
        read_labelled(tmp_path / "none.json")


@pytest.mark.parametrize("content", [b'["cut', b"\xff\xfe\x00"])
def test_a_file_that_is_no_text_or_json_is_a_sentence(tmp_path: Path, content: bytes):
    path = tmp_path / "data.json"
    path.write_bytes(content)
    with pytest.raises(StoreError):
        read_labelled(path)


def llmbar_result(label: int, given: str, swapped: str) -> dict[str, Any]:
    result = {"swap = False": {"winner": given}, "swap = True": {"winner": swapped}}
    return {"label": label, "results": [[["1. What?", "stop"]], result]}


def test_winners_of_llmbar_are_already_in_the_data_s_numbering(tmp_path: Path):
    pairs = [pair("1", "second")]
    read = read_comparisons(written(tmp_path, llmbar_result(2, "1", "2")), pairs)
    assert [(c.swapped, c.winner) for c in read] == [(False, "first"), (True, "second")]


def test_llmbar_results_of_other_data_are_misuse(tmp_path: Path):
    path = written(tmp_path, llmbar_result(2, "1", "2"))
    with pytest.raises(SettingsError, match="label"):
        read_comparisons(path, [pair("1", "first")])
    with pytest.raises(SettingsError, match="1 results"):
        read_comparisons(path, [pair("1", "second"), pair("2")])


def test_judgements_of_judgebench_are_in_the_order_shown_some_missing_or_tied(tmp_path: Path):
    judgements = [{"decision": "A>B"}, {"decision": "A>B"}]
    row = {"pair_id": "p", "label": "A>B", "judgments": judgements}
    read = read_comparisons(written(tmp_path, row), [pair("p")])
    assert [(c.swapped, c.winner) for c in read] == [(False, "first"), (True, "second")]
    row = {"pair_id": "p", "label": "A>B", "judgments": [None, {"decision": "A=B"}]}
    read = read_comparisons(written(tmp_path, row), [pair("p")])
    assert [c.winner for c in read] == [None, "tie"]


def test_verdicts_on_unknown_pairs_are_misuse_and_of_two_on_one_order_the_later_counts(
    tmp_path: Path,
):
    path = written(tmp_path, LabelledComparison(pair="zz", winner="first").model_dump(mode="json"))
    with pytest.raises(SettingsError, match="zz"):
        read_comparisons(path, [pair("a")])
    rows = [c.model_dump(mode="json") for c in (*said("a", "first"), *said("a", "second"))]
    (one,) = read_comparisons(written(tmp_path, *rows), [pair("a")])
    assert one.winner == "second"


def test_kept_verdicts_come_back_and_a_cut_line_is_dropped(tmp_path: Path):
    path = tmp_path / "deep" / "kept.jsonl"
    kept = VerdictFile(path, "judge")
    assert kept.comparisons([pair("a")]) == []
    first, second = (c.model_copy(update={"judge": "judge"}) for c in said("a", "first", "tie"))
    kept.add(first)
    with path.open("a") as file:
        file.write('{"pair": "a", "swa')
    assert kept.comparisons([pair("a")]) == [first]
    kept.add(second)
    assert kept.comparisons([pair("a")]) == [first, second]


def test_a_file_is_gone_on_with_by_its_own_judge_alone(tmp_path: Path):
    path = tmp_path / "kept.jsonl"
    VerdictFile(path, "one").add(LabelledComparison(pair="a", judge="one", winner="first"))
    with pytest.raises(SettingsError, match="verdicts of one, not of two"):
        VerdictFile(path, "two").comparisons([pair("a")])
    path = tmp_path / "marks.jsonl"
    mark = LabelledMark(item="1", judge="one", met=True)
    VerdictFile(path, "one").add(mark)
    assert VerdictFile(path, "one").marks(["1"]) == read_marks(path, ["1", "2"]) == [mark]
    kept = VerdictFile(None, "judge")
    kept.add(LabelledComparison(pair="a"))
    assert kept.comparisons([pair("a")]) == []
