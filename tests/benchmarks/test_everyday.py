"""Everyday questions: their facts hold, their rows are kept, a reader's verdicts are joined in."""

import json
import re
from collections.abc import Mapping

import pytest

from benchmarks.asked import Row
from benchmarks.everyday import HALVES, QUESTIONS, figures, grade

EVERY: list[Row] = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
ROWS = [row for row in EVERY if row["split"] in HALVES]
BY_ID = {row["id"]: row for row in ROWS}


def claim(text: str, verdict: str = "supported") -> Row:
    cite = {"number": 1, "title": "t", "location": "l", "quote": "q", "verdict": verdict}
    return {"text": text, "cites": [cite]}


def kept_row(
    question: str, plain: str, *claims: Row, digest: str = "d", doubted: bool = False
) -> Row:
    return {
        "id": question, "model": "1.5b", "plain": plain, "answer": plain, "claims": list(claims),
        "digest": digest, "seconds": 10.0, "searches": 2, "status": "finished",
        "doubted": doubted,
    }  # fmt: skip


def test_the_pattern_finds_the_fact_and_the_question_does_not_give_it_away() -> None:
    for row in EVERY:
        assert re.search(row["pattern"], row["useful"], re.I | re.S), row["id"]
        assert not re.search(row["pattern"], row["question"], re.I | re.S), row["id"]


@pytest.mark.parametrize(
    ("plain", "claims", "graded"),
    [
        ("125", [claim("It returns 125.")], (True, True, True)),
        ("It skips. 125", [claim("It skips.")], (True, True, False)),
        ("125", [], (True, False, False)),
        ("125", [claim("It returns 125.", "unsupported")], (True, False, False)),
        ("127", [claim("It returns 127.", "unchecked")], (False, True, False)),
        ("", [], (False, False, False)),
    ],
)
def test_a_fact_counts_in_the_answer_and_in_a_claim_that_is_not_called_unsupported(
    plain: str, claims: list[Row], graded: tuple[bool, ...]
) -> None:
    row = kept_row("git-bisect-skip", plain, *claims)
    found = grade(BY_ID["git-bisect-skip"], row)
    assert (found["pattern"], found["cited"], found["fact_cited"]) == graded


def read(**useful: bool) -> Mapping[tuple[str, str], Row]:
    return {(name.replace("_", "-"), "d"): {"useful": value} for name, value in useful.items()}


def test_figures_by_hand() -> None:
    questions = [BY_ID["git-bisect-skip"], BY_ID["git-reflog-age"], BY_ID["sqlite-shrink"]]
    rows = [
        kept_row("git-bisect-skip", "125", claim("125")),
        kept_row("git-reflog-age", "90 days", claim("ninety"), doubted=True),
        kept_row("sqlite-shrink", "Run vacuum."),
    ]
    values = figures(
        questions, rows, read(git_bisect_skip=True, git_reflog_age=False, sqlite_shrink=True)
    )
    assert values["pattern_share"] == 1.0
    assert values["cited_share"] == values["fact_cited_share"] == 0.667
    # The first alone is both; the last is useful and cites nothing.
    assert values["useful_and_cited_share"] == 0.333
    assert values["useful_and_cited_git"] == "1 of 2"
    assert values["not_certain"] == 1 and values["useful_and_cited_not_certain"] == "0 of 1"
