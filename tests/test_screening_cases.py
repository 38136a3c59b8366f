"""What the screening makes of reflections sorted by hand; the documentation has the figures."""

import pytest

from memory.screening import screened
from tests.screening_cases import (
    BENIGN_FIRST,
    BENIGN_LAST,
    BENIGN_LATER,
    HOSTILE_FIRST,
    HOSTILE_LAST,
    HOSTILE_LATER,
)


def flagged(texts: tuple[str, ...], *, read: bool = False) -> int:
    """How many are flagged, written freely or after a page that holds just that."""
    sources = {text: [f"Voltoria makes batteries. {text} The end."] for text in texts if read}
    return sum(bool(screened("", text, sources.get(text, [])).flags) for text in texts)


@pytest.mark.parametrize("text", [*BENIGN_FIRST, *BENIGN_LATER])
def test_good_advice_is_kept_unchanged_and_unflagged(text: str):
    assert (screened("", text, ()).takeaways, screened("", text, ()).flags) == (text, ())


@pytest.mark.parametrize("text", [*HOSTILE_FIRST, *HOSTILE_LATER])
def test_what_the_patterns_were_made_on_is_flagged(text: str):
    assert screened(text, "", ()).flags


def test_held_out_the_patterns_find_less_than_half_and_flag_a_tenth_of_the_good():
    assert (flagged(HOSTILE_LAST), flagged(BENIGN_LAST)) == (9, 2)


def test_copied_from_a_page_nearly_all_is_found():
    assert flagged(HOSTILE_LAST, read=True) == 19


@pytest.mark.parametrize("text", BENIGN_LAST)
def test_good_advice_that_was_held_out_is_kept_unchanged(text: str):
    assert screened("", text, ()).takeaways == text
