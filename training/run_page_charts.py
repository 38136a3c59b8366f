"""The charts of a collected run's page: every stage's scores, what went wrong, work, rubrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memory.schema import Stage
from training.run_page_numbers import (
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    share,
    unscored_share,
)
from training.run_page_plots import Series, bars, histogram, lines, up_and_down
from training.run_page_rollouts import SAME


@dataclass(frozen=True, slots=True)
class StageCard:
    """One stage: its scores over the steps, and how they are spread."""

    name: str
    count: int
    mean: float | None
    deviation: float | None
    apart: float | None
    """share of the groups whose members differ in it"""
    over_steps: str
    distribution: str


def stage_card(run: RunNumbers, place: int, stage: Stage) -> StageCard:
    scores = run.scores(place)
    each = [step.scores(place) for step in run.steps]
    spreads = run.spreads(place)
    series = Series(
        f"mean score of {stage}",
        stage.value,
        [mean(found) for found in each],
        [min(found, default=None) for found in each],
        [max(found, default=None) for found in each],
    )
    return StageCard(
        name=stage.value.capitalize(),
        count=len(scores),
        mean=mean(scores),
        deviation=float(np.std(scores)) if scores else None,
        apart=share(sum(spread >= SAME for spread in spreads), len(spreads)),
        over_steps=lines([series]),
        distribution=histogram(scores, stage.value, f"scores of {stage}"),
    )


def health_charts(steps: Sequence[StepNumbers]) -> list[tuple[str, str]]:
    """Shares that should be small, in percent."""
    shares = {
        "Unscored stages": [unscored_share(step.rollouts) for step in steps],
        "Malformed rollouts": [malformed_share(step.rollouts) for step in steps],
        "Failed rollouts": [
            share(len(step.failures), len(step.rollouts) + len(step.failures)) for step in steps
        ],
    }
    return [
        (name, lines([Series(name, "bad", [_times(v, 100) for v in values])], 100, "%"))
        for name, values in shares.items()
    ]


def work_charts(steps: Sequence[StepNumbers]) -> list[tuple[str, str]]:
    """What a rollout takes, on average; and what each step cost, where prices are known."""
    means = {
        "Tool calls of a rollout": [mean([r.tool_calls for r in s.rollouts]) for s in steps],
        "Tokens written by a rollout": [
            mean([r.usage.completion_tokens for r in s.rollouts]) for s in steps
        ],
        "Tokens read by a rollout": [
            mean([r.usage.prompt_tokens for r in s.rollouts]) for s in steps
        ],
        "Seconds of a rollout": [mean([r.seconds for r in s.rollouts]) for s in steps],
    }
    charts = [(name, bars(values, "accent", name)) for name, values in means.items()]
    costs = [step.usage.cost for step in steps]
    if any(costs):
        charts.append(("Cost of a step", bars(costs, "accent", "cost of a step", " $")))
    return charts


def rubric_changes(steps: Sequence[StepNumbers]) -> dict[str, Any]:
    ups = [step.changed("added", "returned", "pinned") for step in steps]
    downs = [step.changed("retired") for step in steps]
    return {
        "added": sum(ups),
        "retired": sum(downs),
        "chart": up_and_down(ups, downs, ("criteria added", "criteria retired")),
        "changes": [
            (step.step + 1, question, change) for step in steps for question, change in step.changes
        ],
    }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
