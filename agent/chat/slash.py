"""Slash commands: a table of names, what each takes and does, and the words that complete it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agent.chat.conversing import Conversing
from agent.chat.terminal import Terminal
from agent.commands.interrupting import Interrupts
from agent.reports.cited import CitedAnswer
from agent.reports.printable import one_line
from memory.errors import SettingsError
from memory.schema import Trajectory

MOST_DIGITS = 9
Words = Sequence[tuple[str, str]]
"""words that an argument may be, each with what it stands for"""


@dataclass
class Talk:
    """What a command works on: the thread, the terminal, and ^C as it is heard now."""

    conversing: Conversing
    terminal: Terminal
    over: bool = False
    """the person has left"""
    worst: int = 0
    """exit status of the worst that happened"""

    def answer(self) -> tuple[Trajectory, CitedAnswer]:
        """The latest answer of the thread; raises SettingsError where there is none yet."""
        from agent.reports.citations import cited_answer

        if self.conversing.last is None:
            raise SettingsError("There is no answer in this thread yet.", "Ask a question first.")
        return self.conversing.last, cited_answer(self.conversing.last)


Act = Callable[[Talk, str, Interrupts], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command."""

    act: Act
    help: str
    takes: str = ""
    words: Callable[[Talk], Words] = field(default=lambda talk: ())


def split(line: str) -> tuple[str, str]:
    """The command's name without its slash, and its argument."""
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    return name.casefold(), argument.strip()


def number_of(text: str, what: str) -> int:
    """A whole number; raises SettingsError that says what it should have been."""
    if not is_number(text):
        shown = one_line(text, 40)
        raise SettingsError(f"{shown!r} is no number of {what}.", f"Give the number of {what}.")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a text is a whole number of what a list could hold."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def one_of(name: str, commands: dict[str, Command]) -> Command:
    """The command of a name, or of the beginning of just one name."""
    fitting = [each for each in commands if each.startswith(name)] if name else []
    if name in commands:
        return commands[name]
    if len(fitting) != 1:
        raise SettingsError(
            f"There is no command /{name}.", "/help lists them; a question needs no slash."
        )
    return commands[fitting[0]]
