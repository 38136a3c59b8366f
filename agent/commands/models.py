"""`rubricem models`: list, fetch, check and remove model weights.

What fetches and hashes is imported by the commands, so that `--help` stays fast.
"""

import asyncio
from pathlib import Path

import click


def _directory() -> Path:
    from agent.settings import load_settings

    return load_settings().weights_dir


@click.group()
def models() -> None:
    """List, fetch, check and remove model weights."""


@models.command("list")
def list_() -> None:
    """List the weights known by name and those fetched from the hub."""
    from agent.weights.stored import listed

    directory = _directory()
    for row in listed(directory):
        weights = row.weights
        names = ", ".join((weights.name, *weights.aliases))
        size = f"{weights.size / 1e6:,.0f} MB"
        click.echo(f"{names:40} {size:>10}  {weights.licence:12} {row.state}")
    click.echo(f"in {directory}")


@models.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Fetch NAME (known, or org/repo[:file.gguf] of the hub); damaged weights are replaced."""
    from agent.weights.fetch_view import shown_fetch
    from agent.weights.resolving import fetch_named

    with shown_fetch(name) as on_progress:
        folder = asyncio.run(fetch_named(name, directory=_directory(), on_progress=on_progress))
    click.echo(f"{name} is in {folder}")


@models.command()
@click.argument("name", required=False)
def check(name: str | None) -> None:
    """Hash the weights again: NAME, or all that are on disk."""
    from agent.weights.fetch_view import shown_fetch
    from agent.weights.stored import check_stored

    with shown_fetch(name or "weights") as on_progress:
        checked = check_stored(name, directory=_directory(), on_progress=on_progress)
    for row in checked:
        verdict = "damaged" if row.damage else f"whole (SHA-256 {row.weights.files[0].sha256})"
        click.echo(f"{row.weights.name}: {verdict}")
    for row in checked:
        if row.damage:
            raise row.damage


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the weights of NAME from the disk."""
    from agent.weights.stored import remove

    freed = remove(name, _directory())
    click.echo(f"{name}: {freed / 1e6:,.0f} MB freed" if freed else f"{name} was not on disk")
