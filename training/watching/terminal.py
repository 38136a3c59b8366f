"""A training on the terminal: facts, a table of its last steps, and the held-out questions."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.reports.printable import one_line
from memory.schema import Stage
from training.run_page_terminal import LAST, PIPED_WIDTH
from training.watching.figures import GIGABYTE, number
from training.watching.kept import KeptNumbers
from training.watching.summary import PAIR_HEADS, about, asked_rows, facts, pair_rows, shown

_COLUMNS = (
    ("loss", "loss", ".4g"),
    ("grad norm", "grad_norm", ".3g"),
    ("rate", "rate", ".2g"),
    ("KL old", "kl_old", ".2g"),
    ("KL ref", "kl_reference", ".2g"),
    ("clipped", "clipped", ".1%"),
    *((stage.value, f"reward/{stage}/mean", ".2f") for stage in Stage),
    ("unscored", "unscored_share", ".0%"),
    ("right", "right", ".0%"),
    ("malformed", "malformed", ".0%"),
    ("written", "tokens/policy/mean", ",.0f"),
    ("stale", "staleness/mean", ".1f"),
    ("tokens/s", "tokens_per_second", ",.0f"),
    ("GB", "gigabytes", ".1f"),
)


def print_training(kept: KeptNumbers, title: str, console: Console | None = None) -> None:
    """Facts, the last steps, and every asking of the held-out questions."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(title), style="bold"))
    console.print(Text(one_line(about(kept)), style="dim"))
    told = (f"{name} {value}{f' ({more})' if more else ''}" for name, value, more in facts(kept))
    console.print(Text("; ".join(told), style="dim"))
    if kept.steps:
        console.print(_steps(kept))
    if kept.held_out:
        heads = ("after", "questions", *Stage, "unscored", "malformed")
        console.print(_table("held-out questions, mean scores (95%)", heads, asked_rows(kept)))
    if kept.pairs:
        console.print(_table("held-out pairs, shares (95%)", PAIR_HEADS, pair_rows(kept)))


def _steps(kept: KeptNumbers) -> Table:
    """The columns that have a value in any of the last steps."""
    last = [
        (step, {**metrics, "clipped": _clipped(metrics), "gigabytes": _gigabytes(metrics)})
        for step, metrics in kept.steps[-LAST:]
    ]
    there = [c for c in _COLUMNS if any(number(m, c[1]) is not None for _, m in last)]
    rows = [
        [f"{step}", *(shown(number(m, name), form).replace("none", "-") for _, name, form in there)]
        for step, m in last
    ]
    table = _table("", [kept.unit, *(head for head, _, _ in there)], rows)
    if len(kept.steps) > LAST:
        table.caption = f"the last {LAST} of {len(kept.steps)} {kept.unit}s"
    return table


def _clipped(metrics: dict[str, float]) -> float | None:
    low, high = number(metrics, "clipped_low"), number(metrics, "clipped_high")
    return None if low is None and high is None else (low or 0.0) + (high or 0.0)


def _gigabytes(metrics: dict[str, float]) -> float | None:
    peak = number(metrics, "memory_peak")
    return None if peak is None else peak / GIGABYTE


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    return table
