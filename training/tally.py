"""What a collecting run brought, in numbers for people."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from memory.schema import Author, Decoding, Segment, Stage, Status, Trajectory
from training.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over the finished steps of a run."""

    steps: int
    groups: int
    finished: int
    partial: int
    """ended early, or found no evidence"""
    failed: int
    """rollouts that gave no trajectory"""
    first_try: int
    """finished ones of which no turn had to be asked again"""
    scores: dict[Stage, float]
    """mean over the scored stages; a stage that none is scored at is left out"""
    unscored: dict[str, int]
    """unscored stages by reason"""
    reflections: int
    accepted: int
    turns: int = 0
    """of free rollouts, that stand in their transcripts"""
    ratioless: dict[str, int] = field(default_factory=dict)
    """turns of which no policy-gradient ratio can be formed, by reason"""

    def lines(self) -> list[str]:
        """One sentence a line."""
        rollouts = self.finished + self.partial + self.failed
        told = [
            f"{self.groups} groups in {self.steps} steps, {rollouts} rollouts: {self.finished} "
            f"finished ({self.first_try} without a turn asked again), {self.partial} partial, "
            f"{self.failed} failed"
        ]
        if self.scores:
            means = ", ".join(f"{stage} {mean:.2f}" for stage, mean in self.scores.items())
            told.append(f"mean stage scores: {means}")
        told += [f"{count} stages unscored: {reason}" for reason, count in self.unscored.items()]
        if self.reflections:
            told.append(f"{self.reflections} reflections, {self.accepted} accepted")
        if self.ratioless:
            why = ", ".join(f"{count} {reason}" for reason, count in self.ratioless.items())
            without = sum(self.ratioless.values())
            told.append(f"{without} of {self.turns} turns form no ratio: {why}")
        return told


def tally(run: RunDirectory) -> Tally:
    """Count what the finished steps of a run hold."""
    trajectories = list(run.trajectories())
    groups = list(run.groups())
    stages = [score for judgement in run.judgements() for score in judgement.stages]
    known = {
        stage: [s.score for s in stages if s.stage is stage and s.score is not None]
        for stage in Stage
    }
    candidates = list(run.reflections())
    turns = list(_turns(trajectories))
    return Tally(
        steps=run.finished_steps(),
        groups=len(groups),
        finished=_count(trajectories, Status.FINISHED),
        partial=sum(t.status is not Status.FINISHED for t in trajectories),
        failed=sum(len(group.failures) for group in groups),
        first_try=sum(t.status is Status.FINISHED and all(s.kept for s in t.segments)
                      for t in trajectories),
        scores={stage: sum(found) / len(found) for stage, found in known.items() if found},
        unscored=dict(Counter(s.unscored_reason for s in stages if s.score is None)),
        reflections=len(candidates),
        accepted=sum(candidate.accepted for candidate in candidates),
        turns=len(turns),
        ratioless=dict(Counter(reason for turn in turns if (reason := _ratioless(turn)))),
    )  # fmt: skip


def _turns(trajectories: Iterable[Trajectory]) -> Iterator[list[Segment]]:
    """What the policy wrote in each turn of the free rollouts."""
    for trajectory in trajectories:
        if trajectory.decoding is Decoding.FREE:
            written = (s for s in trajectory.segments if s.kept and s.author is Author.POLICY)
            for _, turn in groupby(written, key=lambda segment: segment.turn):
                yield list(turn)


def _ratioless(turn: Iterable[Segment]) -> str:
    segments = list(turn)
    if any(segment.retokenised or segment.token_ids is None for segment in segments):
        return "retokenised"
    return "without log-probabilities" if any(s.logprobs is None for s in segments) else ""


def _count(trajectories: Iterable[Trajectory], status: Status) -> int:
    return sum(trajectory.status is status for trajectory in trajectories)
