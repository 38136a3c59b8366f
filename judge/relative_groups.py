"""The relative judge where other judges stand: its scores as judgements of the answer.

It reads whole runs, but gives one number; that stands as the score of the last stage, which
training spreads over the others.
"""

from judge.answers import answer_judgement, scored, unscored
from judge.relative import RelativeJudge
from judge.scores import TrajectoryScore
from judge.stage_judge import GroupJudgement
from memory.rubrics import RubricBuffer
from memory.schema import StageScore, TrajectoryGroup


class RelativeGroups:
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
        """One judgement for each trajectory; the seed of its order stands in the version.

        The usage is the group's, since one call is about all runs.
        """
        seed = self._seed + step
        result = await self._judge.judge(group, seed)
        version = f"{self._judge.rubric_version} seed {seed}"
        effect = result.order_effect
        notes = [] if effect is None else [f"The order shown moved scores by {effect:.2f}."]
        return GroupJudgement(
            judgements=tuple(
                answer_judgement(trajectory, self.name, _of(score), version)
                for trajectory, score in zip(group.trajectories, result.scores, strict=True)
            ),
            buffer=buffer,
            notes=(*result.notes, *notes),
            usage=result.usage,
        )


def _of(score: TrajectoryScore) -> StageScore:
    if score.score is None:
        return unscored(score.unscored_reason)
    return scored(score.score, score.explanation).model_copy(update={"spread": score.spread})
