"""Asks a judge about labelled pairs, each in both orders.

For judges that score single answers, the higher score wins a pair. Each answer becomes a run of its
own that holds only the answer. The judge's confidence in the first (`first_share`) is then 0.5 plus
half the difference of the scores.

Verdicts are appended to a file as they come, so that an interrupted evaluation can be resumed. A
file belongs to one judge: verdicts of two would be counted as one.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rubricem.judge.build import (
    JudgeModel,
    Kind,
    Wanted,
    attempt_reader,
    group_judge,
    pair_comparer,
)
from rubricem.judge.evaluation.data import LabelledComparison, LabelledPair, Winner, read_labelled
from rubricem.judge.evaluation.report import PairReport
from rubricem.judge.pairwise import Comparer, Preference, Side, ask_preference
from rubricem.judge.relative import RelativeJudge
from rubricem.judge.rubrics.core import together
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.runs import RowFile
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
)

Item = TypeVar("Item")
Task = tuple[LabelledPair, bool]
"""a pair, and whether its second answer is shown first"""


class GroupComparer:
    """A `Comparer` over a judge of groups.

    Its rubrics start anew with each pair; with `keep` those of a question are made once and then
    used for all of its pairs, for a judge that makes them from the question alone.
    """

    def __init__(self, judge: GroupJudge, *, keep: bool = False) -> None:
        self._judge, self._keep, self.name = judge, keep, judge.name
        self._buffers: dict[str, RubricBuffer] = {}
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        runs = answers_alone(question, first, second)
        judged = await self._judge_group(TrajectoryGroup(question=question, trajectories=runs))
        usage = sum((j.usage for j in judged.judgements), judged.usage)
        answers = [s for j in judged.judgements for s in j.stages if s.stage is Stage.ANSWER]
        scores = [answer.score for answer in answers if answer.score is not None]
        if len(scores) < len(answers):
            said = [answer.unscored_reason for answer in answers if answer.score is None]
            return Preference(None, " ".join((said[0], *judged.notes)), usage=usage)
        one, other = scores
        # Equal scores prefer neither; those apart by 1 or more are wholly sure.
        winner: Side | None = None if one == other else "A" if one > other else "B"
        share = min(max(0.5 + (one - other) / 2, 0.0), 1.0)
        reason = f"Scored {one:.3g} and {other:.3g}."
        return Preference(winner, reason, first_share=share, usage=usage)

    async def _judge_group(self, group: TrajectoryGroup) -> GroupJudgement:
        empty = RubricBuffer(question=group.question)
        if not self._keep:
            return await self._judge.judge(group, empty)
        async with self._making[group.question]:
            buffer = self._buffers.get(group.question, empty)
            judged = await self._judge.judge(group, buffer)
            self._buffers[group.question] = judged.buffer
        return judged


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


def comparer_of(kind: Kind, model: JudgeModel, chain: bool = False) -> Comparer:
    """A comparer that shows answers in the order that it is told them.

    `chain`: a local model was trained to write its reasoning on a pair.
    """
    if kind == "pairwise":
        return pair_comparer(model, chain)
    if kind == "relative":
        return GroupComparer(RelativeJudge(attempt_reader(model), shuffled=False))
    return GroupComparer(group_judge(model, Wanted(kind)), keep=kind == "checklist")


def is_swapped(pair: LabelledPair, seed: int) -> bool:
    """Whether the pair is shown with its second answer first, where it is shown once."""
    return random.Random(f"{seed}\0{pair.id}").random() < 0.5


def tasks_of(pairs: Iterable[LabelledPair], done: Iterable[LabelledComparison] = ()) -> list[Task]:
    """What has still to be shown: each pair in both orders."""
    known = {comparison.key for comparison in done}
    shown = ((pair, swapped) for pair in pairs for swapped in (False, True))
    return [(pair, swapped) for pair, swapped in shown if (pair.id, swapped) not in known]


async def compare_all(
    comparer: Comparer,
    tasks: Sequence[Task],
    at_once: int,
    on_done: Callable[[LabelledComparison], object],
) -> list[LabelledComparison]:
    """One comparison for each task, in their order; `on_done` is told each as it comes.

    A judge that fails is a comparison without a winner; what else is raised ends all.
    """
    places = asyncio.Semaphore(at_once)

    async def one(task: Task) -> LabelledComparison:
        async with places:
            found = await compare_pair(comparer, *task)
        on_done(found)
        return found

    return await together(map(one, tasks))


async def compare_pair(comparer: Comparer, pair: LabelledPair, swapped: bool) -> LabelledComparison:
    """The verdict on one pair in one order, told in the pair's own numbering."""
    texts = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    said = await ask_preference(comparer, pair.prompt, *texts)
    share = said.first_share
    winner: Winner | None = "tie" if share == 0.5 else None
    if said.winner is not None:
        winner = "first" if (said.winner == "A") != swapped else "second"
    return LabelledComparison(
        pair=pair.id,
        judge=comparer.name,
        swapped=swapped,
        winner=winner,
        share=1 - share if swapped and share is not None else share,
        reason=said.reason,
        text=said.text,
        usage=said.usage,
    )


