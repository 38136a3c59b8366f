"""Which judge goes with which model: chat servers write verdicts, the local one is read."""

from typing import Protocol, runtime_checkable

from judge.attempt_readers import ChatAttemptReader, ChoiceAttemptReader
from judge.chat_judge import ChatProposer, ChatScorer
from judge.choice_judge import ChoiceScorer
from judge.line_proposer import LineProposer
from judge.reflection_judge import ChatReflectionReader, ChoiceReflectionReader, ReflectionJudge
from judge.relative import RelativeJudge
from judge.repeating import TEMPERATURE, RepeatedScorer
from judge.stage_judge import StageJudge
from memory.errors import SettingsError
from memory.interfaces import ChatModel, ChoiceReader, TokenPolicy


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: it weighs options, and it continues tokens."""


JudgeModel = ChatModel | LocalModel


def stage_judge(model: JudgeModel, repeat: int = 1, *, graded: bool = False) -> StageJudge:
    """A stage judge over an open model, which its caller closes.

    `repeat` scores each run so many times; `graded` has a local model asked for points. Raises
    SettingsError for what the model cannot do.
    """
    if isinstance(model, LocalModel):
        if repeat > 1:
            raise SettingsError(
                "Probabilities are the same at every reading: repeating tells nothing.",
                "Leave out --repeat, or judge with a server's model.",
            )
        return StageJudge(LineProposer(model), ChoiceScorer(model, graded=graded))
    if graded:
        raise SettingsError(
            "Graded points are read from the probabilities of the embedded model.",
            "Leave out --graded: a server's model writes points as it is.",
        )
    if repeat == 1:
        return StageJudge(ChatProposer(model), ChatScorer(model))
    scorers = [ChatScorer(model, seed=n, temperature=TEMPERATURE) for n in range(repeat)]
    return StageJudge(ChatProposer(model), RepeatedScorer(scorers))


def relative_judge(model: JudgeModel, rubric: str = "", passes: int = 1) -> RelativeJudge:
    """A relative judge over an open model, which its caller closes; "" is the default rubric.

    Raises SettingsError for a rubric that a local model, which reads none, would leave unread.
    """
    if isinstance(model, LocalModel):
        if rubric:
            raise SettingsError(
                "The embedded model grades without a rubric.",
                "Leave out --rubric, or judge with a server's model.",
            )
        return RelativeJudge(ChoiceAttemptReader(model), passes)
    return RelativeJudge(ChatAttemptReader(model, rubric), passes)


def reflection_judge(model: JudgeModel) -> ReflectionJudge:
    """A reflection judge over an open model, which its caller closes."""
    if isinstance(model, LocalModel):
        return ReflectionJudge(ChoiceReflectionReader(model))
    return ReflectionJudge(ChatReflectionReader(model))
