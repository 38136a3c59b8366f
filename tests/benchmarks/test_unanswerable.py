"""Unanswerable questions: hops are cut, what is missing is heard, a denial is no claim."""

import json
import re

import pytest

from benchmarks.asked import Row
from benchmarks.hops import corpus, rows_of
from benchmarks.report import Value, emit
from benchmarks.unanswerable import (
    LEAST,
    MOST,
    QUESTIONS,
    figures,
    grade,
    says_missing,
    wrong_claims,
)

ROWS: list[Row] = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
BY_ID = {row["id"]: row for row in ROWS}


def claim(text: str, verdict: str = "supported") -> Row:
    cite = {"number": 1, "title": "t", "location": "l", "quote": "q", "verdict": verdict}
    return {"text": text, "cites": [cite]}


def row_of(question: str, *claims: Row, plain: str = "", status: str = "finished") -> Row:
    text = plain or " ".join(c["text"] for c in claims)
    return {
        "id": question, "plain": text, "claims": list(claims), "digest": "d", "status": status,
        "seconds": 10.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "missing",
    [
        "The sources do not say where the director was born.",
        "The passages found do not settle this question.",
        "The documentation doesn't mention a time-out.",
        "Nothing was found on this.",
        "httpx.get has no retries parameter.",
        "shutil.copytree does not take a timeout argument.",
        "statistics.trimmed_mean does not exist.",
        "I could not find it.",
        "Missing: the mother's date of birth.",
        "The passages don't tell when he died.",
    ],
)
def test_what_is_missing_is_heard_and_a_plain_answer_is_no_refusal(missing: str) -> None:
    assert says_missing(missing)
    for told in (
        "",
        "It returns a copy of the string.",
        "If no number is given, 50 samples are made.",
        "It raises ValueError when the value is not found.",
        "He was born in Paris and never married.",
        "sorted does not take the list apart.",
    ):
        assert not says_missing(told)


@pytest.mark.parametrize(
    ("question", "said", "wrong"),
    [
        ("premise-json-sorted", claim("json.dumps sorts the keys so that they compare."), True),
        ("premise-json-sorted", claim("Keys are sorted if sort_keys is true (default: False)."), 0),
        ("premise-str-replace", claim("It changes the string in place."), True),
        ("premise-str-replace", claim("It returns a copy with the words replaced."), False),
        ("parameter-httpx-retries", claim("The default of retries is 3."), True),
        ("parameter-httpx-retries", claim("The default of retries is 3.", "unsupported"), False),
        ("parameter-httpx-retries", claim("httpx.get has no retries parameter."), False),
        ("parameter-httpx-retries", claim("httpx.get sends a GET request."), False),
        ("function-path-copytree", claim("It returns the destination directory."), True),
        ("function-path-copytree", claim("shutil.copytree returns the directory."), False),
        ("outside-stars", claim("httpx has 13k stars."), True),
        ("outside-council", claim("The documentation does not say who was elected."), False),
    ],
)
def test_only_an_assertion_of_what_was_asked_is_a_wrong_claim(
    question: str, said: Row, wrong: bool
) -> None:
    assert bool(wrong_claims(BY_ID[question], row_of(question, said))) is bool(wrong)


def test_the_second_passage_alone_has_the_answer_and_its_subject() -> None:
    texts = {passage.title: passage.text.casefold() for passage in corpus()}
    answers = {row["id"]: row["answer"].casefold() for row in rows_of("questions")}
    cut = [row for row in ROWS if row["kind"] == "hop"]
    gone = {row["gold"][1] for row in cut}
    assert len(cut) == len(gone) == 20 and not gone & {row["gold"][0] for row in cut}
    for row in cut:
        (start, end), answer = row["gold"], answers[row["id"]]
        name = re.sub(r" \(.*\)", "", end).casefold()
        others = [text for title, text in texts.items() if title != end]
        assert answer not in texts[start], row["id"]
        assert not any(answer in text and name in text for text in others), row["id"]
        assert re.search(row["asserts"], f"It is {answer}.", re.I)


@pytest.mark.parametrize(
    ("question", "row", "handled", "wrong"),
    [
        ("outside-stars", row_of("q", status="no_evidence", plain="x"), True, False),
        ("outside-stars", row_of("q"), True, False),
        ("outside-stars", row_of("q", status="failed"), False, False),
        ("outside-stars", row_of("q", claim("httpx has 13k stars.")), False, True),
        (
            "outside-stars",
            row_of("q", claim("13k stars."), plain="13k stars. Not found: when."),
            1,
            1,
        ),
        ("outside-stars", row_of("q", plain="The sources do not say it."), True, False),
        ("premise-str-replace", row_of("q", claim("It returns a copy.")), True, False),
        ("function-sleep-until", row_of("q", claim("anyio sleeps.")), False, False),
    ],
)
def test_a_question_is_handled_by_no_evidence_by_what_is_missing_or_by_a_correction(
    question: str, row: Row, handled: bool, wrong: bool
) -> None:
    found = grade(BY_ID[question], row, {})
    assert (found["handled"], found["wrong"]) == (bool(handled), bool(wrong))


def test_figures_and_targets_by_hand() -> None:
    asked = [
        "outside-stars",
        "outside-pycon",
        "premise-str-replace",
        "can-linspace",
        "can-zip-strict",
    ]
    rows = [
        row_of("outside-stars", plain="Not found."),
        row_of("outside-pycon", claim("A ticket costs $500.")),
        row_of("premise-str-replace", claim("It returns a copy.")),
        row_of("can-linspace", claim("It returns 50 samples.")),
        row_of("can-zip-strict", plain="It is not documented."),
    ]
    values = figures([BY_ID[name] for name in asked], rows, {})
    assert (values["n"], values["answerable"], values["failed"]) == (3, 2, 0)
    assert (values["handled_share"], values["wrong_claims_share"]) == (0.667, 0.333)
    assert (values["answerable_refused_share"], values["answerable_fact_share"]) == (0.5, 0.5)
    assert (values["handled_outside"], values["wrong_premise"]) == ("1 of 2", "0 of 1")
    assert not emit("x", values, "", least=LEAST, most=MOST)
    enough: dict[str, Value] = {**LEAST, **MOST}
    assert emit("x", enough, "", least=LEAST, most=MOST)
    assert not emit("x", enough | {"answerable_refused_share": None}, "", least=LEAST, most=MOST)
