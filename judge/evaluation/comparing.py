"""A judge shown labelled pairs, in one order or in both.

Any judge of groups can be asked which of two answers is better: each becomes a run of its own
that holds an answer and nothing else, and the higher score wins. How sure it is (`share`) is
then 0.5 plus half the difference of the scores.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

from judge.evaluation.labelled import Comparison, Pair, Winner, mirrored
from judge.pairwise import Comparer, Preference
from judge.stage_judge import GroupJudgement
from memory.errors import RubricemError
from memory.rubrics import RubricBuffer
from memory.schema import (
    NO_USAGE,
    AnswerFormat,
    Author,
    Decoding,
    Segment,
    Stage,
    StageScore,
    Status,
    Trajectory,
    TrajectoryGroup,
)

Orders = Literal["both", "one"]
"""`both`: each pair twice; `one`: each once, in an order drawn from the seed"""
Task = tuple[Pair, bool]
"""a pair, and whether its second answer is shown first"""


class GroupJudge(Protocol):
    """Scores the runs of a group, as the stage judge does."""

    @property
    def name(self) -> str: ...

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement: ...


class GroupComparer:
    """A `Comparer` over a judge of groups."""

    def __init__(self, judge: GroupJudge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        return self._judge.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        runs = (answer_alone(question, first, "A"), answer_alone(question, second, "B"))
        group = TrajectoryGroup(question=question, trajectories=runs)
        try:
            judged = await self._judge.judge(group, RubricBuffer(question=question))
        except RubricemError as error:
            return Preference(
                None, f"{error} {error.remedy}".strip(), usage=error.usage or NO_USAGE
            )
        usage = sum((j.usage for j in judged.judgements), judged.usage)
        answers = [_answer(j.stages) for j in judged.judgements]
        scores = [answer.score for answer in answers]
        if scores[0] is None or scores[1] is None:
            said = [answer.unscored_reason for answer in answers if answer.score is None]
            return Preference(None, " ".join((said[0], *judged.notes)), usage=usage)
        share = 0.5 + (scores[0] - scores[1]) / 2
        reason = f"Scored {scores[0]:.3g} and {scores[1]:.3g}."
        winner: Literal["A", "B"] = "A" if share > 0.5 else "B"
        return Preference(None if share == 0.5 else winner, reason, first_share=share, usage=usage)


def answer_alone(question: str, answer: str, name: str) -> Trajectory:
    """A run that holds an answer and nothing else."""
    return Trajectory(
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


def tasks_of(
    pairs: Iterable[Pair], orders: Orders, seed: int, done: Iterable[Comparison] = ()
) -> list[Task]:
    """What has still to be shown. A drawn order hangs on the seed and the pair alone."""
    known = {(c.pair, c.swapped) for c in done}
    shown = [
        (pair, swapped)
        for pair in pairs
        for swapped in ((False, True) if orders == "both" else (_drawn(pair, seed),))
    ]
    return [(pair, swapped) for pair, swapped in shown if (pair.id, swapped) not in known]


async def compare_all(
    comparer: Comparer,
    tasks: Sequence[Task],
    at_once: int,
    on_done: Callable[[Comparison], None],
) -> list[Comparison]:
    """One comparison for each task, in their order; `on_done` is told each as it comes."""
    places = asyncio.Semaphore(at_once)

    async def compare(pair: Pair, swapped: bool) -> Comparison:
        async with places:
            comparison = await shown(comparer, pair, swapped)
        on_done(comparison)
        return comparison

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(compare(*task)) for task in tasks]
    return [task.result() for task in running]


async def shown(comparer: Comparer, pair: Pair, swapped: bool) -> Comparison:
    """The verdict on one pair in one order, told in the pair's own numbering."""
    texts = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    said = await comparer.prefer(pair.prompt, *texts)
    winner, share = winner_of(said), said.first_share
    return Comparison(
        pair=pair.id,
        judge=comparer.name,
        swapped=swapped,
        winner=mirrored(winner) if swapped else winner,
        share=1 - share if swapped and share is not None else share,
        reason=said.reason,
        usage=said.usage,
    )


def winner_of(preference: Preference) -> Winner | None:
    """Who won of the two as shown; a reading that is exactly undecided is a tie."""
    if preference.winner is not None:
        return "first" if preference.winner == "A" else "second"
    return "tie" if preference.first_share == 0.5 else None


def sample(pairs: Sequence[Pair], limit: int | None, seed: int) -> list[Pair]:
    """At most so many pairs, drawn evenly from all, in the data's order."""
    if limit is None or limit >= len(pairs):
        return list(pairs)
    return [pairs[i] for i in sorted(random.Random(seed).sample(range(len(pairs)), limit))]


def _drawn(pair: Pair, seed: int) -> bool:
    return random.Random(f"{seed}\0{pair.id}").random() < 0.5


def _answer(stages: Sequence[StageScore]) -> StageScore:
    return next(score for score in stages if score.stage is Stage.ANSWER)
