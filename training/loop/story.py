"""The loop's results as one self-contained page: no script, nothing loaded, all text escaped."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from memory.runs import write_atomically
from memory.schema import Stage
from training.loop.plan import LoopPlan

Result = Mapping[str, Any]
MEASURES = (
    "rows",
    "tokens",
    "loss",
    "advantage_size",
    "sampler_gap",
    "importance_truncated",
    "grad_norm",
)
"""of each policy-gradient step, by the names of `metrics.jsonl`"""
WIDTH, HEIGHT, TOP = 600, 145, 24


def write_story(folder: Path, plan: LoopPlan, results: Mapping[str, Result]) -> Path:
    """Write `story.html` into the loop's folder."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"minutes": minutes, "points": points}
    template = (files("training.loop") / "story.html").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        plan=plan,
        stages=[stage.value for stage in Stage],
        measures=MEASURES,
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        seconds=sum(result["seconds"] for result in results.values()),
        pairs=list(zip(results["before"]["runs"], results["after"]["runs"], strict=True)),
        checkpoint=os.path.relpath(results["train"]["checkpoint"], folder.parent),
        share=share,
        **results,
    )
    path = folder / "story.html"
    write_atomically(path, page)
    return path


def share(measured: Result) -> str:
    """How many of the measured free runs the rejection rules accept."""
    return f"{sum(run['fit'] for run in measured['runs'])} of {len(measured['runs'])}"


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def points(values: Sequence[float]) -> str:
    """A line through the values, scaled to the picture."""
    low, high = min(values), max(values)
    scale = (HEIGHT - TOP) / (high - low or 1.0)
    step = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{i * step:.1f},{HEIGHT - (v - low) * scale:.1f}" for i, v in enumerate(values)
    )
