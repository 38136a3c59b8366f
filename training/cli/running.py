"""What all long-running commands share: how they report progress, and what ends them early."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import click

from rubricem.agent.cli.terminal import INTERRUPTED, Interrupts
from rubricem.memory.errors import import_extra

T = TypeVar("T")
PARTIAL = 3
"""exit status of what its limit of money ended"""


def can_train(ctx: click.Context, param: click.Parameter, given: T) -> T:
    """What was given, where there is what trains: torch, and what reads and writes weights."""
    for module in ("torch", "transformers", "safetensors", "gguf"):
        import_extra(module, "train", "Training")
    return given


def run(
    work: Callable[[Interrupts], Awaitable[T]],
    ending: str,
    loop: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """What the work gives; exits where it was ended before, in a sentence.

    `ending`: what the first ^C does while the work is `running`; otherwise it stops at once.
    """
    from rubricem.training.collect.gate import GO_ON, RunStopped

    async def watch() -> T:
        interrupts = Interrupts(partial(echo, err=True), ending)
        # A job that is preempted, and torchrun whose other process has ended, send SIGTERM.
        with interrupts.catch(signal.SIGTERM):
            return await work(interrupts)

    try:
        return loop(watch())
    except asyncio.CancelledError:
        echo(f"\nStopped at once. {GO_ON}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunStopped as stopped:
        echo(stopped.told(), err=True)
        raise SystemExit(INTERRUPTED if stopped.by_person else PARTIAL) from None


def tell(line: str) -> None:
    """Print a line on standard error that a terminal takes for nothing else."""
    from rubricem.memory.text import printable

    echo(printable(line), err=True)


def echo(text: str, err: bool = False) -> None:
    """Of the processes that torchrun starts, the first tells."""
    if is_first():
        click.echo(text, err=err)


def is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"
