import pytest

from agent.sources.passages import split_passages, without_near_duplicates
from agent.sources.words import stem, words
from memory.interfaces import Passage


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        (("cache", "caches", "cached", "caching"), "cach"),
        (("query", "queries"), "query"),
        (("stop", "stopped", "stopping"), "stop"),
        (("pass", "passes", "passing"), "pass"),
        (("string", "strings"), "string"),
    ],
)
def test_forms_of_a_word_share_one_stem(variants: tuple[str, ...], expected: str) -> None:
    assert {stem(word) for word in variants} == {expected}


def test_identifier_counts_whole_and_in_parts() -> None:
    assert words("functools.lru_cache") == [
        "functools.lru_cache",
        "functool",
        "lru_cache",
        "lru",
        "cach",
    ]


def test_camel_case_is_split_and_kept() -> None:
    assert words("HTTPStatusError") == ["httpstatuserror", "http", "status", "error"]


def test_dotted_name_gives_its_endings() -> None:
    assert "path.read_text" in words("pathlib.Path.read_text")


def test_stop_words_and_punctuation_count_for_nothing() -> None:
    assert words("What does it do, and why?") == []


def test_text_is_cut_between_paragraphs() -> None:
    text = "one two three\n\nfour five\n\nsix seven"
    assert split_passages(text, 5) == ["one two three\n\nfour five", "six seven"]


def test_long_paragraph_is_cut_between_sentences() -> None:
    assert split_passages("One two three. Four five six. Seven.", 4) == [
        "One two three.",
        "Four five six. Seven.",
    ]


def test_text_without_sentences_is_cut_by_words() -> None:
    assert split_passages("a b c d e", 2) == ["a b", "c d", "e"]


def test_no_word_is_lost_and_no_passage_is_too_long() -> None:
    text = "\n\n".join(f"Word {i} stands here. It has a sentence.\n- item {i}" for i in range(90))
    pieces = split_passages(text, 20)
    assert " ".join(pieces).split() == text.split()
    assert max(len(piece.split()) for piece in pieces) <= 20


def test_blank_text_has_no_passages() -> None:
    assert split_passages(" \n\n \n") == []


def test_of_two_near_duplicates_the_first_is_kept() -> None:
    texts = ["Return the sum of all items.", "Return the sum of all items", "Something else."]
    passages = [Passage(str(i), "x", "", text) for i, text in enumerate(texts)]
    assert [p.title for p in without_near_duplicates(passages, 5)] == ["0", "2"]
