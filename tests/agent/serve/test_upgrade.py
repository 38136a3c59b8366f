"""What a server of commit ec15fe0e kept is served on, from the copy that its `backup` made.

`tests/data/ec15fe0e/served.tar.gz` holds a named conversation of two runs, the first with a title,
tags and a rating; a run in progress; uploads; and a user with a run. The folder of the documents
was renamed to /kept, and the model's server has another address each time.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.record.conversations import background_in
from rubricem.agent.serve.app import create_app
from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.security import Security
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.users import Users
from rubricem.memory.runs import RunStore
from tests.conftest import ROOT, rubricem
from tests.support.policies import RUN
from tests.support.scripted_server import Json, Scripted, ScriptedServer
from tests.support.tool_servers import serving_http
from tests.support.waiting import PATIENCE, wait_for

COPY = ROOT / "tests" / "data" / "ec15fe0e" / "served.tar.gz"
OWNER = "t0ken-" * 6


def reply(body: Json, number: int) -> Scripted:
    return RUN[min(sum(each["role"] == "assistant" for each in body["messages"]), 2)]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    data, docs = tmp_path / "data", tmp_path / "docs"
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(data))
    rubricem("restore", COPY)
    docs.mkdir()
    (docs / "cache.md").write_text("# functools.cache\n\nIt never evicts anything.\n")
    with ScriptedServer(reply) as model:
        here = {"base_url": model.base_url, "source": [str(docs)]}
        for path in data.rglob("request.json"):
            request = json.loads(path.read_text())
            path.write_text(json.dumps({**request, "choices": {**request["choices"], **here}}))
        settings = load_settings({**here, "model": "scripted", "memory": "off", "verify": "off"})
        security = Security(token=OWNER, users=Users(data))
        with serving_http(create_app(RunDesk(settings), security)) as url:
            yield f"{url}/api"


def get(url: str, path: str, token: str = OWNER) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{url}/{path}", headers=headers, timeout=PATIENCE).json()


def test_what_an_earlier_server_kept_is_shown_and_gone_on_with(served: str, tmp_path: Path):
    listed = get(served, "runs")
    asked = {run["question"]: run for run in listed["runs"]}
    first = asked["What is functools.cache?"]
    assert (first["title"], first["tags"]) == ("The first", ["cache", "old"])
    report = get(served, f"runs/{first['run']}/report")
    assert report["citations"][0]["claim"] == "an unbounded cache"
    [named] = [each for each in listed["threads"].values() if each["title"] == "Caches"]
    assert named["runs"] == [first["run"], asked["And what does it evict?"]["run"]]
    store = RunStore(tmp_path / "data")
    assert store.load(named["runs"][1]).earlier == (first["run"],)
    found = background_in(store.folder / named["runs"][1], store, (first["run"],))
    assert [turn.run for turn in found.turns] == [first["run"]] and "S1" in found.by_id
    assert get(served, "uploads")["uploads"][0]["documents"][0]["name"] == "rule.md"
    left = asked["What goes on forever?"]["run"]
    wait_for(lambda: get(served, f"runs/{left}")["status"] == "finished")
    rated = tmp_path / "data" / "runs" / first["run"] / "rating.json"
    assert json.loads(rated.read_text())[0]["score"] == 4
    assert "The first" in rubricem("runs", "search", "unbounded").stdout


def test_a_user_of_an_earlier_server_has_their_runs_and_limits_with_a_new_token(served: str):
    token = rubricem("users", "add", "anna").stdout.split()[-1]
    assert [run["question"] for run in get(served, "runs", token)["runs"]] == [
        "What is a cache of anna's?"
    ]
    assert "day tokens 100000" in rubricem("users").stdout
