"""Scoring the same run several times: the mean is its score, the spread says how sure that is."""

import asyncio
from collections.abc import Sequence
from statistics import fmean, pstdev

from judge.scoring import Scored, Scorer, Standard, stage_reward
from memory.asking import spent
from memory.errors import JudgeError, PolicyError, RubricemError
from memory.schema import NO_USAGE, Stage, Trajectory, Verdict

TEMPERATURE = 0.7
"""of scorings that are repeated: at 0 most servers would say the same again"""


class RepeatedScorer:
    """A `Scorer` that has several others score, and takes the mean of those that could."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers

    @property
    def name(self) -> str:
        return self._scorers[0].name

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        """Each criterion's mean points; its words are those of the scoring nearest to the mean.

        Raises the first error, with what all scorings cost, where none could score.
        """
        tasks = (_settled(scorer, trajectory, standard) for scorer in self._scorers)
        found = await asyncio.gather(*tasks)
        scorings = [one for one in found if isinstance(one, Scored)]
        errors = [one for one in found if isinstance(one, RubricemError)]
        usage = sum((s.usage for s in scorings), NO_USAGE)
        usage = sum(map(spent, errors), usage)
        if not scorings:
            errors[0].usage = usage
            raise errors[0]
        stages = {stage: [s.verdicts[stage] for s in scorings] for stage in standard}
        verdicts = {stage: _mean(given) for stage, given in stages.items()}
        return Scored(verdicts, usage, _spread(stages))


async def _settled(
    scorer: Scorer, trajectory: Trajectory, standard: Standard
) -> Scored | JudgeError | PolicyError:
    try:
        return await scorer.score(trajectory, standard)
    except (JudgeError, PolicyError) as error:
        return error


def _mean(scorings: Sequence[Sequence[Verdict]]) -> tuple[Verdict, ...]:
    """One verdict for each criterion."""
    return tuple(_middle(same) for same in zip(*scorings, strict=True))


def _middle(same: Sequence[Verdict]) -> Verdict:
    mean = fmean(verdict.points for verdict in same)
    nearest = min(same, key=lambda verdict: abs(verdict.points - mean))
    return nearest.model_copy(update={"points": mean})


def _spread(stages: dict[Stage, list[tuple[Verdict, ...]]]) -> dict[Stage, float]:
    """Of each stage's score; none where only one scoring came through."""
    return {
        stage: pstdev(map(stage_reward, scorings))
        for stage, scorings in stages.items()
        if len(scorings) > 1
    }
