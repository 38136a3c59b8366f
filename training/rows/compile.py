"""What was collected and judged, compiled into training rows.

Every token that the policy wrote gets the advantage of the stage it stands in; prompts and tool
output are masked, and so is a stage whose return is not known. Shapes: n = trajectories of one
question, K = 4 stages (RubricEM, arXiv:2605.10899, sections 3.3 and 3.4).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from rubricem.judge.base import without_criteria
from rubricem.memory.schema import (
    Decoding,
    Judgement,
    ReflectionCandidate,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.training.rows.credit import (
    SS_GRPO,
    Flags,
    Floats,
    RowRule,
    identity,
    stage_advantages,
    stage_returns,
)
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import STAGES, TokenSequence, token_sequence, without_scaffold

NO_IDS = "it has no token ids"
NO_SPREAD = "its group differs at no stage that is known of it"
UNJUDGED = "it was not judged"
UNSCORED_REFLECTION = "its reflection was not scored"
HELD_REFLECTION = "its reflection was held to its form, for the bank"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rows, and how many sequences gave none, by reason."""

    rows: tuple[TrainRow, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Compiled") -> "Compiled":
        dropped = Counter(self.dropped) + Counter(other.dropped)
        return Compiled(self.rows + other.rows, dict(dropped))

    def each(self) -> Iterator["TrainRow | str"]:
        """The rows, then a reason for each sequence that gave none."""
        yield from self.rows
        for reason, count in self.dropped.items():
            yield from repeat(reason, count)


def compiled(results: Iterable[TrainRow | str]) -> Compiled:
    """Rows and the reasons that stand in the place of rows."""
    rows, reasons = [], []
    for result in results:
        if isinstance(result, str):
            reasons.append(result)
        else:
            rows.append(result)
    return Compiled(tuple(rows), dict(Counter(reasons)))


def policy_rows(
    group: TrajectoryGroup,
    judgements: Sequence[Judgement],
    rule: RowRule = SS_GRPO,
    *,
    name: str = "",
) -> Compiled:
    """One row for each trajectory of a group that has something to teach; `name` is the group's.

    A trajectory as good as the mean of its group has a row too: what a token counts is a share of
    all that were compared.

    Judgements are found by the trajectory's id. A trajectory without one is unscored at every
    stage: it is in no baseline. Where the judge scored whole trajectories, that score stands at the
    answer and the other stages have none of their own, so that each that the rule credits with the
    answer learns from it alone.
    """
    found = {judgement.trajectory_id: judgement for judgement in judgements}
    judged = [found.get(trajectory.id) for trajectory in group.trajectories]
    if not judged:
        return Compiled()
    advantages, known = group_advantages(judged, rule)
    if not advantages.any():
        known = np.zeros_like(known)  # nothing is to be learnt from the group
    return compiled(
        _policy_row(t, name or group.question, values, there, rule) if judgement else UNJUDGED
        for t, judgement, values, there in zip(
            group.trajectories, judged, advantages, known, strict=True
        )
    )


def group_advantages(judged: Sequence[Judgement | None], rule: RowRule) -> tuple[Floats, Flags]:
    """The advantages of a group, and where their returns are known, each (n, K)."""
    returns = stage_returns(stage_scores(judged), rule.dependence, absent_stages(judged))
    return stage_advantages(returns, scaled=rule.scaled).values, ~np.isnan(returns)


def stage_scores(judged: Sequence[Judgement | None]) -> Floats:
    """(n, K) in [0, 1]; NaN where a stage has no score."""
    rows = [
        [np.nan if stage is None or stage.score is None else stage.score for stage in stages]
        for stages in map(_in_order, judged)
    ]
    return np.array(rows, dtype=np.float64).reshape(len(judged), len(STAGES))


def absent_stages(judged: Sequence[Judgement | None]) -> Flags:
    """(n, K): stages whose rubric had no item, and which are therefore left out of every sum."""
    rows = [[without_criteria(stage) for stage in _in_order(judgement)] for judgement in judged]
    return np.array(rows, dtype=np.bool_).reshape(len(judged), len(STAGES))


def reflection_rows(
    candidates: Sequence[ReflectionCandidate], *, policy_version: str = ""
) -> Compiled:
    """Rows of the candidates of one trajectory, each against the mean of all that have a score.

    A candidate whose format is not valid was written so by the policy: its score is 0. One that
    a limit cut off, that the judge could not score, or that a grammar held to its form, is in no
    baseline and gives no row.
    """
    if not candidates:
        return Compiled()
    scores = np.array([[_reflection_score(candidate)] for candidate in candidates])
    returns = stage_returns(scores, identity(1))
    advantages = stage_advantages(returns).values
    return compiled(
        HELD_REFLECTION
        if candidate.held
        else UNSCORED_REFLECTION
        if np.isnan(score)
        else NO_SPREAD
        if not advantages.any()
        else _reflection_row(candidate, number, float(advantage), policy_version)
        for number, (candidate, (score,), (advantage,)) in enumerate(
            zip(candidates, scores, advantages, strict=True)
        )
    )


def _in_order(judgement: Judgement | None) -> list[StageScore | None]:
    stages = {score.stage: score for score in judgement.stages} if judgement else {}
    return [stages.get(stage) for stage in Stage]


def _policy_row(
    trajectory: Trajectory, group: str, advantages: Floats, known: Flags, rule: RowRule
) -> TrainRow | str:
    """The row of one trajectory; `advantages` and `known` are (K,). A reason if there is none."""
    shown = trajectory if rule.ratio == "scaffolded" else without_scaffold(trajectory)
    tokens = token_sequence(shown.segments)
    if tokens is None:
        return NO_IDS
    scaffolded = () if shown is trajectory else trajectory.segments[0].token_ids or ()
    stages = [s if there else -1 for s, there in zip(tokens.stages, tokens.written, strict=True)]
    mask = tuple(int(s >= 0 and known[s]) for s in stages)
    values = tuple(float(advantages[s]) if on else 0.0 for s, on in zip(stages, mask, strict=True))
    if not any(mask):
        return NO_SPREAD
    return TrainRow(
        id=f"{trajectory.id}:policy",
        group=group,
        trajectory=trajectory.id,
        objective="policy",
        policy_version=trajectory.policy_version,
        ids=tokens.ids,
        prompt_tokens=tokens.prompt,
        loss_mask=mask,
        advantages=values,
        behaviour_logprobs=_masked(tokens, mask),
        stages=tokens.stages,
        ratio_allowed=tokens.sampled and trajectory.decoding is Decoding.FREE,
        scaffolded_prompt=scaffolded,
        recompute_logprobs=bool(scaffolded) and rule.ratio == "unscaffolded",
        across_prompts=bool(scaffolded) and rule.ratio == "behaviour",
    )


def _reflection_score(candidate: ReflectionCandidate) -> float:
    if candidate.held:
        return np.nan
    if candidate.score is not None:
        return candidate.score.total
    return 0.0 if candidate.fault and not candidate.unscored_reason else np.nan


def _reflection_row(
    candidate: ReflectionCandidate, number: int, advantage: float, policy_version: str
) -> TrainRow | str:
    tokens = token_sequence(candidate.segments)
    if tokens is None:
        return NO_IDS
    mask = tuple(map(int, tokens.written))
    return TrainRow(
        id=f"{candidate.trajectory_id}:reflect:{number}",
        group=f"{candidate.trajectory_id}:reflect",
        trajectory=candidate.trajectory_id,
        objective="reflect",
        policy_version=policy_version,
        ids=tokens.ids,
        prompt_tokens=tokens.prompt,
        loss_mask=mask,
        advantages=tuple(advantage * on for on in mask),
        behaviour_logprobs=_masked(tokens, mask),
        stages=tokens.stages,
        ratio_allowed=tokens.sampled,
    )


def _masked(tokens: TokenSequence, mask: Sequence[int]) -> tuple[float, ...]:
    pairs = zip(tokens.logprobs, mask, strict=True)
    return tuple(logprob if on else 0.0 for logprob, on in pairs)
