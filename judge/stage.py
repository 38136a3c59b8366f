"""The stage judge: scores every stage of every rollout of a question on evolving rubrics.

For a group of rollouts it proposes criteria by contrasting them, adds the new ones, scores every
rollout on all criteria in force, and prunes criteria that do not discriminate. Persistent criteria
of the answer keep covering the question: those of the questions file, or else some that are made
of it once, with the first contrast. A single run, or a group of identical ones, has nothing to
contrast and is scored on criteria made from the question for every stage.
Nothing is saved here: the caller saves the new buffer at the end of its step. Source: RubricEM
(arXiv:2605.10899), appendix C, with choices of our own where it leaves something open.

Fixed choices: each run is scored once, a server at temperature 0, since a second scoring of the
same reply costs as much and tells only the judge's own noise; a local model is read for Yes or No,
which put 9 to 10 of 10 hand-made pairs in order where points put 9.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rubricem.judge.base import failed_score, failure_notes, outcome, unread
from rubricem.judge.buffers import add, prune
from rubricem.judge.evidence import ALL, found_in
from rubricem.memory.asking import usage_of_error
from rubricem.memory.schema import (
    NO_CRITERIA,
    NO_USAGE,
    Criterion,
    GroupJudgement,
    Judgement,
    RubricBuffer,
    Source,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verdict,
)

Standard = Mapping[Stage, tuple[Criterion, ...]]
"""the criteria to score a trajectory on, by stage; no stage without criteria"""
Runs = Sequence[Trajectory]


@dataclass(frozen=True, slots=True)
class Scored:
    """A scorer's result for one trajectory: one verdict per criterion, in order."""

    verdicts: Mapping[Stage, tuple[Verdict, ...]]
    usage: Usage = NO_USAGE
    fault: str = ""
    """why a stage has none"""


class Scorer(Protocol):
    """Scores one trajectory on given criteria. Raises JudgeError or PolicyError if it cannot.

    `group`: all runs of the question, if several are scored; what they share is shown alike.
    """

    @property
    def name(self) -> str: ...

    async def score(
        self, trajectory: Trajectory, standard: Standard, group: Runs = ()
    ) -> Scored: ...


async def scored_by(
    scorer: Scorer, trajectory: Trajectory, standard: Standard, group: Runs = ()
) -> Scored:
    """What the scorer says; where it fails no verdicts, with the reason."""
    found = await outcome(scorer.score(trajectory, standard, group)) if standard else Scored({})
    return found if isinstance(found, Scored) else Scored({}, usage_of_error(found), found.told())


def stage_reward(verdicts: Sequence[Verdict]) -> float:
    """The stage reward R in [0, 1], the weighted mean of at least one verdict."""
    total = sum(v.criterion.weight for v in verdicts)
    gained = sum(
        v.criterion.weight * (v.points if v.criterion.positive else 2 - v.points) / 2
        for v in verdicts
    )
    return gained / total


def score_unread(trajectory: Trajectory, stage: Stage, buffer: RubricBuffer) -> StageScore | None:
    """The score of a stage that needs no scorer; None if it has to be scored."""
    known = unread(trajectory, stage)
    if (known is None or known.missing) and not buffer.criteria(stage):
        return StageScore(stage=stage, unscored_reason=NO_CRITERIA)
    return known


MOST_PROPOSED: Mapping[Stage, int] = {
    Stage.PLAN: 4,
    Stage.RESEARCH: 4,
    Stage.REVIEW: 4,
    Stage.ANSWER: 5,
}
"""new criteria that one proposal may add at most"""


@dataclass(frozen=True, slots=True)
class Proposed:
    """New criteria by stage, and what asking for them cost."""

    criteria: Mapping[Stage, tuple[Criterion, ...]]
    usage: Usage = NO_USAGE


class Maker(Protocol):
    """Writes criteria of a question. Raises JudgeError or PolicyError if it cannot."""

    async def from_question(
        self, question: str, stages: Sequence[Stage] = ALL, found: Sequence[Source] = ()
    ) -> Proposed:
        """Persistent criteria made before any run is seen.

        `stages` are those for which criteria are wanted; the result may include others. `found`:
        passages that searches found for the question.
        """
        ...


class Proposer(Maker, Protocol):
    """Writes criteria of runs as well."""

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        """Criteria that tell the stronger from the weaker of at least two runs.

        Where the buffer has no persistent ones, also some of the answer, which cover the question.
        """
        ...


