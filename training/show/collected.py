"""A collected run in numbers, read once, group by group; an unscored stage is in no mean."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import fmean
from typing import Any

from rubricem.agent.transcript.scaffold import Rule, find_violation
from rubricem.memory.schema import (
    NO_USAGE,
    SUPPORT,
    Author,
    Decoding,
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

REASONS = {
    "lacking": "groups lack criteria or reflections",
    "unscored": "stages unscored",
    "failures": "rollouts failed",
    "ended_early": "rollouts ended early",
    "rules_broken": "rollouts broke the rule",
}
"""what is counted by its reason; stages are unscored that have criteria"""
MALFORMED = {Rule.NO_ANSWER, Rule.NO_CALL, Rule.STRUCTURE}
"""rejection rules about the form of a transcript"""
Scores = Mapping[Stage, Sequence[float]]


def _no_scores() -> dict[Stage, list[float]]:
    return {stage: [] for stage in Stage}


@dataclass
class RolloutNumbers:
    """Sums over rollouts, of a finished step or of all; scores are the known ones."""

    rollouts: int = 0
    why: dict[str, Counter[str]] = field(default_factory=lambda: {n: Counter() for n in REASONS})
    scores: dict[Stage, list[float]] = field(default_factory=_no_scores)
    support: list[float] = field(default_factory=list)
    """of each answer, as far as it was checked"""
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
            self.why["ended_early"][run.reason] += 1
        else:
            self.first_try += all(segment.kept for segment in run.segments)
        if run.cut_in is None and (fault := find_violation(run)) is not None:
            self.why["rules_broken"][fault.rule] += 1
        for score in judgement.stages if judgement else ():
            if score.score is not None:
                self.scores[score.stage].append(score.score)
                if score.stage is Stage.ANSWER and SUPPORT in score.components:
                    self.support.append(score.components[SUPPORT])
            elif not is_left_out(score):
                self.why["unscored"][score.unscored_reason] += 1
        if judgement is not None:
            self.spend("judge", judgement.usage)
        if run.decoding is Decoding.FREE:
            self._count_turns(run)

    def _count_turns(self, run: Trajectory) -> None:
        written = (s for s in run.segments if s.kept and s.author is Author.POLICY)
        for _, segments in groupby(written, key=lambda segment: segment.turn):
            turn = list(segments)
            self.turns += 1
            if any(segment.token_ids is None for segment in turn):
                self.no_ratio["without token ids"] += 1
            elif any(segment.retokenised for segment in turn):
                self.no_ratio["retokenised"] += 1
            elif any(segment.logprobs is None for segment in turn):
                self.no_ratio["without log-probabilities"] += 1

    def spend(self, on: str, usage: Usage) -> None:
        self.spent[on] = self.spent.get(on, NO_USAGE) + usage

    def add(self, record: GroupRecord, run: RunDirectory) -> None:
        self.why["failures"].update(record.failures)
        self.spend("failed rollouts", record.lost)
        if reflected := run.reflection_of(record.step, record.id):
            self.spend("reflections", reflected.usage)
            self.why["lacking"].update(reflected.notes)
        if judged := run.judgement_of(record.step, record.id):
            self.spend("judge", judged.usage)
            self.why["lacking"].update(filter(None, [judged.unproposed]))
            # The history of the rubrics also has the changes of other runs.
            before = judged.version_before or 0
            kinds = [c.kind for c in judged.buffer.history if c.version > before]
            self.added += sum(kind in ("added", "returned", "pinned") for kind in kinds)
            self.retired += kinds.count("retired")

    @property
    def unscored_share(self) -> float | None:
        """Among the stages that the judge was to score; None: it was not to score any."""
        unscored, scored = self.why["unscored"].total(), sum(map(len, self.scores.values()))
        return unscored / (unscored + scored) if unscored + scored else None

    @property
    def malformed_share(self) -> float | None:
        malformed = sum(self.why["rules_broken"][rule] for rule in MALFORMED)
        return malformed / self.rollouts if self.rollouts else None

    def as_json(self) -> dict[str, Any]:
        each = self.rollouts
        written = self.spent.get("rollouts", NO_USAGE).completion_tokens
        return {
            "rollouts": each,
            "failed": self.why["failures"].total(),
            "scores": _means(self.scores),
            "support": fmean(self.support) if self.support else None,
            "unscored_share": self.unscored_share,
            "malformed_share": self.malformed_share,
            "tool_calls": self.tool_calls / each if each else None,
            "tokens_written": written / each if each else None,
            "usage": sum(self.spent.values(), NO_USAGE).model_dump(mode="json"),
            "criteria_added": self.added,
            "criteria_retired": self.retired,
        }


@dataclass
class RunNumbers:
    """All finished steps of a run."""

    manifest: Manifest
    steps: list[RolloutNumbers]
    whole: RolloutNumbers = field(default_factory=RolloutNumbers)
    """over all steps"""
    grid: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    """from the first rollout's beginning to the last one's end, pauses included"""
    candidates: int = 0
    accepted: int = 0
    """reflections written, and kept in the bank"""

    @property
    def finished(self) -> int:
        return self.whole.rollouts - self.whole.why["ended_early"].total()

    @property
    def failed(self) -> int:
        return self.whole.why["failures"].total()

    def lines(self) -> list[str]:
        whole, steps = self.whole, len(self.steps)
        told = [
            f"{pluralise(len(self.grid), 'group')} in {pluralise(steps, 'step')}, "
            f"{pluralise(whole.rollouts + self.failed, 'rollout')}: {self.finished} finished "
            f"({whole.first_try} without a turn asked again), "
            f"{whole.rollouts - self.finished} partial, {self.failed} failed"
        ]
        means = [f"{s} {m:.2f}" for s, m in _means(whole.scores).items() if m is not None]
        told += [f"mean stage scores: {', '.join(means)}"] if means else []
        if support := whole.support:
            told.append(
                f"mean support of {pluralise(len(support), 'answer')}: {fmean(support):.2f}"
            )
        for name, head in REASONS.items():
            told += [f"{count} {head}: {why}" for why, count in whole.why[name].items()]
        if self.candidates:
            told.append(f"{pluralise(self.candidates, 'reflection')}, {self.accepted} accepted")
        if without := whole.no_ratio:
            why = ", ".join(f"{count} {reason}" for reason, count in without.items())
            told.append(f"{without.total()} of {whole.turns} turns form no ratio: {why}")
        return [*told, *(f"{on}: {used.told()}" for on, used in whole.spent.items() if used.calls)]

    def as_json(self) -> dict[str, Any]:
        whole = self.whole
        return {
            "manifest": self.manifest.model_dump(mode="json"),
            "groups": len(self.grid),
            "rollouts": whole.rollouts,
            "seconds": self.seconds,
            "steps": [{"step": n, **step.as_json()} for n, step in enumerate(self.steps)],
            "grid": self.grid,
            "usage": {name: usage.model_dump(mode="json") for name, usage in whole.spent.items()},
            "unscored_share": whole.unscored_share,
            "malformed_share": whole.malformed_share,
            **{name: dict(counted) for name, counted in whole.why.items()},
            "reflections": self.candidates,
            "accepted": self.accepted,
        }


def run_numbers(run: RunDirectory) -> RunNumbers:
    found = RunNumbers(run.manifest(), [RolloutNumbers() for _ in range(run.finished_steps())])
    began, ended = list[float](), list[float]()
    for group in judged_groups(run):
        one, failed = group.record, len(group.record.failures)
        found.grid.append(_group_json(one.step, one.question, failed, group.judgements))
        for numbers in (found.steps[one.step], found.whole):
            numbers.add(one, run)
            for member, judged in zip(group.rollouts.trajectories, group.judgements, strict=True):
                numbers.count(member, judged)
        for member in group.rollouts.trajectories:
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
