"""The chat loop, on a terminal or line by line from a pipe.

On a terminal the prompt has key bindings, a history, completion of slash commands, and a toolbar
with the settings in force.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricem.agent.chat.commands import COMMANDS, FAILED, Command, ask
from rubricem.agent.chat.session import Talk, Terminal
from rubricem.agent.cli.ask import LATEST
from rubricem.agent.cli.terminal import INTERRUPTED, NOBODY_HERE
from rubricem.agent.learning.lessons import find_queued
from rubricem.agent.research.conversations import ConversationStore
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import with_default_source
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.runs import RunStore, writable
from rubricem.memory.text import one_line, pluralise

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HISTORY = "chat_history"
"""in the data directory, readable for its owner alone"""


def open_line(talk: Talk) -> "PromptSession[str]":
    """The prompt of a talk; `prompt_async` returns the input."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.history import FileHistory

    path = history_file(talk.settings.data_dir)
    return PromptSession(
        message=lambda: [("bold", f"{len(talk.runs) + 1}> ")],
        multiline=True,
        prompt_continuation=lambda width, line, wrapped: " " * (width - 2) + "\u2026 ",
        history=FileHistory(str(path)),
        completer=_completer(talk),
        complete_while_typing=True,
        key_bindings=_keys(),
        bottom_toolbar=lambda: [
            ("", one_line(toolbar(talk), get_app().output.get_size().columns - 1))
        ],
        enable_open_in_editor=True,
    )


def history_file(data_dir: Path) -> Path:
    """The file of inputs, created if missing."""
    path = data_dir / HISTORY
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    return path


def completions(talk: Talk, before: str) -> Iterable[tuple[str, int, str]]:
    """Completions of the last word: the text, how far back it begins, its meaning."""
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


def toolbar(talk: Talk) -> str:
    """Model, source, conversation, and what was spent of the budgets."""
    choices, spent, budgets = talk.researcher.choices, talk.spent, talk.setup.budgets
    limits = [
        f"{budgets.tokens:,} tokens" if budgets.tokens is not None else "",
        f"{budgets.seconds:,g} s" if budgets.seconds is not None else "",
        f"${budgets.cost:,g}" if budgets.cost is not None else "",
    ]
    shown = ", ".join(filter(None, limits))
    parts = [
        one_line(talk.researcher.policy.name, 40),
        ", ".join(one_line(Path(name).name, 30) for name in choices.get("source", ())),
        one_line(talk.title(), 30),
        f"{spent.prompt_tokens + spent.completion_tokens:,} tokens",
        f"${spent.cost:.4f}" if spent.cost is not None else "",
        f"each at most {shown}" if shown else "no budget",
        "plans are shown" if talk.settings.approve_plan else "",
    ]
    return " \u00b7 ".join(filter(None, parts))


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


async def talk_with(flags: dict[str, Any], conversation: str, after: str, *, quiet: bool) -> int:
    """Talk until the person leaves or the input ends; returns the exit status.

    `conversation`: where to begin, `LATEST`, or "" for a new one; `after`: a run to continue after.
    """
    # What the event loop puts in its place would only end the chat at the second ^C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings = with_default_source(load_settings(flags))
    conversations = ConversationStore(settings.data_dir)
    begin_in = _find_conversation(conversations, conversation) if conversation else ""
    if after:
        # A run that is not there is told, before a conversation is made for it.
        RunStore(settings.data_dir).request(after)
        begin_in = conversations.after(after).id
    terminal = Terminal(quiet=quiet)
    async with AsyncExitStack() as stack:
        opening = Talk.start(settings, dict(flags), conversations, terminal)
        with terminal.waiting("opening"):
            talk = await stack.enter_async_context(opening)
        if begin_in:
            await talk.enter(begin_in)
        await _talk(talk)
        if terminal.attended and talk.conversation:
            terminal.tell(f"Continue this thread: rubricem chat --resume {talk.conversation.id}")
        if talk.settings.memory == "on" and (waiting := len(find_queued(talk.store))):
            terminal.tell(f"{pluralise(waiting, 'run')} can be learnt from: rubricem learn")
        return 0 if terminal.attended else talk.worst


def _find_conversation(conversations: ConversationStore, conversation: str) -> str:
    """The conversation to begin in; raises SettingsError if there is none."""
    if conversation != LATEST:
        return conversations.get(conversation).id
    listing = conversations.list_all()
    if not listing.conversations:
        raise SettingsError(
            " ".join(["There is no thread to continue.", *listing.problems]),
            "Start one: rubricem chat",
        )
    return listing.conversations[0].id


async def _talk(talk: Talk) -> None:
    attended, settings = talk.terminal.attended, talk.settings
    if attended:
        talk.terminal.say("Ask a question; /help lists the commands, ^D leaves.", style="dim")
    elif settings.approve_plan or settings.clarify:
        talk.terminal.tell(NOBODY_HERE)
    async for line in _read_lines(talk):
        if line.strip():
            done = await _work(talk, line)
            if not done and not attended:
                talk.worst = INTERRUPTED
                return
        if talk.over:
            return


async def _work(talk: Talk, line: str) -> bool:
    """Whether an input was processed to its end; errors are printed."""

    async def work() -> None:
        if line.lstrip().startswith("/"):
            name, argument = split(line)
            await one_of(name).act(talk, argument)
        else:
            await ask(talk, line)

    try:
        done = await talk.terminal.interruptible(work)
    except RubricemError as error:
        talk.worst = FAILED
        talk.terminal.tell("\n".join(filter(None, (f"error: {error}", error.remedy))))
        return True
    if not done:
        talk.terminal.tell("Stopped. /resume continues the question.")
    return done


def split(line: str) -> tuple[str, str]:
    """The command's name without its slash, and its argument."""
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    return name.casefold(), argument.strip()


def one_of(name: str) -> Command:
    """The command of this name, or of a unique prefix of its name."""
    fitting = [each for each in COMMANDS if each.startswith(name)] if name else []
    if name in COMMANDS:
        return COMMANDS[name]
    if len(fitting) != 1:
        near = fitting or get_close_matches(name[:40], COMMANDS, n=1)
        meant = f" Did you mean {' or '.join(f'/{each}' for each in near)}?" if near else ""
        raise SettingsError(
            f"There is no command /{name}.{meant}", "/help lists them; a question needs no slash."
        )
    return COMMANDS[fitting[0]]


async def _read_lines(talk: Talk) -> AsyncIterator[str]:
    """The lines of a pipe; of a terminal the inputs until ^D, where ^C empties the line."""
    if not talk.terminal.attended:
        for piped in sys.stdin:
            yield piped
        return
    line = open_line(talk)
    while True:
        try:
            yield await line.prompt_async()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
