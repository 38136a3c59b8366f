"""What there is to see of runs: `rubricem export`, `rubricem runs show FOLDER`, `rubricem loop`.

`export` writes what a run collected in the form that a trainer reads. `runs show` tells what a
collecting run brought, or how a training went: on the terminal, as a page, as JSON; a training's
numbers as TensorBoard's event files, too. `loop` is one thin line through everything, on one
machine without a key.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import click

from rubricem.memory.errors import SettingsError

FORMS = ("rows", "sft", "pairs", "parquet", "hf", "jsonl")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMS),
    default="rows",
    show_default=True,
    help="Training rows, accepted conversations, preference pairs, a table, a Hugging Face "
    "dataset, or trajectories with their judgements.",
)
@click.option("--out", type=Path, metavar="PATH", help="Where (beside the run's own files).")
@click.option(
    "--of",
    type=click.Choice(["rows", "trajectories"]),
    default="rows",
    show_default=True,
    help="parquet, hf: what the table holds.",
)
@click.option(
    "--credit",
    type=click.Choice(["ss-grpo", "answer-only", "dr-grpo", "identity"]),
    default="ss-grpo",
    show_default=True,
    help="Which scores a stage is credited with.",
)
@click.option(
    "--scaffold-ratio",
    type=click.Choice(["unscaffolded", "behaviour", "scaffolded"]),
    default="unscaffolded",
    show_default=True,
    help="rows: what the ratio of a rollout under a rubric scaffold is formed of.",
)
@click.option("--model", help="The model to train, for text that has no token ids.")
@click.option(
    "--by",
    type=click.Choice(["return", "plan", "research", "review", "answer"]),
    default="return",
    show_default=True,
    help="pairs: what the best and the worst of a group are found by.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0),
    default=0.1,
    show_default=True,
    help="pairs: how far apart they are at least.",
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
    from rubricem.agent.research.scaffold import Rule
    from rubricem.training.rows.forms import ExportOptions, export_run, place_of

    options = ExportOptions(rules=frozenset(map(Rule, rules)), **flags)
    path = out or place_of(run, form, options)
    for line in asyncio.run(export_run(run, form, path, options)):
        click.echo(line)
    click.echo(f"in {path}")


PAGE = "run.html"
"""the page's name in the run's folder"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html")
@click.option("--tensorboard", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
def show_folder(folder: Path, html: str | None, tensorboard: Path | None, as_json: bool) -> None:
    """Show the run in FOLDER; `html` is a file, or "" for one in the folder."""
    from rubricem.training.show.training import is_training

    page = None if html is None else Path(html) if html else folder / PAGE
    if is_training(folder):
        _show_training(folder, page, tensorboard, as_json)
        return
    if tensorboard is not None:
        raise SettingsError(
            f"{folder} is no folder of a training, and only those have event files.",
            "Name the `out` of a training's TOML file.",
        )
    _show_collected(folder, page, as_json)


def _show_collected(folder: Path, page: Path | None, as_json: bool) -> None:
    from rubricem.training.collect.directory import RunDirectory
    from rubricem.training.show.collected import run_numbers

    run, title = run_numbers(RunDirectory(folder)), folder.resolve().name
    if page is not None:
        from rubricem.training.show.pages import write_collected_page

        write_collected_page(page, run, title)
        click.echo(f"in {page}", err=as_json)
    if as_json:
        from rubricem.training.show.collected import run_json

        _print_json(run_json(run))
    elif page is None:
        from rubricem.training.show.console import print_collected

        print_collected(run, title)


def _show_training(
    folder: Path, page: Path | None, tensorboard: Path | None, as_json: bool
) -> None:
    from rubricem.training.show.training import kept_numbers

    kept, title = kept_numbers(folder), folder.resolve().name
    if page is not None:
        from rubricem.training.show.pages import write_training_page

        write_training_page(page, kept, title)
        click.echo(f"in {page}", err=as_json)
    if tensorboard is not None:
        from rubricem.training.show.console import event_log

        with event_log(tensorboard, kept):
            click.echo(f"in {tensorboard}: look at it by tensorboard --logdir", err=as_json)
    if as_json:
        from rubricem.training.show.training import training_json

        _print_json(training_json(kept))
    elif page is None and tensorboard is None:
        from rubricem.training.show.console import print_training

        print_training(kept, title)


def _print_json(value: dict[str, object]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=1))


@click.command()
@click.option("--out", type=Path, default=Path("loop"), metavar="LOOP", help="Its folder (loop).")
def loop(out: Path) -> None:
    """Warm a small model up, collect, judge, reflect, train, and ask again; an hour or two.

    The same command goes on with an interrupted loop; what is finished is not repeated.
    """
    from rubricem.training.loop import run_loop
    from rubricem.training.loop.story import default_plan

    began = time.monotonic()

    def tell(line: str) -> None:
        click.echo(f"{(time.monotonic() - began) / 60:6.1f} min  {line}", err=True)

    click.echo(run_loop(out, default_plan(), tell))
