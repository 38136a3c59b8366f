"""Each kind of judge over an open model, as one that says which of two answers is better."""

from collections.abc import Callable, Mapping
from typing import Literal

from judge.attempt_readers import ChatAttemptReader, ChoiceAttemptReader
from judge.building import JudgeModel, LocalModel, stage_judge
from judge.checklist import Checker
from judge.checklist_chat import ChatChecker
from judge.checklist_choice import ChoiceChecker
from judge.checklist_groups import ChecklistJudge
from judge.checklist_making import ChatChecklistMaker, ChecklistMaker, ProposedChecklist
from judge.evaluation.comparers import GroupComparer, RelativeComparer
from judge.line_proposer import LineProposer
from judge.pairwise import Comparer
from judge.pairwise_chat import ChatComparer
from judge.pairwise_choice import ChoiceComparer

Kind = Literal["stage", "relative", "pairwise", "checklist"]


def comparer_of(kind: Kind, model: JudgeModel) -> Comparer:
    """A comparer that shows answers in the order that it is told them."""
    return _COMPARERS[kind](model)


def checker_of(model: JudgeModel) -> Checker:
    """What marks single criteria of an answer as met or not."""
    return ChoiceChecker(model) if isinstance(model, LocalModel) else ChatChecker(model)


def _stage(model: JudgeModel) -> Comparer:
    return GroupComparer(stage_judge(model))


def _relative(model: JudgeModel) -> Comparer:
    if isinstance(model, LocalModel):
        return RelativeComparer(ChoiceAttemptReader(model))
    return RelativeComparer(ChatAttemptReader(model))


def _pairwise(model: JudgeModel) -> Comparer:
    return ChoiceComparer(model) if isinstance(model, LocalModel) else ChatComparer(model)


def _checklist(model: JudgeModel) -> Comparer:
    return GroupComparer(ChecklistJudge(_maker(model), checker_of(model)), keep=True)


def _maker(model: JudgeModel) -> ChecklistMaker:
    if isinstance(model, LocalModel):
        return ProposedChecklist(LineProposer(model))
    return ChatChecklistMaker(model)


_COMPARERS: Mapping[Kind, Callable[[JudgeModel], Comparer]] = {
    "stage": _stage,
    "relative": _relative,
    "pairwise": _pairwise,
    "checklist": _checklist,
}
