"""A run that teaches, from beginning to end: one server plays researcher, judges and reflector."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.bank import RubricBank
from memory.items import BankItem
from memory.schema import Reflection
from tests.flow import RUN, SUPPORTED, contents
from tests.scripted_server import Scripted, ScriptedServer
from tests.test_reflecting import GOOD
from tests.test_reflection_judge import by_content

QUESTION = "What does lru_cache do with maxsize None?"
CRITERIA = json.dumps(
    {"answer": {"positive": [{"title": "Unbounded", "description": "Says so.", "weight": 3}]}}
)
VERDICTS = json.dumps({"verdicts": [{"number": 1, "justification": "It does.", "points": 2}]})
GREAT = GOOD.replace("- Read the default, too.", "- worth 0.9")
CALLS = ("criteria", "score", *["reflect"] * 8, "judge reflections")
"""what learning from one run asks for"""


class Server:
    """Answers by who is asked: the researcher, the two judges, the one who reflects.

    `at` is told each call's kind and its number from 1, and may answer in the usual one's place.
    """

    def __init__(
        self,
        reflection: Scripted = GREAT,
        judged: Scripted | None = None,
        at: Callable[[str, int], Scripted | None] = lambda kind, number: None,
    ) -> None:
        self.reflection = reflection
        self.judged = judged
        self.at = at
        self.asked: list[str] = []

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        kind, reply = self._usual(body)
        if kind != "check":
            self.asked.append(kind)
        return self.at(kind, self.asked.count(kind)) or reply

    def _usual(self, body: dict[str, Any]) -> tuple[str, Scripted]:
        system = contents(body)[0][1]
        if "You are a research agent" in system:
            return "research", RUN[sum(role == "assistant" for role, _ in contents(body))]
        if system.startswith("You check claims"):
            return "check", SUPPORTED
        if system.startswith("You review finished"):
            return "reflect", self.reflection
        if system.startswith("You judge reviews"):
            return "judge reflections", self.judged or by_content(body)
        return ("score", VERDICTS) if '"verdicts"' in system else ("criteria", CRITERIA)


def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory of the commands to come; documents to search lie beside it."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "cache.md").write_text("# lru_cache\n\nWith None it never evicts.\n")
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def asking(server: ScriptedServer, data: Path, *more: str) -> list[str]:
    """Arguments of a command that asks the server."""
    where = ["--base-url", server.base_url, "--source", str(data.parent / "notes")]
    return ["ask", QUESTION, *where, *more]


def ask(server: ScriptedServer, data: Path, *more: str) -> Result:
    return command(*asking(server, data, *more))


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def items(data: Path) -> list[BankItem]:
    """What the bank holds."""
    return asyncio.run(RubricBank(data).items())


def kept(data: Path) -> list[Reflection]:
    return [item.reflection for item in items(data)]


def mark(data: Path, thread: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((data / "runs" / thread / "learn.json").read_text())
    return value
