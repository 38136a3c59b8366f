"""What a judge says of a whole trajectory: a number with its explanation, or why there is none."""

from pydantic import Field

from judge.transcripts import cut_off, written
from memory.schema import NO_USAGE, Stage, StageScore, Trajectory, Usage, Value


class TrajectoryScore(Value):
    """One trajectory as one judge saw it. The judge says which range its scores have."""

    trajectory_id: str
    judge: str
    score: float | None = Field(default=None, allow_inf_nan=False)
    explanation: str = ""
    unscored_reason: str = ""
    spread: float | None = None
    """population standard deviation over repeated scorings, where there were any"""


class GroupScores(Value):
    """A group as one judge saw it."""

    scores: tuple[TrajectoryScore, ...]
    """one for each trajectory, in their order"""
    notes: tuple[str, ...] = ()
    """what did not work, and what limits the scores, in sentences"""
    usage: Usage = NO_USAGE
    """of all calls, failed ones included"""


def unread(trajectory: Trajectory, stage: Stage) -> StageScore | None:
    """The score of a stage that nobody has to read, or None where one has to.

    It is unscored where others ended it, and 0 where the policy ended without it.
    """
    if reason := cut_off(trajectory, stage):
        return StageScore(stage=stage, unscored_reason=reason)
    if not written(trajectory, stage):
        said = "The policy ended without this stage."
        return StageScore(stage=stage, score=0.0, missing=True, justification=said)
    return None
