"""Runs that commit ec15fe0e wrote still open: a finished one, one that was killed, a follow-up.

`tests/data/ec15fe0e/runs` is their data directory, as that commit wrote it over a scripted server.
Only where the documents stand and the server's address are put right.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from rubricem.agent.record.conversations import ConversationStore, background_in
from rubricem.memory.runs import RunStore
from tests.conftest import ROOT, rubricem
from tests.support.policies import RUN
from tests.support.scripted_server import ScriptedServer

WRITTEN = ROOT / "tests" / "data" / "ec15fe0e" / "runs"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(WRITTEN, tmp_path / "data")
    (tmp_path / "docs").mkdir()
    text = "Simple lightweight unbounded function cache. It never evicts anything."
    (tmp_path / "docs" / "cache.md").write_text(f"# functools.cache\n\n{text}\n")
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def put_right(data: Path, server: ScriptedServer) -> None:
    for path in data.glob("runs/*/request.json"):
        text = re.sub(r"http://127\.0\.0\.1:\d+/v1", server.base_url, path.read_text())
        path.write_text(text.replace("/kept", str(data.parent)))


def test_a_finished_run_is_listed_and_shown_with_its_citation(data: Path):
    listed = {
        run["thread"]: run["status"]
        for run in json.loads(rubricem("runs", "--json").stdout)["runs"]
    }
    assert listed == {"finished": "finished", "follow": "finished", "killed": "unfinished"}
    assert "It is an unbounded cache" in rubricem("runs", "show", "finished").stdout


def test_a_killed_run_goes_on_though_its_prompts_read_otherwise_today(data: Path):
    with ScriptedServer(RUN) as server:
        put_right(data, server)
        done = json.loads(rubricem("ask", "--resume", "killed", "--json").stdout)
        assert len(server.requests) == len(RUN), "a call is known by all that was sent"
    assert (done["status"], done["usage"]["calls"]) == ("finished", len(RUN))


def test_a_conversation_is_read_with_what_its_runs_found(data: Path):
    [conversation] = ConversationStore(data).list_all().conversations
    assert conversation.runs == ("finished", "follow")
    store = RunStore(data)
    found = background_in(store.folder / "follow", store, ("finished",))
    assert [turn.run for turn in found.turns] == ["finished"] and "S1" in found.by_id
    assert store.load("follow").earlier == ("finished",) and store.load("follow").alone == ""
