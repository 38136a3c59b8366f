"""A collected run on the terminal: a table of its steps, what went wrong, and the widest groups."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.reports.printable import one_line
from agent.reports.report import duration
from memory.schema import Stage, Usage
from training.run_page_numbers import (
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    total,
    unscored_share,
)
from training.run_page_rollouts import Extremes

LAST = 20
"""steps that are shown"""
PIPED_WIDTH = 160
"""columns of a table that goes into a file or a pipe"""
MOST = 8
"""reasons of one kind that are shown"""


def print_run(run: RunNumbers, title: str, console: Console | None = None) -> None:
    """Facts, the last steps, reasons, and the best and worst of the groups farthest apart."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(title), style="bold"))
    for line in _facts(run):
        console.print(Text(line, style="dim"))
    if run.rollouts:
        console.print(_steps(run.steps))
    for line in run.variety.told():
        console.print(Text(line))
    for head, reasons in (
        ("failed", run.failures),
        ("ended early", run.early),
        ("broke a rejection rule", run.faults),
        ("stages unscored", run.unscored),
    ):
        _print_reasons(console, head, reasons)
    for found in run.extremes[:MOST]:
        console.print(Text(_extremes(found)))


def _facts(run: RunNumbers) -> list[str]:
    manifest, spent = run.manifest, total(run.usage().values())
    judge = f"judged by {manifest.judge} ({manifest.judge_kind})" if manifest.judge else "unjudged"
    return [
        one_line(f"{manifest.policy}, {manifest.decoding} decoding, {judge}"),
        f"{len(run.rollouts)} rollouts, {run.failures.total()} failed, in {run.groups} groups and "
        f"{len(run.steps)} steps of {run.asked} questions; {duration(run.seconds)}",
        f"{spent.completion_tokens:,} tokens written, {spent.prompt_tokens:,} read, "
        f"{_cost(spent) or 'nothing spent'}; {run.candidates} reflections, {run.accepted} accepted",
    ]


def _steps(steps: Sequence[StepNumbers]) -> Table:
    heads = ["step", "rollouts", "failed", *Stage, "unscored", "malformed", "searches", "tokens",
             "cost", "rubric"]  # fmt: skip
    table = Table()
    for head in heads:
        table.add_column(head, justify="right")
    for step in steps[-LAST:]:
        table.add_row(*_row(step))
    if len(steps) > LAST:
        table.caption = f"the last {LAST} of {len(steps)} steps"
    return table


def _row(step: StepNumbers) -> list[str]:
    rollouts = step.rollouts
    searches = mean([r.tool_calls for r in rollouts])
    written = mean([r.usage.completion_tokens for r in rollouts])
    return [
        str(step.step + 1),
        str(len(rollouts)),
        str(len(step.failures) or ""),
        *(_number(mean(step.scores(place)), ".2f") for place in range(len(Stage))),
        _number(unscored_share(rollouts), ".0%"),
        _number(malformed_share(rollouts), ".0%"),
        _number(searches, ".1f"),
        _number(written, ",.0f"),
        _cost(step.usage),
        f"+{step.changed('added', 'returned', 'pinned')} -{step.changed('retired')}",
    ]


def _print_reasons(console: Console, head: str, reasons: Counter[str]) -> None:
    for reason, count in reasons.most_common(MOST):
        console.print(Text(f"{count} {head}: {one_line(reason, 200) or 'no reason given'}"))
    if (others := len(reasons) - MOST) > 0:
        left = reasons.total() - sum(count for _, count in reasons.most_common(MOST))
        told = "another reason" if others == 1 else f"{others} other reasons"
        console.print(Text(f"{left} {head} for {told}"))


def _extremes(found: Extremes) -> str:
    best, worst = found.values
    return (
        f"step {found.step + 1}, {found.by} {best:.2f} ({found.best.thread}) against {worst:.2f} "
        f"({found.worst.thread}): {one_line(found.question, 80)}"
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _cost(usage: Usage) -> str:
    if not usage.calls:
        return ""
    return "no price known" if usage.cost is None else f"${usage.cost:.4f}"
