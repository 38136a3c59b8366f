import time

import pytest

from agent.stops import looping

PROSE = (
    "An ordered mapping keeps the keys as they were inserted. When the cache is full, the least "
    "recently used entry is dropped; a lookup moves its entry to the end. With no bound nothing "
    "is dropped at all, so the cache grows with every distinct call, and it stays alive as long "
    "as the function it belongs to. A typed cache keeps 3 and 3.0 apart, which an untyped one "
    "does not, because both hash alike and compare equal."
)


@pytest.mark.parametrize("block", ["ab", "the cache; ", "x" * 59 + "y", "k" * 119 + "z"])
def test_a_block_written_again_and_again_is_a_loop(block: str) -> None:
    repeats = max(4, -(-240 // len(block)))
    assert looping(PROSE + block * repeats)


def test_the_last_block_may_be_cut_short() -> None:
    assert looping(PROSE + "the least recently used; " * 12 + "the least rec")


def test_one_repeat_too_few_is_no_loop() -> None:
    block = "k" * 79 + "z"
    assert not looping("." + block * 3)
    assert looping("." + block * 4)


def test_a_tail_below_240_characters_is_no_loop() -> None:
    assert not looping("-" + "ab" * 119)
    assert looping("-" + "ab" * 120)


def test_two_hundred_of_one_character_are_a_loop_and_199_are_not() -> None:
    assert looping("?" + "=" * 200)
    assert not looping("?" + "=" * 199)


def test_a_loop_that_was_left_is_no_loop() -> None:
    assert not looping("ab" * 300 + " and so the answer is that nothing is dropped.")


@pytest.mark.parametrize("text", ["", "a", PROSE, "| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n" * 3])
def test_prose_and_short_tables_are_no_loop(text: str) -> None:
    assert not looping(text)


def test_a_look_costs_far_less_than_a_millisecond() -> None:
    text = PROSE * 200
    start = time.process_time()
    for _ in range(200):
        looping(text)
    assert (time.process_time() - start) / 200 < 0.001
