"""Builds the judge for a model: chat servers write verdicts, local models give probabilities.

A judge of whole runs has a name: that of its kind, of an extension from an installed package, or
`rubric:MODULE:NAME` for custom rubrics; docs/collecting.md lists them. All models are given open,
and are closed by the caller that opened them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rubricem.judge.checklist import (
    ChatChecklistMaker,
    ChatItemChecker,
    ChecklistJudge,
    ChoiceItemChecker,
    ProposedChecklist,
)
from rubricem.judge.composed import RUBRIC, ComposedJudge, Compositions, compositions_of, with_code
from rubricem.judge.pairwise import (
    ChainComparer,
    ChainForm,
    ChatComparer,
    ChoiceComparer,
    Comparer,
    Order,
    PairwiseJudge,
)
from rubricem.judge.reflection import ChatReflectionReader, ChoiceReflectionReader, ReflectionJudge
from rubricem.judge.relative import (
    AttemptReader,
    ChatAttemptReader,
    ChoiceAttemptReader,
    RelativeJudge,
)
from rubricem.judge.stage import TEMPERATURE, RepeatedScorer, StageJudge
from rubricem.judge.stage_readers import ChatProposer, ChatScorer, ChoiceScorer, LineProposer
from rubricem.memory.errors import SettingsError
from rubricem.memory.parts import own_part, parts_of
from rubricem.memory.schema import ChatModel, GroupJudge, LocalModel

JudgeModel = ChatModel | LocalModel
Kind = Literal["stage", "relative", "relative-stages", "pairwise", "checklist"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NONE = "none"
"""instead of a judge's name: nothing is judged"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which judge, and how it works; what a kind cannot do is refused when it is built."""

    kind: Kind = "stage"
    rubric: str = ""
    """standards of a relative judge instead of the default ones"""
    both_orders: bool = False
    """a relative judge is shown each group twice"""
    repeat: int = 1
    """scorings of each run by a stage judge on a server"""
    persistent: bool = False
    """a stage judge makes persistent criteria of the answer for a question that has none, before it
        contrasts its first group"""
    graded: bool = False
    """a local model is asked for points rather than Yes or No"""
    flip: bool = False
    """a pairwise judge is shown each pair once, in an order drawn from the seed"""
    seed: int = 0
    chain: ChainForm | None = None
    """the form in which a local model was trained to compare pairs; None: it was not"""

    def check(self) -> None:
        """Raises SettingsError if something is set that belongs to another kind."""
        default = Wanted()
        for kind, does in _DOES.items():
            for name in does - _DOES[self.kind]:
                if getattr(self, name) != getattr(default, name):
                    raise SettingsError(
                        f"--{name.replace('_', '-')} is nothing that a {self.kind} judge does.",
                        f"Use it with --judge {kind}, or leave it out.",
                    )


_DOES: Mapping[Kind, frozenset[str]] = {
    "stage": frozenset({"repeat", "graded", "persistent"}),
    "relative": frozenset({"rubric", "both_orders"}),
    "relative-stages": frozenset({"rubric", "both_orders"}),
    "pairwise": frozenset({"flip"}),
    "checklist": frozenset(),
}
"""the fields of `Wanted` that each kind uses, besides the seed"""


def build_judge(
    name: str, model: JudgeModel, wanted: Wanted, gate: Compositions | None = None
) -> GroupJudge:
    """The judge of a name that `identify_judge` knows, over an open model.

    `wanted`: how it works; its kind is the name's. `gate` precedes the judge of a kind, which
    scores only what passes it.
    """
    if name in parts_of("judges"):
        own: GroupJudge = own_part("judges", name, model)
        return own
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
    if wanted.kind in ("relative", "relative-stages"):
        reader, passes = attempt_reader(model, wanted.rubric), 2 if wanted.both_orders else 1
        by_stage = wanted.kind == "relative-stages"
        return RelativeJudge(reader, passes, wanted.seed, by_stage=by_stage)
    if wanted.kind == "pairwise":
        order: Order = "flip" if wanted.flip else "both"
        return PairwiseJudge(pair_comparer(model, wanted.chain), order, wanted.seed)
    if wanted.kind == "checklist":
        return checklist_judge(model)
    return stage_judge(model, wanted.repeat, graded=wanted.graded, persistent=wanted.persistent)


def pair_comparer(model: JudgeModel, chain: ChainForm | None = None) -> Comparer:
    """A comparer of pairs of answers with an open model.

    `chain`: the form of reasoning that a local model was trained to write; None: it was not, and
    its probabilities are read.
    """
    if not isinstance(model, LocalModel):
        return ChatComparer(model)
    return ChoiceComparer(model) if chain is None else ChainComparer(model, chain)


def checklist_judge(model: JudgeModel) -> ChecklistJudge:
    if isinstance(model, LocalModel):
        return ChecklistJudge(ProposedChecklist(LineProposer(model)), ChoiceItemChecker(model))
    return ChecklistJudge(ChatChecklistMaker(model), ChatItemChecker(model))


def stage_judge(
    model: JudgeModel, repeat: int = 1, *, graded: bool = False, persistent: bool = False
) -> StageJudge:
    """`repeat`, `graded` and `persistent` as `Wanted` has them. Raises SettingsError for what the
    model cannot do.
    """
    if isinstance(model, LocalModel):
        if repeat > 1:
            raise SettingsError(
                "Probabilities are the same at every reading: repeating tells nothing.",
                "Leave out --repeat, or judge with a server's model.",
            )
        scorer = ChoiceScorer(model, graded=graded)
        return StageJudge(LineProposer(model), scorer, persistent=persistent)
    if graded:
        raise SettingsError(
            "Graded points are read from the probabilities of the embedded model.",
            "Leave out --graded: a server's model writes points as it is.",
        )
    one = ChatScorer(model)
    several = (ChatScorer(model, seed=n, temperature=TEMPERATURE) for n in range(repeat))
    scores = one if repeat == 1 else RepeatedScorer(list(several))
    return StageJudge(ChatProposer(model), scores, persistent=persistent)


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
        return ReflectionJudge(ChoiceReflectionReader(model))
    return ReflectionJudge(ChatReflectionReader(model))
