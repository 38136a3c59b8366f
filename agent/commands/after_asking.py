"""What `--memory on` adds once the answer is on the screen: learning from it, now or later.

A server learns at once. The embedded model takes a minute or more, so the run waits: whoever
sits at the terminal is asked, anybody else is told the command. Nothing here can take the
answer back; what fails, or is interrupted, leaves the run waiting.
"""

import sys

import click

from agent.choice import EmbeddedChoice, choose_policy
from agent.commands.learn import Tell, learn_all, learn_with
from agent.learnable import enter, queued
from agent.settings import Settings
from memory.errors import RubricemError
from memory.runs import RunStore
from memory.schema import Trajectory


def learn_after(settings: Settings, trajectory: Trajectory, *, quiet: bool) -> None:
    """Learn from a run that has just been shown, or say how."""
    tell = Tell(quiet=quiet, beside=True)
    store = RunStore(settings.data_dir)
    try:
        if why := enter(store, trajectory):
            tell.aside(why)
        elif isinstance(choose_policy(settings), EmbeddedChoice):
            _offer(store, tell)
        else:
            learn_with(settings, [trajectory.thread], tell)
    except RubricemError as error:
        tell.aside(f"nothing was learnt from this run: {error}")
    except KeyboardInterrupt:
        click.echo(
            "nothing was learnt from this run: it was interrupted. "
            f"Go on with: rubricem learn {trajectory.thread}",
            err=True,
        )


def _offer(store: RunStore, tell: Tell) -> None:
    waiting = queued(store)
    said = f"{len(waiting)} run{'' if len(waiting) == 1 else 's'} can be learnt from"
    if tell.quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"{said}: rubricem learn", err=True)
        return
    try:
        wanted = click.confirm(f"{said}: learn now?", err=True)
    except click.Abort:
        wanted = False
    if wanted:
        learn_all(store, waiting, {}, tell)
    else:
        click.echo("Later: rubricem learn", err=True)
