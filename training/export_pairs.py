"""Preference pairs: of each group the best and the worst, where they are far enough apart.

In the form that preference trainers read: `prompt`, `chosen` and `rejected` as lists of messages,
with where they come from beside them. What is compared is a trajectory's return, which is that
of its first stage, or the score of one stage; who has none of it is in no pair.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from memory.schema import Stage
from memory.versions import Versioned
from training.compiling import absent_stages, stage_scores
from training.export_conversations import ChatMessage, Span, opening_of, written_by
from training.export_judged import JudgedGroup
from training.returns import PAPER, Dependence, Floats, stage_returns

By = Literal["return", "plan", "research", "review", "answer"]
TOO_FEW = "fewer than two of the group have what is compared"
TOO_NEAR = "its best and worst are nearer than the margin"
OTHER_PROMPT = "its best and worst had different prompts"


class PreferencePair(Versioned):
    """Two answers to one prompt, and why the first is preferred."""

    id: str
    """the group's"""
    prompt: tuple[ChatMessage, ...]
    chosen: tuple[ChatMessage, ...]
    rejected: tuple[ChatMessage, ...]
    chosen_untrained: tuple[Span, ...]
    """characters that the policy did not write: tool output, notes of the runner"""
    rejected_untrained: tuple[Span, ...]
    by: By
    chosen_value: float
    rejected_value: float
    chosen_trajectory: str
    rejected_trajectory: str
    question_id: str
    step: int
    judge: str
    rubric_version: str
    policy: str
    policy_version: str


def preference_pair(
    group: JudgedGroup, by: By = "return", margin: float = 0.1, dependence: Dependence = PAPER
) -> PreferencePair | str:
    """The pair of a group, or why it has none; equal ones are never a pair.

    `margin` is in units of what is compared: scores are in [0, 1], returns in [0, the sum of the
    first row of the dependence].
    """
    values = compared(group, by, dependence)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2:
        return TOO_FEW
    best, worst = best_and_worst(values)
    if values[best] - values[worst] < margin or values[best] == values[worst]:
        return TOO_NEAR
    chosen, rejected = (group.rollouts.trajectories[place] for place in (best, worst))
    prompt = opening_of(chosen)
    if prompt != opening_of(rejected):
        return OTHER_PROMPT
    judged = group.judgements[best]
    good, bad = written_by(chosen), written_by(rejected)
    return PreferencePair(
        id=group.record.id,
        prompt=prompt,
        chosen=(good.message,),
        rejected=(bad.message,),
        chosen_untrained=good.untrained,
        rejected_untrained=bad.untrained,
        by=by,
        chosen_value=float(values[best]),
        rejected_value=float(values[worst]),
        chosen_trajectory=chosen.id,
        rejected_trajectory=rejected.id,
        question_id=group.record.question_id,
        step=group.record.step,
        judge=judged.judge if judged else "",
        rubric_version=group.record.rubric_version,
        policy=chosen.policy,
        policy_version=chosen.policy_version,
    )


def compared(group: JudgedGroup, by: By, dependence: Dependence = PAPER) -> Floats:
    """What the members are compared by, (n,); NaN where it is not known."""
    if not group.judgements:
        return np.empty(0)
    scores = stage_scores(group.judgements)
    if by == "return":
        return stage_returns(scores, dependence, absent_stages(group.judgements))[:, 0]
    return np.asarray(scores[:, list(Stage).index(Stage(by))])


def best_and_worst(values: Floats | Sequence[float]) -> tuple[int, int]:
    """The places of the largest and the smallest known value, the first of equal ones."""
    return int(np.nanargmax(values)), int(np.nanargmin(values))
