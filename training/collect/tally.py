"""What a collecting run brought, in numbers for people."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rubricem.memory.schema import Author, Decoding, Segment, Stage, Status, Trajectory
from rubricem.training.collect.directory import RunDirectory


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
    """Count what the finished steps of a run hold, with one of its trajectories in memory."""
    statuses, ratioless = Counter[Status](), Counter[str]()
    first_try = turns = 0
    for trajectory in run.trajectories():
        statuses[trajectory.status] += 1
        whole = all(segment.kept for segment in trajectory.segments)
        first_try += whole and trajectory.status is Status.FINISHED
        for turn in _turns(trajectory):
            turns += 1
            ratioless.update(_ratioless(turn))
    groups = [len(group.failures) for group in run.groups()]
    stages = [
        (stage.stage, stage.score, stage.unscored_reason)
        for judgement in run.judgements()
        for stage in judgement.stages
    ]
    accepted = [candidate.accepted for candidate in run.reflections()]
    return Tally(
        steps=run.finished_steps(),
        groups=len(groups),
        finished=statuses[Status.FINISHED],
        partial=statuses.total() - statuses[Status.FINISHED],
        failed=sum(groups),
        first_try=first_try,
        scores=_means(stages),
        unscored=dict(Counter(reason for _, score, reason in stages if score is None)),
        reflections=len(accepted),
        accepted=sum(accepted),
        turns=turns,
        ratioless=dict(ratioless),
    )


def _means(stages: Sequence[tuple[Stage, float | None, str]]) -> dict[Stage, float]:
    known = {
        stage: [score for at, score, _ in stages if at is stage and score is not None]
        for stage in Stage
    }
    return {stage: sum(found) / len(found) for stage, found in known.items() if found}


def _turns(trajectory: Trajectory) -> Iterator[list[Segment]]:
    """What the policy wrote in each turn of a free rollout."""
    if trajectory.decoding is Decoding.FREE:
        written = (s for s in trajectory.segments if s.kept and s.author is Author.POLICY)
        for _, turn in groupby(written, key=lambda segment: segment.turn):
            yield list(turn)


def _ratioless(turn: Sequence[Segment]) -> list[str]:
    """Why no ratio is formed of a turn; [] where it is."""
    if any(segment.retokenised or segment.token_ids is None for segment in turn):
        return ["retokenised"]
    return ["without log-probabilities"] if any(s.logprobs is None for s in turn) else []
