"""`rubricem runs show FOLDER`: what a collecting run brought, or how a training went.

On the terminal, as a page, as JSON; a training's numbers as TensorBoard's event files, too.
"""

import json
from pathlib import Path

import click

from memory.errors import SettingsError

PAGE = "run.html"
"""the page's name in the run's folder"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html")
@click.option("--tensorboard", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
def show_folder(folder: Path, html: str | None, tensorboard: Path | None, as_json: bool) -> None:
    """Show the run in FOLDER; `html` is a file, or "" for one in the folder."""
    from training.watching.kept import is_training

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
    from training.run_directory import RunDirectory
    from training.run_page_numbers import run_numbers

    run, title = run_numbers(RunDirectory(folder)), folder.resolve().name
    if page is not None:
        from training.run_page import write_page

        write_page(page, run, title)
        click.echo(f"in {page}", err=as_json)
    if as_json:
        from training.run_page_json import run_json

        _print_json(run_json(run))
    elif page is None:
        from training.run_page_terminal import print_run

        print_run(run, title)


def _show_training(
    folder: Path, page: Path | None, tensorboard: Path | None, as_json: bool
) -> None:
    from training.watching.kept import kept_numbers

    kept, title = kept_numbers(folder), folder.resolve().name
    if page is not None:
        from training.watching.page import write_training_page

        write_training_page(page, kept, title)
        click.echo(f"in {page}", err=as_json)
    if tensorboard is not None:
        from training.watching.event_files import event_log

        with event_log(tensorboard, kept):
            click.echo(f"in {tensorboard}: look at it by tensorboard --logdir", err=as_json)
    if as_json:
        from training.watching.summary import training_json

        _print_json(training_json(kept))
    elif page is None and tensorboard is None:
        from training.watching.terminal import print_training

        print_training(kept, title)


def _print_json(value: dict[str, object]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=1))
