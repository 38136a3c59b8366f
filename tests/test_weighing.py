"""What comes back for a weighing, and its arithmetic; the real model is in test_choice_judge."""

import pytest

from agent.weighing import Weighing, shares
from memory.errors import PolicyError


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
