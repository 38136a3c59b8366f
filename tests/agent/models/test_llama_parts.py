"""The arithmetic of a weighing; the real model is in test_choice_judge."""

import pytest

from rubricem.agent.models.llama import shares
from rubricem.memory.errors import PolicyError


def test_shares_are_probabilities_among_the_options_of_which_one_must_have_some():
    # Odds of 3 to 1, far down in the vocabulary's tail.
    low, high = -1000.0 - 1.0986122886681098, -1000.0
    assert shares([low, high]) == pytest.approx((0.25, 0.75))
    assert shares([-3.0, None]) == (1.0, 0.0)
    with pytest.raises(PolicyError, match="none of the options"):
        shares([None, None])
