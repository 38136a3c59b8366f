"""What each token wrote, told by its own text against the text of the whole reply."""

import pytest

from agent.servers.dialects import Piece
from agent.servers.token_reading import TokenReading, aligned

P = "\ufffd"


@pytest.mark.parametrize(
    ("parts", "text", "ends"),
    [
        (["ab", "c"], "abc", [2, 3]),
        ([], "", []),
        (["f", P, P, "r"], "für", [1, 1, 2, 3]),
        ([P, P], "ü", [0, 1]),
        ([f" {P}", f"{P}x", "y"], " üxy", [0, 3, 4]),
        (["Hello", "world"], " Hello world", [6, 12]),
        (["ab", "cd", "ef"], "abc", [2, 3, 3]),
        (["ab", "<|im_end|>"], "ab", [2, 2]),
        (["a", "", "b"], "ab", [1, 1, 2]),
        (["a", P], "a", [1, 1]),
    ],
)
def test_tokens_end_where_their_texts_do(parts: list[str], text: str, ends: list[int]):
    assert aligned(parts, text) == ends


@pytest.mark.parametrize(
    ("parts", "text"),
    [(["ab"], "abc"), (["ab", "x"], "abcd"), (["b"], "ab"), ([P, "z"], "für"), ([], "a")],
)
def test_tokens_that_did_not_write_the_text_have_no_place(parts: list[str], text: str):
    assert aligned(parts, text) is None


def test_without_texts_of_their_own_tokens_end_where_their_event_did():
    reading = TokenReading()
    reading.take(Piece("ab", (1,)))
    reading.take(Piece("cde", (2, 3)))
    reading.take(Piece(finish="eos"))
    assert reading.parts is None and reading.logprobs is None
    assert reading.ends() == [2, 2, 5]
    assert (reading.text, reading.reason) == ("abcde", "eos")


def test_what_comes_after_the_end_is_counted_but_not_kept():
    reading = TokenReading(stop=lambda text: 1 if text else None)
    for number in range(4):
        reading.take(Piece("ab", (number,), (-0.1,), ("ab",)))
    assert (reading.text, reading.raw, reading.ids) == ("a", "ab", [0])
    assert reading.complete and reading.overdue
