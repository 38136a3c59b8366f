"""Asks a judge about labelled pairs, in one order or both, or about labelled answers item by item.

For judges that score single answers, the higher score wins a pair. Each answer becomes a run of its
own that holds only the answer. The judge's confidence in the first (`first_share`) is then 0.5 plus
half the difference of the scores.

Verdicts are appended to a file as they come, one JSON line each, so that an interrupted evaluation
can be resumed. A last line without its end was cut by a kill and is dropped. A file belongs to one
judge: verdicts of two would be counted as one.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from rubricem.judge.base import group_text
from rubricem.judge.build import (
    JudgeModel,
    attempt_reader,
    checklist_judge,
    pair_comparer,
    stage_judge,
)
from rubricem.judge.checklist import ChecklistItem, ItemChecker
from rubricem.judge.evaluation.data import (
    MIRRORED,
    LabelledComparison,
    LabelledCriterion,
    LabelledMark,
    LabelledPair,
    ListedAnswer,
    Winner,
    conversation_text,
    read_comparisons,
    read_marks,
)
from rubricem.judge.pairwise import ChainForm, Comparer, Preference, Side, ask_preference
from rubricem.judge.relative import AttemptReader
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import writable
from rubricem.memory.schema import (
    NO_USAGE,
    AnswerFormat,
    Author,
    Decoding,
    GroupJudge,
    GroupJudgement,
    RubricBuffer,
    Segment,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
)


class GroupComparer:
    """A `Comparer` over a judge of groups.

    Its rubrics start anew with each pair; with `keep` those of a question are made once and then
    used for all of its pairs, for a judge that makes them from the question alone.
    """

    def __init__(self, judge: GroupJudge, *, keep: bool = False) -> None:
        self._judge = judge
        self.name = judge.name
        self._keep = keep
        self._buffers: dict[str, RubricBuffer] = {}
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        runs = answers_alone(question, first, second)
        group = TrajectoryGroup(question=question, trajectories=runs)
        judged = await self._judge_group(group)
        usage = sum((j.usage for j in judged.judgements), judged.usage)
        answers = [s for j in judged.judgements for s in j.stages if s.stage is Stage.ANSWER]
        scores = [answer.score for answer in answers if answer.score is not None]
        if len(scores) < len(answers):
            said = [answer.unscored_reason for answer in answers if answer.score is None]
            return Preference(None, " ".join((said[0], *judged.notes)), usage=usage)
        return higher(scores[0], scores[1], usage)

    async def _judge_group(self, group: TrajectoryGroup) -> GroupJudgement:
        question = group.question
        if not self._keep:
            return await self._judge.judge(group, RubricBuffer(question=question))
        async with self._making[question]:
            buffer = self._buffers.get(question, RubricBuffer(question=question))
            judged = await self._judge.judge(group, buffer)
            self._buffers[question] = judged.buffer
        return judged


class RelativeComparer:
    """A `Comparer` over a reader of attempts, which keeps the order that it is given."""

    def __init__(self, reader: AttemptReader) -> None:
        self._reader = reader
        self.name = reader.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        if first.strip() == second.strip():
            return Preference(None, "The answers are the same.", first_share=0.5)
        text = group_text(answers_alone(question, first, second), self._reader.characters)
        read = await self._reader.read(question, text, seed=0)
        (left, _), (right, _) = read.scores
        return higher(left, right, read.usage)


def higher(first: float, second: float, usage: Usage) -> Preference:
    """What two scores say; equal ones prefer neither. One apart by 1 or more is wholly sure."""
    reason = f"Scored {first:.3g} and {second:.3g}."
    winner: Side | None = None if first == second else "A" if first > second else "B"
    share = min(max(0.5 + (first - second) / 2, 0.0), 1.0)
    return Preference(winner, reason, first_share=share, usage=usage)


def answers_alone(question: str, *answers: str) -> tuple[Trajectory, ...]:
    """A run for each that holds an answer and nothing else."""
    return tuple(
        Trajectory(
            id=name,
            thread=name,
            question=question,
            answer_format=AnswerFormat.LONG,
            decoding=Decoding.FREE,
            segments=(
                Segment(author=Author.PROMPT, text=question),
                Segment(author=Author.POLICY, stage=Stage.ANSWER, turn=1, text=answer),
            ),
            status=Status.FINISHED,
            policy="labelled data",
            started_at=datetime.now(UTC),
            seconds=0.0,
        )
        for name, answer in zip("AB", answers, strict=True)
    )


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Told = TypeVar("Told", LabelledComparison, LabelledMark)
Orders = Literal["both", "one"]
"""`both`: each pair twice; `one`: each once, in an order drawn from the seed"""
Task = tuple[LabelledPair, bool]
"""a pair, and whether its second answer is shown first"""


def tasks_of(
    pairs: Iterable[LabelledPair],
    orders: Orders,
    seed: int,
    done: Iterable[LabelledComparison] = (),
) -> list[Task]:
    """What has still to be shown. A drawn order hangs on the seed and the pair alone."""
    known = {(c.pair, c.swapped) for c in done}
    shown = [
        (pair, swapped)
        for pair in pairs
        for swapped in (
            (False, True)
            if orders == "both"
            else (random.Random(f"{seed}\0{pair.id}").random() < 0.5,)
        )
    ]
    return [(pair, swapped) for pair, swapped in shown if (pair.id, swapped) not in known]


async def compare_all(
    comparer: Comparer,
    tasks: Sequence[Task],
    at_once: int,
    on_done: Callable[[LabelledComparison], None],
) -> list[LabelledComparison]:
    """One comparison for each task, in their order; `on_done` is told each as it comes.

    A judge that fails is a comparison without a winner; what else is raised ends all.
    """
    return await _each(tasks, lambda task: compare_pair(comparer, *task), at_once, on_done)


async def _each(
    items: Sequence[Item],
    work: Callable[[Item], Awaitable[Outcome]],
    at_once: int,
    on_done: Callable[[Outcome], None],
) -> list[Outcome]:
    """What comes of each item, in their order, with so many worked on at once."""
    places = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Outcome:
        async with places:
            outcome = await work(item)
        on_done(outcome)
        return outcome

    return await together(map(one, items))


async def compare_pair(comparer: Comparer, pair: LabelledPair, swapped: bool) -> LabelledComparison:
    """The verdict on one pair in one order, told in the pair's own numbering."""
    texts = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    said = await ask_preference(comparer, pair.prompt, *texts)
    winner, share = winner_of(said), said.first_share
    return LabelledComparison(
        pair=pair.id,
        judge=comparer.name,
        swapped=swapped,
        winner=MIRRORED.get(winner, winner) if swapped else winner,
        share=1 - share if swapped and share is not None else share,
        reason=said.reason,
        text=said.text,
        usage=said.usage,
    )


