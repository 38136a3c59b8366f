"""A person's place in a conversation, and the terminal they use.

A run is recorded and added to its conversation before any work is done for it. Whatever ends the
process, the question is there when the conversation is opened again.

`Terminal` prints, shows and interrupts: the first ^C ends a run with what it has so far; a second
one, or one without a run in progress, abandons the work at once, and it can be continued later. The
chat itself goes on in either case.
"""

import asyncio
import base64
import copy
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from rubricem.agent.cli.runs import UNFINISHED, ListedRun
from rubricem.agent.cli.terminal import (
    HUNG_UP,
    Interrupts,
    leave_by_force,
    person_here,
    show_progress,
)
from rubricem.agent.models.policy import Policy
from rubricem.agent.reports.cited import CitedAnswer
from rubricem.agent.reports.display import live_view
from rubricem.agent.research.conversations import Conversation, ConversationStore
from rubricem.agent.research.researcher import Researcher, ask_of, new_thread
from rubricem.agent.research.setup import Setup, reserve
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.transcript.events import Event, Listener, PersonAsked, Tell, hush, tell_to
from rubricem.agent.transcript.question import Ask, Person
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import NO_USAGE, Trajectory, Usage
from rubricem.memory.text import one_line, printable


@dataclass
class ChatWatch:
    """Follows a run: sees what happens, can stop it, and answers its questions."""

    listener: Listener
    stop: asyncio.Event
    person: Person


