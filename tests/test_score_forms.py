"""Scores as models write them."""

from typing import Any

import pytest

from judge.score_forms import Raw, id_fault, in_unit_range, plain_id, raw_score


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((0.2, 1), [0.2, 1]),
        ((1.05, -0.2), [1, 0]),
        ((8, 4), [0.8, 0.4]),
        ((90, 30), [0.9, 0.3]),
        ((10, 0), [1, 0]),
        (("8/10", "40%"), [0.8, 0.4]),
        (("0.5", "1"), [0.5, 1]),
        (("7 out of 10", 0.3), [0.7, 0.3]),
        ((0, 0), [0, 0]),
        ((".5", "+0.5"), [0.5, 0.5]),
    ],
)
def test_a_group_is_brought_to_one_scale(written: tuple[Any, ...], read: list[float]):
    assert in_unit_range([raw_score(value) for value in written]) == pytest.approx(read)


@pytest.mark.parametrize("written", [(0.9, 8), (101, 50), (250,)])
def test_scales_that_cannot_be_told_are_refused(written: tuple[float, ...]):
    with pytest.raises(ValueError, match="from 0 to 1"):
        in_unit_range([Raw(value) for value in written])


@pytest.mark.parametrize(
    "value", [True, None, float("nan"), float("inf"), "nan", "high", "1e999", "3/0", [1], ""]
)
def test_what_is_no_number_is_refused(value: Any):
    with pytest.raises(ValueError, match=r"score"):
        raw_score(value)


@pytest.mark.parametrize("written", [2, "2", " 2 ", "Attempt 2", "trajectory_2", "#2", "02"])
def test_an_id_is_read_however_it_is_written(written: Any):
    assert plain_id(written) == "2"


def test_other_ids_stay_what_they_are():
    assert plain_id("B") == "B"


def test_the_fault_of_ids_names_each_of_them():
    assert id_fault(["2", "1"], ["1", "2"]) == ""
    fault = id_fault(["1", "1", "7"], ["1", "2", "3"])
    assert "missing: 2, 3" in fault and "more than once: 1" in fault and "unknown: 7" in fault
    assert "exactly 3 entries" in id_fault(["1"], ["1", "2", "3"])
