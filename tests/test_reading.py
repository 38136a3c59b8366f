"""Stages, citations, the answer and rubric items are read out of a transcript."""

import pytest

from agent.reading import Cite, answer_text, citations, rubric_items, stage_spans
from agent.scaffold import parse
from memory.schema import Stage
from tests.scaffold_texts import ANSWER, CALL, EVALUATION, FIRST, LAST, OUTPUT, PLAN, REVIEW


def test_stages_of_a_whole_transcript_are_contiguous_at_the_scorers_boundaries():
    text = FIRST + OUTPUT + LAST
    spans = stage_spans(text)
    first, search = text.index("</structured_plan>") + 18, text.rindex("<think>")
    answer = text.index("<answer>")
    assert spans == {
        Stage.PLAN: (0, first),
        Stage.RESEARCH: (first, search),
        Stage.REVIEW: (search, answer),
        Stage.ANSWER: (answer, len(text)),
    }


def test_a_re_plan_belongs_to_research():
    again = EVALUATION + "<structured_plan><rubric>x</rubric></structured_plan>" + CALL
    spans = stage_spans(FIRST + OUTPUT + again + OUTPUT + LAST)
    assert spans[Stage.PLAN] == (0, len(PLAN) - 1)


def test_review_without_thinking_of_its_own_starts_at_its_tag():
    text = FIRST + OUTPUT + "<state_evaluation>x</state_evaluation>" + REVIEW + ANSWER
    assert stage_spans(text)[Stage.REVIEW][0] == text.index("<review>")


def test_missing_stages_are_absent_and_leave_no_gap():
    assert stage_spans("no tags at all") == {}
    assert stage_spans(PLAN) == {Stage.PLAN: (0, len(PLAN))}
    assert stage_spans("so " + ANSWER) == {Stage.ANSWER: (0, len(ANSWER) + 3)}
    assert stage_spans(PLAN + ANSWER) == {
        Stage.PLAN: (0, len(PLAN)),
        Stage.ANSWER: (len(PLAN), len(PLAN + ANSWER)),
    }
    assert list(stage_spans(CALL + OUTPUT + ANSWER)) == [Stage.RESEARCH, Stage.ANSWER]


def test_every_id_of_a_cite_is_kept_however_it_is_written():
    text = (
        '<answer><cite id="S1, S2">a</cite> <cite ids="S3 S4">b</cite> <cite id=S5>c</cite>'
        "<cite id=''>d</cite><cite>e</cite></answer>"
    )
    found = citations(parse(text))
    assert [(cite.claim, cite.ids) for cite in found] == [
        ("a", ("S1", "S2")),
        ("b", ("S3", "S4")),
        ("c", ("S5",)),
        ("d", ()),
        ("e", ()),
    ]
    assert text[slice(*found[0].span)] == '<cite id="S1, S2">a</cite>'


def test_only_the_answer_is_searched_for_citations():
    text = "<think><cite id='S9'>no</cite></think>" + ANSWER
    assert [cite.claim for cite in citations(parse(text))] == ["the oldest"]


def test_an_empty_cite_marks_the_sentence_before_it():
    text = '<answer>It is old. It evicts the oldest. <cite id="S1"/></answer>'
    assert citations(parse(text)) == [Cite(("S1",), "It evicts the oldest.", (41, 56))]


def test_a_cite_never_closed_ends_where_the_next_begins():
    text = '<answer><cite id="S1">a. <cite id="S2">b</cite></answer>'
    assert [(c.ids, c.claim) for c in citations(parse(text))] == [(("S1",), "a."), (("S2",), "b")]


def test_the_answer_is_its_last_block_with_text():
    assert answer_text(parse("<answer>a</answer><answer> b</answer><answer></answer>")) == "b"
    assert answer_text(parse("<answer>cut of")) == "cut of"
    assert answer_text(parse("nothing")) == ""


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Knowledge:\n- a\n  more\n* b\n\n## Pitfalls\n1. c\n2) d", ["a more", "b", "c", "d"]),
        ("1. States A. 2. States B.", ["States A.", "States B."]),
        ("Says A. Says B; says C.", ["Says A.", "Says B;", "says C."]),
        ("**Knowledge**:\n(i) a\n(ii) b", ["a", "b"]),
        ("needs Python 3.11 only", ["needs Python 3.11 only"]),
        (" \n ", []),
    ],
)
def test_rubric_items(text: str, items: list[str]):
    assert rubric_items(text) == items
