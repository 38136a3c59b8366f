"""A program's reply is not held up by the pace at which people are told of a run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.serve.event_log import FILE_NAME
from tests.flow import RUN, SUPPORTED
from tests.run_site import QUESTION, settings, site
from tests.scripted_server import Fault, Scripted, ScriptedServer
from tests.waiting import PATIENCE

PROGRAM = {"Content-Type": "application/json"}
CHAT = {"model": "rubricem", "messages": [{"role": "user", "content": QUESTION}]}
RESPONSE = {"model": "rubricem", "input": QUESTION}


class Blocking:
    """The usual turns; at the second one the run's events can no longer be written."""

    def __init__(self, data: Path) -> None:
        self.runs = data / "runs"

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if "check claims" in body["messages"][0]["content"]:
            return SUPPORTED
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn == 1:
            [events] = self.runs.glob(f"*/{FILE_NAME}")
            events.rename(events.with_name("aside"))
            events.mkdir()
        return RUN[turn]

    def unblock(self) -> None:
        [blocked] = self.runs.glob(f"*/{FILE_NAME}")
        blocked.rmdir()
        blocked.with_name("aside").rename(blocked)


@pytest.mark.parametrize(
    "path, asked", [("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)]
)
async def test_a_reply_comes_while_the_events_of_its_run_are_still_being_told(
    tmp_path: Path, path: str, asked: dict[str, Any]
):
    script = Blocking(tmp_path / "data")
    with ScriptedServer(script) as model:
        async with site(settings(tmp_path, model)) as here:
            reply = await here.http.post(path, json=asked, headers=PROGRAM, timeout=PATIENCE)
            [run] = here.desk.live
            assert (await here.one(run))["state"] == "running"
            if path.endswith("responses"):
                again = await here.http.get(f"/v1/responses/{reply.json()['id']}")
                assert again.json()["status"] == "completed"
            script.unblock()
            told = await asyncio.wait_for(here.ended(run), PATIENCE)
    assert reply.status_code == 200 and "unbounded cache [1]" in reply.text
    assert "Stage: research" in reply.text, "what was done is told as reasoning"
    assert [event.name for event in told][-2:] == ["finished", "end"]
    assert [event.id for event in told] == list(range(told[0].id, told[0].id + len(told)))


async def test_a_run_that_failed_is_told_without_waiting_for_its_events(tmp_path: Path):
    with ScriptedServer([Fault(401)]) as model:
        async with site(settings(tmp_path, model)) as here:
            reply = await here.http.post(
                "/v1/chat/completions", json=CHAT, headers=PROGRAM, timeout=PATIENCE
            )
    assert reply.status_code >= 500 and "API key" in reply.json()["error"]["message"]
