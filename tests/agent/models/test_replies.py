import time

import pytest

from rubricem.agent.models.replies import Piece, TokenReading, align_parts, looping
from rubricem.memory.schema import NO_USAGE
from rubricem.memory.text import split_thinking

PROSE = (
    "An ordered mapping keeps the keys as they were inserted. When the cache is full, the least "
    "recently used entry is dropped; a lookup moves its entry to the end. With no bound nothing "
    "is dropped at all, so the cache grows with every distinct call, and it stays alive as long "
    "as the function it belongs to. A typed cache keeps 3 and 3.0 apart, which an untyped one "
    "does not, because both hash alike and compare equal."
)
BLOCK = "k" * 79 + "z"


@pytest.mark.parametrize("block", ["ab", "the cache; ", "x" * 59 + "y", "k" * 119 + "z"])
def test_a_block_written_again_and_again_is_a_loop(block: str) -> None:
    repeats = max(4, -(-240 // len(block)))
    assert looping(PROSE + block * repeats)


@pytest.mark.parametrize(
    ("loop", "none"),
    [
        (PROSE + "the least recently used; " * 12 + "the least rec", PROSE),
        ("." + BLOCK * 4, "." + BLOCK * 3),
        ("-" + "ab" * 120, "-" + "ab" * 119),
        ("?" + "=" * 200, "?" + "=" * 199),
        ("ab" * 300, "ab" * 300 + " and so the answer is that nothing is dropped."),
    ],
    ids=["last block cut short", "repeats", "240 characters", "one character", "left again"],
)
def test_a_loop_begins_where_it_is_said_to(loop: str, none: str) -> None:
    assert looping(loop) and not looping(none)


@pytest.mark.parametrize("text", ["", "a", PROSE, "| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n" * 3])
def test_prose_and_short_tables_are_no_loop(text: str) -> None:
    assert not looping(text)


def test_a_look_costs_far_less_than_a_millisecond() -> None:
    text = PROSE * 200
    start = time.process_time()
    for _ in range(200):
        looping(text)
    assert (time.process_time() - start) / 200 < 0.001


@pytest.mark.parametrize(
    ("raw", "reasoning", "text"),
    [
        ("<think>why</think>so", "why", "so"),
        ("\n<think>\nwhy\n</think>\n\nso", "why", "so"),
        ("why</think>so", "why", "so"),
        ("<think></think>so", "", "so"),
        ("<think>why", "why", ""),
        ("so it is", "", "so it is"),
        ("so <think>late</think>", "so <think>late", ""),
        ("<answer>a</answer>", "", "<answer>a</answer>"),
        ("", "", ""),
    ],
)
def test_thinking_is_split_from_the_start(raw: str, reasoning: str, text: str) -> None:
    assert split_thinking(raw) == (reasoning, text)


def test_no_piece_of_an_opened_thought_is_ever_taken_for_text() -> None:
    whole = "<think>why not</think>because"
    seen = [split_thinking(whole[:end])[1] for end in range(len(whole) + 1)]
    assert [text for text in seen if text] == ["because"[:end] for end in range(1, 8)]


P = "\ufffd"
NOT_WRITTEN = ((["ab"], "abc"), (["ab", "x"], "abcd"), (["b"], "ab"), ([P, "z"], "für"), ([], "a"))


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
        *((parts, text, None) for parts, text in NOT_WRITTEN),
    ],
)
def test_tokens_end_where_their_texts_do_if_they_wrote_the_text(
    parts: list[str], text: str, ends: list[int] | None
):
    assert align_parts(parts, text) == ends


def test_without_texts_of_their_own_tokens_end_where_their_event_did():
    reading = TokenReading()
    reading.take(Piece("ab", (1,)))
    reading.take(Piece("cde", (2, 3)))
    reading.take(Piece(finish="eos"))
    assert reading.parts is None and reading.logprobs is None
    assert reading.completion(NO_USAGE).token_ends == (2, 2, 5)
    assert (reading.text, reading.reason) == ("abcde", "eos")


def test_what_comes_after_the_end_is_counted_but_not_kept():
    reading = TokenReading(stop=lambda text: 1 if text else None)
    for number in range(4):
        reading.take(Piece("ab", (number,), (-0.1,), ("ab",)))
    assert (reading.text, reading.raw, reading.ids) == ("a", "ab", [0])
    assert reading.complete and reading.overdue
