"""What judges of whole answers have in common: which answers there are, and where scores go.

Such a judge reads a run's answer and nothing else, so it scores the answer stage; the other
stages have no criteria and are left out of every sum.
"""

from collections.abc import Sequence

from judge.scores import unread
from judge.scoring import NO_CRITERIA
from judge.transcripts import stage_text
from memory.schema import NO_USAGE, Judgement, Stage, StageScore, Trajectory, Usage, Verdict

CHARACTERS = 60_000
"""of answers in one call, some 15,000 tokens"""
QUESTION_CHARACTERS = 20_000


def answer_text(trajectory: Trajectory) -> str:
    return stage_text(trajectory, Stage.ANSWER)


def settled_answer(trajectory: Trajectory) -> StageScore | None:
    """The score of an answer that nobody has to read, or None where one has to."""
    return unread(trajectory, Stage.ANSWER)


def unscored(reason: str) -> StageScore:
    return StageScore(stage=Stage.ANSWER, unscored_reason=reason)


def scored(score: float, why: str, verdicts: Sequence[Verdict] = ()) -> StageScore:
    """A score of the answer, in [0, 1]."""
    return StageScore(stage=Stage.ANSWER, score=score, justification=why, verdicts=tuple(verdicts))


def answer_judgement(
    trajectory: Trajectory,
    judge: str,
    answer: StageScore,
    version: str = "",
    usage: Usage = NO_USAGE,
) -> Judgement:
    """A judgement in which the answer alone is scored."""
    others = (StageScore(stage=s, unscored_reason=NO_CRITERIA) for s in Stage)
    return Judgement(
        trajectory_id=trajectory.id,
        judge=judge,
        rubric_version=version,
        stages=tuple(answer if s.stage is Stage.ANSWER else s for s in others),
        usage=usage,
    )
