"""The curve of the best of n, by hand and against every draw there is."""

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricem.training.rounds.numbers import mean_interval, reward_intervals
from rubricem.training.statistics import (
    MeanBestOf,
    best_of,
    mean_best_of,
)
from tests.training.rounds.test_numbers import group

SCORES = st.lists(st.floats(-1, 1), min_size=1, max_size=7)


def test_best_of_by_hand():
    # Of the pairs of 0, 0.5 and 1 one has 0.5 for its best, and two have 1.
    assert best_of([1.0, 0.0, 0.5]) == pytest.approx([0.5, 2.5 / 3, 1.0])
    assert best_of([]) == []


@settings(max_examples=40, deadline=None)
@given(SCORES)
def test_it_is_the_mean_of_the_maxima_of_all_draws(scores: list[float]):
    every = [fmean(map(max, combinations(scores, n))) for n in range(1, len(scores) + 1)]
    assert best_of(scores) == pytest.approx(every, abs=1e-9)


def test_the_mean_curve_is_over_the_fullest_groups_at_every_n():
    found = mean_best_of([[0.0, 1.0], [0.2, 0.4, 0.6], [0.9] * 3, []])
    assert found.scores == pytest.approx(((0.4 + 0.9) / 2, (1.6 / 3 + 0.9) / 2, 0.75))
    assert found.groups == 2, "of the others three were not scored"
    assert mean_best_of([[]]) == mean_best_of([]) == MeanBestOf()


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
