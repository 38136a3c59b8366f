"""`rubricem export`, which writes what a run collected as a trainer reads it, and
`rubricem runs show FOLDER`, which tells what a run collected or how a training went.
"""

import json
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import one_of

FORMS = ("rows", "sft", "trl", "pairs")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@one_of(
    "--to",
    "form",
    kinds=FORMS,
    said="Training rows, accepted conversations, those in ids for TRL, or preference pairs.",
)
@click.option("-o", "--out", type=Path, metavar="PATH", help="Where (beside the run's own files).")
@one_of(
    "--credit",
    kinds=("ss-grpo", "answer-only", "sum"),
    said="Which scores a stage is credited with; the first stage's return ranks pairs.",
)
@click.option("--model", help="The model to train, for text that has no token ids.")
@click.option(
    "--rule",
    "rules",
    type=click.Choice(["citation", "support", "all-support"]),
    multiple=True,
    help="of what is imitated: also reject cites of what was never found, answers with no "
    "supported cite, or with one that is not.",
)
@click.option(
    "--min-return", type=float, help="Of sft and trl: leave out runs with a lower return."
)
@click.option(
    "--min-support", type=click.FloatRange(0, 1), help="And those whose claims are less supported."
)
@click.option("--best", is_flag=True, help="And all but the best of each group.")
def export(run: Path, form: Any, out: Path | None, rules: tuple[str, ...], **flags: Any) -> None:
    """Write what the collecting run RUN has finished in the form that a trainer reads."""
    from rubricem.agent.settings import load_settings
    from rubricem.agent.transcript.scaffold import Rule
    from rubricem.training.rows.forms import ExportOptions, export_run

    options = ExportOptions(
        rules=frozenset(map(Rule, rules)), weights_dir=load_settings().weights_dir, **flags
    )
    for line in export_run(run, form, out, options):
        click.echo(line)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
def show_folder(folder: Path, as_json: bool) -> None:
    """Show the run or the training in FOLDER."""
    from rubricem.memory.text import printable
    from rubricem.training.collect.directory import RunDirectory
    from rubricem.training.show.collected import RunNumbers, run_numbers
    from rubricem.training.show.training import KeptNumbers, read_numbers

    numbers: RunNumbers | KeptNumbers
    if (folder / "run.json").is_file() and not (folder / "manifest.json").exists():
        numbers = read_numbers(folder)
    else:
        numbers = run_numbers(RunDirectory(folder))
    if as_json:
        click.echo(json.dumps(numbers.as_json(), ensure_ascii=False, indent=1))
    for line in [] if as_json else numbers.lines():
        click.echo(printable(line))
