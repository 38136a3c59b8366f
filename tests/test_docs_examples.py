"""The example of the docs, run as it is written: a judge of one's own."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import main
from memory.schema import Stage
from tests.flow import answer, plan
from tests.scripted_server import Scripted, ScriptedServer
from training.run_directory import RunDirectory

DOCS = Path(__file__).parent.parent / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def example(page: str) -> str:
    [code] = PYTHON.findall((DOCS / page).read_text(encoding="utf-8"))
    return str(code)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("own_rubrics", None)


def scripted(body: dict[str, Any], number: int) -> Scripted:
    """One rollout cites and one does not; the judge has one criterion, which both meet."""
    said = [message["content"] for message in body["messages"]]
    if "Criteria:" in said[1]:
        return json.dumps({"verdicts": [{"number": 1, "justification": "so", "points": 2}]})
    if "one JSON object" in said[0]:
        rule = {"title": "Rule", "description": "It names the rule."}
        return json.dumps({"answer": {"positive": [rule]}})
    if "tool_output" not in said[-1]:
        return plan()
    claim = "the least recently used entry"
    return answer(f'It evicts <cite id="S1">{claim}</cite>.' if body["seed"] % 2 else f"{claim}.")


def seeds_differ(run: RunDirectory) -> bool:
    return len({"<cite id=" in trajectory.transcript() for trajectory in run.trajectories()}) == 2


def test_the_judge_of_ones_own_that_is_shown_scores_a_run(here: Path) -> None:
    (here / "own_rubrics.py").write_text(example("collecting.md"))
    (here / "questions.txt").write_text("What does functools.lru_cache evict?\n")
    (here / "docs").mkdir()
    (here / "docs" / "lru.md").write_text("# lru_cache\nIt evicts the least recently used entry.\n")
    [line] = re.findall(
        r"^rubricem (collect .*rubric:own_rubrics.*)$",
        (DOCS / "collecting.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    with ScriptedServer(scripted) as server:
        more = ["--base-url", server.base_url, "--source", "docs", "--reflections", "0"]
        done = CliRunner().invoke(main, [*shlex.split(line), "--group-size", "6", *more])
    assert done.exit_code == 0, done.output
    run = RunDirectory(here / "run")
    assert seeds_differ(run), "of six rollouts some cite and some do not"
    judged = {judgement.trajectory_id: judgement for judgement in run.judgements()}
    for trajectory in run.trajectories():
        cites = "<cite id=" in trajectory.transcript()
        assert judged[trajectory.id].score(Stage.ANSWER) == (1.0 if cites else 0.0)
