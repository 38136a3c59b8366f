"""The steps of each arm over the judge's noise, as one figure of two panels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.credit.learning import MOST, Outcome

Curves = Mapping[str, Sequence[Outcome]]
COLOURS = {"SS-GRPO": "#0b6e4f", "answer only": "#b5482a", "identity": "#5b5f97"}


def draw(panels: Mapping[str, Curves], levels: Sequence[float], path: Path) -> None:
    """Write an SVG: medians, with bars over the middle half of the seeds; MOST is the ceiling."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "credit"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(9, 3.8), sharey=True, squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for shift, (name, outcomes) in enumerate(curves.items()):
            places = [level + 0.008 * (shift - 1) for level in levels]
            medians, below, above = _spans(outcomes)
            axis.errorbar(
                places,
                medians,
                yerr=(below, above),
                label=name,
                color=COLOURS[name],
                marker="o",
                capsize=2,
            )
        axis.axhline(MOST, color="grey", linewidth=0.8, linestyle=":")
        axis.set(title=title, xlabel="chance that a score is a guess", yscale="log")
    axes[0][0].set_ylabel("steps to 90% of the optimum")
    axes[0][0].legend(frameon=False)
    figure.text(0.99, 0.01, f"dotted: not reached in {MOST} steps", ha="right", size=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _spans(outcomes: Sequence[Outcome]) -> tuple[list[float], list[float], list[float]]:
    """Medians and how far the quartiles are below and above, all held at the ceiling."""
    quartiles = [
        np.percentile(np.minimum(outcome.steps, MOST), (25, 50, 75)) for outcome in outcomes
    ]
    medians = [float(middle) for _, middle, _ in quartiles]
    below = [float(middle - low) for low, middle, _ in quartiles]
    above = [float(high - middle) for _, middle, high in quartiles]
    return medians, below, above
