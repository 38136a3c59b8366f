"""A collected run in numbers: step by step, stage by stage, with the reasons for what went wrong.

Everything is read once, group by group. Means are over known values: an unscored stage is in no
mean, and is counted instead. For each rollout a few numbers are kept and no text of its own; for
the groups that are farthest apart, the best and the worst with their texts. The variety of answers
within their groups is reported with its value: the best of n shows what sampling again would bring;
the reward by place in the group shows whether a rubric scaffold helped those who saw it (RuscaRL,
arXiv:2508.16949, section 5).
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from rubricem.agent.transcript.scaffold import Rule, find_violation
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    NO_USAGE,
    GroupJudgement,
    RubricChange,
    Stage,
    Status,
    Trajectory,
    Usage,
    is_left_out,
)
from rubricem.training.collect.directory import GroupRecord, Manifest, RunDirectory, member_of
from rubricem.training.rows.compile import By, JudgedGroup, JudgedTrajectory, judged_groups
from rubricem.training.rows.forms import best_and_worst
from rubricem.training.statistics import MeanBestOf, answers_of, by_place, mean_best_of, words_apart

MALFORMED = {Rule.NO_ANSWER, Rule.NO_CALL, Rule.STRUCTURE}
"""rejection rules about the form of a transcript"""

TOLD = {
    Rule.NO_ANSWER: "no closed answer with text in it",
    Rule.NO_CALL: "a round without a tool call",
    Rule.STRUCTURE: "a block that is missing or malformed",
    Rule.TOOL_ERRORS: "two failed tool calls in a row",
}
"""the rejection rules in words"""
_PLACES = range(len(Stage))
SAME = 1e-3
"""standard deviation of a score below which the members of a group count as equal"""


@dataclass(frozen=True, slots=True)
class RolloutNumbers:
    """One rollout that gave a trajectory."""

    thread: str
    step: int
    status: Status
    reason: str
    fault: Rule | None
    """the rejection rule that it breaks; None: none, or it was cut off from outside"""
    scores: tuple[float | None, ...]
    """of each stage, in order"""
    unscored: tuple[str, ...]
    """why stages that have criteria have no score; empty if it was not judged at all"""
    missing: int
    """stages missing when the policy ended"""
    judged: bool
    tool_calls: int
    usage: Usage
    began: float
    """seconds since 1970"""
    seconds: float
    shown: int
    """number of criteria in its scaffold"""

    @property
    def malformed(self) -> bool:
        return self.fault in MALFORMED


@dataclass(frozen=True, slots=True)
class Extremes:
    """The best and the worst of a group, with their texts."""

    step: int
    question: str
    by: By
    values: tuple[float, float]
    best: JudgedTrajectory
    worst: JudgedTrajectory

    @property
    def gap(self) -> float:
        return self.values[0] - self.values[1]


def numbers_of(one: JudgedTrajectory) -> RolloutNumbers:
    stages = one.judgement.stages if one.judgement else ()
    whole = one.cut_in is None and not one.shared
    fault = find_violation(one) if whole else None
    return RolloutNumbers(
        thread=one.thread,
        step=one.step,
        status=one.status,
        reason=one.reason,
        fault=fault.rule if fault else None,
        scores=tuple(one.judgement.score(s) if one.judgement else None for s in Stage),
        unscored=tuple(
            score.unscored_reason
            for score in stages
            if score.score is None and not is_left_out(score)
        ),
        missing=sum(score.missing for score in stages),
        judged=one.judgement is not None,
        tool_calls=one.tool_calls,
        usage=one.usage,
        began=one.started_at.timestamp(),
        seconds=one.seconds,
        shown=one.scaffold.shown if one.scaffold else 0,
    )


def extremes_of(group: JudgedGroup) -> Extremes | None:
    """By return, or if fewer than two have one by the score of the answer; None without two."""
    ways: tuple[By, ...] = ("return", "answer")
    for by in ways:
        values = group.values_by(by)
        if np.count_nonzero(~np.isnan(values)) >= 2:
            best, worst = best_and_worst(values)
            each = list(group.each())
            return Extremes(
                step=group.record.step,
                question=group.record.question,
                by=by,
                values=(float(values[best]), float(values[worst])),
                best=each[best],
                worst=each[worst],
            )
    return None


def spreads(rollouts: Sequence[RolloutNumbers]) -> list[float | None]:
    """The population standard deviation of each stage's scores; None for fewer than two."""
    each = ([s for r in rollouts if (s := r.scores[stage]) is not None] for stage in _PLACES)
    return [float(np.std(known)) if len(known) > 1 else None for known in each]


MOST = 8
"""groups whose answers are compared word by word: the last ones, since this is slow"""


