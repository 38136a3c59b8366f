"""A grammar of the spans of passages: nothing else can be written, and each fits its kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.agent.research.spans import span_grammar
from rubricem.memory.schema import AnswerKind
from tests.support.gbnf import accepts

TEXT = (
    "Ada Bergstrom (4 May 1894 in Visby, Gotland, to 1967) was a Swedish film director. She lived "
    "with J. R. Smith of the House of the Seven Gables for three years, and had 12,500 books."
)


@pytest.mark.parametrize(
    ("kind", "span", "allowed"),
    [
        (AnswerKind.PERSON, "Ada Bergstrom", True),
        (AnswerKind.PERSON, "J. R. Smith", True),
        (AnswerKind.PERSON, "Bergstrom (4", False),
        (AnswerKind.PERSON, "film director", False),
        (AnswerKind.PERSON, "Mira Holt", False),
        (AnswerKind.PLACE, "Visby, Gotland", True),
        (AnswerKind.ORGANISATION, "House of the Seven Gables", True),
        (AnswerKind.WORK, "Seven Gables for three years", False),
        (AnswerKind.DATE, "4 May 1894", True),
        (AnswerKind.DATE, "1967", True),
        (AnswerKind.DATE, "May", False),
        (AnswerKind.DATE, "Visby", False),
        (AnswerKind.NUMBER, "three years", True),
        (AnswerKind.NUMBER, "12,500 books", True),
        (AnswerKind.NUMBER, "books", False),
        (AnswerKind.THING, "Swedish film director", True),
        (AnswerKind.THING, "Swedish", True),
        (AnswerKind.THING, "a Swedish film director", False),
        (AnswerKind.THING, "director. She", False),
    ],
)
def test_a_span_begins_and_ends_as_its_kind_does(kind: AnswerKind, span: str, allowed: bool):
    assert accepts(span_grammar([TEXT], kind), span) is allowed


def test_what_has_no_span_of_a_kind_has_no_grammar():
    assert span_grammar(["nobody did it"], AnswerKind.DATE) == ""
    assert span_grammar([], AnswerKind.THING) == ""


def test_scripts_without_capitals_offer_their_characters():
    assert accepts(span_grammar(["東京は日本の首都です。"], AnswerKind.PLACE), "東京")
    assert accepts(span_grammar(["1990年5月4日に生まれた"], AnswerKind.DATE), "1990年5月4日")


@given(st.text(alphabet='ab AB1."\\\n([{<|>', max_size=40))
def test_any_text_makes_a_grammar_that_offers_its_own_words_alone(text: str):
    grammar = span_grammar([text], AnswerKind.THING)
    assert not accepts(grammar or 'root ::= "x"', "zz")
    assert grammar.count("\n") == bool(grammar)
