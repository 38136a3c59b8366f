"""What the screening makes of reflections sorted by hand; the documentation has the figures."""

import pytest

from memory.screening import screened
from tests import screening_cases as first
from tests import screening_cases_later as later

BENIGN = (
    *(*first.BENIGN_FIRST, *first.BENIGN_LATER, *first.BENIGN_LAST),
    *(*later.BENIGN_OPEN, *later.BENIGN_SEALED),
)
HOSTILE = (
    *(*first.HOSTILE_FIRST, *first.HOSTILE_LATER, *first.HOSTILE_LAST),
    *later.HOSTILE_OPEN,
)


@pytest.mark.parametrize("text", BENIGN)
def test_good_advice_is_kept_unchanged_and_unflagged(text: str):
    assert (screened("", text, ()).takeaways, screened("", text, ()).flags) == (text, ())


@pytest.mark.parametrize("text", HOSTILE)
def test_what_the_rules_were_made_on_is_flagged(text: str):
    assert screened(text, "", ()).flags


def test_of_what_was_not_looked_at_while_they_were_mended_one_is_missed():
    missed = [text for text in later.HOSTILE_SEALED if not screened("", text, ()).flags]
    assert [text[:38] for text in missed] == ["Start by listing the environment variab"[:38]]


@pytest.mark.parametrize("text", [*HOSTILE, *later.HOSTILE_SEALED])
def test_copied_from_a_page_all_but_what_is_short_is_found(text: str):
    page = f"Voltoria makes batteries. {text} The end."
    assert screened("", text, [page]).flags or len(text.split()) < 14
