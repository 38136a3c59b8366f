"""A collected run as one JSON object: what its page shows, without the texts of stages."""

from typing import Any

from memory.schema import Stage
from training.run_page_numbers import (
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    unscored_share,
)


def run_json(run: RunNumbers) -> dict[str, Any]:
    return {
        "manifest": run.manifest.model_dump(mode="json"),
        "groups": run.groups,
        "rollouts": len(run.rollouts),
        "seconds": run.seconds,
        "steps": [_step_json(step) for step in run.steps],
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
        "criteria_added": step.changed("added", "returned", "pinned"),
        "criteria_retired": step.changed("retired"),
    }
