"""What the docs show on a console is what the command prints, with the same model's words.

In a block each line that begins with `$` is a command, and what follows is its standard output.
Addresses of servers, times and names of runs differ from run to run and are not compared.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import main
from tests.docs_served import scripted_folder
from tests.test_docs import PAGES

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
CHANGING = (
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\b\d+(?:\.\d+)? s$", re.MULTILINE), "TIME"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "RUN"),
)
INPUT = re.compile(r"printf '(.*)' \| ")
SHOWN = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(CONSOLE.findall(page.read_text(encoding="utf-8")))
]


def spoken(block: str) -> Iterator[tuple[str, str, str]]:
    """Each command's arguments, what is written to it, and what it shall print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        piped = INPUT.match(line)
        entered = piped[1].replace("\\n", "\n") if piped else ""
        yield line[piped.end() :] if piped else line, entered, printed


def settled(text: str) -> str:
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.parametrize("block", SHOWN)
def test_a_console_prints_what_is_shown(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_folder(tmp_path, monkeypatch):
        for line, entered, printed in spoken(block):
            program, *arguments = shlex.split(line)
            assert program == "rubricem"
            done = CliRunner().invoke(main, arguments, input=entered)
            assert done.exit_code == 0, done.stderr
            assert settled(done.stdout) == settled(printed)


def test_consoles_are_shown_of_asking_and_of_the_chat() -> None:
    lines = [line for block in SHOWN for line, _, _ in spoken(str(block.values[0]))]
    assert {line.split()[1] for line in lines} >= {"ask", "chat"}


def test_a_line_that_is_not_printed_would_be_found() -> None:
    assert settled("a 0.3 s\nx@127.0.0.1:8000 b") == settled("a 12 s\nx@127.0.0.1:41 b\n")
    assert settled("1 supported") != settled("1 doubtful")
    assert list(spoken("$ printf 'a\\nb\\n' | rubricem chat\nout\n")) == [
        ("rubricem chat", "a\nb\n", "out\n")
    ]
