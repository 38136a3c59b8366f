"""The benchmark of resuming: where it kills, and what it counts as a call made again."""

from benchmarks.resume import CALLS, PIECES, POINTS, QUICK, SEARCHES, Trial, points


def test_kills_are_spread_over_the_whole_run_and_stand_at_each_calls_end():
    for count in (POINTS, QUICK):
        chosen = points(count)
        assert len(set(chosen)) == count and chosen[0] == 1
        assert chosen[-1] == PIECES
        assert {PIECES // CALLS * call for call in range(1, CALLS + 1)} <= set(chosen)


def after(turns: int, searches: int) -> Trial:
    """A resume of a run with one finished turn and one finished search."""
    return Trial(1, 1, turns, searches, in_flight=1, finished=True)


def test_only_calls_beyond_those_that_were_left_are_repetitions():
    left = CALLS - 1, SEARCHES - 1
    assert after(*left).repeated == 0
    assert after(left[0] + 1, left[1]).repeated == 1
    assert after(left[0] + 1, left[1] + 2).repeated == 3
