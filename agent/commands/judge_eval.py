"""`rubricem judge eval`: how good a judge is, measured on labelled data."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from agent.settings import load_settings
from memory.errors import SettingsError

if TYPE_CHECKING:
    from judge.evaluation.report import Report

Kind = Literal["stage", "relative", "pairwise", "checklist"]
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("eval")
@click.argument("data", type=EXISTING)
@click.option("--judge", "kind", type=click.Choice(get_args(Kind)))
@click.option("--recorded", metavar="FILE", type=EXISTING, help="Count these; ask no model.")
@click.option(
    "--orders",
    type=click.Choice(["both", "one"]),
    default="both",
    show_default=True,
    help="Show each pair in both orders, or in one drawn by the seed.",
)
@click.option("--limit", type=click.IntRange(min=1), help="So many rows, drawn by the seed.")
@click.option("--seed", type=int, help="Of the draws.  [default: 0]")
@click.option(
    "--out", metavar="FILE", type=FILE, help="Keep verdicts here; go on from those there."
)
@click.option("--plot", metavar="FILE", type=FILE, help="Draw the shares into an SVG file.")
@click.option("--model", help="1.5b, 0.5b, a .gguf file, a checkpoint, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def evaluate(
    data: Path,
    kind: Kind | None,
    recorded: Path | None,
    orders: Literal["both", "one"],
    limit: int | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure a judge on DATA, a .json or .jsonl file of labelled answers.

    Read are pairs of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench (three
    of each); and for the checklist judge HealthBench's rows with a completion, or with its
    physicians' labels. Shares come with 95% intervals.
    """
    from agent.evaluating import judged_report, recorded_report

    report: Report
    if recorded is not None:
        report = recorded_report(data, recorded)
    elif kind is not None:
        settings = load_settings(flags)
        report = asyncio.run(judged_report(settings, data, kind, orders, limit, out, _counted))
    else:
        raise SettingsError("No judge is named.", "Add --judge pairwise, or --recorded FILE.")
    _show(report, plot, as_json)


def _show(report: "Report", plot: Path | None, as_json: bool) -> None:
    if plot is not None:
        from judge.evaluation.figure import figure
        from judge.evaluation.report import shares_of
        from memory.runs import write_atomically

        write_atomically(plot, figure(f"{report.judge} on {report.data}", shares_of(report)))
    if as_json:
        click.echo(report.model_dump_json())
        return
    from agent.reports.judge_eval import print_report

    print_report(report)
    if plot is not None:
        click.echo(f"drawn in {plot}")


def _counted(done: int, total: int) -> None:
    """A line that is written over, for who watches; a log would keep one for every verdict."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} verdicts", nl=done == total, err=True)
