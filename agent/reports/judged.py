"""A judgement on the terminal: each stage's score, and under it the verdicts with their reasons."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.reports.printable import one_line
from memory.schema import Judgement, StageScore, Trajectory, Verdict

LONGEST = 160
"""characters of a question or a justification"""
PIPED_WIDTH = 160
"""columns of a table that goes into a file or a pipe"""


def print_judgement(
    trajectory: Trajectory, judgement: Judgement, console: Console | None = None
) -> None:
    """A line of facts, then a table: stage, score, criterion, points, justification."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(trajectory.question, LONGEST), style="bold"))
    facts = f"run {trajectory.thread}, judged by {judgement.judge}"
    console.print(Text(f"{facts}, rubrics {judgement.rubric_version}", style="dim"))
    table = Table("stage", "score", "weight", "criterion", "points", "justification")
    for score in judgement.stages:
        for i, cells in enumerate(_rows(score)):
            shown = (score.stage.value, _number(score)) if i == 0 else ("", "")
            table.add_row(*(Text(cell) for cell in (*shown, *cells)))
        table.add_section()
    console.print(table)


def _rows(score: StageScore) -> Iterator[tuple[str, str, str, str]]:
    """A row for each verdict; without any, the reason."""
    if not score.verdicts:
        yield "", one_line(score.unscored_reason or score.justification), "", ""
    for verdict in score.verdicts:
        criterion = verdict.criterion
        sign = "" if criterion.positive else "-"
        kept = " (persistent)" if criterion.persistent else ""
        yield (
            f"{sign}{criterion.weight:g}",
            one_line(criterion.description) + kept,
            f"{verdict.points:.2g}",
            _reason(verdict),
        )


def _reason(verdict: Verdict) -> str:
    said = one_line(verdict.justification, LONGEST)
    if verdict.justified_by == "code":
        return f"found by code: {said}" if said else "no sentence of the stage speaks of it"
    return said


def _number(score: StageScore) -> str:
    if score.score is None:
        return "unscored"
    spread = "" if score.spread is None else f" ±{score.spread:.2f}"
    return f"{score.score:.2f}{spread}" + (" (missing)" if score.missing else "")
