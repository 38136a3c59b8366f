"""Views and exports of runs: `rubricem export`, `rubricem runs show FOLDER`, `rubricem loop`.

`export` writes what a run collected in the form that a trainer reads. `runs show` reports what a
collecting run produced, or how a training went: on the terminal, as a page or as JSON; a training's
metrics as TensorBoard event files, too. `loop` is a minimal pass through all parts, on one machine
without a key.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from rubricem.agent.cli.options import one_of
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import write_atomically

FORMS = ("rows", "sft", "trl", "verl", "pairs", "parquet", "hf", "jsonl")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@one_of(
    "--to",
    "form",
    kinds=FORMS,
    said="Training rows, accepted conversations, those in ids for TRL, questions for verl, "
    "preference pairs, a table, a Hugging Face dataset, or trajectories with their judgements.",
)
@click.option("--out", type=Path, metavar="PATH", help="Where (beside the run's own files).")
@one_of(
    "--of",
    kinds=("rows", "conversations", "trajectories"),
    said="parquet, hf: what the table holds.",
)
@one_of(
    "--credit",
    kinds=("ss-grpo", "answer-only", "dr-grpo", "identity", "sum"),
    said="Which scores a stage is credited with.",
)
@one_of(
    "--scaffold-ratio",
    kinds=("unscaffolded", "behaviour", "scaffolded"),
    said="rows: which prompts form the ratio of a rollout under a scaffold.",
)
@click.option("--model", help="The model to train, for text that has no token ids.")
@one_of(
    "--by",
    kinds=("return", "plan", "research", "review", "answer"),
    said="pairs: the score that ranks the members of a group.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0),
    default=0.1,
    show_default=True,
    help="pairs: least difference of the two.",
)
@click.option(
    "--rule",
    "rules",
    type=click.Choice(["citation", "support"]),
    multiple=True,
    help="of what is imitated: also reject cites of what was never found, or answers with no "
    "supported cite.",
)
def export(run: Path, form: Any, out: Path | None, rules: tuple[str, ...], **flags: Any) -> None:
    """Write what the collecting run RUN has finished in the form that a trainer reads."""
    from rubricem.agent.transcript.scaffold import Rule
    from rubricem.training.rows.forms import ExportOptions, export_run

    options = ExportOptions(rules=frozenset(map(Rule, rules)), **flags)
    for line in asyncio.run(export_run(run, form, out, options)):
        click.echo(line)


PAGE = "run.html"
"""the page's name in the run's folder"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html")
@click.option("--tensorboard", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
def show_folder(folder: Path, html: str | None, tensorboard: Path | None, as_json: bool) -> None:
    """Show the run in FOLDER; `html` is a file, or "" for one in the folder."""
    from rubricem.training.show import collected, console, pages, training

    page = None if html is None else Path(html) if html else folder / PAGE
    numbers: Any
    in_json: Callable[[Any], dict[str, Any]]
    page_of: Callable[[Any, str], str]
    show: Callable[[Any, str], None]
    if _is_training(folder):
        numbers, in_json = training.read_numbers(folder), training.KeptNumbers.as_json
        page_of, show = pages.training_page, console.print_training
    elif tensorboard is not None:
        raise SettingsError(
            f"{folder} is no folder of a training, and only those have event files.",
            "Name the `out` of a training's TOML file.",
        )
    else:
        from rubricem.training.collect.directory import RunDirectory

        numbers, in_json = collected.run_numbers(RunDirectory(folder)), collected.run_json
        page_of, show = pages.collected_page, console.print_collected
    title = folder.resolve().name
    if page is not None:
        write_atomically(page, page_of(numbers, title))
        click.echo(f"in {page}", err=as_json)
    if tensorboard is not None:
        with closing(console.TensorBoardLog(tensorboard, numbers)):
            click.echo(f"in {tensorboard}: look at it by tensorboard --logdir", err=as_json)
    if as_json:
        click.echo(json.dumps(in_json(numbers), ensure_ascii=False, indent=1))
    elif page is None and tensorboard is None:
        show(numbers, title)


def _is_training(folder: Path) -> bool:
    return (folder / "run.json").is_file() and not (folder / "manifest.json").exists()
