"""Streams of events: broken off and taken up, at their end, slow, of runs asked elsewhere.

Reports exported over HTTP: each form whole, nothing of the machine in them.
"""

import asyncio
import io
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pypdf
import pytest
from pydantic import SecretStr

from rubricem.agent.serve.routes_exports import file_name
from rubricem.agent.serve.routes_exports import router as exports_router
from rubricem.agent.settings import Settings
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Segment, Source, Stage, Trajectory
from tests.support.pages import RunSite, Said, run_settings, served, site
from tests.support.policies import QUESTION, SUPPORTED, answer, asked, plan, search
from tests.support.scripted_server import Hang, Reply, ScriptedServer
from tests.support.values import WHOLE, run_of

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
    with ScriptedServer([Hang()]) as model:
        async with site(run_settings(tmp_path, model)) as here:
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


KEY = "sk-not-to-be-seen-0123"
NASTY = (
    '</style><script>alert(1)</script><img src="file:///etc/passwd">@import "http://127.0.0.1:9/x"'
)
KINDS = {"md": "text/markdown", "html": "text/html", "pdf": "application/pdf"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", api_key=SecretStr(KEY))


@pytest.fixture
def store(settings: Settings) -> RunStore:
    return RunStore(settings.data_dir)


@pytest.fixture
async def client(settings: Settings, store: RunStore) -> AsyncIterator[httpx.AsyncClient]:
    keep(store, run_of(name="a"))
    async with served(exports_router(settings)) as client:
        yield client


def keep(store: RunStore, trajectory: Trajectory) -> None:
    store.create(trajectory.thread, {"ask": {"question": trajectory.question}, "choices": {}})
    store.save(trajectory)


def leaky(data_dir: Path) -> Trajectory:
    """A run that names this machine's folders and a key wherever it has words."""
    path = f"{data_dir}/uploads/x and {Path.home()}/y {KEY}"
    source = Source(id="S1", title=path, location=path, text=path, tool="search", query=path)
    answer = f'<answer>It is <cite id="S1">in {path}</cite>.</answer>'
    run = run_of({**WHOLE, Stage.ANSWER: answer}, "leaky", sources=(source,), reason=path)
    segments: tuple[Segment, ...] = run.segments
    return run.model_copy(update={"policy": path, "question": path, "segments": segments})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_report_is_a_file_of_its_kind(client: httpx.AsyncClient, kind: str):
    reply = await client.get(f"/api/runs/a/export/{kind}")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(KINDS[kind])
    assert reply.headers["content-disposition"] == f'attachment; filename="rubricem-a.{kind}"'
    text = _pdf_text(reply.content) if kind == "pdf" else reply.text
    assert "The least recently used entry goes first." in text


async def test_json_is_the_whole_run_and_can_be_read_back(
    client: httpx.AsyncClient, store: RunStore
):
    reply = await client.get("/api/runs/a/export/json")
    assert Trajectory.model_validate_json(reply.content) == store.load("a")


@pytest.mark.parametrize("kind", [*KINDS, "json"])
async def test_no_folder_and_no_key_of_this_machine_is_in_an_export(
    client: httpx.AsyncClient, settings: Settings, store: RunStore, kind: str
):
    keep(store, leaky(settings.data_dir))
    reply = await client.get(f"/api/runs/leaky/export/{kind}")
    text = _pdf_text(reply.content) if kind == "pdf" else reply.text
    whole = re.sub(r"\s+", "", text.replace("\\", ""))
    assert "uploads/x" in whole
    for hidden in (str(settings.data_dir), str(Path.home()), KEY):
        assert hidden not in whole and hidden.encode() not in reply.content


@pytest.mark.parametrize("kind", ["html", "pdf"])
async def test_what_models_and_pages_wrote_stays_text(
    client: httpx.AsyncClient, store: RunStore, kind: str
):
    answer = f"<answer>It goes first. {NASTY}</answer>"
    nasty = run_of({**WHOLE, Stage.ANSWER: answer}, "nasty")
    keep(store, nasty.model_copy(update={"question": NASTY}))
    reply = await client.get(f"/api/runs/nasty/export/{kind}")
    assert reply.status_code == 200
    if kind == "html":
        assert "<script" not in reply.text and "<img" not in reply.text
        assert "&lt;script&gt;" in reply.text
    else:
        assert "alert(1)" in _pdf_text(reply.content)
        assert b"/EmbeddedFile" not in reply.content and b"/JavaScript" not in reply.content


@pytest.mark.parametrize("path", ["none/export/md", "%2e%2e/export/md", "a%2fb/export/md"])
async def test_an_unknown_run_is_a_404(client: httpx.AsyncClient, path: str):
    assert (await client.get(f"/api/runs/{path}")).status_code == 404


async def test_an_unknown_form_is_refused(client: httpx.AsyncClient):
    assert (await client.get("/api/runs/a/export/exe")).status_code == 422


async def test_a_run_that_goes_on_has_no_report_yet(client: httpx.AsyncClient, store: RunStore):
    store.create("young", {"ask": {"question": "?"}, "choices": {}})
    assert (await client.get("/api/runs/young/export/md")).status_code == 409


@pytest.mark.parametrize("run", ['a".exe', "a\r\nSet-Cookie: x=1", "日本", "../x", "a;b", ""])
def test_a_file_name_is_plain_whatever_the_run_is_called(run: str):
    assert re.fullmatch(r"rubricem-[A-Za-z0-9_-]+\.pdf", file_name(run, "pdf"))


def _pdf_text(content: bytes) -> str:
    text = "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages)
    return json.loads(json.dumps(text))
