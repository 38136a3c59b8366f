"""What the askings of the held-out questions come to: valid share, facts, stage scores."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.embedded import found
from benchmarks.learns.phases import BEFORE
from benchmarks.learns.plan import facts
from benchmarks.report import Value
from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.transcript.scaffold import find_violation
from rubricem.judge.evaluation.report import share
from rubricem.memory.schema import Stage, Status, Trajectory
from rubricem.training.collect.directory import RunDirectory

AFTER_SFT, ROUND = "after_sft", "round_"
Interval = tuple[float, float, float]
"""a figure, and the ends of its 95% interval"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One held-out question at one asking."""

    question: str
    valid: bool
    """the run finished and breaks no rejection rule"""
    fact: bool
    """the cited answer holds it, by a pattern written beforehand"""
    scores: dict[Stage, float]
    """a stage that is not scored is left out"""


@dataclass(frozen=True, slots=True)
class Asking:
    """All held-out questions at one moment of the training."""

    name: str
    asked: tuple[Asked, ...]

    def share(self, what: str) -> Interval:
        hits = sum(bool(getattr(one, what)) for one in self.asked)
        counted = share(hits, len(self.asked))
        return counted.value or 0.0, counted.low, counted.high

    def score(self, stage: Stage) -> Interval | None:
        return _mean(one.scores[stage] for one in self.asked if stage in one.scores)

    def change(self, before: "Asking", what: str) -> Interval | None:
        """The mean paired difference of a share from an earlier asking."""
        return _mean(
            float(getattr(now, what)) - float(getattr(then, what))
            for now, then in self._paired(before)
        )

    def score_change(self, before: "Asking", stage: Stage) -> Interval | None:
        """The same of a stage's score, over the questions that have one at both askings."""
        return _mean(
            now.scores[stage] - then.scores[stage]
            for now, then in self._paired(before)
            if stage in now.scores and stage in then.scores
        )

    def _paired(self, before: "Asking") -> list[tuple[Asked, Asked]]:
        earlier = {one.question: one for one in before.asked}
        return [(one, earlier[one.question]) for one in self.asked if one.question in earlier]


def askings(held_out: Path) -> list[Asking]:
    """All that are finished, in order: before, after the imitation, after each round."""
    folders = [held_out / BEFORE, *sorted(held_out.glob("[0-9]*"))]
    runs = [(folder.name, RunDirectory(folder)) for folder in folders]
    return [
        Asking(_named(name), tuple(_asked(run)))
        for name, run in runs
        if run.exists and run.finished_steps()
    ]


def values(found_askings: Sequence[Asking]) -> dict[str, Value]:
    """Every figure under a name of its own, with its interval."""
    told: dict[str, Value] = {}
    for asking in found_askings:
        told[f"{asking.name}_questions"] = len(asking.asked)
        for what in ("valid", "fact"):
            told |= _interval(f"{asking.name}_{what}_share", asking.share(what))
        for stage in Stage:
            if (score := asking.score(stage)) is not None:
                told |= _interval(f"{asking.name}_{stage}_score", score)
        if asking is not found_askings[0]:
            for what in ("valid", "fact"):
                if change := asking.change(found_askings[0], what):
                    told |= _interval(f"{asking.name}_{what}_change", change)
        if asking.name.startswith(ROUND):
            told |= _since_imitation(asking, found_askings)
    return told


def _since_imitation(asking: Asking, found_askings: Sequence[Asking]) -> dict[str, Value]:
    """What the rounds alone have changed, question by question."""
    imitated = next((one for one in found_askings if one.name == AFTER_SFT), None)
    if imitated is None:
        return {}
    changes = {"fact": asking.change(imitated, "fact")}
    changes |= {f"{stage}_score": asking.score_change(imitated, stage) for stage in Stage}
    told: dict[str, Value] = {}
    for what, change in changes.items():
        told |= _interval(f"{asking.name}_{what}_since_sft", change) if change else {}
    return told


def _asked(run: RunDirectory) -> list[Asked]:
    patterns = facts()
    runs = {trajectory.id: trajectory for trajectory in run.trajectories()}
    judged = {judgement.trajectory_id: judgement for judgement in run.judgements()}
    rows = []
    for group in run.groups():
        trajectory = next((runs[name] for name in group.trajectories), None)
        scores = {}
        if trajectory and (judgement := judged.get(trajectory.id)):
            scores = {s.stage: s.score for s in judgement.stages if s.score is not None}
        rows.append(
            Asked(
                question=group.question,
                valid=trajectory is not None and _valid(trajectory),
                fact=trajectory is not None
                and found(patterns[group.question], cited_answer(trajectory).text()),
                scores=scores,
            )
        )
    return rows


def _valid(trajectory: Trajectory) -> bool:
    return trajectory.status is Status.FINISHED and find_violation(trajectory) is None


def _named(folder: str) -> str:
    if folder == BEFORE:
        return BEFORE
    return f"{ROUND}{int(folder)}" if int(folder) else AFTER_SFT


def _mean(found: Iterable[float]) -> Interval | None:
    known = list(found)
    return (statistics.fmean(known), *bootstrap_mean(known)) if known else None


def _interval(name: str, figure: Interval) -> dict[str, Value]:
    value, low, high = (round(number, 3) for number in figure)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
