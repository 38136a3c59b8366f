"""Each kind of judge over an open model, as one that says which of two answers is better."""

from collections.abc import Callable, Mapping
from typing import Literal

from judge.attempt_readers import ChatAttemptReader, ChoiceAttemptReader
from judge.building import (
    JudgeModel,
    LocalModel,
    checklist_judge,
    pair_comparer,
    stage_judge,
)
from judge.evaluation.comparers import GroupComparer, RelativeComparer
from judge.pairwise import Comparer
from judge.pairwise_forms import ChainForm

Kind = Literal["stage", "relative", "pairwise", "checklist"]


def comparer_of(kind: Kind, model: JudgeModel, chain: ChainForm | None = None) -> Comparer:
    """A comparer that shows answers in the order that it is told them.

    `chain`: the form in which a local model was trained to compare pairs; None: it was not.
    """
    if kind == "pairwise":
        return pair_comparer(model, chain)
    return _COMPARERS[kind](model)


def _stage(model: JudgeModel) -> Comparer:
    return GroupComparer(stage_judge(model))


def _relative(model: JudgeModel) -> Comparer:
    if isinstance(model, LocalModel):
        return RelativeComparer(ChoiceAttemptReader(model))
    return RelativeComparer(ChatAttemptReader(model))


def _checklist(model: JudgeModel) -> Comparer:
    return GroupComparer(checklist_judge(model), keep=True)


_COMPARERS: Mapping[Kind, Callable[[JudgeModel], Comparer]] = {
    "stage": _stage,
    "relative": _relative,
    "checklist": _checklist,
}
