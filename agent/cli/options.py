"""What several commands share: flags, reading files, and printing results.

Each flag is declared once and is a setting of the same name, so that the commands pass the given
flags on to `load_settings` unread. Nothing but click is imported here: every command loads this,
also for its help.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from rubricem.agent.cli import refuse_retired, table
from rubricem.memory.errors import SettingsError

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


class CommandGroup(click.Group):
    """A group whose commands are listed with a whole sentence each, which click would cut off."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        refuse_retired(ctx, args[0])
        if self.invoke_without_command and args[0] == "list" and "list" not in self.commands:
            ctx.fail(f"No such command 'list': {ctx.command_path} alone lists them.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(limit=WHOLE)) for name, each in found if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


WHOLE = 500


def one_of(*names: str, kinds: Sequence[str], said: str) -> Callable[[Command], Command]:
    """The flag of a choice; the first is the default."""
    kind = click.Choice(kinds)
    return click.option(*names, type=kind, default=kinds[0], show_default=True, help=said)


_TYPES: dict[object, type] = {"int": int, "float": float}
BUDGET_FLAGS = ("tool_calls", "max_total_tokens", "max_seconds", "max_cost")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_SAID = "Write the report: .md, .html, .pdf or .json; its sources: .bib, .ris."
REPORT_OUT = click.option("-o", "--out", type=Path, metavar="FILE", help=_SAID)


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--set NAME=VALUE`, for any setting; a flag of the same name wins."""

    @wraps(command)
    def call(*args: Any, settings: tuple[str, ...], **flags: Any) -> Any:
        chosen = dict(map(_pair, settings))
        given = {name: value for name, value in flags.items() if value not in (None, ())}
        if not chosen:
            return command(*args, **flags)
        from rubricem.agent.settings import SET_SO

        before = SET_SO.set(frozenset(chosen) - frozenset(given))
        try:
            return command(*args, **{**flags, **chosen, **given})
        finally:
            SET_SO.reset(before)

    said = "Any setting of docs/configuration.md; repeatable."
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=said)(call)


def _pair(given: str) -> tuple[str, Any]:
    name, is_, value = given.partition("=")
    with suppress(ValueError):
        if is_:
            return name.strip().replace("-", "_"), json.loads(value) if value[:1] == "{" else value
    raise SettingsError(f"--set {given!r} cannot be read.", "Write --set NAME=VALUE.")


YES = click.option("--yes", is_flag=True, help="Do not ask.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")


def setting_flags(*names: str) -> Callable[[Command], Command]:
    """Flags of flags.toml."""
    known = table("flags.toml")

    def add_flags(command: Command) -> Command:
        for name in reversed(names):
            kind = known[name].get("type")
            taken = click.Choice(kind) if isinstance(kind, list) else _TYPES.get(kind)
            spelt = "--" + name.replace("_", "-")
            setting = "answer_format" if name == "format" else name
            command = click.option(spelt, setting, **{**known[name], "type": taken})(command)
        return command

    return add_flags


def read_text(file: Path) -> str:
    """A file that a person named; raises SettingsError if it is no text."""
    try:
        if file.is_char_device():  # it has no end
            raise OSError("it is no plain file")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        said = f"{file} cannot be read as text: {error}."
        raise SettingsError(said, "Save it as UTF-8.") from error


def confirm(question: str, yes: bool) -> bool:
    """The answer of the person at the terminal; SettingsError if there is none to ask."""
    if not (yes or sys.stdin.isatty()):
        raise SettingsError(
            f"There is no terminal to ask at: {question}", "Add --yes if you are sure."
        )
    return yes or click.confirm(question)


def print_json(value: dict[str, Any]) -> None:
    """With an escape for whatever a terminal would obey or not show."""
    text = json.dumps(value, ensure_ascii=False, indent=1)
    click.echo("".join(c if c.isprintable() or c in "\n " else json.dumps(c)[1:-1] for c in text))
