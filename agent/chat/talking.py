"""The chat from its first prompt to its last: on a terminal, or line by line from a pipe."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from agent.auto_source import with_default_source
from agent.chat.answering import FAILED, ask
from agent.chat.commands import COMMANDS
from agent.chat.conversing import Conversing
from agent.chat.slash import Talk, one_of, split
from agent.chat.terminal import Terminal
from agent.chat.threads import open_thread
from agent.commands.interrupting import INTERRUPTED, Interrupts
from agent.commands.terminal_person import NOBODY_HERE
from agent.conversations.store import ConversationStore
from agent.learnable import queued
from agent.settings import load_settings
from memory.errors import RubricemError, SettingsError
from memory.runs import RunStore

LATEST = "-"
"""in the place of a thread: the one that was changed last"""


async def talk_with(flags: dict[str, Any], thread: str, after: str, *, quiet: bool) -> int:
    """Talk until the person leaves or the input ends; the exit status.

    `thread`: the one to begin in, `LATEST`, or "" for a new one; `after`: a run to go on after.
    """
    from agent.checkpointing import open_saver
    from agent.clients import open_researcher

    # What the event loop puts in its place would only end the chat at the second ^C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings = with_default_source(load_settings(flags))
    conversations = ConversationStore(settings.data_dir)
    begin_in = _begun(conversations, thread) if thread else ""
    if after:
        # A run that is not there is told, before a thread is made for it.
        RunStore(settings.data_dir).request(after)
        begin_in = conversations.after(after).id
    terminal = Terminal(quiet=quiet)
    async with AsyncExitStack() as stack:
        with terminal.waiting("opening"):
            opening = open_researcher(settings, terminal.hear)
            researcher = await stack.enter_async_context(opening)
            if settings.checkpoints:
                saver = open_saver(settings.checkpoints.get_secret_value())
                researcher.saver = await stack.enter_async_context(saver)
        talk = Talk(Conversing(researcher, settings, dict(flags), conversations), terminal)
        if begin_in:
            await open_thread(talk, begin_in)
        await _talk(talk)
        _tell_left(talk)
        return 0 if terminal.attended else talk.worst


def _tell_left(talk: Talk) -> None:
    """How the thread is gone on with, and what of it can be learnt from."""
    thread, settings = talk.conversing.thread, talk.conversing.settings
    if talk.terminal.attended and thread:
        talk.terminal.tell(f"Go on with this thread: rubricem chat --resume {thread.id}")
    if settings.memory == "on" and (waiting := len(queued(RunStore(settings.data_dir)))):
        talk.terminal.tell(
            f"{waiting} run{'' if waiting == 1 else 's'} can be learnt from: rubricem learn"
        )


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
    attended, settings = talk.terminal.attended, talk.conversing.settings
    if attended:
        talk.terminal.say("Ask a question; /help lists the commands, ^D leaves.", style="dim")
    elif settings.approve_plan or settings.clarify:
        talk.terminal.tell(NOBODY_HERE)
    async for line in _entered(talk) if attended else _piped():
        if line.strip():
            done = await _worked(talk, line)
            if not done and not attended:
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
