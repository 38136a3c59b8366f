"""`rubricem ask`: one question, answered on the terminal, in a file or as JSON."""

import asyncio
from pathlib import Path
from typing import Any

import click

from agent.commands.answering import answered
from agent.commands.budget_flags import budgets
from agent.commands.resuming import BUDGETS, LATEST, resumed
from agent.question import checked
from agent.settings import load_settings
from memory.errors import RubricemError, SettingsError
from memory.schema import Status, Trajectory

PARTIAL, INTERRUPTED = 3, 130
"""exit statuses; the others are those of every command"""


@click.command()
@click.argument("question", nargs=-1)
@click.option("--model", help="1.5b, 0.5b, a .gguf file, org/repo of the hub, or a server's model.")
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead.")
@click.option(
    "--source",
    multiple=True,
    help="`python`, `web`, `scholar`, `searxng:URL`, `auto`, or a folder of documents; repeatable.",
)
@click.option("--format", "answer_format", type=click.Choice(["long", "short", "exact"]))
@click.option("--decoding", type=click.Choice(["auto", "forced", "free"]))
@click.option("--retrieval", type=click.Choice(["lexical", "hybrid"]))
@click.option(
    "--memory",
    type=click.Choice(["on", "off", "read-only"]),
    help="Use what earlier runs taught (read-only); on: judge this run and learn from it too.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="HOST",
    help="A private host whose pages may be read; repeatable.",
)
@budgets
@click.option("--approve-plan", is_flag=True, default=None, help="Decide on the plan first.")
@click.option("--clarify", is_flag=True, default=None, help="Let the model ask you one question.")
@click.option(
    "--verify",
    type=click.Choice(["off", "mark", "repair"]),
    help="Check each claim against its source: mark what fails, or also repair the report.",
)
@click.option("--temperature", type=float)
@click.option("--seed", type=int)
@click.option(
    "--best-of",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Run the question N times and have a judge pick the best.",
)
@click.option(
    "--out", type=Path, metavar="FILE", help="Write the report: .md, .html, .pdf or .json."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--thread", help="Name the run; the same name goes on with it.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[THREAD]",
    help="Go on with a run that was interrupted or ran out of a budget; the latest without a name.",
)
def ask(
    question: tuple[str, ...],
    best_of: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Answer a research question with checked citations."""
    thread, resume = flags.pop("thread"), flags.pop("resume")
    if out is not None:
        from agent.reports.report import check_report_path

        check_report_path(out)
    asked = " ".join(question)
    if best_of > 1 and resume:
        raise SettingsError(
            "A resume goes on with one run, not with several.",
            "Leave out --best-of, or ask again with --thread and the name of before.",
        )
    if resume:
        thread, settings, asked = resumed(resume, asked, flags)
    else:
        settings = load_settings(flags)
    try:
        trajectory = asyncio.run(
            answered(settings, checked(asked), thread, quiet or as_json, best_of)
        )
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    _deliver(trajectory, out, as_json)
    if settings.memory == "on":
        from agent.commands.after_asking import learn_after

        learn_after(settings, trajectory, quiet=quiet or as_json)
    _tell_end(trajectory)


def _deliver(trajectory: Trajectory, out: Path | None, as_json: bool) -> None:
    from agent.reports.report import as_json as report_json
    from agent.reports.report import write_report

    if out is not None:
        write_report(trajectory, out)
    if as_json:
        import json

        click.echo(json.dumps(report_json(trajectory), ensure_ascii=False))
    elif trajectory.status is not Status.FAILED:
        from agent.reports.view import print_report

        print_report(trajectory)
    if trajectory.status is Status.FAILED:
        if as_json:
            raise SystemExit(1)
        raise RubricemError(
            trajectory.reason, f"Try again from where it ended: --resume {trajectory.thread}"
        )


def _tell_end(trajectory: Trajectory) -> None:
    """Exit with the status of a run that was ended early, and say how it goes on."""
    if trajectory.status is not Status.PARTIAL:
        return
    interrupted = trajectory.ended_by == "interrupt"
    resume = f"rubricem ask --resume {trajectory.thread}"
    if setting := BUDGETS.get(trajectory.ended_by):
        flag = f"--{setting.replace('_', '-')}"
        click.echo(f"Go on with a larger budget: {resume} {flag} ...", err=True)
    elif interrupted:
        click.echo(f"Go on with: {resume}", err=True)
    raise SystemExit(INTERRUPTED if interrupted else PARTIAL)
