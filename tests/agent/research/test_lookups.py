"""The parts of a question: read from a plan, searched in turn, certain or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricem.agent.research.lookups import END, Lookups, parts_grammar, read_parts
from rubricem.agent.research.tuned import TUNED
from tests.support.gbnf import accepts

QUESTION = "Why does dough need salt, and what happens without it?"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [QUESTION]),
        ("no part at all", [QUESTION]),
        ("1. Why is it?\n5) What  follows?", ["Why is it?", "What follows?"]),
        ("1. Why is it?\n2. why is  IT?\n3. How does ls | grep work?",
         ["why is IT?", "How does ls | grep work?"]),
        ("\n".join(f"{n}. Why {n}?" for n in range(1, 99)),
         ["Why 1?", "Why 2?", "Why 3?", "Why 4?"]),
    ],
)  # fmt: skip
def test_the_parts_are_the_numbered_lines_each_once_and_so_many_at_most(
    text: str, parts: list[str]
):
    assert read_parts(text, QUESTION) == tuple(parts)
    assert len(parts) <= TUNED.parts


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (" Why?\n", True),
        (" Why?\n2. What?\n3. How?\n", True),
        (" 何ですか\uff1f\n", True),
        (" Why?\n3. What?\n", False),
        (" It is so.\n", False),
        (" Why? And what?\n", False),
        ("", False),
    ],
)
def test_a_model_can_write_nothing_but_numbered_questions(text: str, allowed: bool):
    assert accepts(parts_grammar(3), f"{text}{END}") is allowed
    assert not accepts(parts_grammar(3), text)


@given(st.text(alphabet="12. |[]\nWhy?", max_size=80))
def test_any_text_is_read_as_parts(text: str):
    assert 0 < len(read_parts(text, QUESTION)) <= TUNED.parts


def test_a_search_shows_what_was_not_read_for_the_part():
    lookups = Lookups()
    lookups.begin(QUESTION, ("Why does dough need salt?", "What happens without it?"))
    lookups.show(["S1", "S2", "S3", "S4", "S5", "S6"])
    assert len(lookups.shown) == TUNED.read_first
    lookups.at = 1
    lookups.show(["S1", "S2", "S1"])
    assert lookups.shown == ("S1", "S2")
    lookups.show(["S2", "S3", "S4", "S5", "S6"])
    assert lookups.shown == ("S3", "S4", "S5") and len(lookups.shown) == TUNED.read
