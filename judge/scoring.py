"""From verdicts to a stage's score, and what a stage without verdicts is: 0, or unscored.

    R = (sum over positive items w * s / 2 + sum over negative items w * (2 - s) / 2) / sum of w

with weights w > 0 and points s in [0, 2], so R is in [0, 1] (RubricEM, arXiv:2605.10899,
appendix C). A stage that the policy left out scores 0 and counts as missing. One that was cut
off by others, that has no criterion, or that the judge failed on is unscored: that is no 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from judge.scores import unread
from judge.transcripts import cut_off
from memory.rubrics import RubricBuffer
from memory.schema import NO_USAGE, Criterion, Stage, StageScore, Trajectory, Usage, Verdict

NO_CRITERIA = "no criteria"
"""the reason of a stage that is left out of every sum it would enter, rather than unknown"""
Standard = Mapping[Stage, tuple[Criterion, ...]]
"""the criteria to score a trajectory on, by stage; none of them empty"""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a scorer found of one trajectory: for each criterion a verdict, in order."""

    verdicts: Mapping[Stage, tuple[Verdict, ...]]
    usage: Usage = NO_USAGE
    spread: Mapping[Stage, float] = field(default_factory=dict)
    """of the stages' scores, where there were several scorings"""


class Scorer(Protocol):
    """Scores one trajectory on given criteria. Raises JudgeError or PolicyError if it cannot."""

    @property
    def name(self) -> str: ...

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored: ...


def without_criteria(score: StageScore | None) -> bool:
    """Whether the stage has no score because its rubric says nothing: nobody failed at it."""
    return score is not None and score.score is None and score.unscored_reason == NO_CRITERIA


def stage_reward(verdicts: Sequence[Verdict]) -> float:
    """R of at least one verdict, in [0, 1]."""
    total = sum(v.criterion.weight for v in verdicts)
    gained = sum(
        v.criterion.weight * (v.points if v.criterion.positive else 2 - v.points) / 2
        for v in verdicts
    )
    return gained / total


def settled(trajectory: Trajectory, stage: Stage, buffer: RubricBuffer) -> StageScore | None:
    """The score of a stage that no scorer has to read, or None where one has to."""
    if not cut_off(trajectory, stage) and not buffer.criteria(stage):
        return StageScore(stage=stage, unscored_reason=NO_CRITERIA)
    return unread(trajectory, stage)


def stage_scores(
    trajectory: Trajectory, buffer: RubricBuffer, scored: Scored | None, failure: str
) -> tuple[StageScore, ...]:
    """One score a stage, in order; `failure` is why `scored` is None."""
    return tuple(
        settled(trajectory, stage, buffer) or _read(stage, scored, failure) for stage in Stage
    )


def _read(stage: Stage, scored: Scored | None, failure: str) -> StageScore:
    verdicts = scored.verdicts.get(stage, ()) if scored else ()
    if not verdicts:
        return StageScore(stage=stage, unscored_reason=f"the judge failed: {failure}")
    spread = scored.spread.get(stage) if scored else None
    return StageScore(stage=stage, score=stage_reward(verdicts), verdicts=verdicts, spread=spread)
