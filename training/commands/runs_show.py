"""`rubricem runs show FOLDER`: what a collecting run brought, on the terminal, as page or JSON."""

import json
from pathlib import Path

import click

PAGE = "run.html"
"""the page's name in the run's folder"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--html")
@click.option("--json", "as_json", is_flag=True)
def show_collected(folder: Path, html: str | None, as_json: bool) -> None:
    """Show the collecting run in FOLDER; `html` is a file, or "" for one in the folder."""
    from training.run_directory import RunDirectory
    from training.run_page_numbers import run_numbers

    run = run_numbers(RunDirectory(folder))
    title = folder.resolve().name
    if html is not None:
        from training.run_page import write_page

        path = Path(html) if html else folder / PAGE
        write_page(path, run, title)
        click.echo(f"in {path}", err=as_json)
    if as_json:
        from training.run_page_json import run_json

        click.echo(json.dumps(run_json(run), ensure_ascii=False, indent=1))
    elif html is None:
        from training.run_page_terminal import print_run

        print_run(run, title)
