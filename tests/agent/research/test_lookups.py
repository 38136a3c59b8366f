"""What look-ups found, how certain it is, and what code makes of dates, numbers, yes and no."""

import pytest

from rubricem.agent.research.lookups import Finding, Lookups, value_of
from rubricem.agent.research.plans import Lookup, Plan, PlanOperation
from rubricem.agent.research.tuned import TUNED
from rubricem.memory.schema import AnswerKind, Certainty


def finding(text: str, kind: AnswerKind = AnswerKind.PERSON, chance: float = 0.9) -> Finding:
    return Finding(text, "S1", f"It says {text}.", kind, chance)


def begun(
    *texts: str, operation: PlanOperation = PlanOperation.NONE, of: tuple[int, ...] = ()
) -> Lookups:
    lookups = Lookups()
    steps = tuple(Lookup(n, text, AnswerKind.PERSON) for n, text in enumerate(texts, start=1))
    lookups.begin(Plan(steps, operation, of))
    return lookups


CHAIN = ("Who directed The Kite?", "Where did [1] die?")


def test_what_was_found_stands_in_the_place_of_its_reference():
    lookups = begun(*CHAIN)
    assert lookups.resolve(lookups.plan.step(2)) is None
    lookups.found[1] = finding("Mira Holt")
    assert lookups.resolve(lookups.plan.step(2)) == "Where did Mira Holt die?"


def test_the_next_look_up_is_the_first_that_is_known_enough_and_was_not_searched():
    lookups = begun("Where did the director die?", "Who directed The Kite?", "Where did [2] die?")
    assert lookups.at == 0, "the question itself"
    assert lookups.next() == lookups.plan.step(2), "the answer does not rest on the first"
    lookups.queries[2] = ["Who directed The Kite?"] * TUNED.tries
    assert lookups.next() == lookups.plan.step(1)
    lookups.found[2] = finding("Mira Holt")
    assert lookups.next() == lookups.plan.step(3)
    lookups.queries[3], lookups.found[3] = ["Where did Mira Holt die?"], finding("Turin")
    assert lookups.next() is None


def test_a_source_is_shown_for_a_look_up_once_and_only_so_many():
    lookups = begun(*CHAIN)
    lookups.show(["S1", "S2", "S3", "S4", "S5", "S6"])
    assert len(lookups.shown) == TUNED.read_first
    lookups.at = 1
    lookups.show(["S1", "S2", "S1"])
    assert lookups.shown == ("S1", "S2")
    lookups.show(["S2", "S3", "S4", "S5", "S6"])
    assert lookups.shown == ("S3", "S4", "S5") and len(lookups.shown) == TUNED.read
    lookups.at = 2
    lookups.show(["S1"])
    assert lookups.shown == ("S1",)


def test_a_finding_is_as_certain_as_all_that_it_rests_on():
    lookups = begun(*CHAIN)
    lookups.found = {1: finding("Mira Holt", chance=0.7), 2: finding("Turin", chance=0.7)}
    assert lookups.chance(2) == pytest.approx(0.49)
    assert lookups.certainty(1) is Certainty.CERTAIN
    assert lookups.certainty(2) is Certainty.UNCERTAIN
    del lookups.found[2]
    assert lookups.certainty(2) is Certainty.NOT_FOUND


def test_past_look_ups_say_what_was_asked_found_and_how_certain():
    lookups = begun(*CHAIN, "Who is [2]?")
    lookups.queries = {1: ["Who directed The Kite?"]}
    lookups.found = {1: finding("Mira Holt", chance=0.3)}
    first, second = lookups.past()
    assert (first.answer, first.source, first.kind) == ("Mira Holt", "S1", AnswerKind.PERSON)
    assert (first.certainty, first.chance) == (Certainty.UNCERTAIN, 0.3)
    assert (first.quote, first.queries) == ("It says Mira Holt.", ("Who directed The Kite?",))
    assert (second.asked, second.answer) == ("Where did Mira Holt die?", "")
    assert (second.certainty, second.chance) == (Certainty.NOT_FOUND, None)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("4 May 1894", AnswerKind.DATE, (1894, 5, 4)),
        ("May 12, 1990", AnswerKind.DATE, (1990, 5, 12)),
        ("Sept 1990", AnswerKind.DATE, (1990, 0, 0)),
        ("Sep 1990", AnswerKind.DATE, (1990, 9, 0)),
        ("the 1990s", AnswerKind.DATE, (1990, 0, 0)),
        ("4 mai 1894", AnswerKind.DATE, (1894, 0, 0)),
        ("spring", AnswerKind.DATE, None),
        ("12,500 people", AnswerKind.NUMBER, (12500,)),
        ("3.5 million", AnswerKind.NUMBER, (3.5,)),
        ("1,234,567", AnswerKind.NUMBER, (1234567,)),
        ("1.234.567,5", AnswerKind.NUMBER, (1234567.5,)),
        ("three", AnswerKind.NUMBER, None),
        ("yes", AnswerKind.YES_NO, True),
        ("no", AnswerKind.YES_NO, False),
        ("1894", AnswerKind.PERSON, None),
    ],
)
def test_dates_numbers_and_yes_or_no_have_values(text: str, kind: AnswerKind, value: object):
    assert value_of(finding(text, kind)) == value


@pytest.mark.parametrize(
    ("operation", "kind", "first", "second", "outcome"),
    [
        (PlanOperation.EARLIER, AnswerKind.DATE, "1894", "1901", 1),
        (PlanOperation.LATER, AnswerKind.DATE, "1894", "1901", 2),
        (PlanOperation.EARLIER, AnswerKind.DATE, "4 May 1894", "2 May 1894", 2),
        (PlanOperation.EARLIER, AnswerKind.DATE, "1894", "2 May 1894", None),
        (PlanOperation.EARLIER, AnswerKind.DATE, "1894", "1894", None),
        (PlanOperation.LATER, AnswerKind.NUMBER, "12", "9", 1),
        (PlanOperation.SAME, AnswerKind.DATE, "1894", "1894", True),
        (PlanOperation.SAME, AnswerKind.DATE, "1894", "1895", False),
        (PlanOperation.BOTH, AnswerKind.YES_NO, "yes", "yes", True),
        (PlanOperation.BOTH, AnswerKind.YES_NO, "yes", "no", False),
        (PlanOperation.SAME, AnswerKind.PLACE, "Turin", "Turin", None),
        (PlanOperation.BOTH, AnswerKind.PLACE, "Turin", "Turin", None),
        (PlanOperation.EARLIER, AnswerKind.PERSON, "Mira Holt", "Abel Quist", None),
        (PlanOperation.NONE, AnswerKind.DATE, "1894", "1901", None),
    ],
)
def test_code_operates_on_values_and_leaves_texts_to_the_model(
    operation: PlanOperation, kind: AnswerKind, first: str, second: str, outcome: object
):
    lookups = begun("First?", "Second?", operation=operation, of=(1, 2))
    lookups.found = {1: finding(first, kind), 2: finding(second, kind)}
    assert lookups.operate() is outcome or lookups.operate() == outcome
    assert type(lookups.operate()) is type(outcome)
    del lookups.found[2]
    assert lookups.operate() is None