class Terminal:
    """Standard output for what was asked for, standard error for its progress."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`attended`: a person types here, not a program."""
        self.quiet = quiet
        self.console = Console(highlight=False)
        self.attended = sys.stdin.isatty() and sys.stdout.isatty()
        self._told: Tell = hush
        self._interrupts = Interrupts(self.tell)

    def say(self, text: str | Text = "", style: str = "") -> None:
        """Print text of any origin as plain text."""
        shown = text if isinstance(text, Text) else Text(printable(text), style=style)
        self.console.print(shown, soft_wrap=not self.console.is_terminal)

    def copy(self, text: str) -> None:
        """Hand a text to the terminal's clipboard (OSC 52). Raises SettingsError for a pipe."""
        if not self.console.is_terminal:
            raise SettingsError("There is no terminal to copy with.", "Say /export md instead.")
        held = base64.b64encode(text.encode()).decode()
        self.console.file.write(f"\x1b]52;c;{held}\x07")
        self.console.file.flush()

    def tell(self, line: str) -> None:
        """Print a line beside the answers."""
        click.echo(printable(line), err=True)

    def hear(self, line: str) -> None:
        """Messages of the researcher's parts go to whatever is being shown now."""
        self._told(line)

    @contextmanager
    def waiting(self, doing: str) -> Iterator[None]:
        """Show the progress of something slow."""
        with show_progress(doing, quiet=self.quiet) as tell, self._redirect(tell):
            yield

    @contextmanager
    def watching(self, question: str) -> Iterator[ChatWatch]:
        """Show a run in progress; the person here answers its questions."""
        person, _ = person_here(self._interrupts)

        def listen(event: Event) -> None:
            if isinstance(event, PersonAsked):
                # They see what they type while they are asked.
                seen(event.waiting)
            view(event)

        with (
            _typing_unseen() as seen,
            live_view(question, quiet=self.quiet) as view,
            self._redirect(tell_to(listen)),
            self._interrupts.running() as stop,
        ):
            yield ChatWatch(listen, stop, person)

    async def interruptible(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether the work was finished; False if ^C ended it.

        If the terminal is gone the program ends: the signal for that may be ignored, or never come.
        """
        interrupts = self._interrupts = Interrupts(self.tell)

        async def do_work() -> None:
            with interrupts.catch():
                await work()

        task = asyncio.create_task(do_work())
        gone = asyncio.create_task(_hung_up()) if self.attended else task
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                leave_by_force(HUNG_UP)
                raise SystemExit(HUNG_UP)
        finally:
            task.cancel()
            gone.cancel()
            interrupts.finish()
        if task.cancelled():
            return False
        task.result()
        return True

    @contextmanager
    def _redirect(self, tell: Tell) -> Iterator[None]:
        before, self._told = self._told, tell
        try:
            yield
        finally:
            self._told = before


async def _hung_up() -> None:
    """Return once the terminal is gone."""
    watch = select.poll()
    watch.register(sys.stdin.fileno(), 0)  # no event but that it is closed
    while not watch.poll(0):
        await asyncio.sleep(1.0)


@contextmanager
def _typing_unseen() -> Iterator[Callable[[bool], None]]:
    """Keys pressed while the view is drawn are not echoed into it; they wait for the prompt."""
    if not sys.stdin.isatty():
        yield lambda seen: None
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    without = copy.deepcopy(before)
    without[3] &= ~termios.ECHO

    def echo(seen: bool) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before if seen else without)

    echo(False)
    try:
        yield echo
    finally:
        echo(True)


async def _open(
    settings: Settings,
    terminal: Terminal,
    model: AsyncExitStack,
    rest: AsyncExitStack,
    kept: Policy | None = None,
) -> Researcher:
    """A researcher, held open by `rest`, and its model by `model` unless one is `kept`."""
    from rubricem.agent.research.researcher import open_saver
    from rubricem.agent.research.setup import open_researcher

    setup = setup_of(settings)

    async def policy() -> Policy:
        if kept is not None:
            return kept
        return await model.enter_async_context(setup.model.open_policy(terminal.hear))

    try:
        opening = open_researcher(setup, terminal.hear, policy=policy)
        researcher = await rest.enter_async_context(opening)
        if settings.checkpoints:
            saver = open_saver(settings.checkpoints.get_secret_value())
            researcher.saver = await rest.enter_async_context(saver)
    except BaseException:
        await rest.aclose()
        await model.aclose()
        raise
    return researcher


@dataclass
class Talk:
    """A person's talk in one conversation, and the terminal; None: the next question begins one."""

    researcher: Researcher
    settings: Settings
    flags: dict[str, Any]
    """the flags of the settings, so that one of them can be changed"""
    conversations: ConversationStore
    terminal: Terminal
    conversation: Conversation | None = None
    last: Trajectory | None = None
    """the answer that commands refer to: of the latest run here that ended"""
    spent: Usage = NO_USAGE
    """by the conversation's runs"""
    over: bool = False
    """the person has left"""
    worst: int = 0
    """exit status of the worst result so far"""
    _usages: dict[str, Usage] = field(default_factory=dict)
    _model: AsyncExitStack = field(default_factory=AsyncExitStack)
    """keeps the model open, possibly longer than a researcher"""
    _rest: AsyncExitStack = field(default_factory=AsyncExitStack)
    """keeps open what else the researcher has"""

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        settings: Settings,
        flags: dict[str, Any],
        conversations: ConversationStore,
        terminal: Terminal,
    ) -> AsyncIterator["Talk"]:
        """A talk with everything that it needs, closed at its end."""
        model, rest = AsyncExitStack(), AsyncExitStack()
        researcher = await _open(settings, terminal, model, rest)
        talk = cls(researcher, settings, flags, conversations, terminal, _model=model, _rest=rest)
        try:
            yield talk
        finally:
            await talk._rest.aclose()
            await talk._model.aclose()

    @property
    def setup(self) -> Setup:
        """For the current settings, over the sources as first resolved."""
        return replace(setup_of(self.settings), choices=self.researcher.choices)

    @property
    def store(self) -> RunStore:
        return RunStore(self.settings.data_dir)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs of the conversation, the latest last."""
        return self.conversation.runs if self.conversation else ()

    def answer(self) -> tuple[Trajectory, CitedAnswer]:
        """The latest answer of the conversation; raises SettingsError if there is none yet."""
        from rubricem.agent.reports.cited import cited_answer

        if self.last is None:
            raise SettingsError("There is no answer in this thread yet.", "Ask a question first.")
        return self.last, cited_answer(self.last)

    async def ask(self, question: str, watch: ChatWatch) -> Trajectory:
        """Ask the next question of the conversation."""
        run, here = new_thread(), self.conversation.id if self.conversation else None
        ask = await asyncio.to_thread(reserve, self.setup, run, question, self.runs)
        self.conversation = await asyncio.to_thread(
            self.conversations.take_in, here, run, self.store
        )
        return await self._run(run, ask, watch)

    async def go_on(self, run: str, watch: ChatWatch) -> Trajectory:
        """Continue a run that ended early or was interrupted, under the budgets in force."""
        request = await asyncio.to_thread(self.store.request, run)
        ask = replace(ask_of(request), budgets=self.setup.budgets)
        return await self._run(run, ask, watch)

    async def open(self, identifier: str) -> tuple[str, ...]:
        """Open a conversation; returns sentences on runs of it that cannot be read."""
        conversation = await asyncio.to_thread(self.conversations.get, identifier)
        self.leave()
        self.conversation = conversation
        return await asyncio.to_thread(self._read)

    async def enter(self, identifier: str) -> None:
        """Open a conversation, and print its questions."""
        problems = await self.open(identifier)
        self.terminal.say(one_line(self.title()), style="bold")
        questions = await asyncio.to_thread(self.questions)
        for number, (question, status) in enumerate(questions, 1):
            self.terminal.say(f"{number:>3}  {one_line(question, 80)}  ({status})")
        for problem in problems:
            self.terminal.tell(problem)
        if await asyncio.to_thread(self.find_unfinished):
            self.terminal.say("/resume continues the question that has not ended.")

    def leave(self) -> None:
        """Leave the conversation: the next question begins a new one."""
        self.conversation, self.last, self.spent, self._usages = None, None, NO_USAGE, {}

    async def branch(self, number: int | None) -> Conversation:
        """Continue from a question, by default the latest, in a new conversation."""
        runs = self.runs
        if self.conversation is None or not runs:
            raise SettingsError("There is nothing to branch off yet.", "Ask a question first.")
        if number is not None and not 1 <= number <= len(runs):
            raise SettingsError(
                f"There is no question {number} in this thread.",
                f"It has {len(runs)}: give a number from 1 to {len(runs)}.",
            )
        run = runs[(number or len(runs)) - 1]
        branch = await asyncio.to_thread(self.conversations.branch, self.conversation.id, run)
        await self.open(branch.id)
        return branch

    def find_unfinished(self) -> str | None:
        """The latest find_unfinished run of the conversation."""
        for run in reversed(self.runs):
            try:
                if not self.store.whole(run):
                    return run
            except RubricemError:
                return run
        return None

    def change(self, **values: Any) -> None:
        """Change settings from the next question on. Raises SettingsError for invalid ones."""
        settings = load_settings({**self.flags, **values})
        self.flags.update(values)
        # What was settled when the researcher was opened stays.
        self.settings = self.settings.model_copy(
            update={name: getattr(settings, name) for name in values}
        )

    async def reopen(self, **values: Any) -> None:
        """Answer with other sources, or another model, from the next question on.

        Raises what opening them raises; the current ones then stay in use.
        """
        named = {name: value for name, value in values.items() if value is not None}
        loaded = load_settings({**self.flags, **named})
        changed = {name: getattr(loaded, name) for name in named}
        settings = self.settings.model_copy(update={**values, **changed})
        kept = None if "model" in values else self.researcher.policy
        model, rest = AsyncExitStack(), AsyncExitStack()
        with self.terminal.waiting("opening"):
            self.researcher = await _open(settings, self.terminal, model, rest, kept)
        self.flags.update(named)
        self.settings, self._rest, before = settings, rest, self._rest
        await before.aclose()
        if kept is None:
            self._model, model = model, self._model
            await model.aclose()

    def questions(self) -> list[tuple[str, str]]:
        """Each question of the conversation, and how its run ended."""
        return [self._question_and_status(run) for run in self.runs]

    def title(self, conversation: Conversation | None = None) -> str:
        """The subject of a conversation, or of this one: its title, or its first question."""
        conversation = conversation or self.conversation
        if conversation is None:
            return "new thread"
        if conversation.title or not conversation.runs:
            return conversation.title or "(no question yet)"
        return self._question_and_status(conversation.runs[0])[0]

    async def _run(self, run: str, ask: Ask, watch: ChatWatch) -> Trajectory:
        ended = await self.researcher.ask(ask, run, watch.listener, watch.stop, watch.person)
        self._count(ended)
        self.last = ended
        return ended

    def _read(self) -> tuple[str, ...]:
        """Load the conversation's ended runs."""
        problems = []
        for run in self.runs:
            try:
                if self.store.has_ended(run):
                    self.last = self.store.load(run)
                    self._count(self.last)
            except RubricemError as error:
                problems.append(error.told())
        return tuple(problems)

    def _count(self, ended: Trajectory) -> None:
        # A run that went on counts once, with all that it took.
        self._usages[ended.thread] = ended.usage
        self.spent = sum(self._usages.values(), NO_USAGE)

    def _question_and_status(self, run: str) -> tuple[str, str]:
        found = ListedRun.of(self.store, run)
        return found.question or run, "interrupted" if found.status == UNFINISHED else found.status
