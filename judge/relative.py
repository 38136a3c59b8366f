"""The relative judge: all attempts of a group in one call, each scored against the others.

The attempts share one prompt: what they have in common is sent once, and each is shown under a
number that a recorded seed has shuffled; scores return by that number. A second pass shows them
in the opposite order, and the mean of both is the score. The idea is that of RULER (OpenPipe,
2025). A judge that fails leaves the group unscored with the reason, never at 0.
"""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Protocol

from judge.group_text import group_text, unreadable
from judge.scores import GroupScores, TrajectoryScore
from memory.asking import spent, told
from memory.errors import JudgeError, PolicyError
from memory.schema import NO_USAGE, Trajectory, TrajectoryGroup, Usage

CHARACTERS = 60_000
"""of attempts shown in one call, some 15,000 tokens"""
LARGE = 8
"""attempts beyond which judges are known to lose the overview"""
ALONE = "A lone attempt was scored by itself: there was nothing to hold it against."
IDENTICAL = "All attempts are the same: one was scored, and its score is everyone's."


@dataclass(frozen=True, slots=True)
class Attempts:
    """What a reader is shown, in the order of the numbers 1, 2, ..."""

    question: str
    shared: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A score in [0, 1] and an explanation for each attempt, in the order shown."""

    scores: tuple[tuple[float, str], ...]
    usage: Usage = NO_USAGE


class AttemptReader(Protocol):
    """Scores attempts against one another. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    @property
    def rubric_version(self) -> str:
        """Names the standards it holds attempts to."""
        ...

    @property
    def characters(self) -> int:
        """Of attempts that it can be shown at once."""
        ...

    async def read(self, attempts: Attempts, seed: int) -> Read: ...


class RelativeScores(GroupScores):
    """Scores in [0, 1] of one group, and how it was shown."""

    seed: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    """for each pass that counts, the places in the group in the order shown"""
    order_effect: float | None = None
    """mean distance between the scores of two passes; None for one pass"""


Pass = tuple[tuple[int, ...], Read]


class RelativeJudge:
    """Judges groups with one reader. `passes`: 2 shows each group in the opposite order too."""

    def __init__(self, reader: AttemptReader, passes: int = 1) -> None:
        if passes not in (1, 2):
            raise ValueError("a group is read once, or twice in opposite orders")
        self._reader = reader
        self._passes = passes

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def rubric_version(self) -> str:
        return self._reader.rubric_version

    async def judge(self, group: TrajectoryGroup, seed: int = 0) -> RelativeScores:
        """One score for each trajectory, in their order; raises nothing for a judge that failed."""
        reasons = unreadable(group.trajectories)
        places = [i for i, reason in enumerate(reasons) if not reason]
        if not places:
            return self._scores(group, reasons, [], [], NO_USAGE, seed)
        twins = _twins(group.trajectories, places)
        readable = [group.trajectories[same[0]] for same in twins]
        text = group_text(readable, self._reader.characters)
        read, faults, usage = await self._read(group.question, text.shared, text.attempts, seed)
        by_place = [_everyones(order, given, twins) for order, given in read]
        for place in places:
            reasons[place] = "" if by_place else f"the judge failed: {faults[0]}"
        notes = _limits(len(places), len(twins)) if by_place else []
        return self._scores(group, reasons, by_place, [*notes, *faults], usage, seed)

    async def _read(
        self, question: str, shared: str, texts: Sequence[str], seed: int
    ) -> tuple[list[Pass], list[str], Usage]:
        """The passes that worked, the faults of those that did not, and what all cost."""
        orders = orders_of(len(texts), seed, self._passes)
        tasks = [
            self._reader.read(Attempts(question, shared, tuple(texts[i] for i in order)), seed)
            for order in orders
        ]
        passes, faults, usage = list[Pass](), list[str](), NO_USAGE
        for order, found in zip(orders, await asyncio.gather(*map(_settled, tasks)), strict=True):
            if isinstance(found, Read):
                passes.append((order, found))
                usage += found.usage
            else:
                faults.append(told(found))
                usage += spent(found)
        return passes, faults, usage

    def _scores(
        self,
        group: TrajectoryGroup,
        reasons: Sequence[str],
        passes: Sequence[Pass],
        notes: Sequence[str],
        usage: Usage,
        seed: int,
    ) -> RelativeScores:
        given: list[list[tuple[float, str]]] = [[] for _ in group.trajectories]
        for order, read in passes:
            for place, score in zip(order, read.scores, strict=True):
                given[place].append(score)
        scores = tuple(
            _score(trajectory, self.name, found, reason)
            for trajectory, found, reason in zip(group.trajectories, given, reasons, strict=True)
        )
        gaps = [abs(found[0][0] - found[1][0]) for found in given if len(found) == 2]
        return RelativeScores(
            scores=scores,
            notes=tuple(notes),
            usage=usage,
            seed=seed,
            orders=tuple(order for order, _ in passes),
            order_effect=fmean(gaps) if gaps else None,
        )


def orders_of(count: int, seed: int, passes: int) -> list[tuple[int, ...]]:
    """A shuffled order, and its opposite for a second pass; one attempt has one order."""
    order = tuple(random.Random(seed).sample(range(count), count))
    return [order, order[::-1]][: passes if count > 1 else 1]


async def _settled(read: Awaitable[Read]) -> Read | JudgeError | PolicyError:
    try:
        return await read
    except (JudgeError, PolicyError) as error:
        return error


def _twins(trajectories: Sequence[Trajectory], places: Sequence[int]) -> list[list[int]]:
    """The places of trajectories that say the same, together: they are shown and scored once."""
    together: dict[str, list[int]] = {}
    for place in places:
        together.setdefault(trajectories[place].transcript(), []).append(place)
    return list(together.values())


def _everyones(order: Sequence[int], read: Read, twins: Sequence[Sequence[int]]) -> Pass:
    """A pass over those that were shown as one over all."""
    pairs = zip(order, read.scores, strict=True)
    all_pairs = [(place, score) for i, score in pairs for place in twins[i]]
    scores = tuple(score for _, score in all_pairs)
    return tuple(place for place, _ in all_pairs), Read(scores, read.usage)


def _limits(count: int, shown: int) -> list[str]:
    if shown == 1:
        return [IDENTICAL if count > 1 else ALONE]
    many = f"{shown} attempts are many for one call: judges are steadier on groups of 4 to {LARGE}."
    return [many] if shown > LARGE else []


def _score(
    trajectory: Trajectory, judge: str, found: Sequence[tuple[float, str]], reason: str
) -> TrajectoryScore:
    numbers = [score for score, _ in found]
    return TrajectoryScore(
        trajectory_id=trajectory.id,
        judge=judge,
        score=fmean(numbers) if numbers else None,
        explanation=found[0][1] if found else "",
        unscored_reason="" if numbers else reason,
        spread=pstdev(numbers) if len(numbers) > 1 else None,
    )
