"""The flags of what one question may take, for every command that has questions answered."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

BUDGETS = (
    click.option("--tool-calls", type=int, metavar="N", help="Searches at most (10)."),
    click.option("--max-total-tokens", type=int, metavar="N", help="Budget of tokens (200000)."),
    click.option("--max-seconds", type=float, metavar="S", help="Budget of time (900)."),
    click.option("--max-cost", type=float, metavar="USD", help="Budget of money (1); 0: no limit."),
)


def budgets(command: Command) -> Command:
    """The command with a flag for each budget; they are settings of the same names."""
    for option in reversed(BUDGETS):
        command = option(command)
    return command
