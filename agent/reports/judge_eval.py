"""An evaluation of a judge on the terminal: shares with their intervals, then the sections."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.reports.printable import one_line
from judge.evaluation.agreement import Agreement
from judge.evaluation.report import CriteriaReport, ListedReport, Report, TagScore, shares_of
from judge.evaluation.rewardbench import SectionScores
from judge.evaluation.rm_bench import RmBenchScores
from judge.evaluation.shares import Share
from memory.schema import Usage

PIPED_WIDTH = 120
"""columns of a table that goes into a file or a pipe"""


def print_report(report: Report, console: Console | None = None) -> None:
    """A line of facts, the shares, what the set's own rules give, and the cost."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(f"{report.judge} on {report.data}"), style="bold"))
    console.print(Text(_size(report), style="dim"))
    console.print(_shares(shares_of(report)))
    for table in _of_the_set(report):
        console.print(table)
    console.print(Text(_cost(report.usage), style="dim"))


def _size(report: Report) -> str:
    if isinstance(report, CriteriaReport):
        return f"{report.agreement.criteria} criteria, {report.agreement.labels} labels"
    if isinstance(report, ListedReport):
        return f"{report.answers} answers, {report.unscored} of them without a score"
    return f"{report.measures.pairs} pairs, {report.measures.comparisons} comparisons"


def _shares(rows: Sequence[tuple[str, Share]]) -> Table:
    table = Table("measure", "share", "95% interval", "of")
    for name, share in rows:
        interval = f"{share.low:.3f} - {share.high:.3f}"
        table.add_row(Text(one_line(name)), number(share.value), interval, str(share.n))
    return table


def _of_the_set(report: Report) -> list[Table]:
    """What the set's own rules give."""
    if isinstance(report, CriteriaReport):
        return [_agreement({"all": report.agreement, **report.subsets})]
    if isinstance(report, ListedReport):
        overall = {"overall": report.overall} if report.overall else {}
        return [_tags({**overall, **report.tags})]
    tables = []
    if report.rewardbench:
        tables.append(_sections(report.rewardbench))
    if report.rm_bench:
        tables.append(_matrices(report.rm_bench))
    return tables


def _sections(scores: SectionScores) -> Table:
    table = Table("RewardBench", "score", caption=_missing(scores))
    for name, value in scores.sections.items():
        table.add_row(name, number(value))
    table.add_row("overall", number(scores.overall))
    return table


def _missing(scores: SectionScores) -> str:
    return f"{len(scores.missing)} of its subsets are not here" if scores.missing else ""


def _matrices(scores: RmBenchScores) -> Table:
    table = Table("RM-Bench", "hard", "normal", "easy", "mean")
    for name, domain in scores.domains.items():
        levels = (domain.hard, domain.normal, domain.easy, domain.mean)
        table.add_row(Text(name), *map(number, levels))
    table.add_row("total", *map(number, (scores.hard, scores.normal, scores.easy, scores.total)))
    return table


def _agreement(found: Mapping[str, Agreement]) -> Table:
    table = Table("criteria", "F1 met", "F1 not met", "balanced F1", "labels")
    for name, one in found.items():
        values = (one.met.f1, one.not_met.f1, one.balanced_f1)
        table.add_row(Text(one_line(name)), *map(number, values), str(one.labels))
    return table


def _tags(found: Mapping[str, TagScore]) -> Table:
    table = Table("HealthBench", "score", "error", "answers")
    for name, score in found.items():
        row = (number(score.mean), number(score.error), str(score.answers))
        table.add_row(Text(one_line(name)), *row)
    return table


def _cost(usage: Usage) -> str:
    if not usage.calls:
        return "no calls"
    tokens = f"{usage.prompt_tokens} prompt and {usage.completion_tokens} completion tokens"
    price = "of unknown cost" if usage.cost is None else f"for ${usage.cost:.4f}"
    return f"{usage.calls} calls, {tokens}, {price}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
