"""The curve: every figure at every asking, with its 95% interval."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.learns.figures import Asking, Interval
from rubricem.memory.schema import Stage


def draw(askings: Sequence[Asking], path: Path) -> None:
    """Write an SVG with the shares on the left and the stage scores on the right."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "learns"
    from matplotlib import pyplot

    figure, (shares, scores) = pyplot.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for what in ("valid", "fact"):
        _line(shares, what, [asking.share(what) for asking in askings])
    for stage in Stage:
        _line(scores, str(stage), [asking.score(stage) for asking in askings])
    for axes, title in ((shares, "share of the held-out questions"), (scores, "stage score")):
        axes.set_title(title)
        axes.set_xticks(range(len(askings)), [a.name.replace("_", "\n") for a in askings])
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _line(axes: object, label: str, figures: Sequence[Interval | None]) -> None:
    points = [(place, *figure) for place, figure in enumerate(figures) if figure is not None]
    if not points:
        return
    places, middle, low, high = zip(*points, strict=True)
    spread = [
        [max(m - lo, 0.0) for m, lo in zip(middle, low, strict=True)],
        [max(hi - m, 0.0) for m, hi in zip(middle, high, strict=True)],
    ]
    axes.errorbar(places, middle, yerr=spread, marker="o", capsize=3, label=label)  # type: ignore[attr-defined]
