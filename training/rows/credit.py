"""Compiles judged runs into training rows: returns by stage, and advantages within the group.

    G[i, k] = sum over j >= k of L[k, j] * R[i, j]
    A[i, k] = (G[i, k] - mean over i of G[., k]) / (std over i of G[., k] + eps)

Shapes: n = trajectories of one question, K = stages, in order. R are stage rewards in the range of
the judge that gave them, G stage returns, A advantages, L the dependence matrix of stage-wise GRPO
(RubricEM, arXiv:2605.10899, section 3.3). Each stage has its own baseline, over the members whose
return is known, with the population standard deviation; with one stage this is GRPO
(arXiv:2402.03300). NaN means "unknown", never 0: a return that needs an unknown reward is unknown.
Every token that the policy wrote gets the advantage of its stage; all else is masked.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError, model_validator

from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    Decoding,
    Judgement,
    ReflectionCandidate,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
    Value,
    is_left_out,
)
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import STAGES, TokenSequence, token_sequence, without_scaffold

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Dependence(Value):
    """The dependence matrix: row k weighs all stage rewards in the return of stage k.

    Finite, not negative and causal (upper triangular); the diagonal need not be 1.
    """

    weights: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _causal(self) -> Self:
        stages = len(self.weights)
        if not stages or any(len(row) != stages for row in self.weights):
            raise ValueError("a dependence matrix is square and not empty")
        for k, row in enumerate(self.weights):
            if any(not math.isfinite(weight) or weight < 0 for weight in row):
                raise ValueError(f"row {k} of the dependence matrix is negative or not finite")
            if any(row[:k]):
                raise ValueError(f"row {k} of the dependence matrix credits an earlier stage")
        return self

    def array(self) -> Floats:
        return np.array(self.weights, dtype=np.float64)

    def returns(self, scores: Floats, absent: Flags | None = None) -> Floats:
        """The return of every stage of every trajectory of a group, (n, K).

        `scores` is (n, K), NaN for an unscored stage. `absent`, (n, K), marks stages whose rubric
        had no criterion: they are left out of every sum (their scores are not read), also of the
        sums of all other members, since sums over different stages cannot be compared. If nothing
        is left to sum, the return is NaN, and so is every return that gives weight to an unscored
        stage.
        """
        weights = self.array()
        lacks = np.zeros(scores.shape, dtype=np.bool_) if absent is None else absent
        weights = np.where(lacks.any(axis=0), 0.0, weights)
        unscored = np.isnan(scores) & ~lacks
        needs = (weights > 0).astype(np.int64)
        returns = np.where(unscored | lacks, 0.0, scores) @ weights.T
        unknown = (unscored @ needs.T > 0) | (~lacks @ needs.T == 0)
        return np.where(unknown, np.nan, returns)

    def group_returns(self, judged: Sequence[Judgement | None]) -> Floats:
        return self.returns(stage_scores(judged), absent_stages(judged))


PAPER = Dependence(
    weights=(
        (1.0, 0.4, 0.6, 0.8),
        (0.0, 1.0, 0.4, 0.8),
        (0.0, 0.0, 1.0, 0.8),
        (0.0, 0.0, 0.0, 1.0),
    )
)
"""For plan, research, review and answer (RubricEM, appendix F.1.2)"""


def stage_advantages(returns: Floats, minimum_spread: float = 1e-3, eps: float = 1e-6) -> Floats:
    """Normalise each stage's returns, (n, K), over the group, to standard deviations.

    Advantages are 0 where a return is unknown, and for a whole stage if fewer than two of its
    returns are known or their standard deviation is below `minimum_spread`.
    """
    known = ~np.isnan(returns)
    count = known.sum(axis=0)
    filled = np.where(known, returns, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    centred = np.where(known, filled - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / np.maximum(count, 1))
    flat = (count < 2) | (spread < minimum_spread)
    return np.where(flat, 0.0, centred / (spread + eps))


class RowRule(Value):
    """How the judgements of a group become the advantages of its rows."""

    dependence: Dependence = PAPER
    pooled: bool = False
    """every stage gets the return of the first"""

    def advantages(self, judged: Sequence[Judgement | None]) -> tuple[Floats, Flags]:
        """The advantages of a group, and whether their returns are known, each (n, K)."""
        returns = self.dependence.group_returns(judged)
        if self.pooled:
            returns = np.repeat(returns[:, :1], returns.shape[1], axis=1)
        return stage_advantages(returns), ~np.isnan(returns)


SS_GRPO = RowRule()
CREDITS = {
    "ss-grpo": SS_GRPO,
    # Every stage's return is the reward of the last one.
    "answer-only": RowRule(dependence=Dependence(weights=((0.0, 0.0, 0.0, 1.0),) * 4)),
    # It is the sum of all rewards.
    "sum": RowRule(
        dependence=Dependence(
            weights=((1.0,) * 4, (0.0, 1.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0))
        ),
        pooled=True,
    ),
}


def row_rule(credit: str | Sequence[Sequence[float]] = "ss-grpo") -> RowRule:
    """The rule for a credit, a name or a matrix; raises SettingsError if invalid."""
    if isinstance(credit, str):
        if credit not in CREDITS:
            raise SettingsError(
                f"There is no credit {credit!r}.",
                f"Use {', '.join(CREDITS)}, or a matrix of {len(STAGES)} rows.",
            )
        return CREDITS[credit]
    try:
        dependence = Dependence.model_validate({"weights": credit})
        if len(dependence.weights) != len(STAGES):
            raise ValueError(f"it has {len(dependence.weights)} rows")
    except ValueError as error:  # as pydantic's is, too
        fault = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SettingsError(
            f"The credit is no matrix of the stages: {fault.removeprefix('Value error, ')}.",
            f"Give {len(STAGES)} rows of as many weights, 0 below the diagonal, none negative; "
            f"or use {', '.join(CREDITS)}.",
        ) from error
    return RowRule(dependence=dependence)


NO_IDS = "it has no token ids"
NO_RATIO = "retokenised or forced"
SAMPLE = (
    "Sample from vLLM or llama.cpp, which return the ids that they sample; what another server "
    "wrote can be imitated: rubricem train sft."
)
NO_SPREAD = "its group differs at no stage that is known of it"
UNJUDGED = "it was not judged"
UNSCORED = "too few of its stages are scored for a return"
UNSCORED_REFLECTION = "its reflection was not scored"
HELD_REFLECTION = "its reflection was held to its form, for the bank"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rows, and the number of sequences that gave none, by reason."""

    rows: tuple[TrainRow, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Compiled") -> "Compiled":
        dropped = Counter(self.dropped) + Counter(other.dropped)
        return Compiled(self.rows + other.rows, dict(dropped))

    def each(self) -> Iterator["TrainRow | str"]:
        yield from self.rows
        for reason, count in self.dropped.items():
            yield from repeat(reason, count)


def separate_rows(results: Iterable[TrainRow | str]) -> Compiled:
    listed = list(results)
    reasons = Counter(one for one in listed if isinstance(one, str))
    return Compiled(tuple(one for one in listed if not isinstance(one, str)), dict(reasons))


def unfit(row: TrainRow) -> str:
    """Why a row cannot be trained on, whatever its length; "" if it can."""
    if row.objective != "sft" and not row.ratio_allowed:
        return NO_RATIO
    if not any(row.loss_mask):
        return "without a trained token"
    # Values at tokens that are not trained are never read.
    values = zip(row.loss_mask, row.advantages, row.behaviour_logprobs, strict=True)
    if not all(math.isfinite(number) for on, *numbers in values if on for number in numbers):
        return "with an advantage or a log-probability that is not finite"
    return ""


def trainable(results: Iterable[TrainRow | str], max_row_tokens: int) -> Compiled:
    """The rows that can be trained on, and the reasons why others cannot.

    Of one that is too long the first tokens are trained, with the advantages that the whole was
    scored with, in the baseline of its group. What is imitated is imitated whole, or not at all.
    """

    def fit(result: TrainRow | str) -> TrainRow | str:
        if isinstance(result, str) or (fault := unfit(result)):
            return result if isinstance(result, str) else fault
        if len(result.ids) <= max_row_tokens:
            return result
        kept = result.first(max_row_tokens) if result.objective != "sft" else None
        return kept if kept and any(kept.loss_mask) else longer_than(max_row_tokens)

    return separate_rows(map(fit, results))


def longer_than(max_row_tokens: int) -> str:
    return f"longer than {max_row_tokens} tokens"


def policy_rows(
    group: TrajectoryGroup,
    judged: Sequence[Judgement | None],
    rule: RowRule = SS_GRPO,
    *,
    name: str = "",
) -> Compiled:
    """One row for each trajectory of a group with known returns; `name` is the group's.

    `judged`: their judgements, in their order; None: it was not judged, and is in no baseline.

    A trajectory whose advantages are 0 has a row too, since the weight of a token is a share of all
    that were compared. If all advantages of the group are 0, it gives no rows.
    """
    advantages, known = rule.advantages(judged)
    moves = advantages.any()  # else nothing is to be learnt from the group

    def row(number: int, trajectory: Trajectory) -> TrainRow | str:
        if not judged[number]:
            return UNJUDGED
        if not known[number].any():
            return UNSCORED
        there = known[number] & moves
        return _policy_row(trajectory, name or group.question, advantages[number], there)

    members = zip(range(len(judged)), group.trajectories, strict=True)
    return separate_rows(row(*one) for one in members)


def stage_scores(judged: Sequence[Judgement | None]) -> Floats:
    """Scores, (n, K), at most 1; NaN for a stage without one."""
    rows = [
        [np.nan if stage is None or stage.score is None else stage.score for stage in stages]
        for stages in map(_in_order, judged)
    ]
    return np.array(rows, dtype=np.float64).reshape(len(judged), len(STAGES))


def absent_stages(judged: Sequence[Judgement | None]) -> Flags:
    rows = [[is_left_out(stage) for stage in _in_order(judgement)] for judgement in judged]
    return np.array(rows, dtype=np.bool_).reshape(len(judged), len(STAGES))


def reflection_rows(
    candidates: Sequence[ReflectionCandidate], *, policy_version: str = ""
) -> Compiled:
    """Rows of the candidates of one trajectory, normalised over those that have a score."""
    advantages = reflection_advantages(candidates)

    def row(number: int, candidate: ReflectionCandidate, score: float) -> TrainRow | str:
        if candidate.held:
            return HELD_REFLECTION
        if math.isnan(score):
            return UNSCORED_REFLECTION
        if not any(advantages):
            return NO_SPREAD
        return _reflection_row(candidate, number, advantages[number], policy_version)

    scored = zip(candidates, reflection_scores(candidates), strict=True)
    return separate_rows(row(number, *one) for number, one in enumerate(scored))


def reflection_advantages(candidates: Sequence[ReflectionCandidate]) -> list[float]:
    """Over those on one trajectory that have a score; 0 for the others."""
    scores = np.array(reflection_scores(candidates)).reshape(-1, 1)
    advantages: list[float] = stage_advantages(scores)[:, 0].tolist()
    return advantages


def _in_order(judgement: Judgement | None) -> list[StageScore | None]:
    return [judgement.at(stage) if judgement else None for stage in Stage]


def _policy_row(
    trajectory: Trajectory, group: str, advantages: Floats, known: Flags
) -> TrainRow | str:
    """The row of one trajectory, or why it has none; `advantages` and `known` are (K,).

    Under a scaffold the ratio is that of the prompt without it, to the policy before the update,
    recomputed (RuscaRL, arXiv:2508.16949, appendix D.5).
    """
    shown = without_scaffold(trajectory)
    tokens = token_sequence(shown.segments)
    if tokens is None:
        return NO_IDS
    if not tokens.sampled or trajectory.decoding is not Decoding.FREE:
        return NO_RATIO
    stages = [s if own else -1 for s, own in zip(tokens.stages, tokens.written, strict=True)]
    mask = [int(s >= 0 and known[s]) for s in stages]
    if not any(mask):
        return NO_SPREAD
    values = [float(advantages[s]) if on else 0.0 for s, on in zip(stages, mask, strict=True)]
    return _row_of(
        tokens, mask, values, id=f"{trajectory.id}:policy", group=group, trajectory=trajectory.id,
        objective="policy", policy_version=trajectory.policy_version,
        recompute_logprobs=shown is not trajectory,
    )  # fmt: skip


def reflection_scores(candidates: Iterable[ReflectionCandidate]) -> list[float]:
    """The score of each candidate, in [0, 1]; NaN for one that is in no baseline."""

    def score(candidate: ReflectionCandidate) -> float:
        if candidate.held:
            return math.nan
        if candidate.score is not None:
            return candidate.score.total
        return 0.0 if candidate.fault and not candidate.unscored_reason else math.nan

    return list(map(score, candidates))


def _reflection_row(
    candidate: ReflectionCandidate, number: int, advantage: float, policy_version: str
) -> TrainRow | str:
    tokens = token_sequence(candidate.segments)
    if tokens is None or not tokens.sampled:
        return NO_IDS if tokens is None else NO_RATIO
    group = f"{candidate.trajectory_id}:reflect"
    return _row_of(
        tokens, tokens.written, [advantage * on for on in tokens.written], id=f"{group}:{number}",
        group=group, trajectory=candidate.trajectory_id, objective="reflect",
        policy_version=policy_version,
    )  # fmt: skip


def _row_of(
    tokens: TokenSequence, mask: Sequence[int], advantages: Sequence[float], **named: Any
) -> TrainRow:
    logprobs = zip(tokens.logprobs, mask, strict=True)
    return TrainRow(
        ids=tokens.ids, prompt_tokens=tokens.prompt, stages=tokens.stages,
        loss_mask=tuple(map(int, mask)), advantages=tuple(advantages),
        behaviour_logprobs=tuple(logprob if on else 0.0 for logprob, on in logprobs), **named,
    )  # fmt: skip
