"""The chat from its first prompt to its last: on a terminal, or line by line from a pipe."""

import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from agent.auto_source import with_default_source
from agent.chat.answering import FAILED, ask
from agent.chat.commands import COMMANDS
from agent.chat.conversing import Conversing
from agent.chat.slash import Talk, one_of, split
from agent.chat.terminal import Terminal
from agent.chat.threads import open_thread
from agent.commands.interrupting import INTERRUPTED, Interrupts
from agent.conversations.store import ConversationStore
from agent.settings import load_settings
from memory.errors import RubricemError, SettingsError

LATEST = "-"
"""in the place of a thread: the one that was changed last"""


async def talk_with(flags: dict[str, Any], thread: str, *, quiet: bool) -> int:
    """Talk until the person leaves or the input ends; the exit status.

    `thread`: the one to begin in, `LATEST`, or "" for a new one.
    """
    from agent.clients import open_researcher

    # What the event loop puts in its place would only end the chat at the second ^C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings = with_default_source(load_settings(flags))
    conversations = ConversationStore(settings.data_dir)
    begin_in = _begun(conversations, thread) if thread else ""
    terminal = Terminal(quiet=quiet)
    opening = open_researcher(settings, terminal.hear)
    with terminal.waiting("opening"):
        researcher = await opening.__aenter__()
    try:
        talk = Talk(Conversing(researcher, settings, dict(flags), conversations), terminal)
        if begin_in:
            await open_thread(talk, begin_in)
        await _talk(talk)
        return talk.worst
    finally:
        await opening.__aexit__(None, None, None)


def _begun(conversations: ConversationStore, thread: str) -> str:
    """The thread to begin in; raises SettingsError where there is none."""
    if thread != LATEST:
        return conversations.get(thread).id
    listing = conversations.listed()
    if not listing.conversations:
        raise SettingsError(
            " ".join(["There is no thread to go on with.", *listing.problems]),
            "Begin one: rubricem chat",
        )
    return listing.conversations[0].id


async def _talk(talk: Talk) -> None:
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if at_terminal:
        talk.terminal.say("Ask a question; /help lists the commands, ^D leaves.", style="dim")
    async for line in _entered(talk) if at_terminal else _piped():
        if line.strip():
            done = await _worked(talk, line)
            if not done and not at_terminal:
                talk.worst = INTERRUPTED
                return
        if talk.over:
            return


async def _worked(talk: Talk, line: str) -> bool:
    """Whether what was entered was worked on to its end; what is wrong with it is told."""

    async def work(interrupts: Interrupts) -> bool:
        if line.lstrip().startswith("/"):
            name, argument = split(line)
            await one_of(name, COMMANDS).act(talk, argument, interrupts)
        else:
            await ask(talk, line, interrupts)
        return True

    try:
        done = await talk.terminal.interruptible(work)
    except RubricemError as error:
        talk.worst = FAILED
        talk.terminal.tell("\n".join(filter(None, (f"error: {error}", error.remedy))))
        return True
    if not done:
        talk.terminal.tell("Stopped. /resume goes on with the question.")
    return bool(done)


async def _entered(talk: Talk) -> AsyncIterator[str]:
    """What the person enters, until they leave by ^D; ^C empties the line."""
    from agent.chat.line import open_line

    line = open_line(talk)
    while True:
        try:
            yield await line.prompt_async()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


async def _piped() -> AsyncIterator[str]:
    """The lines of standard input."""
    for line in sys.stdin:
        yield line
