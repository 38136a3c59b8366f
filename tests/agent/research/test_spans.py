"""A grammar of the spans of texts: nothing else can be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.agent.research.reading import span_grammar
from tests.support.gbnf import accepts

TEXT = (
    "Ada Bergstrom (4 May 1894 in Visby, Gotland, to 1967) was a Swedish film director. She lived "
    "with J. R. Smith of the House of the Seven Gables for three years, and had 12,500 books."
)


@pytest.mark.parametrize(
    ("span", "allowed"),
    [
        ("Ada Bergstrom", True),
        ("J. R. Smith", True),
        ("Bergstrom (4", False),
        ("Mira Holt", False),
        ("Visby, Gotland", True),
        ("House of the Seven Gables", True),
        ("4 May 1894", True),
        ("12,500 books", True),
        ("Swedish film director", True),
        ("a Swedish film director", False),
        ("director. She", False),
    ],
)
def test_a_span_stays_in_its_sentence_and_ends_with_no_function_word(span: str, allowed: bool):
    assert accepts(span_grammar(TEXT), span) is allowed


def test_of_nothing_but_function_words_there_is_yes_and_no_alone():
    assert span_grammar("Was it?") == span_grammar("") == 'root ::= "yes" | "no"\n'


def test_scripts_without_capitals_offer_their_characters():
    assert accepts(span_grammar("東京は日本の首都です。"), "東京")
    assert accepts(span_grammar("1990年5月4日に生まれた"), "1990年5月4日")


@given(st.text(alphabet='ab AB1."\\\n([{<|>', max_size=40))
def test_any_text_makes_a_grammar_that_offers_its_own_words_alone(text: str):
    grammar = span_grammar(text)
    assert not accepts(grammar, "zz") and grammar.count("\n") == 1
