"""What is deleted by hand while a server works with it: a sentence, and nothing left behind."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.conversations.store import Conversation, ConversationStore
from agent.serve.event_log import FILE_NAME
from tests.flow import RUN, SUPPORTED
from tests.run_site import QUESTION, settings, site
from tests.scripted_server import Scripted, ScriptedServer
from tests.waiting import PATIENCE


class Deleting(ConversationStore):
    """Threads that somebody deletes just when a question is put into them."""

    def add_run(self, identifier: str, run: str) -> Conversation:
        self.delete(identifier)
        return super().add_run(identifier, run)


class Halting:
    """The usual turns; the third is written once `go` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = threading.Event()

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if "check claims" in body["messages"][0]["content"]:
            return SUPPORTED
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        self.asked = max(self.asked, turn + 1)
        if turn == 2:
            self.go.wait(PATIENCE)
        return RUN[turn]

    async def third_turn(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.asked < 3:
                await asyncio.sleep(0.02)


async def test_a_live_run_whose_folder_is_deleted_ends_with_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    script = Halting()
    with ScriptedServer(script) as model:
        async with site(settings(tmp_path, model)) as here:
            run = await here.ask()
            watching = asyncio.create_task(here.ended(run))
            await script.third_turn()
            shutil.rmtree(tmp_path / "data" / "runs" / run)
            script.go.set()
            told = await asyncio.wait_for(watching, PATIENCE)
            one, listed = await here.http.get(f"/api/runs/{run}"), await here.http.get("/api/runs")
            report = await here.http.get(f"/api/runs/{run}/report")
    last = told[-2]
    assert (last.name, last.data["status"]) == ("finished", "failed")
    assert last.data["reason"].startswith("The folder of this run was deleted while it went on")
    assert one.status_code == report.status_code == 404 and "deleted" in one.json()["error"]
    assert listed.json()["runs"] == []
    assert not (tmp_path / "data" / "runs" / run).exists(), "nothing is left that nobody finds"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_live_run_without_its_folder_is_shown_and_can_be_stopped(tmp_path: Path):
    script = Halting()
    with ScriptedServer(script) as model:
        async with site(settings(tmp_path, model)) as here:
            run = await here.ask()
            await script.third_turn()
            shutil.rmtree(tmp_path / "data" / "runs" / run)
            assert (await here.one(run))["state"] == "running"
            assert (await here.http.post(f"/api/runs/{run}/stop")).status_code == 200
            told = await here.ended(run)
            script.go.set()
    assert "was deleted while it went on" in told[-2].data["reason"]


async def test_events_whose_file_is_gone_are_told_as_gone(tmp_path: Path):
    with ScriptedServer([*RUN, SUPPORTED]) as model:
        async with site(settings(tmp_path, model)) as here:
            run = await here.ask()
            whole = await here.ended(run)
            log = await here.desk.logs.of(run)
            log._tail.clear()  # as after more events than are kept in memory
            (tmp_path / "data" / "runs" / run / FILE_NAME).unlink()
            again = await here.ended(run)
    assert [event.id for event in again] == [event.id for event in whole]
    assert {event.name for event in again} == {"note"}


async def test_a_thread_deleted_while_its_question_is_taken_up_leaves_no_request(tmp_path: Path):
    with ScriptedServer([]) as model:
        chosen = settings(tmp_path, model)
        async with site(chosen) as here:
            thread = (await here.http.post("/api/threads", json={})).json()["id"]
            here.desk.conversations = Deleting(chosen.data_dir)
            asked = {"question": QUESTION, "thread": thread}
            refused = await here.http.post("/api/runs", json=asked)
            listed = (await here.http.get("/api/runs")).json()["runs"]
    assert refused.status_code == 404 and "no conversation" in refused.json()["error"]
    assert listed == [] and list((tmp_path / "data" / "runs").iterdir()) == []
    assert model.requests == []


async def test_a_run_of_the_command_line_gets_a_thread_and_a_branch_where_it_has_one(
    tmp_path: Path,
):
    with ScriptedServer([*RUN, SUPPORTED, *RUN, SUPPORTED]) as model:
        chosen = settings(tmp_path, model)
        async with site(chosen) as here:
            run = await here.ask()
            await here.ended(run)
            own = (await here.one(run))["thread"]
            begun = (await here.http.post("/api/threads", json={"run": run})).json()
            assert (begun["id"], begun["runs"]) == (own, [run])
            here.desk.conversations.delete(own)
            new = (await here.http.post("/api/threads", json={"run": run})).json()
            assert new["id"] != own and new["runs"] == [run] and new["title"] == QUESTION
            second = await here.ask("And then?", thread=new["id"])
            await here.ended(second)
            branch = (await here.http.post("/api/threads", json={"run": run})).json()
            assert branch["parent"] == {"conversation": new["id"], "run": run}
            gone = await here.http.post("/api/threads", json={"run": "never-asked"})
    assert gone.status_code == 404
