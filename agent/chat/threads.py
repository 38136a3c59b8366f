"""Commands on threads: listed and opened, branched, named, gone on with, begun."""

import asyncio

from agent.chat.answering import go_on
from agent.chat.slash import Talk, Words, is_number, number_of
from agent.commands.interrupting import Interrupts
from agent.conversations.store import Conversation
from agent.reports.printable import one_line
from memory.errors import SettingsError

LISTED = 20
"""threads shown at most, the one talked in last first"""


async def threads(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """List the threads, or open one by its name or number in the list."""
    listing = await asyncio.to_thread(talk.conversing.conversations.listed)
    if argument:
        await open_thread(talk, _named(listing.conversations, argument))
        return
    here = talk.conversing.thread
    for number, thread in enumerate(listing.conversations[:LISTED], 1):
        mark = "*" if here and here.id == thread.id else " "
        when = thread.changed_at.astimezone().strftime("%Y-%m-%d %H:%M")
        count = f"{len(thread.runs)} question{'' if len(thread.runs) == 1 else 's'}"
        about = one_line(talk.conversing.title(thread), 60)
        branch = "  (branch)" if thread.parent else ""
        talk.terminal.say(f"{mark}{number:>3}  {thread.id}  {when}  {count:<12} {about}{branch}")
    for problem in listing.problems:
        talk.terminal.tell(problem)
    if not listing.conversations:
        talk.terminal.say("There is no thread yet: ask a question.")


async def open_thread(talk: Talk, identifier: str) -> None:
    """Go into a thread and say what was asked in it."""
    problems = await talk.conversing.open(identifier)
    thread = talk.conversing.thread
    assert thread is not None
    talk.terminal.say(one_line(talk.conversing.title(thread)), style="bold")
    questions = await asyncio.to_thread(talk.conversing.questions)
    for number, (question, status) in enumerate(questions, 1):
        talk.terminal.say(f"{number:>3}  {one_line(question, 80)}  ({status})")
    for problem in problems:
        talk.terminal.tell(problem)
    if await asyncio.to_thread(talk.conversing.unfinished):
        talk.terminal.say("/resume goes on with the question that has not come to its end.")


async def resume(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Go on with a run that was interrupted, failed or ran out of a budget."""
    thread = talk.conversing.thread
    if argument and not (thread and argument in thread.runs):
        await threads(talk, argument, interrupts)
    run = argument if thread and argument in thread.runs else None
    run = run or await asyncio.to_thread(talk.conversing.unfinished)
    if run is None:
        raise SettingsError(
            "There is nothing to go on with: every question here has come to its end.",
            "/threads lists the other threads.",
        )
    await go_on(talk, run, interrupts)


async def branch(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Go on from an earlier question in a thread of its own."""
    number = number_of(argument, "a question of this thread") if argument else None
    branched = await talk.conversing.branch(number)
    talk.terminal.say(
        f"A branch of {len(branched.runs)} question{'' if len(branched.runs) == 1 else 's'}; "
        "the other thread stays as it is."
    )


async def rename(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Give the thread a title."""
    if talk.conversing.thread is None:
        raise SettingsError("There is no thread yet.", "Ask a question first.")
    thread = await asyncio.to_thread(
        talk.conversing.conversations.rename, talk.conversing.thread.id, argument
    )
    talk.conversing.thread = thread
    talk.terminal.say(f"The thread is called: {talk.conversing.title(thread)}")


async def new(talk: Talk, argument: str, interrupts: Interrupts) -> None:
    """Let the next question begin a thread."""
    talk.conversing.leave()
    talk.terminal.say("The next question begins a new thread.")


def names(talk: Talk) -> Words:
    """Every thread, with what it is about."""
    listing = talk.conversing.conversations.listed()
    return [
        (thread.id, one_line(talk.conversing.title(thread), 50))
        for thread in listing.conversations[:LISTED]
    ]


def numbers(talk: Talk) -> Words:
    """The thread's questions by their numbers."""
    questions = talk.conversing.questions()
    return [(str(n), one_line(question, 50)) for n, (question, _) in enumerate(questions, 1)]


def _named(known: tuple[Conversation, ...], name: str) -> str:
    """The id that a name or number in the list means."""
    if any(thread.id == name for thread in known):
        return name
    if is_number(name) and 1 <= int(name) <= len(known):
        return known[int(name) - 1].id
    beginning = [thread.id for thread in known if thread.id.startswith(name)]
    return beginning[0] if len(beginning) == 1 else name
