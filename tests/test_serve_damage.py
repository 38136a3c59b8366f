"""What a server finds in its data directory and did not leave there so: it starts all the same."""

import json
from pathlib import Path

import pytest

from agent.serve.event_log import FILE_NAME
from agent.serve.sole import sole_server
from memory.errors import SettingsError
from memory.journal import Journal
from tests.run_site import settings, site
from tests.scripted_server import ScriptedServer

BEGUN = b'{"id":1,"event":"note","data":{}}\n'


def begun(folder: Path, run: str, request: str) -> Path:
    """A run that a server had begun, and the file of its events."""
    kept = folder / "data" / "runs" / run
    kept.mkdir(parents=True)
    (kept / "request.json").write_text(request)
    (kept / FILE_NAME).write_bytes(BEGUN)
    return kept / FILE_NAME


@pytest.mark.parametrize(
    "request_kept",
    [
        "{}",
        "[]",
        "nonsense",
        json.dumps({"ask": {"question": "x", "answer_format": "sung"}, "choices": {}}),
        json.dumps({"ask": {}, "choices": {}, "budgets": {"patience": 1}}),
    ],
)
async def test_a_run_whose_request_is_damaged_keeps_no_server_from_starting(
    tmp_path: Path, request_kept: str
):
    begun(tmp_path, "odd", request_kept)
    with ScriptedServer([]) as model:
        async with site(settings(tmp_path, model)) as here:
            told = await here.ended("odd")
            again = await here.http.post("/api/runs/odd/resume")
            listed = (await here.http.get("/api/runs")).json()["runs"]
    assert [event.name for event in told] == ["note", "finished", "end"]
    assert told[1].data["status"] == "failed" and "cannot be read" in told[1].data["reason"]
    assert again.status_code == 500 and "cannot be read" in again.json()["error"]
    assert [run["run"] for run in listed] == ["odd"]


async def test_events_that_cannot_be_read_keep_no_server_from_starting(tmp_path: Path):
    events = begun(tmp_path, "odd", "{}")
    events.unlink()
    events.mkdir()
    with ScriptedServer([]) as model:
        async with site(settings(tmp_path, model)) as here:
            assert (await here.http.get("/api/status")).status_code == 200


async def test_a_run_that_another_process_works_on_is_left_to_it(tmp_path: Path):
    events = begun(tmp_path, "theirs", "{}")
    journal = Journal(events.parent / "journal.jsonl")
    with ScriptedServer([]) as model:
        async with site(settings(tmp_path, model)) as here:
            one = await here.one("theirs")
            again = await here.http.post("/api/runs/theirs/resume")
    journal.close()
    assert one["status"] == "elsewhere" and again.status_code == 409
    assert events.read_bytes() == BEGUN


def test_a_data_directory_has_one_server(tmp_path: Path):
    second = sole_server(tmp_path)
    with sole_server(tmp_path):
        with pytest.raises(SettingsError, match="Another rubricem serve") as caught, second:
            raise AssertionError("two servers work with one directory")
        assert "RUBRICEM_DATA_DIR" in caught.value.remedy
    with sole_server(tmp_path):
        assert (tmp_path / "serve.lock").exists()
