"""Unanswerable questions: what they name is not there, hops are cut, a denial is no claim."""

import json
import re
from collections import Counter

import pytest

from benchmarks.asked import Row
from benchmarks.unanswerable import (
    ANSWERABLE,
    ASSERTS,
    QUESTIONS,
    Hops,
    few,
    figures,
    grade,
    holds,
    hop_questions,
    load_hops,
    says_missing,
    wrong_claims,
)
from tests.support.documented import documented

ROWS: list[Row] = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
BY_ID = {row["id"]: row for row in ROWS}
ABSENT = {
    "function-trimmed-mean": "statistics.trimmed_mean",
    "function-itertools-flatten": "itertools.flatten",
    "function-path-copytree": "pathlib.Path.copytree",
    "function-sleep-until": "asyncio.sleep_until",
    "option-lru-dict": "collections.LRUDict",
}
PARAMETERS = {
    "parameter-httpx-retries": ("httpx.get", "retries"),
    "parameter-deepcopy-depth": ("copy.deepcopy", "max_depth"),
    "parameter-dumps-encoding": ("json.dumps", "encoding"),
    "parameter-copytree-timeout": ("shutil.copytree", "timeout"),
    "parameter-sort-workers": ("numpy.sort", "workers"),
}
PREMISES = {
    "premise-json-sorted": ("json.dumps", "default: ``False``"),
    "premise-str-replace": ("str.replace", "Return a copy"),
    "premise-functools-cache": ("functools.cache", "unbounded"),
    "premise-sorted-iterator": ("sorted", "Return a new list"),
    "premise-pydantic-extra": ("pydantic.ConfigDict.extra", "Defaults to `'ignore'`"),
}


def claim(text: str, verdict: str = "supported") -> Row:
    cite = {"number": 1, "title": "t", "location": "l", "quote": "q", "verdict": verdict}
    return {"text": text, "cites": [cite]}


def row_of(question: str, *claims: Row, plain: str = "", status: str = "finished") -> Row:
    text = plain or " ".join(c["text"] for c in claims)
    return {
        "id": question, "plain": text, "claims": list(claims), "digest": "d", "status": status,
        "seconds": 10.0,
    }  # fmt: skip


def test_twenty_of_four_kinds_and_ten_answerable_ones_are_halved() -> None:
    assert len(BY_ID) == len(ROWS)
    assert Counter(row["kind"] for row in ROWS) == {
        "premise": 5, "parameter": 5, "function": 5, "outside": 5, ANSWERABLE: 10,
    }  # fmt: skip
    for answerable in (True, False):
        split = Counter(r["split"] for r in ROWS if (r["kind"] == ANSWERABLE) is answerable)
        assert split["train"] == split["dev"]


@pytest.mark.parametrize(("question", "symbol"), ABSENT.items())
def test_a_function_that_is_asked_for_is_not_there(question: str, symbol: str) -> None:
    assert symbol.rpartition(".")[2] in BY_ID[question]["question"]
    with pytest.raises(AttributeError):
        documented(symbol)


@pytest.mark.parametrize(("question", "named"), PARAMETERS.items())
def test_a_parameter_that_is_asked_for_is_not_there(question: str, named: tuple[str, str]) -> None:
    symbol, parameter = named
    pytest.importorskip(symbol.partition(".")[0])
    assert symbol in BY_ID[question]["question"]
    assert not re.search(rf"\b{parameter}\b", documented(symbol).partition("\n")[0])


@pytest.mark.parametrize(("question", "denied"), PREMISES.items())
def test_a_false_premise_is_denied_by_the_documentation(
    question: str, denied: tuple[str, str]
) -> None:
    symbol, said = denied
    assert said in documented(symbol)
    assert re.search(BY_ID[question]["corrects"], said, re.I)


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r["kind"] == ANSWERABLE], ids=lambda row: str(row["id"])
)
def test_an_answerable_question_has_its_answer_in_the_documentation(row: Row) -> None:
    if row["where"].startswith("pandas"):
        pytest.importorskip("pandas")
    assert re.search(row["pattern"], documented(row["where"]), re.I | re.S)
    assert not re.search(row["pattern"], row["question"], re.I | re.S)


