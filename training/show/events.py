"""The events of a training in progress, and the names that its metrics can have.

A listener (a terminal, a log, event files) is called from worker threads, so it must return at
once. In names, {stage}, {author}, {objective} and {n} are replaced by every existing value,
{reason} by any words; docs/training_numbers.md explains them all.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rubricem.memory.schema import Author, Stage
from rubricem.training.rows.row import OBJECTIVES

Tracker = Literal["tensorboard", "wandb", "trackio"]
Phase = Literal["collect", "judge", "reflect", "update", "held-out", "held-out pairs"]
Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowsDone:
    """This many parts of a step's window have been through the model."""

    unit: Literal["step", "round"]
    number: int
    """of the step or the round, from 1"""
    of: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step on given rows is done, and saved if it is due; a round is always saved."""

    number: int
    of: int
    metrics: Metrics
    unit: Literal["step", "round"] = "step"


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """A phase of a round began or ended; several overlap."""

    phase: Phase
    number: int
    """of the round, from 1; for held-out questions the number of updates or rounds before"""
    running: bool


@dataclass(frozen=True, slots=True)
class HeldOutJudged:
    """The held-out questions are judged after this many rounds' updates."""

    updates: int
    metrics: Metrics


Event = RowsDone | StepTaken | PhaseChanged | HeldOutJudged
Watch = Callable[[Event], None]


def watch_nothing(event: Event) -> None:
    """A `Watch` that shows nothing."""


_UPDATES = """
step round loss {objective}_loss negative_log_likelihood {stage}_loss grad_norm rate tokens
tokens_read padding_share rows rows_without_gradient groups row_tokens/mean
row_tokens/max prompt_tokens/mean advantage_size {stage}_advantage_size advantage/{stage}/mean
advantage/{stage}/std advantage/{stage}/size/max advantage/{stage}/positive_share surprise ratio
ratio_max clipped_low clipped_high kl_old kl_reference kl_behaviour
{objective}_clipped_low {objective}_clipped_high {objective}_kl_old
{objective}_kl_reference importance ess importance_truncated sampler_gap
sampler_gap_max scaffold_gap sequence_ratio_median sequence_ratio_above_{n} novelty_median
novelty_above_{n} seconds reference_seconds tokens_per_second trained_per_second memory_peak
"""
_ASKED = """
groups rollouts failed_share reward/mean reward/std reward/min reward/max reward/{stage}/mean
reward/{stage}/std reward/{stage}/min reward/{stage}/max criterion/{stage}/mean
criterion/{stage}/min criterion/{stage}/max unscored_share no_criteria_share judge/failed_share
judge/calls judge/tokens_read judge/tokens_written judge/cost seconds/judge_group/mean
seconds/judge_group/max missing_share/{stage} best_of/{n}
best_of/groups tokens/{author}/mean tokens/{author}/max tokens/{author}/{stage}/mean turns/mean
tool_calls/mean tool_error_share cut_off_share malformed_share retokenised_share
"""
_ROUNDS = """
groups_without_spread/{stage} groups/trained scaffold/{n}/shown/mean scaffold/{n}/reward/mean
rows/policy rows/reflect dropped
dropped/{reason} staleness/mean staleness/max reflection/score/mean reflection/score/max
reflection/malformed_share reflect_grad_norm reflect_tokens reflect_seconds
seconds/rollout seconds/judge seconds/reflect seconds/train seconds/wait
"""
_JUDGE_ROUNDS = """
groups groups/no_spread reward right malformed unscored shown_first tokens/mean rows/judge
dropped/{reason}
"""
OF_UPDATES, OF_ROUNDS = tuple(_UPDATES.split()), tuple((_ASKED + _ROUNDS).split())
OF_JUDGE = (
    *(name.replace("{objective}", "judge") for name in OF_UPDATES if "{stage}" not in name),
    *_JUDGE_ROUNDS.split(),
)
"""of a judge that learns from its own verdicts, which has one stage and one objective"""
HELD_OUT = "held_out/"
"""prefix of the names of numbers of held-out questions"""
_PLACES = {
    "{stage}": "|".join(Stage),
    "{author}": "|".join(Author),
    "{objective}": "|".join(OBJECTIVES),
    "{n}": r"\d+",
    "{reason}": ".+",
}


def pattern(name: str) -> str:
    """A pattern of all names that a name with placeholders stands for."""
    return re.sub(r"\{\w+\}", lambda place: f"(?:{_PLACES[place[0]]})", name)