@dataclass
class RunVariety:
    """Filled group by group; each value is of all groups so far, unless it says of which."""

    scores: list[list[float]] = field(default_factory=list)
    """of the answers of each group that have one"""
    answers: deque[list[str]] = field(default_factory=lambda: deque(maxlen=MOST))
    members: list[tuple[int, int, float | None]] = field(default_factory=list)
    """for each member with a place in its group: place, criteria shown, the answer's score"""

    def add(self, trajectories: Sequence[Trajectory], rollouts: Sequence[RolloutNumbers]) -> None:
        """Count a group; `rollouts` are in the order of its trajectories."""
        self.scores.append([score for r in rollouts if (score := r.scores[-1]) is not None])
        if len(found := answers_of(trajectories)) > 1:
            self.answers.append(found)
        placed = ((member_of(r.thread), r.shown, r.scores[-1]) for r in rollouts)
        self.members += [member for member in placed if member[0] >= 0]

    @property
    def best_of(self) -> MeanBestOf:
        """The expected answer score of the best of 1, 2, ... rollouts."""
        return mean_best_of(self.scores)

    @cached_property
    def words(self) -> tuple[float | None, str]:
        """1 - Self-BLEU, the mean over the last groups, or None and why it is unknown."""
        try:
            apart = [value for group in self.answers if (value := words_apart(group)) is not None]
        except SettingsError as error:
            return None, error.told()
        return (fmean(apart), "") if apart else (None, "no group has two answers")

    def describe(self) -> list[str]:
        """Sentences for people, about known values only."""
        lines = []
        if len(curve := self.best_of.scores) > 1:
            values = ", ".join(f"{n}: {value:.2f}" for n, value in enumerate(curve, 1))
            lines.append(f"best answer of n, in {self.best_of.groups} whole groups: {values}")
        apart, why = self.words
        if self.answers:
            known = f"{apart:.2f}" if apart is not None else f"not measured, {why}"
            lines.append(f"1 - Self-BLEU of the last {len(self.answers)} groups: {known}")
        for one in by_place(self.members):
            reward = "unscored" if one.reward is None else f"{one.reward:.2f}"
            lines.append(f"place {one.place}: {one.shown:.1f} criteria shown, answers {reward}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        apart, why = self.words
        return {
            "best_of": list(self.best_of.scores),
            "best_of_groups": self.best_of.groups,
            "words_apart": apart,
            "words_apart_unknown": why,
            "by_place": [asdict(one) for one in by_place(self.members)],
        }


_PLACE = re.compile(r" at character \d+")
SHOWN = 12
"""groups whose best and worst are kept: those that are farthest apart"""


@dataclass(frozen=True, slots=True)
class GroupScores:
    """A group in the grid of all groups."""

    step: int
    question: str
    rollouts: int
    failed: int
    scores: dict[str, float | None]
    """by stage, the mean of the known ones; None: none is"""
    finished: bool = True
    """whether its step is"""


def _means(rollouts: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """By stage, the mean of the known scores; of each rollout one a stage, in order."""
    return {
        stage.value: mean([s for scores in rollouts if (s := scores[place]) is not None])
        for place, stage in enumerate(Stage)
    }


def groups_so_far(run: RunDirectory) -> list[GroupScores]:
    """The judged groups of a step in progress."""
    return [
        GroupScores(
            step=run.finished_steps(),
            question=judged.buffer.question,
            rollouts=len(judged.judgements),
            failed=0,
            scores=_means([[j.score(stage) for stage in Stage] for j in judged.judgements]),
            finished=False,
        )
        for judged in run.judgements_now().values()
    ]


@dataclass
class StepNumbers:
    """One finished step."""

    step: int
    rollouts: list[RolloutNumbers] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    spreads: list[list[float | None]] = field(default_factory=list)
    """of each group, the standard deviation of each stage's scores"""
    groups: list[GroupScores] = field(default_factory=list)
    changes: list[tuple[str, RubricChange]] = field(default_factory=list)
    """to the rubrics, each with its question"""
    notes: list[str] = field(default_factory=list)
    judging: Usage = NO_USAGE
    reflecting: Usage = NO_USAGE
    lost: Usage = NO_USAGE
    """on failed rollouts"""

    @property
    def usage(self) -> Usage:
        """Of rollouts, failed ones included, of their judge and of reflections."""
        beside = (self.lost, self.judging, self.reflecting)
        return _total([*(r.usage for r in self.rollouts), *beside])

    def scores(self, stage: int) -> list[float]:
        """The known scores of a stage, by its index."""
        return [s for r in self.rollouts if (s := r.scores[stage]) is not None]

    def count_changes(self, *kinds: str) -> int:
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
        """Why rollouts with a trajectory ended without a complete answer; not where in it."""
        ended = (r for r in self.rollouts if r.status is not Status.FINISHED)
        return Counter(_PLACE.sub("", rollout.reason) for rollout in ended)

    @property
    def seconds(self) -> float:
        """From the first rollout's beginning to the last one's end, pauses included."""
        rollouts = self.rollouts
        ends = [r.began + r.seconds for r in rollouts]
        return max(ends) - min(r.began for r in rollouts) if rollouts else 0.0

    def usage(self) -> dict[str, Usage]:
        return {
            "rollouts": _total(r.usage for r in self.rollouts),
            "failed rollouts": _total(step.lost for step in self.steps),
            "judge": _total(step.judging for step in self.steps),
            "reflections": _total(step.reflecting for step in self.steps),
        }

    def scores(self, stage: int) -> list[float]:
        return [score for step in self.steps for score in step.scores(stage)]

    def spreads(self, stage: int) -> list[float]:
        """For each group in which at least two have a score."""
        found = (group[stage] for step in self.steps for group in step.spreads)
        return [spread for spread in found if spread is not None]


def run_numbers(run: RunDirectory) -> RunNumbers:
    """Read a run. Raises SettingsError if there is none, StoreError if it is damaged."""
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
        step.groups.append(
            GroupScores(
                step=step.step,
                question=group.record.question,
                rollouts=len(rollouts),
                failed=len(group.record.failures),
                scores=_means([r.scores for r in rollouts]),
            )
        )
        variety.add(group.rollouts.trajectories, rollouts)
        step.judging += _total(j.usage for j in group.judgements if j)
        _add_record(step, group.record, run)
        if found := extremes_of(group):
            extremes = sorted([*extremes, found], key=lambda e: -e.gap)[:SHOWN]
    candidates = [candidate.accepted for candidate in run.reflections()]
    asked = len(run.questions())
    return RunNumbers(
        manifest, asked, steps, groups, extremes, variety, len(candidates), sum(candidates)
    )


def _total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, NO_USAGE)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def share(count: int, of: int) -> float | None:
    return count / of if of else None


def unscored_share(rollouts: Sequence[RolloutNumbers]) -> float | None:
    """Among the stages that the judge was to score."""
    unscored = sum(len(r.unscored) for r in rollouts)
    scored = sum(score is not None for r in rollouts for score in r.scores)
    return share(unscored, unscored + scored)


def malformed_share(rollouts: Sequence[RolloutNumbers]) -> float | None:
    return share(sum(r.malformed for r in rollouts), len(rollouts))


def _add_record(step: StepNumbers, record: GroupRecord, run: RunDirectory) -> None:
    step.failures += record.failures
    step.notes += record.notes
    step.lost += record.lost
    if reflected := run.reflection_of(record.step, record.id):
        step.reflecting += reflected.usage
    judged = run.judgement_of(record.step, record.id)
    if judged is None:
        return
    step.judging += judged.usage
    step.changes += [(record.question, change) for change in _changes(judged, record)]


def _changes(judged: GroupJudgement, record: GroupRecord) -> list[RubricChange]:
    """The changes of this judging to the rubrics; their history also has those of other runs."""
    if (before := judged.version_before) is not None:
        return [change for change in judged.buffer.history if change.version > before]
    # An older run did not note it: the version it scored under, if it was of these rubrics.
    if (found := re.match(r"(\d+)-", record.rubric_version)) is None:
        return []
    same_step = (change for change in judged.buffer.history if change.step == record.step)
    return [change for change in same_step if change.version >= int(found[1])]


def run_json(run: RunNumbers) -> dict[str, Any]:
    return {
        "manifest": run.manifest.model_dump(mode="json"),
        "groups": run.groups,
        "rollouts": len(run.rollouts),
        "seconds": run.seconds,
        "steps": [_step_json(step) for step in run.steps],
        "grid": [asdict(group) for step in run.steps for group in step.groups],
        "usage": {name: spent.model_dump(mode="json") for name, spent in run.usage().items()},
        "unscored_share": unscored_share(run.rollouts),
        "malformed_share": malformed_share(run.rollouts),
        "failures": dict(run.failures),
        "ended_early": dict(run.early),
        "rules_broken": dict(run.faults),
        "unscored": dict(run.unscored),
        "reflections": run.candidates,
        "accepted": run.accepted,
        "variety": run.variety.as_dict(),
        "extremes": [
            {
                "step": e.step,
                "question": e.question,
                "by": e.by,
                "best": {"thread": e.best.thread, "value": e.values[0]},
                "worst": {"thread": e.worst.thread, "value": e.values[1]},
            }
            for e in run.extremes
        ],
    }


def _step_json(step: StepNumbers) -> dict[str, Any]:
    rollouts = step.rollouts
    return {
        "step": step.step,
        "rollouts": len(rollouts),
        "failed": len(step.failures),
        "scores": {s.value: mean(step.scores(place)) for place, s in enumerate(Stage)},
        "unscored_share": unscored_share(rollouts),
        "malformed_share": malformed_share(rollouts),
        "tool_calls": mean([r.tool_calls for r in rollouts]),
        "tokens_written": mean([r.usage.completion_tokens for r in rollouts]),
        "usage": step.usage.model_dump(mode="json"),
        "criteria_added": step.count_changes("added", "returned", "pinned"),
        "criteria_retired": step.count_changes("retired"),
    }
