"""The prompt: keys, history, completion of slash commands, and a toolbar of what is in force."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.budgets import Budgets
from agent.chat.commands import COMMANDS
from agent.chat.conversing import Conversing
from agent.chat.slash import Talk
from agent.clients import budgets_of
from agent.reports.printable import one_line
from memory.runs import writable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HISTORY = "chat_history"
"""in the data directory, readable for its owner alone"""


def open_line(talk: Talk) -> "PromptSession[str]":
    """The prompt of a talk; `prompt_async` gives what was entered."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.history import FileHistory

    path = history_file(talk.conversing.settings.data_dir)
    return PromptSession(
        message=lambda: [("bold", f"{_number(talk.conversing)}> ")],
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: " " * (width - 2) + "\u2026 ",
        history=FileHistory(str(path)),
        completer=_completer(talk),
        complete_while_typing=True,
        key_bindings=_keys(),
        bottom_toolbar=lambda: [
            ("", one_line(toolbar(talk.conversing), get_app().output.get_size().columns - 1))
        ],
        enable_open_in_editor=True,
    )


def history_file(data_dir: Path) -> Path:
    """The file of what was entered, made where it is missing."""
    path = data_dir / HISTORY
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    return path


def completions(talk: Talk, before: str) -> Iterable[tuple[str, int, str]]:
    """What may stand in the place of the last word: it, how far back it begins, what it means."""
    if not before.startswith("/") or "\n" in before:
        return
    name, space, argument = before[1:].partition(" ")
    if not space:
        for known, command in COMMANDS.items():
            if known.startswith(name.casefold()):
                yield f"/{known}", -len(before), command.help
    elif name in COMMANDS and " " not in argument:
        for word, about in COMMANDS[name].words(talk):
            if word.startswith(argument):
                yield word, -len(argument), about


def toolbar(conversing: Conversing) -> str:
    """Model, source, thread, and what was spent of what may be."""
    choices, spent = conversing.researcher.choices, conversing.spent
    tokens = spent.prompt_tokens + spent.completion_tokens
    thread = conversing.title(conversing.thread) if conversing.thread else "new thread"
    parts = [
        one_line(conversing.researcher.policy.name, 40),
        ", ".join(one_line(Path(name).name, 30) for name in choices.get("source", ())),
        one_line(thread, 30),
        f"{tokens:,} tokens",
        f"${spent.cost:.4f}" if spent.cost is not None else "",
        _limits(budgets_of(conversing.settings)),
    ]
    plan = "plans are shown" if conversing.settings.approve_plan else ""
    return " \u00b7 ".join(filter(None, [*parts, plan]))


def _limits(budgets: Budgets) -> str:
    limits = [
        f"{budgets.tokens:,} tokens" if budgets.tokens is not None else "",
        f"{budgets.seconds:,g} s" if budgets.seconds is not None else "",
        f"${budgets.cost:,g}" if budgets.cost is not None else "",
    ]
    shown = ", ".join(filter(None, limits))
    return f"each at most {shown}" if shown else "no budget"


def _number(conversing: Conversing) -> int:
    return len(conversing.thread.runs if conversing.thread else ()) + 1


def _completer(talk: Talk):  # type: ignore[no-untyped-def]
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Slashes(Completer):
        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterable[Completion]:
            for word, start, about in completions(talk, document.text_before_cursor):
                yield Completion(word, start_position=start, display_meta=about)

    return Slashes()


def _keys() -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        chosen = buffer.complete_state and buffer.complete_state.current_completion
        if chosen:
            buffer.apply_completion(chosen)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    return keys
