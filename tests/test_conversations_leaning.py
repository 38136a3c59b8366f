"""Which questions lean on the one before, and what they are searched for with."""

import pytest

from agent.conversations.leaning import leans, standalone

FIRST = "What does functools.lru_cache do with maxsize=None?"


@pytest.mark.parametrize(
    "question",
    [
        "And in Python 3.12?",
        "and what about thread safety?",
        "Is it faster than a plain dictionary lookup?",
        "Why?",
        "How do they differ in memory use?",
        "An example?",
        "Und in Python 3.12?",
        "What about the GIL?",
    ],
)
def test_it_leans(question: str):
    assert leans(question)


@pytest.mark.parametrize(
    "question",
    [
        FIRST,
        "How does asyncio.gather treat exceptions?",
        "Which sorting algorithm does CPython use for lists?",
        "How do vaccines train the immune system?",
    ],
)
def test_it_stands_by_itself(question: str):
    assert not leans(question)


def test_a_leaning_question_is_searched_for_with_the_names_of_the_thread():
    assert standalone("And in Python 3.12?", [FIRST]) == (
        "functools.lru_cache maxsize=None And in Python 3.12?"
    )


def test_the_subject_is_that_of_the_last_question_that_stands_by_itself():
    thread = ["How does the moon raise the tides?", FIRST, "And in 3.12?"]
    assert standalone("Is it slower?", thread) == "functools.lru_cache maxsize=None Is it slower?"


def test_a_word_that_the_question_has_is_not_put_before_it_again():
    said = standalone("And lru_cache with typed?", ["Does lru_cache evict old entries?"])
    assert said == "evict old entries And lru_cache with typed?"


def test_a_question_that_stands_by_itself_or_is_the_first_stays_as_it_is():
    asked = "How does  asyncio.gather\ntreat exceptions?"
    assert standalone(asked, [FIRST]) == asked
    assert standalone("And then?", []) == "And then?"


def test_a_thread_of_leaning_questions_alone_takes_its_first():
    assert standalone("And more?", ["Why tides?", "And then?"]) == "tides And more?"
