"""Which judge goes with which model: chat servers write verdicts, the local one is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from judge.attempt_readers import ChatAttemptReader, ChoiceAttemptReader
from judge.chat_judge import ChatProposer, ChatScorer
from judge.checklist import Checker
from judge.checklist_chat import ChatChecker
from judge.checklist_choice import ChoiceChecker
from judge.checklist_groups import ChecklistJudge
from judge.checklist_making import ChatChecklistMaker, ChecklistMaker, ProposedChecklist
from judge.choice_judge import ChoiceScorer
from judge.composed_judge import GroupJudge
from judge.line_proposer import LineProposer
from judge.pairwise import Comparer, Order, PairwiseJudge
from judge.pairwise_chain import ChainComparer
from judge.pairwise_chat import ChatComparer
from judge.pairwise_choice import ChoiceComparer
from judge.pairwise_forms import ChainForm
from judge.pairwise_groups import GroupwisePairs
from judge.reflection_judge import ChatReflectionReader, ChoiceReflectionReader, ReflectionJudge
from judge.relative import RelativeJudge
from judge.relative_groups import RelativeGroups
from judge.repeating import TEMPERATURE, RepeatedScorer
from judge.stage_judge import Proposer, StageJudge
from memory.errors import SettingsError
from memory.interfaces import ChatModel, ChoiceReader, TokenPolicy


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: it weighs options, and it continues tokens."""


JudgeModel = ChatModel | LocalModel
Kind = Literal["stage", "relative", "relative-stages", "pairwise", "checklist"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which judge, and how it works; what a kind cannot do is refused when it is built."""

    kind: Kind = "stage"
    rubric: str = ""
    """standards of a relative judge in place of the default ones"""
    both_orders: bool = False
    """a relative judge is shown each group twice"""
    repeat: int = 1
    """scorings of each run by a stage judge on a server"""
    graded: bool = False
    """a local model is asked for points rather than Yes or No"""
    flip: bool = False
    """a pairwise judge is shown each pair once, in an order drawn from the seed"""
    seed: int = 0
    chain: ChainForm | None = None
    """the form in which a local model was trained to compare pairs; None: it was not"""


_DOES: Mapping[Kind, frozenset[str]] = {
    "stage": frozenset({"repeat", "graded"}),
    "relative": frozenset({"rubric", "both_orders"}),
    "relative-stages": frozenset({"rubric", "both_orders"}),
    "pairwise": frozenset({"flip"}),
    "checklist": frozenset(),
}
"""what of `Wanted` each kind heeds, beside the seed"""


def group_judge(model: JudgeModel, wanted: Wanted) -> GroupJudge:
    """The wanted judge over an open model, which its caller closes. Raises SettingsError."""
    _refuse(wanted)
    if wanted.kind in ("relative", "relative-stages"):
        judge = relative_judge(model, wanted.rubric, 2 if wanted.both_orders else 1)
        return RelativeGroups(judge, wanted.seed, by_stage=wanted.kind == "relative-stages")
    if wanted.kind == "pairwise":
        order: Order = "flip" if wanted.flip else "both"
        return GroupwisePairs(PairwiseJudge(pair_comparer(model, wanted.chain), order, wanted.seed))
    if wanted.kind == "checklist":
        return checklist_judge(model)
    return stage_judge(model, wanted.repeat, graded=wanted.graded)


def _refuse(wanted: Wanted) -> None:
    """Raises SettingsError where something is set that belongs to another kind."""
    default = Wanted()
    for kind, does in _DOES.items():
        for name in does - _DOES[wanted.kind]:
            if getattr(wanted, name) != getattr(default, name):
                raise SettingsError(
                    f"--{name.replace('_', '-')} is nothing that a {wanted.kind} judge does.",
                    f"Use it with --judge {kind}, or leave it out.",
                )


def pair_comparer(model: JudgeModel, chain: ChainForm | None = None) -> Comparer:
    """What reads pairs of answers with an open model.

    `chain`: the form of reasoning that a local model was trained to write; None: it was not, and
    its probabilities are read.
    """
    if not isinstance(model, LocalModel):
        return ChatComparer(model)
    return ChoiceComparer(model) if chain is None else ChainComparer(model, chain)


def item_checker(model: JudgeModel) -> Checker:
    """What marks single items of a checklist as met or not with an open model."""
    return ChoiceChecker(model) if isinstance(model, LocalModel) else ChatChecker(model)


def checklist_maker(model: JudgeModel) -> ChecklistMaker:
    """What writes checklists with an open model."""
    if isinstance(model, LocalModel):
        return ProposedChecklist(LineProposer(model))
    return ChatChecklistMaker(model)


def checklist_judge(model: JudgeModel) -> ChecklistJudge:
    """A checklist judge over an open model, which its caller closes."""
    return ChecklistJudge(checklist_maker(model), item_checker(model))


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


def proposer(model: JudgeModel) -> Proposer:
    """What writes criteria with an open model, which its caller closes."""
    return LineProposer(model) if isinstance(model, LocalModel) else ChatProposer(model)


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
