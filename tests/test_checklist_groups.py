"""Groups judged by a checklist that stands in the question's buffer."""

import json

import pytest

from judge.checklist import Checked, ChecklistItem, Finding
from judge.checklist_chat import ChatChecker
from judge.checklist_groups import ChecklistJudge, stage_score
from judge.checklist_making import ChatChecklistMaker, Made
from judge.scoring import NO_CRITERIA
from memory.errors import JudgeError
from memory.rubrics import RubricBuffer
from memory.schema import Stage, Status
from tests.chains import PAID, ScriptedChat
from tests.judged import QUESTION, WHOLE, group_of, item, run_of, varied

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
    return ChecklistJudge(maker, ChatChecker(ScriptedChat(by_words)))


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
    assert answer.unscored_reason == "the judge failed: it wrote no checklist Use another."
    assert result.notes == ("No checklist: it wrote no checklist Use another.",)


async def test_a_judge_that_is_down_leaves_answers_unscored():
    model = ScriptedChat(lambda asked: None)
    judge = ChecklistJudge(ChatChecklistMaker(model), ChatChecker(model))
    result = await judge.judge(group_of(run_of()), EMPTY)
    assert "the server is down" in result.judgements[0].stages[-1].unscored_reason
    checked = await ChecklistJudge(FixedMaker(), ChatChecker(model)).judge(
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
    findings = tuple(Finding(item=i, met=m) for i, m in zip(ITEMS, met, strict=True))
    stage = stage_score(criteria, Checked(findings))
    assert stage.score == score and stage.justification.endswith(told)
    assert len(stage.verdicts) == (sum(m is not None for m in met) if score is not None else 0)
