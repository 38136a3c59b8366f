import pytest

from rubricem.agent.models.llama import shares
from rubricem.agent.models.replies import looping
from rubricem.memory.errors import PolicyError
from rubricem.memory.text import split_thinking

PROSE = (
    "An ordered mapping keeps the keys as they were inserted. When the cache is full, the least "
    "recently used entry is dropped; a lookup moves its entry to the end. With no bound nothing "
    "is dropped at all, so the cache grows with every distinct call, and it stays alive as long "
    "as the function it belongs to. A typed cache keeps 3 and 3.0 apart, which an untyped one "
    "does not, because both hash alike and compare equal."
)
BLOCK = "k" * 79 + "z"


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


@pytest.mark.parametrize(
    ("raw", "reasoning", "text"),
    [
        ("<think>why</think>so", "why", "so"),
        ("why</think>so", "why", "so"),
        ("<think>why", "why", ""),
        ("so it is", "", "so it is"),
        ("so <think>late</think>", "so <think>late", ""),
    ],
)
def test_thinking_is_split_from_the_start(raw: str, reasoning: str, text: str) -> None:
    assert split_thinking(raw) == (reasoning, text)


def test_no_piece_of_an_opened_thought_is_ever_taken_for_text() -> None:
    whole = "<think>why not</think>because"
    seen = [split_thinking(whole[:end])[1] for end in range(len(whole) + 1)]
    assert [text for text in seen if text] == ["because"[:end] for end in range(1, 8)]


def test_shares_are_probabilities_among_the_options_of_which_one_must_have_some():
    # Odds of 3 to 1, far down in the vocabulary's tail.
    low, high = -1000.0 - 1.0986122886681098, -1000.0
    assert shares([low, high]) == pytest.approx((0.25, 0.75))
    assert shares([-3.0, None]) == (1.0, 0.0)
    with pytest.raises(PolicyError, match="none of the options"):
        shares([None, None])
