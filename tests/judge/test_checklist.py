"""What findings on a checklist come to, for one answer and for many.

Groups judged by a checklist that stands in the question's buffer.

Checklists made from a request and a good answer to it.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from rubricem.judge.base import NO_CRITERIA
from rubricem.judge.checklist import (
    Aggregate,
    ChatChecklistMaker,
    ChatItemChecker,
    Checked,
    ChecklistItem,
    ChecklistJudge,
    ItemFinding,
    Made,
    Marked,
    ProposedChecklist,
    aggregate,
    checklist_score,
    item_of,
    points_share,
    report,
    stage_score,
    tag_scores,
)
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import Criterion, Stage, Status
from tests.support.judges import PAID, ScriptedChat
from tests.support.values import QUESTION, WHOLE, ScriptedProposer, group_of, item, run_of, varied


def found(
    *given: tuple[float, bool | None], tags: Sequence[tuple[str, ...]] = ()
) -> tuple[ItemFinding, ...]:
    """Findings by points and verdict."""
    every = [*tags, *[()] * (len(given) - len(tags))]
    return tuple(
        ItemFinding(
            item=ChecklistItem(criterion=f"item {n}", points=points, tags=every[n]), met=met
        )
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


EMPTY = RubricBuffer(question=QUESTION)
ITEMS = (
    ChecklistItem(criterion="Says LRU.", points=6),
    ChecklistItem(criterion="Says why.", points=4),
    ChecklistItem(criterion="Says FIFO.", points=-5),
)
NO_ANSWER = {stage: text for stage, text in WHOLE.items() if stage is not Stage.ANSWER}


class FixedMaker:
    """Makes the same items each time; none: it fails."""

    def __init__(self, items: tuple[ChecklistItem, ...] = ITEMS) -> None:
        self.items = items
        self.asked: list[str] = []

    async def make(self, question: str, answer: str = "") -> Made:
        self.asked.append(question)
        if not self.items:
            raise JudgeError("it wrote no checklist", "Use another.", PAID)
        return Made(self.items, PAID)


def by_words(asked: str) -> str:
    """Says of each item whether the reply has its last word."""
    reply, listed = asked.split("\n\nItems:\n")
    lines = [line.split(". ", 1) for line in listed.splitlines()]
    entries = [
        {"number": n, "explanation": "seen", "criteria_met": text.rstrip(".").split()[-1] in reply}
        for n, text in lines
    ]
    return json.dumps({"verdicts": entries})


def judge_with(maker: FixedMaker) -> ChecklistJudge:
    return ChecklistJudge(maker, ChatItemChecker(ScriptedChat(by_words)))


async def test_answers_are_scored_on_one_checklist_that_the_buffer_keeps():
    maker = FixedMaker()
    runs = group_of(varied("a", "LRU, and why."), varied("b", "FIFO."), varied("c", "LRU or FIFO."))
    result = await judge_with(maker).judge(runs, EMPTY, step=3)
    assert [j.score(Stage.ANSWER) for j in result.judgements] == [1, 0, 0.1]
    low = result.judgements[1].stages[-1]
    assert low.justification == "Of 3 items 1 met, 2 not met: -5 points, a score of -0.5."
    assert [(v.criterion.positive, v.points) for v in low.verdicts] == [
        (True, 0), (True, 0), (False, 2),
    ]  # fmt: skip
    kept = result.buffer.persistent[Stage.ANSWER]
    assert [(c.description, c.weight, c.positive) for c in kept] == [
        ("Says LRU.", 6, True), ("Says why.", 4, True), ("Says FIFO.", 5, False),
    ]  # fmt: skip
    assert [change.step for change in result.buffer.history] == [3, 3, 3]
    assert {j.rubric_version for j in result.judgements} == {result.buffer.label}
    assert (result.usage, result.judgements[0].usage, result.notes) == (PAID, PAID, ())
    assert maker.asked == [QUESTION]


async def test_criteria_that_are_there_are_used_and_none_is_made():
    maker = FixedMaker()
    buffer = RubricBuffer(question=QUESTION, active={Stage.ANSWER: (item("Says LRU."),)})
    result = await judge_with(maker).judge(group_of(varied("a", "LRU.")), buffer)
    assert (result.judgements[0].score(Stage.ANSWER), result.buffer, maker.asked) == (1, buffer, [])


async def test_only_the_answer_is_scored():
    result = await judge_with(FixedMaker()).judge(group_of(run_of()), EMPTY)
    assert [s.unscored_reason for s in result.judgements[0].stages[:3]] == [NO_CRITERIA] * 3


async def test_absent_and_broken_answers_cost_nothing():
    maker = FixedMaker()
    runs = group_of(
        run_of(NO_ANSWER), run_of(NO_ANSWER, "b", status=Status.FAILED, reason="no server")
    )
    result = await judge_with(maker).judge(runs, EMPTY)
    absent, broken = (j.stages[-1] for j in result.judgements)
    assert (absent.score, absent.missing, broken.score) == (0, True, None)
    assert (maker.asked, result.usage.calls, result.buffer) == ([], 0, EMPTY)


async def test_no_checklist_leaves_answers_unscored_with_the_cost_counted():
    result = await judge_with(FixedMaker(())).judge(group_of(run_of()), EMPTY)
    answer = result.judgements[0].stages[-1]
    assert (answer.score, result.usage, result.buffer) == (None, PAID, EMPTY)
    assert answer.unscored_reason == "the judge failed: it wrote no checklist. Use another."
    assert result.notes == ("No checklist: it wrote no checklist. Use another.",)


async def test_a_judge_that_is_down_leaves_answers_unscored():
    model = ScriptedChat(lambda asked: None)
    judge = ChecklistJudge(ChatChecklistMaker(model), ChatItemChecker(model))
    result = await judge.judge(group_of(run_of()), EMPTY)
    assert "the server is down" in result.judgements[0].stages[-1].unscored_reason
    checked = await ChecklistJudge(FixedMaker(), ChatItemChecker(model)).judge(
        group_of(run_of()), EMPTY
    )
    assert "the server is down" in checked.notes[0]
    assert checked.judgements[0].score(Stage.ANSWER) is None


@pytest.mark.parametrize(
    ("met", "score", "told"),
    [
        ((True, None, False), 1, "1 met, 1 not met, 1 unparsed: 6 points, a score of 1."),
        ((None, None, True), None, ""),
        ((False, False, True), 0, "1 met, 2 not met: -5 points, a score of -0.5."),
    ],
)
def test_unparsed_items_are_left_out_and_told(
    met: tuple[bool | None, ...], score: float | None, told: str
):
    criteria = [each.as_criterion() for each in ITEMS]
    findings = tuple(ItemFinding(item=i, met=m) for i, m in zip(ITEMS, met, strict=True))
    stage = stage_score(criteria, Checked(findings))
    assert stage.score == score and stage.justification.endswith(told)
    assert len(stage.verdicts) == (sum(m is not None for m in met) if score is not None else 0)


POINTS = (8, 5, 3, -6, -2)


def checklist(*points: Any, text: str = "Says {}.") -> str:
    rubrics = [{"criterion": text.format(n), "points": p} for n, p in enumerate(points)]
    return json.dumps({"rubrics": rubrics})


async def test_a_reference_answer_is_shown_and_none_is_written():
    model = ScriptedChat([checklist(*POINTS)])
    made = await ChatChecklistMaker(model).make("Which goes?", "The oldest.")
    assert made.items[3] == ChecklistItem(criterion="Says 3.", points=-6)
    assert (len(made.items), made.usage) == (5, PAID)
    shown = model.asked[0][1].content
    assert "Which goes?" in shown and "The oldest." in shown


async def test_an_answer_is_written_first_where_there_is_none():
    model = ScriptedChat(["", "The oldest, I think.", checklist(*POINTS)])
    made = await ChatChecklistMaker(model).make("Which goes?", "  ")
    assert made.usage.calls == 3, "the empty reply was paid for too"
    assert "The oldest, I think." in model.asked[2][1].content


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (checklist(1, 2, 3), "at least 5"),
        (checklist(*range(1, 11), *range(1, 11)), "at most 15"),
        (checklist(8, 5, 3, 0, -2), "at least one point"),
        (checklist(8, 5, 3, 11, -2), "less than or equal to 10"),
        (checklist(-1, -2, -3, -4, -5), "points above 0"),
        (checklist(*POINTS, text="Says LRU."), "say the same"),
        ("I would rather not.", "no JSON object"),
    ],
)
async def test_a_checklist_of_no_use_is_asked_for_again_with_its_fault(bad: str, told: str):
    model = ScriptedChat([bad, checklist(*POINTS)])
    made = await ChatChecklistMaker(model).make("q", "a")
    assert (len(made.items), made.usage.calls) == (5, 2)
    assert told in model.asked[1][-1].content


async def test_no_checklist_is_an_error_that_tells_its_cost():
    with pytest.raises(JudgeError, match="no usable JSON") as caught:
        await ChatChecklistMaker(ScriptedChat(lambda asked: "no")).make("q")
    assert caught.value.usage is not None and caught.value.usage.calls == 4
    with pytest.raises(JudgeError, match="wrote no answer in 3 tries") as caught:
        await ChatChecklistMaker(ScriptedChat(lambda asked: "")).make("q")
    assert caught.value.usage is not None and caught.value.usage.calls == 3
    with pytest.raises(PolicyError) as down:
        await ChatChecklistMaker(ScriptedChat(["An answer.", None])).make("q")
    assert down.value.usage == PAID


async def test_a_proposers_answer_criteria_are_a_checklist():
    answer = (item("right", 3), item("wrong", 1, positive=False))
    given = {Stage.PLAN: (item("plans"),), Stage.ANSWER: answer}
    made = await ProposedChecklist(ScriptedProposer(given)).make("q")
    assert [(i.criterion, i.points) for i in made.items] == [("right", 3), ("wrong", -1)]
    with pytest.raises(JudgeError, match="no criteria came"):
        await ProposedChecklist(ScriptedProposer({})).make("q")
    with pytest.raises(JudgeError, match="from the question alone"):
        await ProposedChecklist(ScriptedProposer(given)).make("q", "an answer")
