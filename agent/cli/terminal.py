"""The person at the terminal: their ^C, their editor, and what a run asks them.

The first ^C ends a run with a partial report; without a run in progress, and at the second, the
work is cancelled. Work that does not end in time is abandoned: everything finished is in the
journal, so nothing is lost by it.

A plan or a clarifying question is shown on standard error and answered on standard input, which is
read by the event loop and not by a thread, so that ^C ends the waiting. Text of the model is
printed as plain text.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from rubricem.agent.cli import debugging
from rubricem.agent.transcript import events
from rubricem.agent.transcript.question import RUBRIC, Nobody, Person, ShownPlan
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Trajectory
from rubricem.memory.text import one_line, printable, storable

if TYPE_CHECKING:
    from rubricem.agent.research.deep.parts import Steering

INTERRUPTED = 130
GRACE = 2.0
"""seconds for cancelled work to end by itself"""
LONGEST_LINE = 4096
"""bytes, as terminals give them"""


def tell_spent(trajectory: Trajectory) -> None:
    """With --debug: what the time was spent on, longest first."""
    if not debugging(click.get_current_context()):
        return
    for each in sorted(trajectory.spent, key=lambda spent: -spent.seconds):
        tokens = f"{each.read:,} new tokens read, {each.written:,} written"
        click.echo(f"{each.slot:<16}{each.calls:>4} x {each.seconds:>8.1f} s  {tokens}", err=True)


@dataclass
class Interrupts:
    """The effect of ^C, for as long as `caught` lasts."""

    tell: Callable[[str], None]
    ending: str = "Ending with what was found"
    """what the first ^C does, in a sentence for the person"""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _running: bool = False
    _ignored: bool = False
    _last_resort: threading.Timer | None = None

    @contextmanager
    def catch(self, *also: signal.Signals) -> Iterator[None]:
        """Handle ^C in the running loop, and other signals with the same effect.

        A loop outside the main thread receives none.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        heard = (signal.SIGINT, *also)
        for each in heard:
            loop.add_signal_handler(each, self._hear, task)
        try:
            yield
        finally:
            for each in heard:
                loop.remove_signal_handler(each)
        self.finish()

    @contextmanager
    def running(self) -> Iterator[asyncio.Event]:
        self._running = True
        try:
            yield self.stop
        finally:
            self._running = False

    @contextmanager
    def leave_to_person(self, cancelled: bool) -> Iterator[None]:
        """A person is asked: ^C then cancels, or belongs to another program in the terminal."""
        before = self._running, self._ignored
        self._running, self._ignored = False, not cancelled
        try:
            yield
        finally:
            self._running, self._ignored = before

    def finish(self) -> None:
        if self._last_resort:
            self._last_resort.cancel()

    def _hear(self, task: "asyncio.Task[object]") -> None:
        if self._ignored:
            return
        if self._running and not self.stop.is_set():
            self.tell(f"{self.ending}; ^C again stops at once.")
            self.stop.set()
            return

        if self._last_resort is None:
            told = "Stopped at once; finished work is kept."
            self._last_resort = leave_by_force(INTERRUPTED, lambda: self.tell(told))
        task.cancel()


def leave_by_force(status: int, tell: Callable[[], None] = lambda: None) -> threading.Timer:
    """End the process after some seconds, even if work cannot be cancelled."""

    def leave() -> None:
        tell()
        os._exit(status)

    timer = threading.Timer(GRACE, leave)
    timer.daemon = True
    timer.start()
    return timer


async def edit_text(text: str, suffix: str, interrupts: Interrupts) -> str:
    """The text as a person leaves it in their editor. Raises SettingsError where there is none."""
    with interrupts.leave_to_person(cancelled=False):
        try:
            edited = await asyncio.to_thread(click.edit, text, extension=suffix)
            return text if edited is None else edited
        except (click.ClickException, UnicodeDecodeError) as error:
            raise SettingsError(f"Nothing was edited: {error}.", "Set EDITOR.") from error


