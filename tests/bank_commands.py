"""`rubricem bank` as its tests call it: a data directory, reflections in it, the command itself."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from agent.cli import main
from memory.bank import RubricBank
from memory.reflections import Reflection, ReflectionScore

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
