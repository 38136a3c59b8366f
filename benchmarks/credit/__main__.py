"""Which credit learns fastest: `python -m benchmarks.credit [--quick|--full]`.

Three arms train the same tabular policy in the same environment (environment.py) with the
project's own returns and advantages: stage-wise credit with the paper's dependence matrix, the
answer's score for every stage, and each stage's own score. Counted are the steps until the
exact expected answer score, which favours no intermediate score, is 90% of the optimum. Each
arm's learning rate is chosen from one grid, on seeds other than those reported.

The judge's noise is the chance that a score is a uniform guess: in every score, or in all but the
answer's, where answer-only credit has none and stage credit must lose in the end. `--full` also
varies the environment one property at a time, and writes the figure and all results.
"""

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.credit.environment import STAGES, Kind, draw_chain
from benchmarks.credit.learning import GROUP, MOST, RATES, TUNING_SEEDS, Outcome, measure
from benchmarks.credit.plot import draw
from benchmarks.credit.theory import allowed_noise
from benchmarks.report import Value, emit
from rubricem.training.rows.credit import PAPER, broadcast, identity

ARMS = {"SS-GRPO": PAPER, "answer only": broadcast(), "identity": identity()}
QUICK_SEEDS, FULL_SEEDS = 5, 20
QUICK_LEVELS = (0.0, 0.1, 0.5, 0.8)
FULL_LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LOW_NOISE = (0.0, 0.1)
MOST_SHARE = 0.5
EVERY, PROCESS = "every score noisy", "all scores but the answer's noisy"
DEFAULT = Kind()
VARIED = (
    *(replace(DEFAULT, dependence=value) for value in (0.25, 0.5, 1.0)),
    *(replace(DEFAULT, actions=value) for value in (4, 16)),
    *(replace(DEFAULT, look_alikes=value) for value in (0, 2, 3)),
    *(replace(DEFAULT, lure=value) for value in (0.1, 0.2)),
)
ROOT = Path(__file__).parents[2]

Curves = dict[str, list[Outcome]]


def main() -> None:
    """Measure, print a table as it grows, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="5 seeds, 4 noise levels (default)")
    size.add_argument("--full", action="store_true", help="20 seeds, 10 levels, other environments")
    parser.add_argument("--plot", type=Path, help="where to write the figure (SVG)")
    parser.add_argument("--out", type=Path, help="where to write all results (JSON)")
    args = parser.parse_args()
    levels, seeds = (FULL_LEVELS, FULL_SEEDS) if args.full else (QUICK_LEVELS, QUICK_SEEDS)
    panels = {name: sweep(name, levels, seeds) for name in (EVERY, PROCESS)}
    varied = [(kind, compare(kind, 0.0, EVERY, seeds)) for kind in VARIED] if args.full else []
    plot = args.plot or (ROOT / "docs" / "credit.svg" if args.full else None)
    if plot:
        draw(panels, levels, plot)
    out = args.out or (ROOT / "benchmarks" / "results" / "credit.json" if args.full else None)
    if out:
        out.write_text(json.dumps(everything(how(seeds), levels, panels, varied), indent=1) + "\n")
    report(how(seeds), levels, panels)


def sweep(panel: str, levels: Sequence[float], seeds: int) -> Curves:
    """Every arm's outcome at every noise level."""
    rows = [compare(DEFAULT, level, panel, seeds) for level in levels]
    return {name: [row[name] for row in rows] for name in ARMS}


def compare(kind: Kind, level: float, panel: str, seeds: int) -> dict[str, Outcome]:
    """Every arm in one environment under one noise."""
    noise = (level,) * (STAGES - 1) + (level if panel == EVERY else 0.0,)
    row = {name: measure(arm, kind, noise, seeds) for name, arm in ARMS.items()}
    told = ", ".join(f"{name} {format_steps(o)} (rate {o.rate:g})" for name, o in row.items())
    print(f"{panel}, {level:.1f}, {kind}: {told}", flush=True)
    return row


def format_steps(outcome: Outcome) -> str:
    """The median of the seeds' steps, or that it was not reached."""
    return f"{outcome.median:g}" if math.isfinite(outcome.median) else f"> {MOST}"


def crossing(levels: Sequence[float], curves: Curves) -> float | None:
    """The noise at which stage credit begins to need more steps than answer-only credit.

    Between two levels it is interpolated; medians that were not reached count as the most
    steps. None if it is never slower.
    """
    gaps = [
        min(stage.median, MOST) - min(answer.median, MOST)
        for stage, answer in zip(curves["SS-GRPO"], curves["answer only"], strict=True)
    ]
    for place, gap in enumerate(gaps):
        if gap > 0:
            if place == 0:
                return levels[0]
            before, width = gaps[place - 1], levels[place] - levels[place - 1]
            return round(levels[place - 1] + width * before / (before - gap), 3)
    return None


def report(measured: str, levels: Sequence[float], panels: dict[str, Curves]) -> None:
    """The figures that the targets are about, as the last line."""
    values: dict[str, Value] = {}
    targets, holds = {}, True
    for level in LOW_NOISE:
        row = {name: outcomes[levels.index(level)] for name, outcomes in panels[EVERY].items()}
        for name, outcome in row.items():
            median = outcome.median if math.isfinite(outcome.median) else None
            values[f"{name.replace(' ', '_').lower()}_steps_noise_{level}"] = median
        stage, answer = row["SS-GRPO"], row["answer only"]
        share = stage.median / min(answer.median, MOST)
        values[f"share_of_medians_noise_{level}"] = round(share, 3) if share <= MOST else None
        values[f"share_of_means_noise_{level}"] = round(stage.mean / answer.mean, 3)
        targets[f"share_of_medians_noise_{level}"] = f"<= {MOST_SHARE}"
        holds = holds and share <= MOST_SHARE
    values["crossing_noise_every_score"] = crossing(levels, panels[EVERY])
    values["crossing_noise_all_but_the_answer"] = crossing(levels, panels[PROCESS])
    chain = draw_chain(np.random.default_rng(0), DEFAULT)
    values["noise_the_theorem_allows"] = round(allowed_noise(chain, PAPER), 4)
    emit("credit", values, targets, holds, measured)


def how(seeds: int) -> str:
    return (
        f"{seeds} seeds, rates {RATES[0]:g} to {RATES[-1]:g} chosen on "
        f"seeds {TUNING_SEEDS[0]}-{TUNING_SEEDS[-1]}, at most {MOST} steps, groups of {GROUP}, "
        f"{DEFAULT}, {os.cpu_count()} cores"
    )


def everything(
    measured: str,
    levels: Sequence[float],
    panels: dict[str, Curves],
    varied: Sequence[tuple[Kind, dict[str, Outcome]]],
) -> dict[str, object]:
    """All that was measured, as JSON; null where the goal was not reached."""

    def to_record(outcome: Outcome) -> dict[str, object]:
        steps = [s if math.isfinite(s) else None for s in outcome.steps]
        return {"rate": outcome.rate, "steps": steps}

    return {
        "how": measured,
        "levels": list(levels),
        "noise": {
            panel: {name: [to_record(o) for o in outcomes] for name, outcomes in curves.items()}
            for panel, curves in panels.items()
        },
        "environments_without_noise": [
            {**asdict(kind), "arms": {name: to_record(o) for name, o in row.items()}}
            for kind, row in varied
        ],
    }


if __name__ == "__main__":
    main()
