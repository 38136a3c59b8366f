"""The interval of a mean."""

import pytest

from rubricem.training.rounds.numbers import mean_interval, reward_intervals
from tests.training.rounds.test_numbers import group


def test_an_interval_is_around_its_mean_narrower_for_more_values_and_of_two_at_least():
    few, many = mean_interval([0.0, 1.0] * 3), mean_interval([0.0, 1.0] * 30)
    assert few is not None and many is not None
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    assert mean_interval([0.4] * 3) == (pytest.approx(0.4), pytest.approx(0.4))
    assert mean_interval([1.0]) is None
    # The mean's standard error is 0.5 / sqrt(60); 1.96 of them are 0.127.
    assert many[1] - many[0] == pytest.approx(2 * 0.127, abs=0.02)
    ends = reward_intervals([group([0.2] * 4, [0.6, 0.2, 0.2, None])])
    assert ends["reward/plan/low"] < 0.4 < ends["reward/plan/high"]
    assert "reward/answer/low" not in ends, "one score has no interval"