@pytest.mark.parametrize(
    "text",
    [
        "The sources do not say where the director was born.",
        "The passages found do not settle this question.",
        "The passages hold nothing on this.",
        "The documentation doesn't mention a time-out.",
        "No information on retries was found.",
        "Nothing was found on this.",
        "httpx.get has no retries parameter.",
        "itertools has no flatten.",
        "There is no such function in statistics.",
        "max_depth is not a parameter of copy.deepcopy.",
        "shutil.copytree does not take a timeout argument.",
        "statistics.trimmed_mean does not exist.",
        "I could not find it.",
        "This cannot be determined.",
        "Her place of death is unknown.",
        "Missing: the mother's date of birth.",
        "It is not documented whether it sorts.",
        "The passages don't tell when he died.",
    ],
)
def test_what_is_missing_is_heard(text: str) -> None:
    assert says_missing(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It returns a copy of the string.",
        "If no number is given, 50 samples are made.",
        "It raises ValueError when the value is not found.",
        "The default, if none was specified, is inner.",
        "He was born in Paris and never married.",
        "sorted does not take the list apart.",
        "The source is copied.",
    ],
)
def test_a_plain_answer_is_no_refusal(text: str) -> None:
    assert not says_missing(text)


@pytest.mark.parametrize(
    ("question", "said", "wrong"),
    [
        ("premise-json-sorted", claim("json.dumps sorts the keys so that they compare."), True),
        ("premise-json-sorted", claim("Keys are sorted if sort_keys is true (default: False)."), 0),
        ("premise-functools-cache", claim("The oldest entry is evicted after 128 results."), True),
        ("premise-functools-cache", claim("It is an unbounded cache that never evicts."), False),
        ("premise-str-replace", claim("It changes the string in place."), True),
        ("premise-str-replace", claim("It returns a copy with the words replaced."), False),
        ("parameter-httpx-retries", claim("The default of retries is 3."), True),
        ("parameter-httpx-retries", claim("The default of retries is 3.", "unsupported"), False),
        ("parameter-httpx-retries", claim("httpx.get has no retries parameter."), False),
        ("parameter-httpx-retries", claim("httpx.get sends a GET request."), False),
        ("function-path-copytree", claim("It returns the destination directory."), True),
        ("function-path-copytree", claim("shutil.copytree returns the directory."), False),
        ("option-lru-dict", claim("It holds 128 entries."), True),
        ("outside-stars", claim("httpx has 13k stars."), True),
        ("outside-exchange", claim("One euro is worth 1.08."), True),
        ("outside-council", claim("The documentation does not say who was elected."), False),
    ],
)
def test_only_an_assertion_of_what_was_asked_is_a_wrong_claim(
    question: str, said: Row, wrong: bool
) -> None:
    assert bool(wrong_claims(BY_ID[question], row_of(question, said))) is bool(wrong)


@pytest.mark.parametrize(
    ("relation", "told", "other"),
    [
        ("place of birth", "Ann was born on 3 May 1950 in Oslo.", "Ann was born in May 1950."),
        ("place of death", "He died at Bithoor.", "He died in the year 1851."),
        ("date of birth", "She was born around 910.", "She was born in Metz."),
        ("date of death", "His death was on 1 March 2012.", "He died in Rome."),
    ],
)
def test_a_relation_is_told_by_its_value(relation: str, told: str, other: str) -> None:
    assert re.search(ASSERTS[relation], told, re.I)
    assert not re.search(ASSERTS[relation], other, re.I)


PASSAGES = {
    "Film": "Film is a film by Ann Lee.",
    "Ann Lee (director)": "Ann Lee was born in Oslo.",
    "Song": "Song is a song by Bo.",
    "Bo": "Bo was born in Rome.",
    "Book": "Book is a book by Cy, of Bonn.",
    "Cy": "Cy was born in Bonn.",
    "Play": "Play is a play by Di.",
    "Di": "Di was born in Lima.",
    "Lima": "Di was born in Lima, a city.",
}


def hop(start: str, end: str, answer: str, split: str, type_: str = "compositional") -> Row:
    evidence = [[start, "by", end], [end, "place of birth", answer]]
    return {
        "id": start, "type": type_, "question": f"Where was the maker of {start} born?",
        "answer": answer, "evidence": evidence, "gold": [start, end], "split": split,
    }  # fmt: skip


def hops(*questions: Row) -> Hops:
    return Hops(questions, PASSAGES)


FILM, SONG = hop("Film", "Ann Lee (director)", "Oslo", "train"), hop("Song", "Bo", "Rome", "dev")


def test_the_second_passage_is_gone_and_the_first_is_there() -> None:
    rows, corpus = hop_questions(hops(FILM, SONG), count=2, answerable=0)
    assert [(row["id"], row["kind"], row["split"]) for row in rows] == [
        ("Film", "hop", "train"), ("Song", "hop", "dev"),
    ]  # fmt: skip
    assert set(PASSAGES) - set(corpus) == {"Ann Lee (director)", "Bo"}
    assert re.search(rows[0]["asserts"], "Ann Lee comes from Oslo.")
    assert re.search(rows[0]["asserts"], "Ann Lee was born in Bergen.")
    assert not re.search(rows[0]["asserts"], "Film is a film by Ann Lee.")


