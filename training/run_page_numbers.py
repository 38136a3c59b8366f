"""A collected run in numbers: step by step, stage by stage, with the reasons of what went wrong.

Everything is read once, group by group. Means are over what has a value: an unscored stage is in
no mean, and is counted instead.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from judge.stage_judge import GroupJudgement
from memory.rubrics import RubricChange
from memory.schema import NO_USAGE, Status, Usage
from training.export_judged import judged_groups
from training.groups import Reflected, judged_part, reflected_part
from training.run_directory import GroupRecord, Manifest, RunDirectory
from training.run_page_rollouts import (
    TOLD,
    Extremes,
    RolloutNumbers,
    extremes_of,
    numbers_of,
    spreads,
)
from training.run_page_variety import RunVariety

_PLACE = re.compile(r" at character \d+")
SHOWN = 12
"""groups of which the best and the worst are kept: those that are farthest apart"""


@dataclass
class StepNumbers:
    """One finished step."""

    step: int
    rollouts: list[RolloutNumbers] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    spreads: list[list[float | None]] = field(default_factory=list)
    """of each group, the standard deviation of each stage's scores"""
    changes: list[tuple[str, RubricChange]] = field(default_factory=list)
    """to the rubrics, each with its question"""
    notes: list[str] = field(default_factory=list)
    judging: Usage = NO_USAGE
    reflecting: Usage = NO_USAGE
    lost: Usage = NO_USAGE
    """on rollouts that failed"""

    @property
    def usage(self) -> Usage:
        """Of rollouts, lost ones included, of their judge and of reflections."""
        beside = (self.lost, self.judging, self.reflecting)
        return total([*(r.usage for r in self.rollouts), *beside])

    def scores(self, stage: int) -> list[float]:
        """The known scores of a stage, by its place."""
        return [s for r in self.rollouts if (s := r.scores[stage]) is not None]

    def changed(self, *kinds: str) -> int:
        return sum(change.kind in kinds for _, change in self.changes)


@dataclass
class RunNumbers:
    """All finished steps of a run."""

    manifest: Manifest
    asked: int
    """questions of the run"""
    steps: list[StepNumbers]
    groups: int
    extremes: list[Extremes]
    """the best and worst of groups, the farthest apart first"""
    variety: RunVariety
    candidates: int
    accepted: int
    """reflections written, and kept in the bank"""

    @property
    def rollouts(self) -> list[RolloutNumbers]:
        return [rollout for step in self.steps for rollout in step.rollouts]

    @property
    def failures(self) -> Counter[str]:
        return Counter(reason for step in self.steps for reason in step.failures)

    @property
    def unscored(self) -> Counter[str]:
        return Counter(reason for rollout in self.rollouts for reason in rollout.unscored)

    @property
    def faults(self) -> Counter[str]:
        """Rejection rules that rollouts break, in words."""
        return Counter(TOLD[rollout.fault] for rollout in self.rollouts if rollout.fault)

    @property
    def early(self) -> Counter[str]:
        """Why rollouts ended without a whole answer, though with a trajectory; not where in it."""
        ended = (r for r in self.rollouts if r.status is not Status.FINISHED)
        return Counter(_PLACE.sub("", rollout.reason) for rollout in ended)

    @property
    def seconds(self) -> float:
        """From the first rollout's beginning to the last one's end, pauses included."""
        rollouts = self.rollouts
        ends = [r.began + r.seconds for r in rollouts]
        return max(ends) - min(r.began for r in rollouts) if rollouts else 0.0

    def usage(self) -> dict[str, Usage]:
        """What was spent on what."""
        return {
            "rollouts": total(r.usage for r in self.rollouts),
            "failed rollouts": total(step.lost for step in self.steps),
            "judge": total(step.judging for step in self.steps),
            "reflections": total(step.reflecting for step in self.steps),
        }

    def scores(self, stage: int) -> list[float]:
        return [score for step in self.steps for score in step.scores(stage)]

    def spreads(self, stage: int) -> list[float]:
        """Of each group in which at least two have a score."""
        found = (group[stage] for step in self.steps for group in step.spreads)
        return [spread for spread in found if spread is not None]


def run_numbers(run: RunDirectory) -> RunNumbers:
    """Read a run. Raises SettingsError where there is none, StoreError where it is damaged."""
    manifest = run.manifest()
    steps = [StepNumbers(step) for step in range(run.finished_steps())]
    extremes: list[Extremes] = []
    groups, variety = 0, RunVariety()
    for group in judged_groups(run):
        groups += 1
        step = steps[group.record.step]
        rollouts = [numbers_of(one) for one in group.each()]
        step.rollouts += rollouts
        step.spreads.append(spreads(rollouts))
        variety.add(group.rollouts.trajectories, rollouts)
        step.judging += total(j.usage for j in group.judgements if j)
        _add_record(step, group.record, run)
        if found := extremes_of(group):
            extremes = sorted([*extremes, found], key=lambda e: -e.gap)[:SHOWN]
    candidates = [candidate.accepted for candidate in run.reflections()]
    asked = len(run.questions())
    return RunNumbers(
        manifest, asked, steps, groups, extremes, variety, len(candidates), sum(candidates)
    )


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, NO_USAGE)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def share(count: int, of: int) -> float | None:
    return count / of if of else None


def unscored_share(rollouts: Sequence[RolloutNumbers]) -> float | None:
    """Of the stages that the judge was to score."""
    unscored = sum(len(r.unscored) for r in rollouts)
    scored = sum(score is not None for r in rollouts for score in r.scores)
    return share(unscored, unscored + scored)


def malformed_share(rollouts: Sequence[RolloutNumbers]) -> float | None:
    return share(sum(r.malformed for r in rollouts), len(rollouts))


def _add_record(step: StepNumbers, record: GroupRecord, run: RunDirectory) -> None:
    step.failures += record.failures
    step.notes += record.notes
    step.lost += record.lost
    if reflected := run.part(record.step, reflected_part(record.id), Reflected):
        step.reflecting += reflected.usage
    judged = run.part(record.step, judged_part(record.id), GroupJudgement)
    if judged is None:
        return
    step.judging += judged.usage
    step.changes += [(record.question, change) for change in _changes(judged, record)]


def _changes(judged: GroupJudgement, record: GroupRecord) -> list[RubricChange]:
    """What this judging did to the rubrics; their history is also of other runs."""
    if (before := judged.version_before) is not None:
        return [change for change in judged.buffer.history if change.version > before]
    # An older run did not note it: the version it scored under, if it was of these rubrics.
    if (found := re.match(r"(\d+)-", record.rubric_version)) is None:
        return []
    same_step = (change for change in judged.buffer.history if change.step == record.step)
    return [change for change in same_step if change.version >= int(found[1])]
