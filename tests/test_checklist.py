"""What findings on a checklist come to, for one answer and for many."""

import math
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from judge.checklist import (
    ChecklistItem,
    Finding,
    checklist_score,
    item_of,
    points_share,
    tag_scores,
)
from judge.checklist_report import Aggregate, Marked, aggregate, report
from memory.schema import Criterion


def found(
    *given: tuple[float, bool | None], tags: Sequence[tuple[str, ...]] = ()
) -> tuple[Finding, ...]:
    """Findings by points and verdict."""
    every = [*tags, *[()] * (len(given) - len(tags))]
    return tuple(
        Finding(item=ChecklistItem(criterion=f"item {n}", points=points, tags=every[n]), met=met)
        for n, (points, met) in enumerate(given)
    )


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ([(7, True), (5, False), (10, True), (-6, True)], 11 / 22),
        ([(3, True), (6, True), (-7, False)], 1),
        ([(3, False), (6, False), (-7, True)], -7 / 9),
        ([(3, True), (6, True), (-7, True)], 2 / 9),
        ([(7, True), (5, None), (10, False)], 7 / 17),
        ([(4, True), (-8, None)], 1),
        ([(5, None), (-6, True)], None),
        ([], None),
    ],
)
def test_the_score_is_points_met_over_points_above_zero(
    given: list[tuple[float, bool | None]], score: float | None
):
    assert points_share(found(*given)) == score
    assert checklist_score(found(*given)) == score


def test_a_list_of_flaws_alone_scores_what_was_avoided():
    flaws = found((-4, True), (-6, False), (-9, None))
    assert points_share(flaws) is None
    assert checklist_score(flaws) == 1 - 4 / 10
    assert checklist_score(found((-4, None))) is None


def test_a_tag_is_scored_over_its_own_items_and_left_out_without_points_above_zero():
    tags = [("axis:accuracy", "axis:accuracy"), ("axis:accuracy", "level:cluster"), ("only",)]
    findings = found((6, True), (4, False), (-3, True), tags=tags)
    assert tag_scores(findings) == {"axis:accuracy": 0.6, "level:cluster": 0}


def test_the_mean_is_clipped_and_not_the_scores():
    assert aggregate([-1.0, 0.5]).mean == 0
    assert aggregate([-0.2, 1.0]).mean == pytest.approx(0.4)
    assert aggregate([0.25] * 9) == Aggregate(mean=0.25, error=0, answers=9)


def test_the_error_is_the_spread_of_clipped_means_of_resampled_answers():
    # Two answers of 0 and 1 give means 0, 0.5 and 1 with chances 1/4, 1/2 and 1/4.
    assert aggregate([0.0, 1.0]).error == pytest.approx(math.sqrt(1 / 8), abs=0.02)
    # Of -3 and 1 the means are -3, -1 and 1, which are clipped to 0, 0 and 1.
    assert aggregate([-3.0, 1.0]).error == pytest.approx(math.sqrt(3 / 16), abs=0.02)
    assert aggregate([0.0, 0.3, 1.0], 5) == aggregate([0.0, 0.3, 1.0], 5)


def test_a_report_counts_what_it_leaves_out():
    answers = [
        Marked(found((4, True), (6, False), tags=[("axis:a",)]), ("theme:x",)),
        Marked(found((5, True), (-5, None)), ("theme:x", "theme:y")),
        Marked(found((5, None)), ("theme:y",)),
    ]
    told = report(answers)
    assert told.overall is not None
    assert (told.overall.mean, told.overall.answers) == (0.7, 2)
    means = {tag: (found.mean, found.answers) for tag, found in told.by_tag.items()}
    assert means == {"axis:a": (1, 1), "theme:x": (0.7, 2), "theme:y": (1, 1)}
    assert (told.unscored, told.items, told.unparsed) == (1, 5, 2)


def test_a_report_of_nothing_has_no_mean():
    assert report([]).overall is None


@pytest.mark.parametrize("points", [11, -10.5, float("nan"), float("inf")])
def test_points_outside_their_range_are_refused(points: float):
    with pytest.raises(ValidationError):
        ChecklistItem(criterion="x", points=points)


@pytest.mark.parametrize("points", [8, -3])
def test_an_item_keeps_its_words_and_points_in_a_buffer(points: float):
    item = ChecklistItem(
        criterion="Says that the least recently used entry is evicted " * 3, points=points
    )
    criterion = item.as_criterion()
    assert criterion.persistent and len(criterion.title) < 70
    assert item_of(criterion) == item


def test_another_judges_criterion_is_an_item_by_its_weight():
    given = Criterion(title="Names FIFO", description="", weight=3, positive=False)
    assert item_of(given) == ChecklistItem(criterion="Names FIFO", points=-3)


def test_an_unparsed_finding_is_no_verdict():
    criterion = Criterion(title="x", description="x")
    met, not_met, unparsed = found((2, True), (2, False), (2, None))
    verdict = met.as_verdict(criterion)
    assert verdict is not None and verdict.points == 2
    assert (verdict := not_met.as_verdict(criterion)) is not None and verdict.points == 0
    assert unparsed.as_verdict(criterion) is None
    assert [f.outcome for f in (met, not_met, unparsed)] == ["met", "not met", "unparsed"]
