"""Rows kept through kills; figures and paired differences by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.evaluate.experiment import EvalRow
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.evaluate.results import differences, figures, summary, text_table
from rubricem.memory.schema import Status
from tests.programs.killing import killed_runs

QUESTIONS = QuestionSet(
    "rubricem",
    (EvalQuestion(id="1", question="Who?", answers=("Ada",), gold=("A",), type="t"),
     EvalQuestion(id="2", question="Which?", answers=("B",), type="u"),
     EvalQuestion(id="3", question="When?", unanswerable=True, type="t")),
)  # fmt: skip


def row(identifier: str, arm: str, **changes: object) -> EvalRow:
    grade = {name: changes.pop(name) for name in list(changes) if name in EvalGrade.model_fields}
    fields = {"question": "?", "status": Status.FINISHED, "thread": f"{arm}-{identifier}"}
    return EvalRow.model_validate(
        {"id": identifier, "arm": arm, "grade": grade, **fields, **changes}
    )


ROWS = [
    row("1", "stages", em=1, f1=1, evidence=1, right=True, cites=2, supported=1, seconds=4,
        searches=2, answer="Ada", bare="Ada", type="t"),
    row("1", "plain", em=0, f1=0.5, evidence=0.5, right=True, seconds=2, type="t"),
    row("2", "stages", em=0, f1=0, right=False, refused=True, dropped=2, seconds=6, type="u"),
    row("2", "plain", em=0, f1=0, right=False, seconds=2, type="u"),
    row("3", "stages", refused=True, right=True, seconds=5, type="t"),
    row("3", "plain", right=False, seconds=1, status="failed", type="t"),
]  # fmt: skip


def test_figures_are_over_the_rows_that_can_have_them():
    found = figures([r for r in ROWS if r.arm == "stages"], frozenset({"3"}))
    assert (found["n"], found["em"], found["f1"], found["evidence"]) == (3, 0.5, 0.5, 1.0)
    assert (found["honest"], found["unanswerable"], found["failed"]) == (1.0, 1.0, 0)
    assert (found["resolved"], found["supported"]) == (0.5, 0.5)
    assert (found["seconds"], found["seconds_sum"], found["rubric"]) == (5, 15, None)
    plain = figures([r for r in ROWS if r.arm == "plain"], frozenset({"3"}))
    assert (plain["failed"], plain["honest"], plain["all_gold"]) == (1, 0.0, 0.0)
    assert plain["resolved"] is None


def test_differences_are_paired_and_need_two_questions():
    found = {gap.figure: gap for gap in differences(ROWS)}
    assert (found["f1"].first, found["f1"].other, found["f1"].n) == ("stages", "plain", 2)
    assert (found["f1"].mean, found["f1"].low, found["f1"].high) == (0.25, 0.0, 0.5)
    assert "evidence" not in found, "one question has gold"


def test_the_summary_is_json_with_types_and_the_table_a_row_a_figure():
    told = summary(QUESTIONS, ROWS, {"limits": {}})
    assert json.loads(json.dumps(told)) == told
    assert told["arms"]["stages"]["types"]["u"]["f1"] == 0.0
    lines = text_table(told)
    assert lines[0].split() == ["stages", "plain"]
    assert next(line for line in lines if line.startswith("F1")).split() == ["F1", "0.500", "0.250"]
    assert any(line.startswith("stages - plain, score:") for line in lines)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows without what differs from run to run."""
    lines = (folder / "out" / "rows.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


@pytest.mark.slow
def test_an_evaluation_killed_in_the_middle_goes_on_and_repeats_no_finished_call(tmp_path: Path):
    whole, killed = killed_runs("eval_killed", tmp_path, 4)
    assert len(rows_in(whole)) == 9
    assert {row["grade"]["em"] for row in rows_in(whole) if row["arm"] != "stages"} == {1}
    for one in killed:
        assert rows_in(one.folder) == rows_in(whole), one.told
        # One run at a time, so each kill finds at most one reply not yet in the journal.
        assert one.repeated <= one.kills, one.told
