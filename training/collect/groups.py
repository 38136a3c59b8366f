"""The parts of a collecting step: its groups, who judges and reflects, and what is recorded."""

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from rubricem.agent.research.question import Ask
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.rubrics import RubricBuffer
from rubricem.memory.schema import (
    NO_USAGE,
    Judgement,
    Reflection,
    ReflectionCandidate,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Value,
)
from rubricem.training.collect.directory import Question

Milestone = Literal["rolled", "judged"]
"""of a group: all its rollouts have ended; its judgement, if there is one, is on disk"""


class Reflected(Value):
    """What was written on one trajectory of a group."""

    trajectory_id: str
    candidates: tuple[ReflectionCandidate, ...] = ()
    reflection: Reflection | None = None
    """the one for the bank"""
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    """of writing and judging them"""


class StepMemory(Value):
    """The state of the bank that all rollouts of a step see."""

    generation: int


class Rollouts(Protocol):
    """Where rollouts are written: in this process by a `Researcher`, or in others."""

    @property
    def template(self) -> Ask:
        """The limits of every rollout."""
        ...

    async def ask(self, ask: Ask, thread: str) -> Trajectory:
        """A rollout to its end, or on from its finished calls; one that failed says why."""
        ...


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
    def pin(self, generation: int, *, own: bool = True) -> None:
        """Recall from now on as the bank stood then; without `own` only of similar questions."""
        ...

    async def put(self, reflection: Reflection) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rollout:
    """How one rollout ended; its trajectory is on disk, in the folder of its thread."""

    thread: str
    trajectory_id: str
    recalled: tuple[str, ...]
    failure: str = ""
    """why it gave no trajectory"""
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class Group:
    """What a step holds in memory of one question; the rest is on disk by its name."""

    name: str
    question: Question
    rollouts: tuple[Rollout, ...]
    rubric_version: str = ""
    reflected: str = ""
    notes: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[Rollout, ...]:
        """The rollouts that gave a trajectory."""
        return tuple(rollout for rollout in self.rollouts if not rollout.failure)

    @property
    def failures(self) -> tuple[str, ...]:
        return tuple(rollout.failure for rollout in self.rollouts if rollout.failure)


def group_name(step: int, number: int) -> str:
    """What names a step's group on disk, and begins the names of its rollouts and calls."""
    return f"s{step:03d}-q{number:03d}"


def thread_of(group: str, member: int) -> str:
    """What names a rollout of a group."""
    return f"{group}-r{member}"


def member_of(thread: str) -> int:
    """The place in its group of a rollout, counted from 0; -1: it belongs to none."""
    found = re.search(r"-r(\d+)$", thread)
    return int(found[1]) if found else -1


def step_of(thread: str) -> int:
    """The step that a thread of the journal belongs to; -1: none."""
    found = re.match(r"s(\d+)-q", thread)
    return int(found[1]) if found else -1


def judged_part(group: str) -> str:
    """What names a group's judgement on disk, and the calls that were made for it."""
    return f"{group}-judged"


def reflected_part(group: str) -> str:
    """The same of the reflections on one of its members."""
    return f"{group}-reflected"
