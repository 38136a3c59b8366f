"""The charts: what is where, worked by hand, and what stands in for a picture."""

import re

import pytest

from rubricem.training.show.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    bars,
    curves,
    histogram,
    up_and_down,
)

FLOOR, INNER = HEIGHT - BOTTOM, WIDTH - LEFT - RIGHT


def rects(svg: str) -> list[tuple[float, float, float, float]]:
    """x, y, width, height of each."""
    found = re.findall(r'<rect [^>]*x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', svg)
    return [tuple(map(float, one)) for one in found]  # type: ignore[misc]


def test_a_line_is_broken_where_a_value_is_not_known():
    svg = curves([Series("s", "plan", [0.0, 1.0, None, 0.5])])
    first, second = re.findall(r'points="(.*?)"', svg)
    step = INNER / 4
    assert first == f"{LEFT + step / 2:.1f},{FLOOR:.1f} {LEFT + 1.5 * step:.1f},{TOP:.1f}"
    assert second == f"{LEFT + 3.5 * step:.1f},{(FLOOR + TOP) / 2:.1f}"
    assert svg.count("<circle") == 3


def test_a_range_goes_there_along_the_highest_and_back_along_the_lowest():
    svg = curves([Series("s", "plan", [0.5, 0.5], low=[0.0, 0.0], high=[1.0, 1.0])])
    (polygon,) = re.findall(r'<polygon class="range plan" points="(.*?)"', svg)
    heights = [float(point.split(",")[1]) for point in polygon.split()]
    assert heights == [TOP, TOP, FLOOR, FLOOR]


def test_values_outside_the_axis_stay_inside_the_picture():
    svg = curves([Series("s", "plan", [-3.0, 7.0])])
    assert {float(p.split(",")[1]) for p in re.findall(r'points="(.*?)"', svg)[0].split()} == {
        float(FLOOR), float(TOP),
    }  # fmt: skip


def test_counts_by_tenths():
    svg = histogram([0.0, 0.05, 0.1, 0.95, 1.0, -0.5], "plan", "scores")
    heights = [height for *_, height in rects(svg)]
    # Four is the axis: three in the first tenth, one in the second, two in the last.
    unit = (FLOOR - TOP) / 4
    assert heights == pytest.approx([3 * unit, unit, *[0] * 7, 2 * unit], abs=0.06)
    assert "3, 1, 0, 0, 0, 0, 0, 0, 0, 2" in svg


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1), (0.03, 0.05), (7, 10), (120, 200), (1e6, 1e6)]
)
def test_an_axis_ends_at_a_round_number(value: float, top: float):
    svg = bars([value], "accent", "b")
    ((_, _, _, height),) = rects(svg)
    assert height == pytest.approx(value / top * (FLOOR - TOP), abs=0.06)


def test_a_step_without_a_value_has_no_bar():
    assert len(rects(bars([1.0, None, 2.0], "accent", "b"))) == 2
    assert rects(bars([], "accent", "b")) == []


def test_what_comes_stands_above_what_goes():
    (up, _), (down, _) = (
        [(y, h) for _, y, _, h in rects(up_and_down(counts, goes, ("in", "out"))) if h]
        + [(0.0, 0.0)]
        for counts, goes in (([2], [0]), ([0], [2]))
    )
    middle = (TOP + FLOOR) / 2
    assert up == (TOP, middle - TOP) and down == (middle, middle - TOP)


def test_a_picture_is_told_to_those_who_do_not_see_it():
    svg = curves([Series('a "name" <b>', "plan", [0.25, None])], unit="%")
    assert 'aria-label="a &quot;name&quot; &lt;b&gt; by step: 0.25%, none"' in svg
    assert "<b>" not in svg


def test_many_steps_have_no_dots_and_thin_bars():
    assert "<circle" not in curves([Series("s", "plan", [0.5] * 200)])
    found = rects(bars([1.0] * 500, "accent", "b"))
    assert all(0 < width < 1 and LEFT <= x <= WIDTH - RIGHT for x, _, width, _ in found)
