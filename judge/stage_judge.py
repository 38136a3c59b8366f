"""The stage judge: every stage of every rollout of a question, scored on rubrics that evolve.

For a group of rollouts it proposes criteria by contrasting them, adds those that are new,
scores every rollout on all criteria in force, and prunes those that separate nothing. A lone
run, or a group of identical ones, has nothing to contrast: it is scored on criteria made from
the question, and nothing is pruned. Nothing is saved here: the caller saves the new buffer at
the end of its step. Source: RubricEM (arXiv:2605.10899), appendix C, with what it leaves open.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from judge.buffer import add, prune
from judge.loopholes import without_loopholes
from judge.scoring import Scored, Scorer, settled, stage_scores
from judge.transcripts import distinct
from memory.asking import spent, told
from memory.errors import JudgeError, PolicyError
from memory.interfaces import Passage
from memory.rubrics import RubricBuffer
from memory.schema import (
    NO_USAGE,
    Criterion,
    Judgement,
    Stage,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Value,
)

MOST_PROPOSED: Mapping[Stage, int] = {
    Stage.PLAN: 4,
    Stage.RESEARCH: 4,
    Stage.REVIEW: 4,
    Stage.ANSWER: 5,
}
"""new criteria that one proposal may bring"""


@dataclass(frozen=True, slots=True)
class Proposed:
    """New criteria by stage, and what asking for them cost."""

    criteria: Mapping[Stage, tuple[Criterion, ...]]
    usage: Usage = NO_USAGE


class Proposer(Protocol):
    """Writes criteria. Raises JudgeError or PolicyError when it has none to give."""

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        """Criteria that separate stronger from weaker ones of at least two runs."""
        ...

    async def from_question(self, question: str, found: Sequence[Passage] = ()) -> Proposed:
        """Criteria made before any run was seen; `found` is what a search for it brought."""
        ...


class GroupJudgement(Value):
    """A group as the judge saw it, and the rubrics as they are afterwards."""

    judgements: tuple[Judgement, ...]
    """one for each trajectory, in their order"""
    buffer: RubricBuffer
    notes: tuple[str, ...] = ()
    """what did not work, in sentences"""
    usage: Usage = NO_USAGE
    """of proposing alone; that of scoring stands in each judgement"""
    version_before: int | None = None
    """of the rubrics that the judge was handed, where whoever keeps this has noted it"""
    seconds: float | None = None
    """that judging took, where whoever keeps this has noted it"""


class StageJudge:
    """Judges groups with one proposer and one scorer."""

    def __init__(self, proposer: Proposer, scorer: Scorer) -> None:
        self._proposer = proposer
        self._scorer = scorer

    @property
    def name(self) -> str:
        return self._scorer.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory, and the next buffer.

        A judge that fails leaves stages unscored with the reason, or brings no new criteria and
        a note; it raises nothing. `step` is told in the buffer's history.
        """
        different = [group.trajectories[place] for place in distinct(group.trajectories)]
        proposed, notes = await self._propose(different, buffer, step)
        sound, dropped = without_loopholes(proposed.criteria, buffer.question)
        notes += dropped
        grown = add(buffer, _bounded(sound), step, _reason(different))
        judgements = await asyncio.gather(*(self._score(t, grown) for t in group.trajectories))
        notes += [note for judgement in judgements for note in _failures(judgement)]
        pruned = prune(grown, _points(group.trajectories, judgements), step)
        return GroupJudgement(
            judgements=tuple(judgements), buffer=pruned, notes=tuple(notes), usage=proposed.usage
        )

    async def _propose(
        self, different: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> tuple[Proposed, list[str]]:
        try:
            if len(different) > 1:
                return await self._proposer.contrast(different, buffer, step), []
            if not any(buffer.persistent.values()):
                return await self._proposer.from_question(buffer.question), []
        except (JudgeError, PolicyError) as error:
            return Proposed({}, spent(error)), [f"No new criteria: {told(error)}"]
        return Proposed({}), []

    async def _score(self, trajectory: Trajectory, buffer: RubricBuffer) -> Judgement:
        open_stages = [stage for stage in Stage if settled(trajectory, stage, buffer) is None]
        scored, failure, usage = Scored({}), "", NO_USAGE
        if open_stages:
            try:
                standard = {stage: buffer.criteria(stage) for stage in open_stages}
                scored = await self._scorer.score(trajectory, standard)
                usage = scored.usage
            except (JudgeError, PolicyError) as error:
                failure, usage = told(error), spent(error)
        return Judgement(
            trajectory_id=trajectory.id,
            judge=self._scorer.name,
            rubric_version=buffer.label,
            stages=stage_scores(trajectory, buffer, scored, failure),
            usage=usage,
        )


def _bounded(
    criteria: Mapping[Stage, tuple[Criterion, ...]],
) -> dict[Stage, tuple[Criterion, ...]]:
    return {stage: listed[: MOST_PROPOSED[stage]] for stage, listed in criteria.items()}


def _reason(different: Sequence[Trajectory]) -> str:
    return f"contrasting {len(different)} runs" if len(different) > 1 else "from the question"


def _failures(judgement: Judgement) -> list[str]:
    """A sentence when the judge failed on this trajectory."""
    failed = [s for s in judgement.stages if s.unscored_reason.startswith("the judge failed")]
    return [f"{judgement.trajectory_id}: {failed[0].unscored_reason}"] if failed else []


def _points(
    trajectories: Sequence[Trajectory], judgements: Sequence[Judgement]
) -> dict[Stage, dict[str, list[float]]]:
    """Points of every criterion over the trajectories that differ; none for a lone one."""
    points: dict[Stage, dict[str, list[float]]] = {stage: {} for stage in Stage}
    for place in distinct(trajectories):
        for score in judgements[place].stages:
            for verdict in score.verdicts:
                given = points[score.stage].setdefault(verdict.criterion.key, [])
                given.append(verdict.points)
    return points