def sample(listed: Sequence[Item], limit: int | None, seed: int) -> list[Item]:
    """At most so many, drawn evenly from all, in the data's order."""
    if limit is None or limit >= len(listed):
        return list(listed)
    return [listed[i] for i in sorted(random.Random(seed).sample(range(len(listed)), limit))]


def read_verdicts(path: Path, pairs: Sequence[LabelledPair]) -> RowFile[LabelledComparison]:
    """The verdicts on these pairs in a file. Raises SettingsError for verdicts on other pairs."""
    kept = RowFile(path, LabelledComparison, "Fix the row, or leave it out.")
    if strange := sorted({name for name, _ in kept.held} - {pair.id for pair in pairs}):
        raise SettingsError(
            f"{path} was not recorded on this data: it speaks of {strange[0]!r}.",
            "Name the data it was recorded on, or another file of verdicts.",
        )
    return kept


def report_verdicts(path: Path, verdicts: Path) -> PairReport:
    """What a file of verdicts on this data says; no model is asked."""
    pairs = read_labelled(path)
    found = list(read_verdicts(verdicts, pairs).held.values())
    if not found:
        raise SettingsError(f"{verdicts} holds no verdicts.", "Add --judge, or name another file.")
    judge = next(filter(None, (verdict.judge for verdict in found)), verdicts.stem)
    return PairReport.of(path.name, judge, pairs, found)


async def evaluate(
    comparer: Comparer,
    path: Path,
    *,
    judge: str,
    verdicts: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    at_once: int = 1,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> PairReport:
    """What a judge says of this data now; winners and ties in the file are not asked for again.

    `judge`: its name in the file and the report. `limit`: so many pairs, drawn by the seed. `tell`
    is told how many verdicts there are, of how many. Raises JudgeError where not one verdict could
    be had.
    """
    everything = await asyncio.to_thread(read_labelled, path)
    pairs = sample(everything, limit, seed)
    kept = read_verdicts(verdicts, everything) if verdicts else None
    known = list(kept.held.values()) if kept else []
    if others := sorted({verdict.judge for verdict in known} - {judge}):
        raise SettingsError(
            f"{verdicts} holds verdicts of {others[0] or 'an unnamed judge'}, not of {judge}.",
            "Name another file; to measure what it holds, leave out --judge.",
        )
    names = {pair.id for pair in pairs}
    found = [verdict for verdict in known if verdict.pair in names and verdict.winner]
    tasks = tasks_of(pairs, found)
    done, total = len(found), len(found) + len(tasks)
    spent = {verdict.key: verdict.usage for verdict in known if not verdict.winner}

    def whole(verdict: LabelledComparison) -> LabelledComparison:
        """With what was paid in vain for it before."""
        usage = spent.get(verdict.key, NO_USAGE) + verdict.usage
        return verdict.model_copy(update={"judge": judge, "usage": usage})

    def keep(verdict: LabelledComparison) -> None:
        nonlocal done
        done += 1
        if kept:
            kept.append(whole(verdict))
        tell(done, total)

    found += map(whole, await compare_all(comparer, tasks, at_once, keep))
    if found and all(verdict.winner is None for verdict in found):
        raise JudgeError(f"There was no verdict. {found[-1].reason}")
    return PairReport.of(path.name, judge, pairs, found)
