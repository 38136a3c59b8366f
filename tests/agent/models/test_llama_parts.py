"""What comes back for a weighing, and its arithmetic; the real model is in test_choice_judge."""

import pytest

from rubricem.agent.models.llama import Weighing, shares
from rubricem.memory.errors import PolicyError


def test_shares_are_probabilities_among_the_options_of_which_one_must_have_some():
    # Odds of 3 to 1, far down in the vocabulary's tail.
    low, high = -1000.0 - 1.0986122886681098, -1000.0
    assert shares([low, high]) == pytest.approx((0.25, 0.75))
    assert shares([-3.0, None]) == (1.0, 0.0)
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
    with pytest.raises(PolicyError, match="could not be read: KeyError"):
        broken.check()
