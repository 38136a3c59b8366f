"""What the chat says and shows, and how a piece of its work is interrupted.

^C once ends a run with what there is; ^C again, or where no run goes on, abandons the work at
once, which can be gone on with later. The chat itself goes on in either case.
"""

import asyncio
import copy
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Console
from rich.text import Text

from agent.chat.conversing import Watch
from agent.commands.interrupting import Interrupts
from agent.commands.terminal_person import person_here
from agent.events import Event, Listener, PersonAsked, SourceProgress, ignore
from agent.reports.printable import one_line, printable
from agent.reports.view import live_view

T = TypeVar("T")


class Terminal:
    """Standard output for what was asked for, standard error for how it comes about."""

    def __init__(self, *, quiet: bool = False) -> None:
        """`attended`: a person types here, and not a program."""
        self.quiet = quiet
        self.console = Console(highlight=False)
        self.attended = sys.stdin.isatty() and sys.stdout.isatty()
        self._listener: Listener = ignore

    def say(self, text: str | Text = "", style: str = "") -> None:
        """Print text of whatever origin as text."""
        shown = text if isinstance(text, Text) else Text(printable(text), style=style)
        self.console.print(shown, soft_wrap=not self.console.is_terminal)

    def tell(self, line: str) -> None:
        """A line beside the answers."""
        click.echo(printable(line), err=True)

    def hear(self, event: Event) -> None:
        """What the researcher's parts tell: it goes to whoever shows something now."""
        self._listener(event)

    @contextmanager
    def waiting(self, doing: str) -> Iterator[None]:
        """Show how something that takes long comes along."""
        console = Console(stderr=True, highlight=False)
        if self.quiet or not console.is_terminal:
            yield
            return
        with console.status(doing) as status, self._heard_by(_into(status.update, doing)):
            yield

    @contextmanager
    def watching(self, question: str, interrupts: Interrupts) -> Iterator[Watch]:
        """Show a run while it is worked on; the person here is asked where it asks."""
        person, _ = person_here(interrupts)
        with (
            _typing_unseen() as seen,
            live_view(question, quiet=self.quiet) as view,
            self._heard_by(_seeing(view, seen)) as listener,
            interrupts.running() as stop,
        ):
            yield Watch(listener, stop, person)

    async def interruptible(self, work: Callable[[Interrupts], Awaitable[T]]) -> T | None:
        """What the work comes to; None where ^C ended it."""
        interrupts = Interrupts(self.tell)

        async def done() -> T:
            with interrupts.caught():
                return await work(interrupts)

        task = asyncio.create_task(done())
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            interrupts.survived()
        return None if task.cancelled() else task.result()

    @contextmanager
    def _heard_by(self, listener: Listener) -> Iterator[Listener]:
        before, self._listener = self._listener, listener
        try:
            yield listener
        finally:
            self._listener = before


def _into(show: Callable[[str], None], doing: str) -> Listener:
    from rich.markup import escape

    def listen(event: Event) -> None:
        if isinstance(event, SourceProgress):
            show(escape(f"{doing}: {one_line(event.message)}"))

    return listen


def _seeing(view: Listener, seen: Callable[[bool], None]) -> Listener:
    """The view's listener, with the echo of keys back while a person is asked."""

    def listen(event: Event) -> None:
        if isinstance(event, PersonAsked):
            seen(event.waiting)
        view(event)

    return listen


@contextmanager
def _typing_unseen() -> Iterator[Callable[[bool], None]]:
    """Keys pressed while the view is drawn do not write into it; they wait for the prompt."""
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
