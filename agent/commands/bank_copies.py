"""`rubricem bank snapshot` and `restore`: the bank as it stood, kept elsewhere."""

import asyncio
from pathlib import Path

import click

from agent.commands.bank_keeping import confirmed
from agent.commands.bank_view import counted, opened

FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@click.command()
@FOLDER
def snapshot(folder: Path) -> None:
    """Copy everything that cannot be made again into FOLDER, at one moment."""
    generation = asyncio.run(opened().snapshot(folder))
    click.echo(f"{counted(generation, 'event')} copied to {folder}")


@click.command()
@FOLDER
@click.option("--foreign", is_flag=True, help="Take another bank's copy, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(folder: Path, foreign: bool, yes: bool) -> None:
    """Go back to the copy in FOLDER. What was removed since stays removed."""
    bank = opened()
    now = asyncio.run(bank.generation())
    if now and not confirmed(f"Give up the bank as it is now ({counted(now, 'event')})?", yes):
        click.echo("the bank was left as it is")
        return
    generation = asyncio.run(bank.restore(folder, foreign=foreign))
    click.echo(f"the bank holds {counted(generation, 'event')} again")


COMMANDS = (snapshot, restore)
