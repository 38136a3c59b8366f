"""`rubricem bank` as its tests call it: a data directory, reflections in it, the command itself.

A run that teaches, from beginning to end: one server plays researcher, judges and reflector.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.transcript.scaffold import template
from rubricem.memory.bank import RubricBank
from rubricem.memory.bank.store import BankItem
from rubricem.memory.schema import Reflection, ReflectionScore
from tests.agent.learning.test_reflect import GOOD
from tests.judge.test_reflection import by_content
from tests.support.policies import RUN, SUPPORTED, contents
from tests.support.scripted_server import Scripted, ScriptedServer

PARTS = ReflectionScore(
    diagnostic_accuracy=0.9, specificity=0.8, scope_and_balance=0.7, justification="It is exact."
)


def reflection(identifier: str, question: str = "What is a heap?", **fields: Any) -> Reflection:
    known: dict[str, Any] = {
        "id": identifier,
        "question": question,
        "rubrics": "Pitfalls: guessing what the default is",
        "takeaways": "- read the source",
        "score": 0.75,
        "trajectory_id": "run-1",
        "written_at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    }
    return Reflection(**(known | fields))


def put(folder: Path, *reflections: Reflection) -> RubricBank:
    bank = RubricBank(folder)
    for each in reflections:
        assert asyncio.run(bank.put(each))
    return bank


def bank(*arguments: str, exit_code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["bank", *arguments])
    assert done.exit_code == exit_code, done.output
    return done


def bank_json(*arguments: str) -> Any:
    return json.loads(bank(*arguments, "--json").stdout)


def states(every: bool = True) -> dict[str, str]:
    """The state of each reflection that is listed."""
    listed = bank_json("list", *["--every"] * every)["reflections"]
    return {item["id"]: item["state"] for item in listed}


QUESTION = "What does lru_cache do with maxsize None?"
CRITERIA = json.dumps(
    {"answer": {"positive": [{"title": "Unbounded", "description": "Says so.", "weight": 3}]}}
)
REWORDED = "Is lru_cache faster in Python 3.12?"
VERDICTS = json.dumps({"verdicts": [{"number": 1, "justification": "It does.", "points": 2}]})
GREAT = GOOD.replace("- Read the default, too.", "- worth 0.9")
CALLS = ("criteria", "score", *["reflect"] * 8, "judge reflections")
"""what learning from one run asks for"""


class Failing:
    """Answers calls of one kind in the usual one's place, until it is told to stop."""

    def __init__(self, reply: Scripted, kind: str = "criteria") -> None:
        self.reply, self.kind, self.on = reply, kind, True

    def __call__(self, kind: str, number: int) -> Scripted | None:
        return self.reply if self.on and kind == self.kind else None


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
        if system.startswith(template("alone")):
            return "check", REWORDED
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
