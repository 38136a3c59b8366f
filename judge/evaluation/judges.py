"""Each kind of judge over an open model, as one that says which of two answers is better."""

from collections.abc import Callable, Mapping
from typing import Literal

from judge.attempt_readers import ChatAttemptReader, ChoiceAttemptReader
from judge.building import JudgeModel, LocalModel, stage_judge
from judge.evaluation.comparers import GroupComparer, RelativeComparer
from judge.pairwise import Comparer
from judge.pairwise_chat import ChatComparer
from judge.pairwise_choice import ChoiceComparer

Kind = Literal["stage", "relative", "pairwise"]


def comparer_of(kind: Kind, model: JudgeModel) -> Comparer:
    """A comparer that shows answers in the order that it is told them."""
    return _COMPARERS[kind](model)


def _stage(model: JudgeModel) -> Comparer:
    return GroupComparer(stage_judge(model))


def _relative(model: JudgeModel) -> Comparer:
    if isinstance(model, LocalModel):
        return RelativeComparer(ChoiceAttemptReader(model))
    return RelativeComparer(ChatAttemptReader(model))


def _pairwise(model: JudgeModel) -> Comparer:
    return ChoiceComparer(model) if isinstance(model, LocalModel) else ChatComparer(model)


_COMPARERS: Mapping[Kind, Callable[[JudgeModel], Comparer]] = {
    "stage": _stage,
    "relative": _relative,
    "pairwise": _pairwise,
}
