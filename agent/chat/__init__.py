"""`rubricem chat`: questions that build on earlier ones, on a terminal or from a pipe.

The command is here, and not with the others, since the chat uses what they are made of.
"""

import asyncio
from typing import Any

import click

from rubricem.agent.cli.ask import LATEST, ask
from rubricem.memory.errors import SettingsError

_OF_ONE_QUESTION = ("question", "best_of", "out", "as_json", "thread", "resume", "debug")


@click.command(params=[each for each in ask.params if each.name not in _OF_ONE_QUESTION])
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    default="",
    metavar="[THREAD]",
    help="Continue a thread; the latest if none is named.",
)
@click.option(
    "--from",
    "after",
    default="",
    metavar="RUN",
    help="Continue after a run, such as one of rubricem ask.",
)
def chat(resume: str, after: str, quiet: bool, **flags: Any) -> None:
    """Ask questions in a thread: each knows the reports and sources before it.

    Without a terminal, standard input is read line by line: a question or a slash command each.
    The exit status is 1 if one failed, 3 if one ended early.
    """
    from rubricem.agent.chat.repl import talk_with

    if resume and after:
        raise SettingsError("--resume continues a thread, --from a run.", "Give one of them.")
    if status := asyncio.run(talk_with(flags, resume, after, quiet=quiet)):
        raise SystemExit(status)
