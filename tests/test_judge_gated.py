"""`rubricem judge score --gated`: what code settles costs no call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.runs import RunStore
from tests.flow import RUN, answer, asked
from tests.judged import varied
from tests.scripted_server import ScriptedServer

PROPOSAL = json.dumps(
    {
        stage: {"positive": [{"title": stage, "description": "Is good."}]}
        for stage in ("plan", "answer")
    }
)


def judging(body: dict[str, Any], number: int) -> str:
    if "Criteria:" not in body["messages"][1]["content"]:
        return PROPOSAL
    verdicts = [{"number": n, "justification": "so it is", "points": 1} for n in (1, 2)]
    return json.dumps({"verdicts": verdicts})


def score(server: ScriptedServer, thread: str) -> Result:
    command = ["judge", "score", thread, "--gated", "--json", "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path))
    return tmp_path


def scores(done: Result) -> list[float | None]:
    assert done.exit_code == 0, done.output
    (judgement,) = json.loads(done.stdout)["groups"][0]["judgements"]
    return [stage["score"] for stage in judgement["stages"]]


def test_a_run_without_form_scores_0_and_no_judge_is_asked(data_dir: Path):
    RunStore(data_dir).create("mine", {})
    RunStore(data_dir).save(varied("mine", "It is LRU."))
    with ScriptedServer(judging) as server:
        assert scores(score(server, "mine")) == [0.0] * 4
    assert server.requests == []


@pytest.mark.parametrize(
    ("end", "judged"),
    [(answer(), 0.5), (answer("It is unbounded."), 0.0)],
    ids=["cited", "uncited"],
)
async def test_a_whole_run_is_judged_but_not_an_answer_that_cites_nothing(
    data_dir: Path, end: str, judged: float
):
    with ScriptedServer((*RUN[:-1], end)) as server:
        await asked(server.base_url, data_dir, thread="mine")
    with ScriptedServer(judging) as server:
        done = await asyncio.to_thread(score, server, "mine")
    assert scores(done) == [0.5, None, None, judged]
    assert len(server.requests) == 2, "one proposes, one scores"
