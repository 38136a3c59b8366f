"""Streams of events: broken off and taken up, at their end, slow, of runs asked elsewhere."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.pages import RunSite, Said, run_settings, scripted_site, site
from tests.support.policies import QUESTION, SUPPORTED, answer, asked, plan, search
from tests.support.scripted_server import Hang, Reply, ScriptedServer

SLOW = [Reply(text, piece_seconds=0.03) for text in (plan(), search("more"), answer())]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[RunSite]:
    with ScriptedServer([*SLOW, SUPPORTED]) as model:
        async with site(run_settings(tmp_path, model)) as made:
            yield made


async def test_a_watcher_that_comes_back_misses_and_doubles_nothing(here: RunSite):
    run = await here.ask()
    seen: list[Said] = []
    while not seen or seen[-1].name != "end":
        taken = 0
        async for event in here.events(run, seen[-1].id if seen else None):
            seen.append(event)
            taken += 1
            if taken == 3:
                break
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert seen == await here.ended(run), "and everybody is told the same"


async def test_closing_every_page_neither_stops_nor_loses_a_run(here: RunSite):
    run = await here.ask()
    async for event in here.events(run):
        if event.name == "text":
            break
    while (await here.one(run))["state"] != "ended":
        await asyncio.sleep(0.1)
    told = await here.ended(run)
    assert told[-2].data["status"] == "finished"


async def test_a_client_that_reads_nothing_holds_nobody_up(here: RunSite):
    run = await here.ask()
    place = urlsplit(str(here.http.base_url))
    with socket.create_connection((place.hostname or "", place.port or 0)) as silent:
        head = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        silent.sendall(head.encode())
        told = await here.ended(run)
        assert told[-2].data["status"] == "finished"


async def test_who_has_the_last_event_is_told_not_to_come_back(here: RunSite):
    run = await here.ask()
    last = (await here.ended(run))[-1].id
    reply = await here.http.get(f"/api/runs/{run}/events", headers={"Last-Event-ID": str(last)})
    assert reply.status_code == 204
    assert [event.id async for event in here.events(run, last - 2)] == [last - 1, last]


@pytest.mark.parametrize("number", ["x", "-1", "1e3", "9" * 40])
async def test_what_is_no_number_of_an_event_is_refused(here: RunSite, number: str):
    run = await here.ask()
    reply = await here.http.get(f"/api/runs/{run}/events?after={number}")
    assert reply.status_code == 422 and "is not the number of an event" in reply.json()["error"]
    await here.http.post(f"/api/runs/{run}/stop")


async def test_who_is_ahead_of_a_run_that_goes_on_is_told_all_of_it(here: RunSite):
    run = await here.ask()
    assert [event.id async for event in here.events(run, 5000)][:3] == [1, 2, 3]


async def test_a_run_of_the_command_line_is_told_by_its_end(tmp_path: Path):
    with ScriptedServer([plan(), search("more"), answer()]) as model:
        await asked(model.base_url, tmp_path / "data", thread="cli")
    async with scripted_site([Hang()], tmp_path) as here:
        told = await here.ended("cli")
        assert [event.name for event in told][-3:] == ["verdicts", "finished", "end"]
        report = (await here.http.get("/api/runs/cli/report")).json()
        assert report["question"] == QUESTION and "unbounded" in report["html"]
        resumed = await here.http.post("/api/runs/cli/resume")
        assert resumed.status_code == 409


async def test_a_run_asked_of_another_model_is_not_resumed_here(tmp_path: Path):
    with ScriptedServer([Hang()]) as model:
        async with site(run_settings(tmp_path, model)) as here:
            request = {
                "ask": {"question": QUESTION, "answer_format": "long"},
                "choices": {"model": "another", "base_url": None, "source": ["python"]},
                "budgets": {},
            }
            here.desk.store.create("other", request)
            one = await here.one("other")
            assert (one["state"], one["status"]) == ("ended", "unfinished")
            reply = await here.http.post("/api/runs/other/resume")
            assert reply.status_code == 409 and "another model" in reply.json()["error"]
            assert (await here.http.get("/api/runs/other/events")).status_code == 409
