"""What several commands share: their flags, and how they read files and print what they found.

Each flag is declared once and is a setting of the same name, so that the commands pass what
they were given on to `load_settings` unread. Nothing but click is imported here: every command
loads this, also for its help.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rubricem.memory.errors import SettingsError
from rubricem.memory.text import printable_json

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


def model_flag(said: str) -> Callable[[Command], Command]:
    """`--model`, where it does not stand for who answers."""
    return click.option("--model", help=said)


MODEL = model_flag("1.5b, 0.5b, a .gguf file, org/repo of the hub, or a server's model.")
BASE_URL = click.option(
    "--base-url", metavar="URL", help="An OpenAI-compatible server to ask instead."
)
SOURCE = click.option(
    "--source",
    multiple=True,
    help="`python`, `web`, `scholar`, `searxng:URL`, `auto`, or a folder of documents; repeatable.",
)
DECODING = click.option("--decoding", type=click.Choice(["auto", "forced", "free"]))
RETRIEVAL = click.option("--retrieval", type=click.Choice(["lexical", "hybrid"]))
ALLOW_HOST = click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="HOST",
    help="A private host whose pages may be read; repeatable.",
)
MEMORY = click.option(
    "--memory",
    type=click.Choice(["on", "off", "read-only"]),
    help="Use what earlier runs taught (read-only); on: judge this run and learn from it too.",
)
VERIFY = click.option(
    "--verify",
    type=click.Choice(["off", "mark", "repair"]),
    help="Check each claim against its source: mark what fails, or also repair the report.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
ONLY_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."
)
YES = click.option("--yes", is_flag=True, help="Do not ask.")
BUDGETS = (
    click.option("--tool-calls", type=int, metavar="N", help="Searches at most (10)."),
    click.option("--max-total-tokens", type=int, metavar="N", help="Budget of tokens (200000)."),
    click.option("--max-seconds", type=float, metavar="S", help="Budget of time (900)."),
    click.option("--max-cost", type=float, metavar="USD", help="Budget of money (1); 0: no limit."),
)


def budgets(command: Command) -> Command:
    """The command with a flag for each budget."""
    for option in reversed(BUDGETS):
        command = option(command)
    return command


def read_text(file: Path, remedy: str = "Save it as UTF-8.") -> str:
    """A file that a person named; raises SettingsError where it is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read as text: {error}.", remedy) from error


def print_json(value: dict[str, Any]) -> None:
    click.echo(printable_json(json.dumps(value, ensure_ascii=False, indent=1)))


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
