"""Grades by code, worked by hand."""

import time
from functools import partial

import pytest

from rubricem.agent.evaluate.grades import EvalGrade, evidence_recall, exact_match, f1_score
from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.sources.sandbox.pool import Job
from rubricem.memory.schema import AnswerFormat, Source, Stage, Status, Trajectory
from tests.support.values import run_of

CITED = '<answer><cite id="S1">The cache is unbounded.</cite>\nAnswer: {}</answer>'


def answered(answer: str, **changes: object) -> Trajectory:
    source = Source(
        id="S1", title="The Cache", location="docs/cache.md", place="lru", query="q", tool="search",
        text="If maxsize is None the cache is unbounded.",
    )  # fmt: skip
    fields = {"answer_format": AnswerFormat.EXACT, **changes}
    return run_of({Stage.ANSWER: answer}, sources=(source,)).model_copy(update=fields)


@pytest.mark.parametrize(
    ("said", "accepted", "em", "f1"),
    [
        ("The  Beatles!", ["beatles"], 1, 1),
        ("John Lennon of the Beatles", ["John Lennon"], 0, 2 / 3),
        ("Lennon", ["Paul", "John Lennon"], 0, 2 / 3),
        ("yes", ["Yes."], 1, 1),
        ("yes it is", ["yes"], 0, 0),
        ("", ["Paris"], 0, 0),
        ("the", ["a"], 1, 1),
        ("ベルネという町。", ["ベルネ"], 0, 2 * 3 / (7 + 3)),
        ("「东京」", ["东京"], 1, 1),
        ("Маршал Жуков", ["Жуков"], 0, 2 / 3),
    ],
)
def test_answers_match_after_the_normalisation_of_squad(
    said: str, accepted: list[str], em: float, f1: float
):
    assert exact_match(said, accepted) == em
    assert f1_score(said, accepted) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("gold", "recall"),
    [([], None), (["the cache"], 1.0), (["cache.md", "heap.md"], 0.5), (["LRU"], 1.0),
     (["cache"], 0.0)],
)  # fmt: skip
def test_evidence_is_found_by_the_titles_and_places_of_what_was_retrieved(
    gold: list[str], recall: float | None
):
    assert evidence_recall(gold, answered("").sources) == recall


def test_a_whole_answer_is_graded_by_its_bare_line_and_its_cites():
    question = EvalQuestion(
        id="1", question="?", answers=("unbounded",), patterns=("unbound", "evict"),
        gold=("The Cache", "Heap"),
    )  # fmt: skip
    found = EvalGrade.of(question, answered(CITED.format("Unbounded")))
    assert (found.em, found.f1, found.pattern, found.evidence) == (1, 1, 0.5, 0.5)
    assert (found.cites, found.supported, found.dropped) == (1, 1, 0)
    assert (found.right, found.refused, found.all_gold, found.score) == (True, False, False, 1)
    band = question.model_copy(update={"answers": ("The The",)})
    found = EvalGrade.of(band, answered(CITED.format("Unbounded"), status=Status.FAILED))
    assert (found.em, found.f1, found.right) == (0, 0, False), "articles alone are no silence"


def test_a_pattern_that_takes_too_long_leaves_the_answer_ungraded_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rubricem.agent.evaluate.grades.Job", partial(Job, seconds=1))
    question = EvalQuestion(id="1", question="?", patterns=(r"unbounded", r"(\w+\s?)+$"))
    begun = time.monotonic()
    found = EvalGrade.of(question, answered(CITED.format("very " * 60 + "!")))
    assert (found.pattern, found.right, found.score) == (None, None, None)
    assert found.pattern_reason == "What the patterns match takes too long to read."
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("answer", "changes", "refused"),
    [
        (CITED.format("unknown"), {}, True),
        (CITED.format("not found in the passages"), {}, True),
        (CITED.format("Nonesuch"), {}, False),
        (CITED.format("42"), {"status": Status.NO_EVIDENCE}, True),
        (CITED.format("unknown"), {"status": Status.FAILED}, False),
        (
            "<answer>It was not found.</answer>",
            {"answer_format": AnswerFormat.LONG},
            True,
        ),
        ("<answer>It is unbounded.</answer>", {"answer_format": AnswerFormat.LONG}, False),
    ],
)
def test_a_refusal_is_no_evidence_or_an_answer_that_says_so(
    answer: str, changes: dict[str, object], refused: bool
):
    question = EvalQuestion(id="1", question="?", unanswerable=True)
    found = EvalGrade.of(question, answered(answer, **changes))
    assert (found.refused, found.right, found.score) == (refused, refused, float(refused))


def test_an_interval_is_of_the_mean_and_a_point_where_all_are_equal():
    assert bootstrap_mean([0.5, 0.5, 0.5]) == (0.5, 0.5)
    # A mean of 100 fair coins: 0.5, with a standard error of 0.05.
    assert bootstrap_mean([0.0, 1.0] * 50) == pytest.approx((0.402, 0.598), abs=0.015)
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])
