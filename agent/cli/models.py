"""`rubricem models`: list, fetch, check and remove model weights.

What fetches and hashes is imported by the commands, so that `--help` stays fast. A fetch is shown
on standard error: a bar on a terminal, a plain line at each new step elsewhere.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from rubricem.agent.weights.catalogue import OnProgress, unseen

if TYPE_CHECKING:
    from rubricem.agent.weights.store import WeightsStore


def _store(on_progress: OnProgress = unseen) -> "WeightsStore":
    from rubricem.agent.settings import load_settings
    from rubricem.agent.weights.store import WeightsStore

    return WeightsStore(load_settings().weights_dir, on_progress)


@click.group()
def models() -> None:
    """List, fetch, check and remove model weights."""


@models.command("list")
def list_() -> None:
    """List the weights known by name and those fetched from the hub."""
    store = _store()
    for row in store.listed():
        weights = row.weights
        names = ", ".join((weights.name, *weights.aliases))
        size = f"{weights.size / 1e6:,.0f} MB"
        click.echo(f"{names:40} {size:>10}  {weights.licence:12} {row.state}")
    click.echo(f"in {store.directory}")


@models.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Fetch NAME (known, or org/repo[:file.gguf] of the hub); damaged weights are replaced."""
    with shown_fetch(name) as on_progress:
        folder = asyncio.run(_store(on_progress).fetch_named(name))
    click.echo(f"{name} is in {folder}")


@models.command()
@click.argument("name", required=False)
def check(name: str | None) -> None:
    """Hash the weights again: NAME, or all that are on disk."""
    with shown_fetch(name or "weights") as on_progress:
        checked = _store(on_progress).check(name)
    for weights, damage in checked:
        verdict = "damaged" if damage else f"whole (SHA-256 {weights.files[0].sha256})"
        click.echo(f"{weights.name}: {verdict}")
    for damage in filter(None, (damage for _, damage in checked)):
        raise damage


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the weights of NAME from the disk."""
    freed = _store().remove(name)
    click.echo(f"{name}: {freed / 1e6:,.0f} MB freed" if freed else f"{name} was not on disk")


@contextmanager
def shown_fetch(name: str, console: Console | None = None) -> Iterator[OnProgress]:
    """An `OnProgress` that draws; nothing is drawn when nothing has to be fetched."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(name, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        yield _bar(name, bar)


def _plain_lines(name: str, console: Console) -> OnProgress:
    said = ""

    def on_progress(done: int, total: int, doing: str) -> None:
        nonlocal said
        if doing != said:
            said = doing
            console.print(f"{name}: {doing} ({done >> 20} of {total >> 20} MiB)", soft_wrap=True)

    return on_progress


def _bar(name: str, bar: Progress) -> OnProgress:
    task = bar.add_task(name, total=None, visible=False)

    def on_progress(done: int, total: int, doing: str) -> None:
        description = f"{name}: {doing}"
        bar.update(task, completed=done, total=total, description=description, visible=True)

    return on_progress
