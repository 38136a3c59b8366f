"""`rubricem chat`: questions that build on earlier ones, on a terminal or line by line from a pipe.

A run is recorded and added to its conversation before any work is done for it: whatever ends the
process, the question is there when the conversation is opened again. The first ^C ends a run with
what it has so far; a second one, or one without a run in progress, abandons the work at once, and
the chat goes on.

What is imported for a talk is imported once there is one: the command is listed without it.
"""

import asyncio
from typing import Any

import click

from rubricem.agent.cli.ask import LATEST
from rubricem.agent.cli.options import QUIET, set_option, setting_flags


@click.command()
@setting_flags("model", "base_url", "source")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    default="",
    metavar="[ID]",
    help="Continue a conversation, or after a run; the latest conversation if none is named.",
)
@QUIET
@set_option
def chat(resume: str, quiet: bool, **flags: Any) -> None:
    """Ask questions in a conversation: each knows the reports and sources before it.

    Without a terminal, standard input is read line by line: a question or a slash command each.
    The exit status is 1 if one failed, 3 if one ended early.
    """
    from rubricem.agent.chat.talk import talk_with

    if status := asyncio.run(talk_with(flags, resume, quiet=quiet)):
        raise SystemExit(status)