@pytest.mark.parametrize(
    "question",
    [
        hop("Book", "Cy", "Bonn", "train"),  # the first passage says it
        hop("Play", "Di", "Lima", "train"),  # a third one does
        hop("Film", "Gone", "Oslo", "train"),  # there is no such passage
        hop("Film", "Film", "Oslo", "train"),
        hop("Film", "Bo", "Rome", "train", "comparison"),
        {**FILM, "gold": None},
        {**FILM, "evidence": [["Film", "by", "Ann Lee"], ["Ann Lee", "spouse", "Oslo"]]},
    ],
)
def test_what_could_still_be_answered_or_told_by_no_pattern_is_left_out(question: Row) -> None:
    assert hop_questions(hops(question), count=2, answerable=0)[0] == []


def test_no_first_passage_is_taken_and_no_second_one_twice() -> None:
    chain = hop("Ann Lee (director)", "Bo", "Rome", "train")
    again = {**hop("Play", "Ann Lee (director)", "Oslo", "dev"), "id": "again"}
    rows, corpus = hop_questions(hops(FILM, chain, again), count=4, answerable=0)
    assert len(rows) == 1 and rows[0]["gold"][0] in corpus


def test_answerable_questions_keep_both_passages() -> None:
    rows, corpus = hop_questions(hops(FILM, SONG), count=0, answerable=2)
    assert [(row["id"], row["kind"]) for row in rows] == [
        ("Film", ANSWERABLE),
        ("Song", ANSWERABLE),
    ]
    assert corpus == PASSAGES
    state = hop("Song", "Bo", "Rome, Italy", "dev")
    assert re.search(hop_questions(hops(state), count=0)[0][0]["pattern"], "Bo is from Rome.")
    born = hop("Song", "Bo", "13 May 1846", "dev")
    born["evidence"] = [["Song", "by", "Bo"], ["Bo", "date of birth", "13 May 1846"]]
    assert hop_questions(hops(born), count=0)[0][0]["pattern"] == r"\b1846\b"


def test_the_hops_are_twenty_without_and_ten_with_their_second_passage() -> None:
    hops = load_hops()
    made, corpus = hop_questions(hops)
    assert Counter((row["kind"], row["split"]) for row in made) == {
        ("hop", "train"): 10, ("hop", "dev"): 10, (ANSWERABLE, "train"): 5, (ANSWERABLE, "dev"): 5,
    }  # fmt: skip
    assert len(hops.passages) - len(corpus) == 20
    assert hop_questions(hops)[0] == made, "by their seed"
    for row in made:
        start, end = row["gold"]
        assert start in corpus and (end in corpus) is (row["kind"] == ANSWERABLE)


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


def test_a_readers_verdict_stands_above_the_patterns() -> None:
    row = row_of("outside-stars", claim("httpx has 13k stars."))
    read = {("outside-stars", "d"): {"handled": True, "wrong": False}}
    found = grade(BY_ID["outside-stars"], row, read)
    assert found["handled"] and not found["wrong"]
    other = {("outside-stars", "e"): {"handled": True, "wrong": False}}
    assert not grade(BY_ID["outside-stars"], row, other)["handled"], "of another answer"


@pytest.mark.parametrize(
    ("row", "unneeded"),
    [
        (row_of("can-linspace", claim("It returns 50 samples.")), False),
        (row_of("can-linspace", plain="It is 50; why was not found."), False),
        (row_of("can-linspace", plain="The number was not found."), True),
        (row_of("can-linspace", status="no_evidence", plain="Nothing."), True),
        (row_of("can-linspace", claim("It returns 100 samples.")), False),  # wrong, not refused
        (row_of("can-linspace", status="failed"), False),
    ],
)
def test_refused_without_need_is_what_names_as_missing_what_it_does_not_tell(
    row: Row, unneeded: bool
) -> None:
    assert grade(BY_ID["can-linspace"], row, {})["refused"] is unneeded


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
    assert not holds(values)
    met = {"handled_share": 0.8, "wrong_claims_share": 0.1, "answerable_refused_share": 0.05}
    assert holds(met) and not holds(met | {"answerable_refused_share": None})


def test_the_quick_ones_are_two_of_each() -> None:
    made, _ = hop_questions(hops(FILM, SONG), count=2, answerable=0)
    chosen = few([*ROWS, *made])
    assert [row["source"] for row in chosen] == ["python"] * 4 + ["hops"] * 2
    assert sum(row["kind"] == ANSWERABLE for row in chosen) == 2
