"""The parts of a collecting step: its batches, its groups, and what is recorded of them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from judge.stage_judge import GroupJudgement
from memory.rubrics import RubricBuffer
from memory.schema import (
    Judgement,
    Reflection,
    ReflectionCandidate,
    Trajectory,
    TrajectoryGroup,
    Value,
)
from training.run_directory import GroupRecord, Question


class Reflected(Value):
    """What was written on one trajectory of a group."""

    trajectory_id: str
    candidates: tuple[ReflectionCandidate, ...] = ()
    reflection: Reflection | None = None
    """the one for the bank"""
    notes: tuple[str, ...] = ()


class Snapshot(Value):
    """The state of the bank that all rollouts of a step see."""

    generation: int


class GroupJudge(Protocol):
    """Scores a group, and says how its rubrics change."""

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement: ...


class Reflecting(Protocol):
    """Writes about one trajectory; raises RubricemError where it cannot."""

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected: ...


class Memory(Protocol):
    """The bank, as a step needs it."""

    async def generation(self) -> int: ...
    def pin(self, generation: int) -> None:
        """Recall from now on as the bank stood then."""
        ...

    async def put(self, reflection: Reflection) -> bool: ...


@dataclass(frozen=True, slots=True)
class Group:
    """Everything that a step makes of one question."""

    name: str
    question: Question
    rollouts: TrajectoryGroup
    judged: GroupJudgement | None = None
    reflected: Reflected | None = None
    notes: tuple[str, ...] = ()

    def judgement(self, trajectory_id: str) -> Judgement | None:
        found = self.judged.judgements if self.judged else ()
        return next((j for j in found if j.trajectory_id == trajectory_id), None)


def steps_of(questions: Sequence[Question], size: int) -> Iterator[list[Question]]:
    """Batches of at most `size`; a question that comes again waits for the next one."""
    batch: list[Question] = []
    for question in questions:
        if len(batch) == size or any(question.question == q.question for q in batch):
            yield batch
            batch = []
        batch.append(question)
    if batch:
        yield batch


def rollout_seed(seed: int, group: str, member: int) -> int:
    """A seed of 32 bits for each rollout of a run."""
    digest = hashlib.sha256(f"{seed}\0{group}\0{member}".encode())
    return int(digest.hexdigest()[:8], 16)


def record_of(step: int, group: Group) -> GroupRecord:
    trajectories = group.rollouts.trajectories
    return GroupRecord(
        id=group.name,
        step=step,
        question_id=group.question.id,
        question=group.question.question,
        trajectories=tuple(t.id for t in trajectories),
        failures=group.rollouts.failures,
        rubric_version=group.judged.judgements[0].rubric_version if group.judged else "",
        reflected=group.reflected.trajectory_id if group.reflected else "",
        recalled=trajectories[0].recalled if trajectories else (),
        notes=group.notes,
    )


def means(judged: GroupJudgement) -> str:
    """The mean score of each stage, in order, over the trajectories that have one."""
    means = []
    for scores in zip(*(judgement.stages for judgement in judged.judgements), strict=True):
        known = [score.score for score in scores if score.score is not None]
        mean = f"{sum(known) / len(known):.2f}" if known else "unscored"
        means.append(f"{scores[0].stage} {mean}")
    return ", ".join(means)
