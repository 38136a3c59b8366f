"""Builds the judge for a model: chat servers write verdicts, local models give probabilities.

A judge of whole runs has a name: that of its kind, of an extension from an installed package, or
`rubric:MODULE:NAME` for custom rubrics; docs/collecting.md lists them. All models are given open,
and are closed by the caller that opened them.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from rubricem.judge.checklist import (
    ChatChecklistMaker,
    ChatItemScorer,
    ChecklistJudge,
    ChoiceItemScorer,
)
from rubricem.judge.composed import RUBRIC, ComposedJudge, Compositions, compositions_of, with_code
from rubricem.judge.pairwise import (
    ChainComparer,
    ChatComparer,
    ChoiceComparer,
    Comparer,
    PairwiseJudge,
)
from rubricem.judge.reflection import ChatReflectionJudge, ChoiceReflectionJudge, ReflectionJudge
from rubricem.judge.relative import (
    AttemptReader,
    ChatAttemptReader,
    ChoiceAttemptReader,
    RelativeJudge,
)
from rubricem.judge.stage import StageJudge
from rubricem.judge.stage_readers import ChatProposer, ChatScorer, ChoiceScorer, LineProposer
from rubricem.memory.errors import SettingsError
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import ChatModel, GroupJudge, LocalModel

JudgeModel = ChatModel | LocalModel
Kind = Literal["stage", "relative", "pairwise", "checklist"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NONE = "none"
"""instead of a judge's name: nothing is judged"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which judge, and what it is told besides the runs."""

    kind: Kind = "stage"
    rubric: str = ""
    """standards of a relative judge instead of the default ones"""
    seed: int = 0
    """of the order in which a relative judge is shown a group"""
    chain: bool = False
    """whether a local model was trained to write its reasoning on a pair"""

    def check(self) -> None:
        """Raises SettingsError for standards of a judge that has none."""
        if self.rubric and self.kind != "relative":
            raise SettingsError(
                f"--rubric is nothing that a {self.kind} judge reads.",
                "Use it with --judge relative, or leave it out.",
            )


def build_judge(
    name: str, model: JudgeModel, wanted: Wanted, gate: Compositions | None = None
) -> GroupJudge:
    """The judge of a name that `identify_judge` knows, over an open model.

    `wanted`: how it works; its kind is the name's. `gate` precedes the judge of a kind or of an
    extension, which scores only what passes it.
    """
    judge: GroupJudge
    if name in parts_of("judges"):
        judge = own_part("judges", name, model)
    else:
        judge = group_judge(model, replace(wanted, kind=kind_of(name)))
    composed = compositions_of(name) if name.startswith(RUBRIC) else gate
    return judge if composed is None else ComposedJudge(judge, composed)


def kind_of(name: str) -> Kind:
    """The kind of the judge of a known name; for custom rubrics the stage judge."""
    return next((kind for kind in KINDS if kind == name), "stage")


def identify_judge(name: str) -> str:
    """The name, with a hash of the code of a rubric, or the version of an extension's package.

    A run continues only under the same. Raises SettingsError if there is no such judge, or its
    rubric is none.
    """
    if name.startswith(RUBRIC):
        return with_code(name)
    if name in parts_of("judges"):
        dist = parts_of("judges")[name].dist
        return f"{name} {dist.name} {dist.version}" if dist else name
    if name not in (*KINDS, NONE):
        raise SettingsError(
            f"There is no judge {name!r}.",
            f"Use {', '.join([*KINDS, *parts_of('judges')])}, rubric:MODULE:NAME or {NONE}.",
        )
    return name


def group_judge(model: JudgeModel, wanted: Wanted) -> GroupJudge:
    """Raises SettingsError for what the kind, or the model, cannot do."""
    wanted.check()
    if wanted.kind == "relative":
        return RelativeJudge(attempt_reader(model, wanted.rubric), wanted.seed)
    if wanted.kind == "pairwise":
        return PairwiseJudge(pair_comparer(model, wanted.chain))
    return checklist_judge(model) if wanted.kind == "checklist" else stage_judge(model)


def pair_comparer(model: JudgeModel, chain: bool = False) -> Comparer:
    """A comparer of pairs of answers with an open model.

    `chain`: a local model was trained to write its reasoning; else its probabilities are read.
    """
    if not isinstance(model, LocalModel):
        return ChatComparer(model)
    return ChainComparer(model) if chain else ChoiceComparer(model)


def checklist_judge(model: JudgeModel) -> ChecklistJudge:
    if isinstance(model, LocalModel):
        return ChecklistJudge(LineProposer(model), ChoiceItemScorer(model))
    return ChecklistJudge(ChatChecklistMaker(model), ChatItemScorer(model))


def stage_judge(model: JudgeModel) -> StageJudge:
    if isinstance(model, LocalModel):
        return StageJudge(LineProposer(model), ChoiceScorer(model))
    return StageJudge(ChatProposer(model), ChatScorer(model))


def attempt_reader(model: JudgeModel, rubric: str = "") -> AttemptReader:
    """`rubric` "" is the default one.

    Raises SettingsError for one that a local model, which reads none, would ignore.
    """
    if isinstance(model, LocalModel):
        if rubric:
            raise SettingsError(
                "The embedded model grades without a rubric.",
                "Leave out --rubric, or judge with a server's model.",
            )
        return ChoiceAttemptReader(model)
    return ChatAttemptReader(model, rubric)


def reflection_judge(model: JudgeModel) -> ReflectionJudge:
    if isinstance(model, LocalModel):
        return ChoiceReflectionJudge(model)
    return ChatReflectionJudge(model)
