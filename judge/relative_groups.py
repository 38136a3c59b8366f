"""The relative judge where other judges stand: its lists of scores as judgements of stages.

A list is what the attempts of a group come to against one another, and stands for one stage of
them. Either one list is of whole runs, and stands for the answer, whose score training spreads
over the other stages; or each stage has a list of its own, made of what the runs wrote in it and
read in a call of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from judge.relative import RelativeJudge
from judge.scores import TrajectoryScore, unread
from judge.scoring import NO_CRITERIA
from judge.stage_judge import GroupJudgement
from judge.transcripts import stage_segments
from memory.rubrics import RubricBuffer
from memory.schema import (
    NO_USAGE,
    Judgement,
    Stage,
    StageScore,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
)

_TASK = (
    "The attempts show one stage alone of work on the task below: its {stage}. Hold them to what "
    "that stage is for.\n\n{question}"
)


@dataclass(frozen=True, slots=True)
class Attempted:
    """The attempts of one list, and the stage that it stands for."""

    stage: Stage
    read: TrajectoryGroup
    settled: Mapping[str, StageScore] = field(default_factory=dict)
    """of those that nobody has to read, by the trajectory's id; they are in nobody's comparison"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list's scores by the trajectory's id, notes, and what its calls cost."""

    stage: Stage
    scores: Mapping[str, StageScore]
    notes: tuple[str, ...] = ()
    usage: Usage = NO_USAGE


class RelativeGroups:
    """A `RelativeJudge` that judges groups as the stage judge does; it uses no buffer."""

    def __init__(self, judge: RelativeJudge, seed: int = 0, *, by_stage: bool = False) -> None:
        self._judge = judge
        self._seed = seed
        self._by_stage = by_stage

    @property
    def name(self) -> str:
        return self._judge.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the seed of its order stands in the version.

        A judge that fails leaves the stage of its list unscored. The usage is the group's, since
        one call is about all runs.
        """
        seed = self._seed + step
        lists = [_stage_of(group, stage) for stage in Stage] if self._by_stage else [_whole(group)]
        found = await asyncio.gather(*(self._listed(one, seed) for one in lists))
        version = f"{self._judge.rubric_version} seed {seed}"
        return GroupJudgement(
            judgements=tuple(
                Judgement(
                    trajectory_id=trajectory.id,
                    judge=self.name,
                    rubric_version=version,
                    stages=_stages(found, trajectory.id),
                )
                for trajectory in group.trajectories
            ),
            buffer=buffer,
            notes=tuple(self._note(one.stage, note) for one in found for note in one.notes),
            usage=sum((one.usage for one in found), NO_USAGE),
        )

    async def _listed(self, one: Attempted, seed: int) -> Listed:
        if not one.read.trajectories:
            return Listed(one.stage, one.settled)
        result = await self._judge.judge(one.read, seed)
        effect = result.order_effect
        notes = [] if effect is None else [f"The order shown moved scores by {effect:.2f}."]
        read = {score.trajectory_id: _of(score, one.stage) for score in result.scores}
        return Listed(one.stage, {**one.settled, **read}, (*result.notes, *notes), result.usage)

    def _note(self, stage: Stage, note: str) -> str:
        return f"{stage}: {note}" if self._by_stage else note


def _whole(group: TrajectoryGroup) -> Attempted:
    return Attempted(Stage.ANSWER, group)


def _stage_of(group: TrajectoryGroup, stage: Stage) -> Attempted:
    known = {trajectory.id: unread(trajectory, stage) for trajectory in group.trajectories}
    alone = tuple(_alone(t, stage) for t in group.trajectories if known[t.id] is None)
    question = _TASK.format(stage=stage.value, question=group.question)
    settled = {name: score for name, score in known.items() if score is not None}
    return Attempted(stage, TrajectoryGroup(question=question, trajectories=alone), settled)


def _alone(trajectory: Trajectory, stage: Stage) -> Trajectory:
    """The trajectory as if this stage were all of it, and had come to its end."""
    segments = tuple(stage_segments(trajectory, stage))
    return trajectory.model_copy(
        update={"segments": segments, "status": Status.FINISHED, "reason": "", "cut_in": None}
    )


def _stages(lists: Sequence[Listed], name: str) -> tuple[StageScore, ...]:
    """The scores of a trajectory; a stage that no list stands for has no criteria."""
    given = {one.stage: one.scores[name] for one in lists}
    return tuple(
        given.get(stage, StageScore(stage=stage, unscored_reason=NO_CRITERIA)) for stage in Stage
    )


def _of(score: TrajectoryScore, stage: Stage) -> StageScore:
    if score.score is None:
        return StageScore(stage=stage, unscored_reason=score.unscored_reason)
    return StageScore(
        stage=stage, score=score.score, justification=score.explanation, spread=score.spread
    )