@contextmanager
def show_progress(doing: str, *, quiet: bool = False, lines: bool = False) -> Iterator[events.Tell]:
    """Show what is being done: the latest message on a terminal, else with `lines` each."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal:
        told = events.once_each(lambda line: click.echo(f"{doing}: {one_line(line)}", err=True))
        yield told if lines else events.hush
        return
    with console.status(doing) as status:
        yield lambda line: status.update(escape(f"{doing}: {one_line(line)}"))


NOBODY_HERE = "There is no terminal to ask at: the plan is approved, and nothing is asked."


def person_here(interrupts: Interrupts) -> tuple[Person, str]:
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalPerson(interrupts), ""
    return Nobody(), NOBODY_HERE


class TypedRemarks:
    """A listener before another one: what is typed while a lead works is a remark to it."""

    def __init__(self, steering: "Steering", listener: events.Listener) -> None:
        self._steering, self._listener = steering, listener
        self._tasks = set[asyncio.Task[None]]()

    def __call__(self, event: events.Event) -> None:
        self._listener(event)
        match event:
            case events.BudgetSet():
                said = "A line that you type is a remark, heard at the lead's next turn."
                click.echo(said, err=True)
                self._listen()
            case events.PersonAsked(waiting=False):
                self._listen()
            case events.PersonAsked() | events.RunFinished():
                self.leave()

    def leave(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin, self._take)

    def _take(self) -> None:
        # Reading stops a process that is in the background, and gives nothing at the end.
        ours = os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
        typed = os.read(sys.stdin.fileno(), LONGEST_LINE) if ours else b""
        if not typed:
            self.leave()
        if text := storable(typed.decode(errors="replace")).strip():
            task = asyncio.create_task(self._steering.remark(text))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


PERMIT = {
    "act": "The model wants to call {to}, which may change something, with:\n  {text}",
    "send": "The model wants to send to {to}, after it has read private text:\n  {text}",
}
PERMITS = {
    "once": "[o]nce",
    "run": "for the rest of this [r]un",
    "always": "[a]lways",
    "never": "[n]o",
}


class TerminalPerson:
    """A `Person` on standard input and standard error."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._interrupts.leave_to_person(cancelled=True):
            if asked["ask"] == "clarify":
                return {"text": await self._line(f"\n{one_line(asked['doubt'])}\n(empty: skip) ")}
            if asked["ask"] == "permit":
                return await self._permit(asked)
            return await self._plan(ShownPlan.model_validate(asked))

    async def _permit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """By the first letter of a choice."""
        to, text = one_line(asked["to"]), one_line(asked["text"])
        click.echo(f"\n{printable(PERMIT[asked['what']].format(to=to, text=text))}", err=True)
        choices = {choice[0]: choice for choice in asked["choices"]}
        told = ", ".join(PERMITS[choice] for choice in choices.values())
        while (said := (await self._line(f"{told}? ")).strip().casefold()[:1]) not in choices:
            pass
        return {"verdict": choices[said]}

    async def _plan(self, plan: ShownPlan) -> dict[str, Any]:
        click.echo(f"\n{printable(plan.text())}", err=True)
        while True:
            said = (await self._line("Plan: [a]pprove, [e]dit, [r]eject? ")).strip().casefold()
            if said in ("a", "approve", "y", "yes"):
                return {"verdict": "approve"}
            if said in ("r", "reject", "n", "no"):
                return {"verdict": "reject", "reason": await self._line("Why? (may be empty) ")}
            if said in ("e", "edit") and (edited := await self._edit(plan)) is not None:
                return {"verdict": "edit", "plan": edited.model_dump(mode="json")}

    async def _line(self, prompt: str) -> str:
        """One line without its end; the end of input counts as ^C."""
        click.echo(prompt, err=True, nl=False)
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(sys.stdin, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(sys.stdin)
        line = sys.stdin.readline()
        if not line:
            raise asyncio.CancelledError
        return line.rstrip("\n")

    async def _edit(self, plan: ShownPlan) -> ShownPlan | None:
        """The plan as the editor left it; None if it cannot be used, after saying so."""
        try:
            edited = ShownPlan.read(await edit_text(plan.text(), ".md", self._interrupts))
        except SettingsError as error:
            click.echo(error.told(), err=True)
            return None
        if not edited.rubric:
            said = f"The rubric is empty; keep the line {RUBRIC!r} and an item below it."
            click.echo(said, err=True)
            return None
        return edited
