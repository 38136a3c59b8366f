"""Which judge goes with which model: chat servers write verdicts, the local one is read."""

from typing import Protocol, runtime_checkable

from judge.chat_judge import ChatProposer, ChatScorer
from judge.choice_judge import ChoiceScorer
from judge.line_proposer import LineProposer
from judge.reflection_judge import ChatReflectionReader, ChoiceReflectionReader, ReflectionJudge
from judge.stage_judge import StageJudge
from memory.interfaces import ChatModel, ChoiceReader, TokenPolicy


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: it weighs options, and it continues tokens."""


JudgeModel = ChatModel | LocalModel


def stage_judge(model: JudgeModel) -> StageJudge:
    """A stage judge over an open model, which its caller closes."""
    if isinstance(model, LocalModel):
        return StageJudge(LineProposer(model), ChoiceScorer(model))
    return StageJudge(ChatProposer(model), ChatScorer(model))


def reflection_judge(model: JudgeModel) -> ReflectionJudge:
    """A reflection judge over an open model, which its caller closes."""
    if isinstance(model, LocalModel):
        return ReflectionJudge(ChoiceReflectionReader(model))
    return ReflectionJudge(ChatReflectionReader(model))
