"""Checklists made from a request and a good answer to it."""

import json
from typing import Any

import pytest

from judge.checklist import ChecklistItem
from judge.checklist_making import ChatChecklistMaker, ProposedChecklist
from memory.errors import JudgeError, PolicyError
from memory.schema import Stage
from tests.chains import PAID, ScriptedChat
from tests.judged import ScriptedProposer, item

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