class StageJudge:
    """Judges groups with one proposer and one scorer."""

    def __init__(self, proposer: Proposer, scorer: Scorer) -> None:
        self.proposer = proposer
        self._scorer = scorer
        self.name = scorer.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory, and the next buffer.

        Raises nothing: a failure leaves stages unscored with the reason, or adds no criteria and
        leaves a note. `step` is recorded in the buffer's history.
        """
        different = [group.trajectories[place] for place in distinct(group.trajectories)]
        grown, unproposed, usage = buffer, "", NO_USAGE
        if len(different) > 1:
            asked = self.proposer.contrast(different, buffer, step)
            grown, unproposed, usage = await _grow(
                buffer, asked, step, f"contrasting {len(different)} runs"
            )
        elif not any(buffer.persistent.values()):
            found = found_in(group.trajectories)
            asked = self.proposer.from_question(buffer.question, found=found)
            grown, unproposed, usage = await _grow(buffer, asked, step, "from the question")
        runs = group.trajectories
        judgements = await asyncio.gather(*(self._score(run, grown, runs) for run in runs))
        pruned = prune(grown, _points(group.trajectories, judgements), step)
        notes = [f"No new criteria: {unproposed}"] if unproposed else []
        return GroupJudgement(
            judgements=tuple(judgements),
            buffer=pruned,
            notes=(*notes, *failure_notes(judgements)),
            unproposed=unproposed,
            usage=usage,
        )

    async def _score(self, trajectory: Trajectory, buffer: RubricBuffer, group: Runs) -> Judgement:
        open_stages = [stage for stage in Stage if score_unread(trajectory, stage, buffer) is None]
        standard = {stage: buffer.criteria(stage) for stage in open_stages}
        scored = await scored_by(self._scorer, trajectory, standard, group)

        def score(stage: Stage) -> StageScore:
            if not (verdicts := scored.verdicts.get(stage, ())):
                return failed_score(scored.fault, stage)
            return StageScore(stage=stage, score=stage_reward(verdicts), verdicts=verdicts)

        return Judgement(
            trajectory_id=trajectory.id,
            judge=self._scorer.name,
            rubric_version=buffer.label,
            stages=tuple(score_unread(trajectory, s, buffer) or score(s) for s in Stage),
            usage=scored.usage,
        )


async def _grow(
    buffer: RubricBuffer, asked: Awaitable[Proposed], step: int, reason: str
) -> tuple[RubricBuffer, str, Usage]:
    """The buffer with the proposed criteria, or as it is, with why there are none; the cost."""
    proposed = await outcome(asked)
    if not isinstance(proposed, Proposed):
        return buffer, proposed.told(), usage_of_error(proposed)
    most = {}
    for stage, found in proposed.criteria.items():
        kept = [c for c in found if c.persistent][:MOST_PERSISTENT]
        most[stage] = kept + _most([c for c in found if not c.persistent], MOST_PROPOSED[stage])
    return add(buffer, most, step, reason), "", proposed.usage


MOST_PERSISTENT = 8
"""criteria of a stage that are made of a question"""


def _most(criteria: Sequence[Criterion], most: int) -> list[Criterion]:
    """At most `most` criteria, the first first; up to half of the places are reserved for flaws."""
    good, flaws = ([c for c in criteria if c.positive is sign] for sign in (True, False))
    few = min(len(flaws), max(most // 2, most - len(good)))
    return good[: most - few] + flaws[:few]


def _points(
    trajectories: Sequence[Trajectory], judgements: Sequence[Judgement]
) -> dict[Stage, dict[str, list[float]]]:
    """Points of every criterion over the distinct trajectories, by stage and key."""
    points: dict[Stage, dict[str, list[float]]] = {stage: {} for stage in Stage}
    for place in distinct(trajectories):
        for score in judgements[place].stages:
            for verdict in score.verdicts:
                given = points[score.stage].setdefault(verdict.criterion.key, [])
                given.append(verdict.points)
    return points


def distinct(trajectories: Sequence[Trajectory]) -> list[int]:
    """Indices of the trajectories whose transcript no earlier one repeats."""
    seen: set[str] = set()
    places = []
    for place, trajectory in enumerate(trajectories):
        text = trajectory.transcript()
        if text not in seen:
            seen.add(text)
            places.append(place)
    return places
