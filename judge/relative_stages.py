"""The relative judge stage by stage: a list of scores for each stage, held against one another.

Every stage is a group of its own, made of what the runs wrote in it, and is read in a call of its
own. A stage that others cut off is unscored there and in nobody's comparison; one that the policy
left out scores 0, unread.
"""

import asyncio
from collections.abc import Mapping

from judge.relative import RelativeJudge
from judge.scores import TrajectoryScore
from judge.stage_judge import GroupJudgement
from judge.transcripts import cut_off, stage_segments, written
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
_MISSING = "The policy ended without this stage."
Found = tuple[Mapping[str, StageScore], tuple[str, ...], Usage]
"""the scores of a stage by the trajectory's id, notes, and what the calls cost"""


class RelativeStages:
    """A `RelativeJudge` that judges groups as the stage judge does; it uses no buffer."""

    def __init__(self, judge: RelativeJudge, seed: int = 0) -> None:
        self._judge = judge
        self._seed = seed

    @property
    def name(self) -> str:
        return self._judge.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; a judge that fails leaves a stage unscored.

        The usage is the group's, since one call is about all runs.
        """
        seed = self._seed + step
        found = await asyncio.gather(*(self._stage(group, stage, seed) for stage in Stage))
        version = f"{self._judge.rubric_version} seed {seed}"
        return GroupJudgement(
            judgements=tuple(
                Judgement(
                    trajectory_id=trajectory.id,
                    judge=self.name,
                    rubric_version=version,
                    stages=tuple(scores[trajectory.id] for scores, _, _ in found),
                )
                for trajectory in group.trajectories
            ),
            buffer=buffer,
            notes=tuple(note for _, notes, _ in found for note in notes),
            usage=sum((usage for _, _, usage in found), NO_USAGE),
        )

    async def _stage(self, group: TrajectoryGroup, stage: Stage, seed: int) -> Found:
        known = {t.id: _settled(t, stage) for t in group.trajectories}
        scores = {name: score for name, score in known.items() if score is not None}
        read = [t for t in group.trajectories if known[t.id] is None]
        if not read:
            return scores, (), NO_USAGE
        question = _TASK.format(stage=stage.value, question=group.question)
        alone = tuple(_alone(trajectory, stage) for trajectory in read)
        result = await self._judge.judge(
            TrajectoryGroup(question=question, trajectories=alone), seed
        )
        scores |= {score.trajectory_id: _of(score, stage) for score in result.scores}
        return scores, tuple(f"{stage}: {note}" for note in result.notes), result.usage


def _settled(trajectory: Trajectory, stage: Stage) -> StageScore | None:
    """The score of a stage that nobody has to read, or None where one has to."""
    if reason := cut_off(trajectory, stage):
        return StageScore(stage=stage, unscored_reason=reason)
    if not written(trajectory, stage):
        return StageScore(stage=stage, score=0.0, missing=True, justification=_MISSING)
    return None


def _alone(trajectory: Trajectory, stage: Stage) -> Trajectory:
    """The trajectory as if this stage were all of it, and had come to its end."""
    segments = tuple(stage_segments(trajectory, stage))
    return trajectory.model_copy(
        update={"segments": segments, "status": Status.FINISHED, "reason": "", "cut_in": None}
    )


def _of(score: TrajectoryScore, stage: Stage) -> StageScore:
    if score.score is None:
        return StageScore(stage=stage, unscored_reason=score.unscored_reason)
    return StageScore(
        stage=stage, score=score.score, justification=score.explanation, spread=score.spread
    )
