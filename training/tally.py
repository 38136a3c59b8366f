"""What a collecting run brought, in numbers for people."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from memory.schema import Stage, Status, Trajectory
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
    )  # fmt: skip


def _count(trajectories: Iterable[Trajectory], status: Status) -> int:
    return sum(trajectory.status is status for trajectory in trajectories)
