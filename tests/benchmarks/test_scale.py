"""The cost model of a coordinator, worked by hand, and what a wave is counted as."""

import pytest

from benchmarks.scale import DELAY, Collected, estimate_million, window

WAVE = Collected(
    rollouts=100, finished=98, wall=75.0, cpu=1.5, growth=20.0, bytes=2_000_000, journal=400_000
)


def test_a_million_rollouts_are_modelled_by_what_one_wave_took():
    assert pytest.approx(0.005) == WAVE.cpu_per_turn, "three turns each"
    found = estimate_million(WAVE, judging=2.0, tokens=4000.0)
    assert found == {
        "rollouts_in_flight_a_core": DELAY / 0.005,
        "million_core_hours": 4.2,
        "million_gb": 20.0,
        "million_judge_calls": 2_000_000,
        "million_usd_at_0": 0,
        "million_usd_at_0.25": 1000,
        "million_usd_at_2.5": 10_000,
    }


def test_what_is_lost_and_what_is_grown_is_told_for_each_rollout():
    values = WAVE.values()
    assert (values["lost_100"], values["mb_per_rollout_100"]) == (2, 0.2)
    assert values["share_of_ideal_100"] == pytest.approx(3 * DELAY / 75.0)
    assert values["bytes_per_rollout_100"] == 20_000


def test_the_window_of_the_two_ranks_moves():
    rows = window(1024)
    assert len(rows) == 8 and all(row.moves for row in rows)
    assert {sum(row.advantages) for row in rows} == {256.0, -256.0}
