"""What is shown of each rollout of a collected run: a few numbers, and no text of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.rejection import Rule, rejected
from judge.scoring import without_criteria
from memory.schema import Stage, Status, Usage
from training.export_judged import JudgedGroup, JudgedTrajectory
from training.export_pairs import By, best_and_worst, compared
from training.returns import Floats

MALFORMED = {Rule.NO_ANSWER, Rule.NO_CALL, Rule.STRUCTURE}
"""rejection rules that the form of a transcript breaks"""

TOLD = {
    Rule.NO_ANSWER: "no closed answer with text in it",
    Rule.NO_CALL: "a round without a tool call",
    Rule.STRUCTURE: "a block that is missing or malformed",
    Rule.TOOL_ERRORS: "two failed tool calls running",
}
"""the rules that are tried, in words"""
SAME = 1e-3
"""standard deviation of a score below which the members of a group are taken for equal"""


@dataclass(frozen=True, slots=True)
class RolloutNumbers:
    """One rollout that gave a trajectory."""

    thread: str
    step: int
    status: Status
    reason: str
    fault: Rule | None
    """the rejection rule that it breaks; None: none, or it was broken off from outside"""
    scores: tuple[float | None, ...]
    """of each stage, in order"""
    unscored: tuple[str, ...]
    """why stages that have criteria have no score; empty where it was not judged at all"""
    missing: int
    """stages that the policy ended without"""
    judged: bool
    tool_calls: int
    usage: Usage
    began: float
    """seconds since 1970"""
    seconds: float
    shown: int
    """criteria in its scaffold"""

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
    by_stage = {score.stage: score for score in stages}
    fault = rejected(one) if one.cut_in is None else None
    return RolloutNumbers(
        thread=one.thread,
        step=one.step,
        status=one.status,
        reason=one.reason,
        fault=fault.rule if fault else None,
        scores=tuple(by_stage[s].score if s in by_stage else None for s in Stage),
        unscored=tuple(
            score.unscored_reason
            for score in stages
            if score.score is None and not without_criteria(score)
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
    """By return, or where fewer than two have one by the score of the answer; None without two."""
    ways: tuple[By, ...] = ("return", "answer")
    for by in ways:
        values = compared(group, by)
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
    """The population standard deviation of each stage's scores; None where fewer than two are."""
    return [_spread([r.scores[place] for r in rollouts]) for place in range(len(Stage))]


def _spread(scores: Sequence[float | None]) -> float | None:
    known: Floats = np.array([score for score in scores if score is not None])
    return float(known.std()) if len(known) > 1 else None
