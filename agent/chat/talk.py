"""A person's talk in one conversation: what is asked, what is shown, and six slash commands."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rubricem.agent.cli import terminal
from rubricem.agent.cli.ask import LATEST
from rubricem.agent.cli.runs import UNFINISHED, ListedRun
from rubricem.agent.learning.lessons import find_queued
from rubricem.agent.record.conversations import Conversation, ConversationStore
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.display import live_view, print_report
from rubricem.agent.reports.page import write_report
from rubricem.agent.reports.report import whereabouts
from rubricem.agent.research.researcher import Researcher, ask_of, new_thread
from rubricem.agent.research.setup import Setup, open_researcher, reserve, resolve_auto
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.transcript.question import Ask, check_question
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Status, Trajectory
from rubricem.memory.text import one_line, pluralise, printable

FAILED, PARTIAL = 1, 3


def tell(line: str) -> None:
    """Print a line beside the answers."""
    click.echo(printable(line), err=True)


@dataclass
class Talk:
    """A talk and its conversation; None: the next question begins one."""

    setup: Setup
    researcher: Researcher
    conversations: ConversationStore
    quiet: bool = False
    console: Console = field(default_factory=lambda: Console(highlight=False))
    conversation: Conversation | None = None
    last: Trajectory | None = None
    over: bool = False
    status: int = 0
    interrupts: terminal.Interrupts = field(default_factory=lambda: terminal.Interrupts(tell))

    @property
    def runs(self) -> tuple[str, ...]:
        return self.conversation.runs if self.conversation else ()

    def say(self, text: str) -> None:
        click.echo(printable(text))

    async def work(self, line: str) -> bool:
        """Whether an input was processed to its end; errors are printed."""
        self.interrupts = terminal.Interrupts(tell)

        async def act() -> None:
            with self.interrupts.catch():
                await (self._command(line) if line.lstrip().startswith("/") else self.ask(line))

        task = asyncio.create_task(act())
        await asyncio.wait({task})
        self.interrupts.finish()
        if task.cancelled():
            tell("Stopped. /resume continues the question.")
            return False
        try:
            task.result()
        except RubricemError as error:
            self.status = FAILED
            tell("\n".join(filter(None, (f"error: {error}", error.remedy))))
        return True

    async def _command(self, line: str) -> None:
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        if name not in COMMANDS:
            known = ", ".join(f"/{each}" for each in COMMANDS)
            raise SettingsError(
                f"There is no command /{one_line(name, 40)}.",
                f"There are {known}; a question needs no slash.",
            )
        await COMMANDS[name][0](self, argument.strip())

    async def ask(self, question: str) -> None:
        run, question = new_thread(), check_question(question)
        ask = await asyncio.to_thread(reserve, self.setup, run, question, self.runs)
        here, store = self.conversation.id if self.conversation else None, self.setup.stores.runs
        self.conversation = await asyncio.to_thread(self.conversations.take_in, here, run, store)
        await self.run(run, ask)

    async def run(self, run: str, ask: Ask) -> None:
        person, _ = terminal.person_here(self.interrupts)
        with live_view(ask.question, quiet=self.quiet) as view, self.interrupts.running() as stop:
            ended = await self.researcher.ask(ask, run, view, stop, person)
        self.last = ended
        if ended.status is Status.FAILED:
            self.status = FAILED
            tell(f"error: {ended.reason}\nOnce that is mended, continue with: /resume")
            return
        print_report(ended, self.console, titled=not is_attended())
        if ended.status is Status.PARTIAL:
            self.status = self.status or PARTIAL
            if not self.setup.stores.runs.whole(ended.thread):
                tell("Continue with: /resume")

    def unfinished(self) -> str | None:
        """The latest run of the conversation that did not come to its end."""
        store = self.setup.stores.runs
        return next((run for run in reversed(self.runs) if not store.whole(run)), None)

    async def open(self, conversation: Conversation) -> None:
        self.conversation, store = conversation, self.setup.stores.runs
        for number, run in enumerate(conversation.runs, 1):
            listed = ListedRun.of(store, run)
            status = "interrupted" if listed.status == UNFINISHED else listed.status
            self.say(f"{number:>3}  {one_line(listed.question or run, 80)}  ({status})")
            self.last = listed.trajectory or self.last
        with suppress(RubricemError):
            if self.unfinished():
                self.say("/resume continues the question that has not ended.")


def is_attended() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


async def _new(talk: Talk, argument: str) -> None:
    talk.conversation = talk.last = None
    talk.say("The next question begins a new conversation.")


def _answered(talk: Talk) -> Trajectory:
    if talk.last is None:
        raise SettingsError("There is no answer in this conversation yet.", "Ask a question first.")
    return talk.last


async def _sources(talk: Talk, argument: str) -> None:
    answer = cited_answer(_answered(talk))
    for number, source in enumerate(answer.sources, 1):
        talk.say(f"[{number}] {one_line(source.title, 90)}\n    {', '.join(whereabouts(source))}")
        for citation in answer.of(source):
            talk.say(f"    {citation.verdict}: {one_line(citation.claim)}")
            talk.say("".join(f"      {one_line(quote)}\n" for quote in citation.quotes).rstrip())
    if not answer.sources:
        talk.say("The answer cites no source.")


async def _save(talk: Talk, argument: str) -> None:
    ended = _answered(talk)
    path = Path(argument or f"rubricem-{ended.thread}.md").expanduser()
    write_report(ended, path)
    talk.say(f"written: {path}")


async def _resume(talk: Talk, argument: str) -> None:
    run = await asyncio.to_thread(talk.unfinished)
    if run is None:
        raise SettingsError("Every question here has ended.", "Ask the next one.")
    request = await asyncio.to_thread(talk.setup.stores.runs.request, run)
    # Under the budgets in force: a run that has spent its own goes on with as much again.
    await talk.run(run, replace(ask_of(request), budgets=talk.setup.budgets))


async def _help(talk: Talk, argument: str) -> None:
    for name, (_, said) in COMMANDS.items():
        talk.say(f"  /{name:<10}{said}")
    talk.say("^C ends a run with what there is, ^C again abandons it, ^D leaves.")


async def _quit(talk: Talk, argument: str) -> None:
    talk.over = True


COMMANDS: dict[str, tuple[Callable[[Talk, str], Awaitable[None]], str]] = {
    "new": (_new, "begin a new conversation"),
    "sources": (_sources, "what the answer cites: claims, verdicts, passages"),
    "save": (_save, "write the report: [FILE], its ending says the form"),
    "resume": (_resume, "continue the question that has not ended"),
    "help": (_help, "this list"),
    "quit": (_quit, "leave; the conversation stays (also ^D)"),
}


async def talk_with(flags: dict[str, Any], resume: str, *, quiet: bool) -> int:
    """Talk until the person leaves or the input ends; returns the exit status.

    `resume`: the conversation or run to go on after, `LATEST`, or "" for a new conversation.
    """
    # What the event loop puts in its place would only end the chat at the second ^C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setup = setup_of(with_default_source(load_settings(flags)))
    conversations = ConversationStore(setup.stores.data_dir)
    begin_in = _find(conversations, setup, resume) if resume else None
    if begin_in and not flags.get("source"):
        setup = _with_its_sources(setup, begin_in)
    async with AsyncExitStack() as stack:
        with terminal.show_progress("opening", quiet=quiet) as progress:
            setup = await resolve_auto(setup, tell=progress)
            researcher = await stack.enter_async_context(open_researcher(setup, progress))
        talk = Talk(setup, researcher, conversations, quiet)
        if begin_in:
            await talk.open(begin_in)
        await _talk(talk)
    if is_attended() and talk.conversation:
        tell(f"Continue this conversation: rubricem chat --resume {talk.conversation.id}")
    if setup.memory == "on" and (waiting := len(find_queued(setup.stores.runs))):
        tell(f"{pluralise(waiting, 'run')} can be learnt from: rubricem learn")
    return 0 if is_attended() else talk.status


def _find(conversations: ConversationStore, setup: Setup, name: str) -> Conversation:
    """The conversation to begin in, made for a run that is in none. Raises SettingsError."""
    if name != LATEST:
        held = setup.stores.runs.holds(name)
        return conversations.after(name) if held else conversations.get(name)
    listing = conversations.list_all()
    if not listing.conversations:
        raise SettingsError(
            " ".join(["There is no conversation to continue.", *listing.problems]),
            "Start one: rubricem chat",
        )
    return listing.conversations[0]


def _with_its_sources(setup: Setup, conversation: Conversation) -> Setup:
    """The setup over what the conversation was last answered from, where that can be read."""
    with suppress(RubricemError, LookupError, TypeError):
        store, last = setup.stores.runs, conversation.runs[-1]
        names = store.request(last)["choices"]["source"]
        return setup if store.is_restored(last) else setup.with_sources(names, names)
    return setup


async def _talk(talk: Talk) -> None:
    if is_attended():
        talk.say("Ask a question; /help lists the commands, ^D leaves.")
    elif talk.setup.template.approve_plan or talk.setup.template.clarify:
        tell(terminal.NOBODY_HERE)
    async for line in _read_lines(talk):
        if line.strip() and not await talk.work(line) and not is_attended():
            talk.status = terminal.INTERRUPTED
            return
        if talk.over:
            return


async def _read_lines(talk: Talk) -> AsyncIterator[str]:
    """The lines of a pipe; of a terminal the inputs until ^D, where ^C empties the line."""
    if not is_attended():
        for piped in sys.stdin:
            yield piped
        return
    with suppress(ImportError):
        import readline  # noqa: F401 (has lines edited, and the earlier ones brought back)
    while True:
        try:
            # Nothing else goes on meanwhile, so the event loop may wait, too.
            yield input(f"{len(talk.runs) + 1}> ")
        except KeyboardInterrupt:
            click.echo()
        except EOFError:
            return
