"""A command that works for long: how it tells and shows what it does, and what ends it early."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agent.commands.interrupting import INTERRUPTED, Interrupts

if TYPE_CHECKING:
    from training.watching.events import Watch

T = TypeVar("T")
PARTIAL = 3
"""exit status of what its limit of money ended"""


def run(
    work: Callable[[Interrupts], Awaitable[T]],
    ending: str,
    loop: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """What the work gives; exits where it was ended before, in a sentence.

    `ending`: what the first ^C does while the work is `running`; otherwise it stops at once.
    """
    from training.flow import GO_ON, RunStopped

    async def watched() -> T:
        interrupts = Interrupts(partial(echo, err=True), ending)
        with interrupts.caught():
            return await work(interrupts)

    try:
        return loop(watched())
    except asyncio.CancelledError:
        echo(f"\nStopped at once. {GO_ON}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunStopped as stopped:
        echo(f"{stopped} {stopped.remedy}", err=True)
        raise SystemExit(INTERRUPTED if stopped.by_person else PARTIAL) from None


def view(title: str, quiet: bool) -> "AbstractContextManager[tuple[Callable[[str], None], Watch]]":
    """Where a training is shown: on one process's terminal, or as lines."""
    from training.watching.console import training_view

    return training_view(title, tell, quiet=quiet or not _first())


def tell(line: str) -> None:
    """Print a line on standard error that a terminal takes for nothing else."""
    from agent.reports.printable import printable

    echo(printable(line), err=True)


def echo(text: str, err: bool = False) -> None:
    """Of the processes that torchrun starts, the first tells."""
    if _first():
        click.echo(text, err=err)


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"
