"""`rubricem serve` takes the budgets that `rubricem ask` takes, for questions that name none."""

import os
import re
import subprocess
from pathlib import Path

import httpx

from rubricem.agent.chat import chat
from rubricem.agent.cli.ask import ask
from rubricem.agent.cli.serve import serve
from tests.conftest import COMMAND, ROOT

BUDGETS = {
    "tool_calls": ("--tool-calls", "3"),
    "max_total_tokens": ("--max-total-tokens", "5000"),
    "max_seconds": ("--max-seconds", "7.5"),
    "max_cost": ("--max-cost", "0"),
}


def test_the_flags_are_the_same_wherever_questions_are_asked():
    told = [
        {p.name: p.to_info_dict() for p in command.params if p.name in BUDGETS}
        for command in (ask, serve, chat)
    ]
    assert set(told[0]) == set(BUDGETS)
    assert told[0] == told[1] == told[2]


def test_the_budgets_of_the_server_are_those_of_its_questions(tmp_path: Path):
    flags = [part for flag in BUDGETS.values() for part in flag]
    options = ["--port", "0", "--base-url", "http://127.0.0.1:9/v1", "--source", "python"]
    environment = {**os.environ, "RUBRICEM_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        [*COMMAND, "serve", *options, *flags],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            defaults = httpx.get(f"{found[0]}api/status", timeout=60).json()["defaults"]
        finally:
            process.terminate()
    wanted = {name: float(value) for name, (_, value) in BUDGETS.items()}
    assert {name: defaults[name] for name in BUDGETS} == wanted
