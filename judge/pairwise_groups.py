"""A group of runs judged in pairs: an answer's score is the share of its comparisons it won.

Each reading of a pair counts once, so a pair whose orders contradict each other gives both
answers one win of two; where a probability was read it counts as that part of a win, the
expected one. A reading that says nothing counts for nobody. An answer that the policy
never wrote loses to each that it did write, unread; one that others cut off is not compared.
Answers of the same words are read once and share their score.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from judge.answers import answer_judgement, answer_text, scored, settled_answer, unscored
from judge.pairwise import Comparison, PairwiseJudge, consistency
from judge.stage_judge import GroupJudgement
from memory.rubrics import RubricBuffer
from memory.schema import NO_USAGE, StageScore, Trajectory, TrajectoryGroup

REASONS = 3
"""reasons that an explanation tells"""


@dataclass(slots=True)
class Tally:
    """What one answer came to over its comparisons."""

    won: float = 0.0
    read: int = 0
    reasons: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def count(self, share: float, reason: str) -> None:
        self.read += 1
        self.won += share
        if reason:
            fate = "Drawn" if share == 0.5 else "Won" if share > 0.5 else "Lost"
            self.reasons.append(f"{fate}: {reason}")

    def score(self) -> StageScore:
        if self.read:
            why = " ".join(
                (f"Won {self.won:.3g} of {self.read} comparisons.", *self.reasons[:REASONS])
            )
            return scored(self.won / self.read, why)
        fault = self.faults[0] if self.faults else ""
        return unscored(f"the judge failed: {fault}" if fault else "no other answer to compare")


class GroupwisePairs:
    """A `PairwiseJudge` that judges groups as the stage judge does; it uses no rubrics."""

    def __init__(self, judge: PairwiseJudge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        return self._judge.name

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        """One judgement for each trajectory; the buffer comes back as it is.

        A judge that fails leaves answers unscored with the reason. The usage is the group's,
        since a comparison belongs to two runs.
        """
        settled = [settled_answer(trajectory) for trajectory in group.trajectories]
        texts = _texts(group.trajectories, settled)
        compared = await self._compare(group.question, list(dict.fromkeys(texts.values())))
        absent = sum(score is not None and score.missing for score in settled)
        tallies = _tallies(list(dict.fromkeys(texts.values())), compared, absent)
        scores = [known or tallies[texts[place]].score() for place, known in enumerate(settled)]
        return GroupJudgement(
            judgements=tuple(
                answer_judgement(trajectory, self.name, score)
                for trajectory, score in zip(group.trajectories, scores, strict=True)
            ),
            buffer=buffer,
            notes=tuple(_notes(compared)),
            usage=sum((comparison.usage for comparison in compared.values()), NO_USAGE),
        )

    async def _compare(
        self, question: str, answers: Sequence[str]
    ) -> dict[tuple[str, str], Comparison]:
        pairs = list(combinations(answers, 2))
        read = await asyncio.gather(*(self._judge.compare(question, *pair) for pair in pairs))
        return dict(zip(pairs, read, strict=True))


def _texts(
    trajectories: Sequence[Trajectory], settled: Sequence[StageScore | None]
) -> dict[int, str]:
    """The answers to be read, by the place of their run."""
    return {
        place: answer_text(trajectory)
        for place, trajectory in enumerate(trajectories)
        if settled[place] is None
    }


def _tallies(
    answers: Sequence[str], compared: Mapping[tuple[str, str], Comparison], absent: int
) -> dict[str, Tally]:
    """One tally for each answer; each run without an answer is a comparison won."""
    tallies = {answer: Tally(absent, absent) for answer in answers}
    for (first, second), comparison in compared.items():
        for reading in comparison.readings:
            share, said = reading.first_share, reading.preference.reason
            if share is None:
                tallies[first].faults.append(said)
                tallies[second].faults.append(said)
                continue
            tallies[first].count(share, said)
            tallies[second].count(1 - share, said)
    return tallies


def _notes(compared: Mapping[tuple[str, str], Comparison]) -> Iterator[str]:
    """What went wrong, if anything did; then the consistency of the readings."""
    readings = [reading for comparison in compared.values() for reading in comparison.readings]
    failed = [r.preference.reason for r in readings if r.first_share is None]
    if failed:
        yield f"{len(failed)} of {len(readings)} readings named no winner: {failed[0]}"
    if len(failed) < len(readings):
        yield consistency(list(compared.values())).sentence()