def winner_of(preference: Preference) -> Winner | None:
    """Who won of the two as shown; a reading that is exactly undecided is a tie."""
    if preference.winner is not None:
        return "first" if preference.winner == "A" else "second"
    return "tie" if preference.first_share == 0.5 else None


def sample(listed: Sequence[Item], limit: int | None, seed: int) -> list[Item]:
    """At most so many, drawn evenly from all, in the data's order."""
    if limit is None or limit >= len(listed):
        return list(listed)
    return [listed[i] for i in sorted(random.Random(seed).sample(range(len(listed)), limit))]


Checkable = LabelledCriterion | ListedAnswer


def items_of(answer: Checkable) -> Iterator[tuple[str, ChecklistItem]]:
    """What is to be marked of it, each with the id of its mark."""
    if isinstance(answer, LabelledCriterion):
        yield answer.id, ChecklistItem(criterion=answer.criterion, points=1)
        return
    for number, item in enumerate(answer.items, start=1):
        yield f"{answer.id}/{number}", item


async def mark_all(
    checker: ItemChecker,
    answers: Sequence[Checkable],
    at_once: int,
    on_done: Callable[[Sequence[LabelledMark]], None],
) -> list[LabelledMark]:
    """The marks of each answer, in order; `on_done` is told those of one as they come."""
    found = await _each(answers, lambda answer: _marks(checker, answer), at_once, on_done)
    return [mark for marks in found for mark in marks]


async def _marks(checker: ItemChecker, answer: Checkable) -> list[LabelledMark]:
    """One mark an item; the first carries what all of them cost."""
    named = list(items_of(answer))
    question = conversation_text(answer.conversation)
    checked = await checker.check(question, answer.completion, [item for _, item in named])
    return [
        LabelledMark(
            item=name,
            judge=checker.name,
            met=finding.met,
            reason=finding.explanation or (checked.fault if finding.met is None else ""),
            usage=NO_USAGE if place else checked.usage,
        )
        for place, ((name, _), finding) in enumerate(zip(named, checked.findings, strict=True))
    ]


ComparerKind = Literal["stage", "relative", "pairwise", "checklist"]


def comparer_of(kind: ComparerKind, model: JudgeModel, chain: ChainForm | None = None) -> Comparer:
    """A comparer that shows answers in the order that it is told them.

    `chain`: the form in which a local model was trained to compare pairs; None: it was not.
    """
    if kind == "pairwise":
        return pair_comparer(model, chain)
    if kind == "checklist":
        return GroupComparer(checklist_judge(model), keep=True)
    if kind == "stage":
        return GroupComparer(stage_judge(model))
    return RelativeComparer(attempt_reader(model))


class VerdictFile:
    """The verdicts of one judge; None for a path keeps nothing."""

    def __init__(self, path: Path | None, judge: str) -> None:
        self._path = path
        self.judge = judge

    def comparisons(self, pairs: Sequence[LabelledPair]) -> list[LabelledComparison]:
        """What was kept before. Raises SettingsError for a file of another judge or data."""
        return self._read_verdicts(lambda path: read_comparisons(path, pairs))

    def marks(self, items: Iterable[str]) -> list[LabelledMark]:
        """Likewise for marks of the items with these ids."""
        return self._read_verdicts(lambda path: read_marks(path, items))

    def add(self, verdict: LabelledComparison | LabelledMark) -> None:
        """Write one down, under the judge's name."""
        if self._path is not None:
            named = verdict.model_copy(update={"judge": self.judge})
            with writable(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(named.model_dump_json() + "\n")

    def _whole_lines(self, path: Path) -> bool:
        """Whether the file holds any; what a kill left of the last one is cut away."""
        with writable(path):
            if not path.exists():
                return False
            held = path.read_bytes()
            whole = held[: held.rfind(b"\n") + 1]
            if len(whole) < len(held):
                path.write_bytes(whole)
        return bool(whole.strip())

    def _read_verdicts(self, read: Callable[[Path], list[Told]]) -> list[Told]:
        if self._path is None or not self._whole_lines(self._path):
            return []
        kept = read(self._path)
        if others := sorted({verdict.judge for verdict in kept} - {self.judge}):
            raise SettingsError(
                f"{self._path} holds verdicts of {others[0] or 'an unnamed judge'}, "
                f"not of {self.judge}.",
                "Name another file by --out; to count what it holds, use --recorded.",
            )
        return kept
