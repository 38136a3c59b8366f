"""Judges of scores, asked which of two answers is better: the higher score wins.

Each answer becomes a run of its own that holds an answer and nothing else. How sure the judge
is of the first (`first_share`) is then 0.5 plus half the difference of the scores.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from judge.composed_judge import GroupJudge
from judge.group_text import group_text
from judge.pairwise import Preference
from judge.pairwise_parsing import Side
from judge.relative import AttemptReader, Attempts
from judge.stage_judge import GroupJudgement
from memory.asking import spent
from memory.errors import RubricemError
from memory.rubrics import RubricBuffer
from memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Segment,
    Stage,
    StageScore,
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
        self._keep = keep
        self._buffers: dict[str, RubricBuffer] = {}
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def name(self) -> str:
        return self._judge.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        runs = answers_alone(question, first, second)
        group = TrajectoryGroup(question=question, trajectories=runs)
        try:
            judged = await self._judged(group)
        except RubricemError as error:
            return no_preference(error)
        usage = sum((j.usage for j in judged.judgements), judged.usage)
        answers = [_answer(judgement.stages) for judgement in judged.judgements]
        scores = [answer.score for answer in answers if answer.score is not None]
        if len(scores) < len(answers):
            said = [answer.unscored_reason for answer in answers if answer.score is None]
            return Preference(None, " ".join((said[0], *judged.notes)), usage=usage)
        return higher(scores[0], scores[1], usage)

    async def _judged(self, group: TrajectoryGroup) -> GroupJudgement:
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

    @property
    def name(self) -> str:
        return self._reader.name

    async def prefer(self, question: str, first: str, second: str) -> Preference:
        if first.strip() == second.strip():
            return Preference(None, "The answers are the same.", first_share=0.5)
        text = group_text(answers_alone(question, first, second), self._reader.characters)
        try:
            read = await self._reader.read(Attempts(question, text.shared, text.attempts), seed=0)
        except RubricemError as error:
            return no_preference(error)
        (left, _), (right, _) = read.scores
        return higher(left, right, read.usage)


def higher(first: float, second: float, usage: Usage) -> Preference:
    """What two scores in [0, 1] say; equal ones prefer neither."""
    reason = f"Scored {first:.3g} and {second:.3g}."
    winner: Side | None = None if first == second else "A" if first > second else "B"
    return Preference(winner, reason, first_share=0.5 + (first - second) / 2, usage=usage)


def no_preference(error: RubricemError) -> Preference:
    return Preference(None, f"{error} {error.remedy}".strip(), usage=spent(error))


def answers_alone(question: str, first: str, second: str) -> tuple[Trajectory, Trajectory]:
    return answer_alone(question, first, "A"), answer_alone(question, second, "B")


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


def _answer(stages: Sequence[StageScore]) -> StageScore:
    return next(score for score in stages if score.stage is Stage.ANSWER)
