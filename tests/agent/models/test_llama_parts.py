"""Threads for the embedded model: cores that others keep busy are not counted.

What comes back for a weighing, and its arithmetic; the real model is in test_choice_judge.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rubricem.agent.models.llama import Weighing, free_cores, looping, physical_cores, shares
from rubricem.memory.errors import PolicyError

needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads /proc/stat")


def test_there_is_always_a_core():
    assert 1 <= free_cores(0.05) <= physical_cores() <= (os.cpu_count() or 1)


@needs_proc
def test_a_busy_machine_leaves_one_thread():
    spin = "while True: pass"
    count = os.cpu_count() or 1
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        assert free_cores(1.0) == 1
    finally:
        for other in others:
            other.kill()
            other.wait()


@needs_proc
def test_the_work_of_this_process_does_not_count():
    code = (
        "import threading\nfrom rubricem.agent.models.llama import free_cores, physical_cores\n"
        "def spin():\n    while True: sum(range(10000))\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "print(free_cores(1.0), physical_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free, cores = map(int, done.stdout.split())
    assert 1 <= free <= cores


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


def test_shares_are_probabilities_among_the_options():
    # Odds of 3 to 1, far down in the vocabulary's tail.
    low, high = -1000.0 - 1.0986122886681098, -1000.0
    assert shares([low, high]) == pytest.approx((0.25, 0.75))
    assert shares([-3.0, None]) == (1.0, 0.0)


def test_options_without_any_probability_are_an_error():
    with pytest.raises(PolicyError, match="none of the options"):
        shares([None, None])


def test_a_reply_is_read_and_an_error_kept():
    weighing = Weighing()
    top = [{"id": 5, "logprob": -0.5}, {"id": 6, "logprob": -1.5}]
    choice = {"logprobs": {"content": [{"id": 5, "top_logprobs": top}]}}
    assert not weighing.take({"choices": [choice]})
    assert weighing.logprobs == {5: -0.5, 6: -1.5}
    assert Weighing().take({"error": {"message": "too long"}})
    broken = Weighing()
    assert broken.take({"choices": [{"logprobs": {"content": [{}]}}]})
    assert broken.error.startswith("KeyError")
