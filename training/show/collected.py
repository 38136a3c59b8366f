"""A collected run in numbers, read once, group by group; an unscored stage is in no mean."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean
from typing import Any

from rubricem.agent.learning.scoring import SUPPORT
from rubricem.agent.transcript.scaffold import Rule, find_violation
from rubricem.memory.schema import (
    NO_USAGE,
    Author,
    Decoding,
    GroupJudgement,
    Judgement,
    Stage,
    Status,
    Trajectory,
    Usage,
    is_left_out,
)
from rubricem.memory.text import pluralise
from rubricem.training.collect.directory import GroupRecord, Manifest, RunDirectory
from rubricem.training.rows.compile import judged_groups

MALFORMED = {Rule.NO_ANSWER, Rule.NO_CALL, Rule.STRUCTURE}
"""rejection rules about the form of a transcript"""
Scores = Mapping[Stage, Sequence[float]]


def _no_scores() -> dict[Stage, list[float]]:
    return {stage: [] for stage in Stage}


@dataclass
class StepNumbers:
    """Sums over a finished step; scores are the known ones of its rollouts."""

    step: int
    rollouts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    early: Counter[str] = field(default_factory=Counter)
    """why rollouts ended without a complete answer"""
    faults: Counter[Rule] = field(default_factory=Counter)
    scores: dict[Stage, list[float]] = field(default_factory=_no_scores)
    support: list[float] = field(default_factory=list)
    """of each answer, as far as it was checked"""
    unscored: Counter[str] = field(default_factory=Counter)
    """stages that have criteria and no score, by reason"""
    tool_calls: int = 0
    first_try: int = 0
    """finished rollouts of which no turn had to be asked again"""
    turns: int = 0
    no_ratio: Counter[str] = field(default_factory=Counter)
    """turns of which no policy-gradient ratio can be formed, by reason"""
    spent: dict[str, Usage] = field(default_factory=dict)
    added: int = 0
    retired: int = 0

    def count(self, run: Trajectory, judgement: Judgement | None) -> None:
        self.rollouts += 1
        self.tool_calls += run.tool_calls
        self.spend("rollouts", run.usage)
        if run.status is not Status.FINISHED:
            self.early[run.reason] += 1
        else:
            self.first_try += all(segment.kept for segment in run.segments)
        if run.cut_in is None and (fault := find_violation(run)) is not None:
            self.faults[fault.rule] += 1
        for score in judgement.stages if judgement else ():
            if score.score is not None:
                self.scores[score.stage].append(score.score)
                if score.stage is Stage.ANSWER and SUPPORT in score.components:
                    self.support.append(score.components[SUPPORT])
            elif not is_left_out(score):
                self.unscored[score.unscored_reason] += 1
        if judgement is not None:
            self.spend("judge", judgement.usage)
        self._count_turns(run)

    def _count_turns(self, run: Trajectory) -> None:
        if run.decoding is not Decoding.FREE:
            return
        written = (s for s in run.segments if s.kept and s.author is Author.POLICY)
        for _, segments in groupby(written, key=lambda segment: segment.turn):
            turn = list(segments)
            self.turns += 1
            if any(segment.retokenised or segment.token_ids is None for segment in turn):
                self.no_ratio["retokenised"] += 1
            elif any(segment.logprobs is None for segment in turn):
                self.no_ratio["without log-probabilities"] += 1

    def spend(self, on: str, usage: Usage) -> None:
        self.spent[on] = self.spent.get(on, NO_USAGE) + usage

    def add(self, record: GroupRecord, run: RunDirectory) -> None:
        self.failures.update(record.failures)
        self.spend("failed rollouts", record.lost)
        if reflected := run.reflection_of(record.step, record.id):
            self.spend("reflections", reflected.usage)
        if judged := run.judgement_of(record.step, record.id):
            self.spend("judge", judged.usage)
            kinds = [change.kind for change in _changes(judged)]
            self.added += sum(kind in ("added", "returned", "pinned") for kind in kinds)
            self.retired += kinds.count("retired")

    @property
    def malformed(self) -> int:
        return sum(self.faults[rule] for rule in MALFORMED)

    def as_json(self) -> dict[str, Any]:
        each = max(self.rollouts, 1)
        written = self.spent.get("rollouts", NO_USAGE).completion_tokens
        return {
            "step": self.step,
            "rollouts": self.rollouts,
            "failed": self.failures.total(),
            "scores": _means(self.scores),
            "support": fmean(self.support) if self.support else None,
            "unscored_share": unscored_share([self]),
            "malformed_share": malformed_share([self]),
            "tool_calls": self.tool_calls / each if self.rollouts else None,
            "tokens_written": written / each if self.rollouts else None,
            "usage": sum(self.spent.values(), NO_USAGE).model_dump(mode="json"),
            "criteria_added": self.added,
            "criteria_retired": self.retired,
        }


@dataclass
class RunNumbers:
    """All finished steps of a run."""

    manifest: Manifest
    steps: list[StepNumbers]
    grid: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    """from the first rollout's beginning to the last one's end, pauses included"""
    candidates: int = 0
    accepted: int = 0
    """reflections written, and kept in the bank"""

    def counted(self, name: str) -> Counter[str]:
        return sum((getattr(step, name) for step in self.steps), Counter[str]())

    def total(self, name: str) -> int:
        return sum(getattr(step, name) for step in self.steps)

    def scores(self) -> Scores:
        return {s: [score for step in self.steps for score in step.scores[s]] for s in Stage}

    def spent(self) -> dict[str, Usage]:
        spent: dict[str, Usage] = {}
        for name, usage in (each for step in self.steps for each in step.spent.items()):
            spent[name] = spent.get(name, NO_USAGE) + usage
        return spent

    @property
    def finished(self) -> int:
        return self.total("rollouts") - self.counted("early").total()

    @property
    def failed(self) -> int:
        return self.counted("failures").total()

    def lines(self) -> list[str]:
        rollouts, steps = self.total("rollouts") + self.failed, len(self.steps)
        told = [
            f"{pluralise(len(self.grid), 'group')} in {pluralise(steps, 'step')}, "
            f"{pluralise(rollouts, 'rollout')}: {self.finished} finished "
            f"({self.total('first_try')} without a turn asked again), "
            f"{rollouts - self.finished - self.failed} partial, {self.failed} failed"
        ]
        means = [f"{s} {m:.2f}" for s, m in _means(self.scores()).items() if m is not None]
        told += [f"mean stage scores: {', '.join(means)}"] if means else []
        if support := [share for step in self.steps for share in step.support]:
            told.append(
                f"mean support of {pluralise(len(support), 'answer')}: {fmean(support):.2f}"
            )
        for head, name in (
            ("stages unscored", "unscored"),
            ("rollouts failed", "failures"),
            ("rollouts ended early", "early"),
            ("rollouts broke the rule", "faults"),
        ):
            told += [f"{count} {head}: {why}" for why, count in self.counted(name).items()]
        if self.candidates:
            told.append(f"{pluralise(self.candidates, 'reflection')}, {self.accepted} accepted")
        if without := self.counted("no_ratio"):
            why = ", ".join(f"{count} {reason}" for reason, count in without.items())
            told.append(f"{without.total()} of {self.total('turns')} turns form no ratio: {why}")
        return [*told, *(f"{on}: {used.told()}" for on, used in self.spent().items() if used.calls)]

    def as_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest.model_dump(mode="json"),
            "groups": len(self.grid),
            "rollouts": self.total("rollouts"),
            "seconds": self.seconds,
            "steps": [step.as_json() for step in self.steps],
            "grid": self.grid,
            "usage": {name: usage.model_dump(mode="json") for name, usage in self.spent().items()},
            "unscored_share": unscored_share(self.steps),
            "malformed_share": malformed_share(self.steps),
            "failures": dict(self.counted("failures")),
            "ended_early": dict(self.counted("early")),
            "rules_broken": dict(self.counted("faults")),
            "unscored": dict(self.counted("unscored")),
            "reflections": self.candidates,
            "accepted": self.accepted,
        }


def run_numbers(run: RunDirectory) -> RunNumbers:
    found = RunNumbers(run.manifest(), [StepNumbers(n) for n in range(run.finished_steps())])
    began, ended = list[float](), list[float]()
    for group in judged_groups(run):
        step = found.steps[group.record.step]
        one = group.record
        failed = len(one.failures)
        found.grid.append(_group_json(one.step, one.question, failed, group.judgements))
        step.add(one, run)
        for member, judgement in zip(group.rollouts.trajectories, group.judgements, strict=True):
            step.count(member, judgement)
            began.append(member.started_at.timestamp())
            ended.append(began[-1] + member.seconds)
    found.seconds = max(ended, default=0.0) - min(began, default=0.0)
    written = [candidate.accepted for candidate in run.reflections()]
    found.candidates, found.accepted = len(written), sum(written)
    return found


def groups_so_far(run: RunDirectory) -> list[dict[str, Any]]:
    """The judged groups of a step in progress, as in `RunNumbers.grid`."""
    step, judged = run.finished_steps(), run.judgements_now()
    return [_group_json(step, j.buffer.question, 0, j.judgements, finished=False) for j in judged]


def _group_json(
    step: int,
    question: str,
    failed: int,
    judged: Sequence[Judgement | None],
    finished: bool = True,
) -> dict[str, Any]:
    scores = _no_scores()
    for stage in (stage for one in judged if one for stage in one.stages):
        if stage.score is not None:
            scores[stage.stage].append(stage.score)
    return {
        "step": step,
        "question": question,
        "rollouts": len(judged),
        "failed": failed,
        "scores": _means(scores),
        "finished": finished,
    }


def _means(scores: Scores) -> dict[str, float | None]:
    return {stage.value: fmean(known) if known else None for stage, known in scores.items()}


def unscored_share(steps: Iterable[StepNumbers]) -> float | None:
    """Among the stages that the judge was to score; None: it was not to score any."""
    listed = list(steps)
    unscored = sum(step.unscored.total() for step in listed)
    scored = sum(len(known) for step in listed for known in step.scores.values())
    return unscored / (unscored + scored) if unscored + scored else None


def malformed_share(steps: Iterable[StepNumbers]) -> float | None:
    listed = list(steps)
    rollouts = sum(step.rollouts for step in listed)
    return sum(step.malformed for step in listed) / rollouts if rollouts else None


def _changes(judged: GroupJudgement) -> list[Any]:
    """The changes of this judging to the rubrics; their history also has those of other runs."""
    before = judged.version_before or 0
    return [change for change in judged.buffer.history if change.version > before]
