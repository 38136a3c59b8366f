"""Which judge goes with which model: chat servers write verdicts, the local one is read.

A judge's model may keep its replies on disk, so that the same call is paid for once. A call is
named by the hash of everything that shapes its reply: the model, the messages or tokens, and the
sampling. A reply that the asker could not use is forgotten, so that a judge that failed once does
not fail for good. A kept reply costs nothing, and its usage says so.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rubricem.judge.checklist import (
    ChatChecklistMaker,
    ChatItemChecker,
    ChecklistJudge,
    ChecklistMaker,
    ChoiceItemChecker,
    ItemChecker,
    ProposedChecklist,
)
from rubricem.judge.composed import InnerJudge
from rubricem.judge.pairwise import (
    ChainComparer,
    ChainForm,
    ChatComparer,
    ChoiceComparer,
    Comparer,
    GroupwisePairs,
    Order,
    PairwiseJudge,
)
from rubricem.judge.reflection import ChatReflectionReader, ChoiceReflectionReader, ReflectionJudge
from rubricem.judge.relative import (
    ChatAttemptReader,
    ChoiceAttemptReader,
    RelativeGroups,
    RelativeJudge,
)
from rubricem.judge.stage import TEMPERATURE, Proposer, RepeatedScorer, StageJudge
from rubricem.judge.stage_readers import ChatProposer, ChatScorer, ChoiceScorer, LineProposer
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import (
    ChatModel,
    Completion,
    LocalModel,
    Message,
    OnText,
    Sampling,
    StopPredicate,
)
from rubricem.memory.runs import ReplyStore

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


def group_judge(model: JudgeModel, wanted: Wanted) -> InnerJudge:
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


def item_checker(model: JudgeModel) -> ItemChecker:
    """What marks single items of a checklist as met or not with an open model."""
    return ChoiceItemChecker(model) if isinstance(model, LocalModel) else ChatItemChecker(model)


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


class KeptChat:
    """A `ChatModel` before another one. Calls with a predicate or a listener pass through."""

    def __init__(self, model: ChatModel, store: ReplyStore) -> None:
        self._model = model
        self._store = store

    @property
    def name(self) -> str:
        return self._model.name

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        if stop or on_text:
            return await self._model.chat(messages, sampling, stop, on_text)
        asked = self._asked(messages, sampling)
        kept = await asyncio.to_thread(self._store.load, asked)
        if kept and isinstance(kept.get("text"), str):
            return Completion(kept["text"], "eos", reasoning=str(kept.get("reasoning", "")))
        reply = await self._model.chat(messages, sampling)
        # One that its length cut off would read as whole when it is taken from disk.
        if reply.stop_reason != "length":
            saved = {"text": reply.text, "reasoning": reply.reasoning}
            await asyncio.to_thread(self._store.save, asked, saved)
        return reply

    async def forget(self, messages: Sequence[Message], sampling: Sampling) -> None:
        await asyncio.to_thread(self._store.forget, self._asked(messages, sampling))

    def _asked(self, messages: Sequence[Message], sampling: Sampling) -> Any:
        said = [asdict(message) for message in messages]
        return {"model": self._model.name, "messages": said, "sampling": asdict(sampling)}


class KeptLocal:
    """A `LocalModel` before another one; what is kept are its probabilities."""

    def __init__(self, model: LocalModel, store: ReplyStore) -> None:
        self._model = model
        self._store = store
        self.render = model.render
        self.encode = model.encode
        self.complete = model.complete

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def version(self) -> str:
        return self._model.version

    @property
    def context_tokens(self) -> int:
        return self._model.context_tokens

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        asked = {
            "model": [self._model.name, self._model.version],
            "prefix": list(prefix),
            "options": list(options),
        }
        kept = await asyncio.to_thread(self._store.load, asked)
        if kept and (chances := _chances(kept.get("chances"), len(options))):
            return chances
        given = await self._model.weigh(prefix, options)
        await asyncio.to_thread(self._store.save, asked, {"chances": list(given)})
        return given


def kept(model: JudgeModel, store: ReplyStore) -> JudgeModel:
    """The model with its replies kept."""
    return KeptLocal(model, store) if isinstance(model, LocalModel) else KeptChat(model, store)


def _chances(value: Any, count: int) -> tuple[float, ...]:
    """What was kept, or nothing if it cannot be what was asked for."""
    listed = value if isinstance(value, list) and len(value) == count else []
    good = all(isinstance(one, float | int) and 0 <= one <= 1.0001 for one in listed)
    return tuple(listed) if good else ()
