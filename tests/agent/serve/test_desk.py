"""Runs over HTTP: asked, followed, decided on by two tabs, stopped, read, refused.

Streams of events: broken off and taken up, at their end, slow, of runs asked elsewhere. Runs
go on with the next server where one is killed, or ended by ^C, in the middle. What is deleted
by hand while a server works with it, or found damaged when one starts, is a sentence.
"""

import asyncio
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.serve.app import sole_server
from rubricem.agent.serve.desk import Capacity
from rubricem.agent.serve.feed import FILE_NAME
from rubricem.agent.sources.sandbox.pool import readers
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import Journal, RunStore
from tests.support import pages, policies
from tests.support.policies import SUPPORTED, answer, plan, search
from tests.support.scripted_server import Hang, Reply, Scripted, ScriptedServer
from tests.support.waiting import PATIENCE, Process

ASKED = (plan(), search("unbounded cache"), answer())
RUBRIC = ["Says what happens to the size", "Says what is evicted"]


class Turns:
    """The turns of `ASKED` for whichever run asks, and the check of its claims."""

    def __init__(self) -> None:
        self.third = 0
        """how often the last turn was asked for"""

    def __call__(self, body: dict[str, Any], number: int) -> Scripted:
        if "check claims" in body["messages"][0]["content"]:
            return SUPPORTED
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn < 2:
            return ASKED[turn]
        self.third += 1
        return self.last()

    def last(self) -> Scripted:
        return ASKED[2]

    async def third_turn(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.third:
                await asyncio.sleep(0.02)


class Halting(Turns):
    """The third is written once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def last(self) -> Scripted:
        self.go.wait(PATIENCE)
        return ASKED[2]


class Stalling(Turns):
    """The third hangs in its middle, until `go` is set for the next one that asks."""

    go = False

    def last(self) -> Scripted:
        return ASKED[2] if self.go else Reply(ASKED[2], hang_after=6)


@pytest.fixture
def model():
    with ScriptedServer(Turns()) as server:
        yield server


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedServer) -> AsyncIterator[pages.RunSite]:
    async with pages.site(pages.run_settings(tmp_path, model)) as made:
        yield made


async def test_a_question_is_followed_to_its_report_and_what_that_stands_on(here: pages.RunSite):
    run = await here.ask()
    told = await here.ended(run)
    assert [event.id for event in told] == list(range(1, len(told) + 1))
    names = [event.name for event in told]
    assert names[-4:] == ["usage", "verdicts", "finished", "end"]
    stages = [event.data["stage"] for event in told if event.name == "stage"]
    assert stages == ["plan", "research", "research", "review", "answer"]
    text = "".join(event.data["text"] for event in told if event.name == "text")
    assert text == "".join(ASKED)
    [planned] = [event.data["text"] for event in told if event.name == "plan"]
    assert planned == "Read the documentation."
    first, *_, last = [event.data["items"] for event in told if event.name == "rubric"]
    assert [item["text"] for item in first] == RUBRIC and first[0]["state"] == "open"
    assert [item["state"] for item in last] == ["unmarked", "unmarked"]
    assert all(0 <= event.data["t"] < 60 for event in told)
    report = (await here.http.get(f"/api/runs/{run}/report")).json()
    assert (report["question"], report["status"]) == (pages.QUESTION, "finished")
    [citation] = report["citations"]
    assert (citation["n"], citation["id"], citation["verdict"]) == (1, "S1", "supported")
    [source] = report["sources"]
    assert source["passage"].endswith("it is unbounded.") and source["number"] == 1
    assert 'popovertarget="c1"' in report["html"] and "an unbounded " in report["html"]
    assert report["markdown"].startswith("# What does")
    stages = [stage["stage"] for stage in report["stages"]]
    assert stages == ["plan", "research", "review", "answer"]
    one = await here.one(run)
    assert (one["state"], one["status"], one["tool_calls"]) == ("ended", "finished", 2)
    assert one["usage"]["completion_tokens"] > 0


async def test_a_decision_that_cannot_be_is_refused_and_can_be_made_again(here: pages.RunSite):
    run = await here.ask(approve_plan=True)
    asked = (await here.until(run, "ask")).data["id"]
    for decision, status in (
        ({"decision": "edit", "text": "no heading"}, 422),
        ({"decision": "edit", "plan": {"rubric": "x"}}, 422),
        ({"decision": "answer", "text": "yes"}, 422),
        ({"decision": "perhaps"}, 422),
        ({"decision": "approve", "id": "another"}, 409),
    ):
        refused = await here.http.post(f"/api/runs/{run}/answer", json={"id": asked, **decision})
        assert refused.status_code == status
        assert refused.json()["error"].endswith(".") and refused.json()["remedy"]
    fine = {"id": asked, "decision": "approve"}
    assert (await here.http.post(f"/api/runs/{run}/answer", json=fine)).status_code == 200
    assert (await here.ended(run))[-2].data["status"] == "finished"


async def test_a_question_back_is_answered_by_whoever_watches(tmp_path: Path):
    script = ["Which version do you mean?", *ASKED, SUPPORTED]
    with ScriptedServer(script) as model:
        async with pages.site(pages.run_settings(tmp_path, model)) as here:
            run = await here.ask(clarify=True)
            asked = await here.until(run, "ask")
            assert (asked.data["kind"], asked.data["text"]) == ("clarify", script[0])
            body = {"id": asked.data["id"], "decision": "answer", "text": "3.12"}
            assert (await here.http.post(f"/api/runs/{run}/answer", json=body)).status_code == 200
            assert (await here.ended(run))[-2].data["status"] == "finished"
        assert "The person answered: 3.12" in str(model.requests[1].body)


async def test_a_stopped_run_ends_with_what_there_is(tmp_path: Path):
    slow = [plan(), search("unbounded cache"), Reply(answer(), piece_seconds=0.3)]
    async with pages.scripted_site(slow, tmp_path) as here:
        run = await here.ask()
        assert (await here.http.get(f"/api/runs/{run}/report")).status_code == 409
        async for event in here.events(run):
            if event.name == "text" and event.data["stage"] == "research":
                break
        assert (await here.http.post(f"/api/runs/{run}/stop")).status_code == 200
        told = await here.ended(run)
        assert told[-2].data == told[-2].data | {"status": "partial"}
        report = (await here.http.get(f"/api/runs/{run}/report")).json()
        assert report["status"] == "partial" and report["reason"] == "it was stopped"
        again = await here.http.post(f"/api/runs/{run}/stop")
        assert again.status_code == 409


async def test_what_is_read_for_a_run_ends_with_it(tmp_path: Path):
    with ScriptedServer(Turns()) as model:
        settings = pages.run_settings(tmp_path, model)
        tag = b"<p " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">"
        for number in range(64):  # each takes its reader all the seconds that it may
            (tmp_path / "documents" / f"{number}.html").write_bytes(b"%d" % number + tag)
        async with pages.site(settings) as here, asyncio.timeout(PATIENCE):
            run = await here.ask()
            while not readers()._working:
                await asyncio.sleep(0.02)
            await here.http.post(f"/api/runs/{run}/stop")
            assert (await here.ended(run))[-2].data["status"] == "partial"
            while readers()._working or len(readers()._turns):
                await asyncio.sleep(0.02)
    cached = [*(tmp_path / "data" / "indexes").rglob("*.json")]
    assert len(cached) < 32


async def test_a_run_stopped_while_it_asks_can_be_resumed_and_asks_again(here: pages.RunSite):
    run = await here.ask(approve_plan=True)
    await here.until(run, "ask")
    await here.http.post(f"/api/runs/{run}/stop")
    assert (await here.ended(run))[-2].data["status"] == "partial"
    report = (await here.http.get(f"/api/runs/{run}/report")).json()
    assert report["html"] == "" and "resume" in report["reason"]
    assert (await here.http.post(f"/api/runs/{run}/resume")).status_code == 200
    asked = await here.until(run, "ask")
    decision = {"id": asked.data["id"], "decision": "approve"}
    await here.http.post(f"/api/runs/{run}/answer", json=decision)
    told = await here.ended(run)
    assert told[0].name == "restart" and told[-2].data["status"] == "finished"
    assert "".join(e.data["text"] for e in told if e.name == "text") == "".join(ASKED)
    over = await here.http.post(f"/api/runs/{run}/resume")
    assert (over.status_code, over.json()["error"]) == (409, "The run has ended.")


async def test_a_question_over_what_is_gone_is_refused_and_nothing_is_stored(tmp_path: Path):
    with ScriptedServer([]) as model:
        sets = {"work": (str(tmp_path / "documents"), str(tmp_path / "gone"))}
        async with pages.site(pages.run_settings(tmp_path, model, collections=sets)) as here:
            asked = {"question": pages.QUESTION, "source": ["@work"]}
            refused = await here.http.post("/api/runs", json=asked)
            assert refused.status_code == 422 and "[collections]" in refused.json()["remedy"]
            assert "gone of the collection @work: There is no folder" in refused.json()["error"]
            assert (await here.http.get("/api/runs")).json()["runs"] == []


async def test_runs_wait_for_a_place_and_too_many_are_refused(tmp_path: Path):
    async with pages.scripted_site([Hang()] * 3, tmp_path, capacity=Capacity(1, waiting=1)) as here:
        first, second = await here.ask("One?"), await here.ask("Two?")
        await here.until(first, "stage")
        assert (await here.one(second))["state"] == "waiting"
        refused = await here.http.post("/api/runs", json={"question": "Three?"})
        assert refused.status_code == 429 and "2 runs" in refused.json()["error"]
        assert len((await here.http.get("/api/runs")).json()["runs"]) == 2
        await here.http.post(f"/api/runs/{second}/stop")
        assert (await here.ended(second))[-2].data["status"] == "partial"
        await here.http.post(f"/api/runs/{first}/stop")
        await here.ended(first)
        assert await here.ask("Three?")


@pytest.fixture
async def slowly(tmp_path: Path) -> AsyncIterator[pages.RunSite]:
    """A site whose model writes piece by piece."""
    slow = [Reply(text, piece_seconds=0.03) for text in ASKED]
    async with pages.scripted_site([*slow, SUPPORTED], tmp_path) as made:
        yield made


async def test_a_watcher_that_comes_back_misses_and_doubles_nothing(slowly: pages.RunSite):
    run = await slowly.ask()
    seen: list[pages.Said] = []
    while not seen or seen[-1].name != "end":
        taken = 0
        async for event in slowly.events(run, seen[-1].id if seen else None):
            seen.append(event)
            taken += 1
            if taken == 3:
                break
    assert [event.id for event in seen] == list(range(1, len(seen) + 1))
    assert seen == await slowly.ended(run), "and everybody is told the same"


async def test_a_run_of_the_command_line_is_told_by_its_end(tmp_path: Path):
    with ScriptedServer(ASKED) as model:
        await policies.asked(model.base_url, tmp_path / "data", thread="cli")
    async with pages.scripted_site([Hang()], tmp_path) as here:
        told = await here.ended("cli")
        assert [event.name for event in told][-3:] == ["verdicts", "finished", "end"]
        report = (await here.http.get("/api/runs/cli/report")).json()
        assert report["question"] == policies.QUESTION and "unbounded" in report["html"]
        resumed = await here.http.post("/api/runs/cli/resume")
        assert resumed.status_code == 409


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("documents", "private", "'private', which this server may not"),
        ('"checker": "auto"', '"checker": "evil@http://127.0.0.1:9/v1"', "came with a copy"),
        ('"extra_body": {}', '"extra_body": {"tools": 1}', "came with a copy"),
    ],
)
async def test_a_run_goes_on_by_what_the_server_offers_alone(
    tmp_path: Path, ours: str, theirs: str, told: str
):
    """As one of a copy that somebody else made, which names a folder of this machine."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.md").write_text("Payroll.")
    with ScriptedServer(Turns()) as model:
        settings = pages.run_settings(tmp_path, model)
        async with pages.site(settings) as here:
            run = await here.ask()
            await here.ended(run)
        folder = settings.data_dir / "runs" / run
        (folder / "trajectory.json").unlink()
        events = (folder / FILE_NAME).read_bytes().splitlines(keepends=True)
        (folder / FILE_NAME).write_bytes(b"".join(events[:2]))
        stored = (folder / "request.json").read_text()
        (folder / "request.json").write_text(stored.replace(ours, theirs))
        RunStore(settings.data_dir).mark_restored()
        async with pages.site(settings) as here:
            last = (await here.ended(run))[-2].data
            assert last["status"] == "failed" and ours in stored and told in str(last)
            assert (await here.http.post(f"/api/runs/{run}/resume")).status_code == 409
        (folder / "request.json").write_text(stored)
        async with pages.site(settings) as here:
            assert (await here.http.post(f"/api/runs/{run}/resume")).status_code == 200
            assert (await here.ended(run))[-2].data["status"] == "finished"
    assert not any("Payroll" in str(request.body) for request in model.requests)


async def test_a_run_asked_of_another_model_is_not_resumed_here(tmp_path: Path):
    request = {
        "ask": {"question": pages.QUESTION, "answer_format": "long"},
        "choices": {"model": "another", "base_url": None, "source": ["python"]},
        "budgets": {},
    }
    async with pages.scripted_site([Hang()], tmp_path) as here:
        here.desk.store.create("other", request)
        one = await here.one("other")
        assert (one["state"], one["status"]) == ("ended", "unfinished")
        reply = await here.http.post("/api/runs/other/resume")
        assert reply.status_code == 409 and "another model" in reply.json()["error"]
        assert (await here.http.get("/api/runs/other/events")).status_code == 409


async def test_a_question_names_a_model_and_a_memory_that_the_server_offers(
    tmp_path: Path, model: ScriptedServer
):
    async with pages.site(pages.run_settings(tmp_path, model, models=("larger",))) as here:
        offered = (await here.http.get("/api/status")).json()
        assert offered["models"] == ["scripted", "larger"]
        assert offered["defaults"]["memory"] == "off"
        run = await here.ask(model="larger", memory="read-only")
        assert (await here.ended(run))[-2].data["status"] == "finished"
        assert (await here.one(run))["model"].startswith("larger@")
        assert {each.body["model"] for each in model.requests} == {"larger"}
        kept = here.desk.store.request(run)["choices"]
        assert (kept["model"], kept["memory"]) == ("larger", "read-only")
        await here.ended(await here.ask())
        assert model.requests[-1].body["model"] == "scripted"
        body = {"question": pages.QUESTION, "model": "dearest"}
        refused = await here.http.post("/api/runs", json=body)
        assert refused.status_code == 422
        assert "not offered" in refused.json()["error"] and "larger" in refused.json()["remedy"]


async def test_a_live_run_whose_folder_is_deleted_is_shown_and_ends_with_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    script = Halting()
    async with pages.scripted_site(script, tmp_path) as here:
        run = await here.ask()
        watching = asyncio.create_task(here.ended(run))
        await script.third_turn()
        shutil.rmtree(tmp_path / "data" / "runs" / run)
        assert (await here.one(run))["state"] == "running"
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


async def test_a_conversation_is_deleted_with_its_own_runs_once_none_goes_on(here: pages.RunSite):
    first = (await here.http.post("/api/runs", json={"question": pages.QUESTION})).json()
    await here.ended(first["run"])
    more = await here.ask(f"{pages.QUESTION} slowly", thread=first["thread"])
    address = f"/api/threads/{first['thread']}"
    refused = await here.http.delete(f"{address}?runs=true")
    assert (refused.status_code, refused.json()["remedy"]) == (409, "Stop it first.")
    await here.ended(more)
    listed = (await here.http.get("/api/runs")).json()
    assert listed["threads"][first["thread"]]["own"] == 2 and listed["problems"] == []
    assert (await here.http.delete(f"{address}?runs=true")).status_code == 204
    assert (await here.http.get("/api/runs")).json()["runs"] == []
    assert (await here.http.delete(address)).status_code == 404


@contextmanager
def server(model: ScriptedServer, folder: Path) -> Iterator[tuple[str, Process]]:
    """The command over a model and a document, and the address that it prints."""
    [source] = pages.run_settings(folder, model).source
    where = ("--base-url", model.base_url, "--model", "scripted", "--source", source)
    with pages.begun_server(folder, *where, "--set", "memory=off", "--no-token") as (told, process):
        yield told[0].split()[2], process


async def told_until(
    address: str, run: str, name: str, after: int | None = None
) -> list[pages.Said]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    url = f"{address}api/runs/{run}/events"
    told = []
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("GET", url, headers=headers) as reply,
    ):
        async for event in pages.read(reply):
            told.append(event)
            if event.name == name:
                break
    return told


async def asked(address: str) -> str:
    async with httpx.AsyncClient(timeout=60) as http:
        reply = await http.post(
            f"{address}api/runs", json={"question": pages.QUESTION}, headers=pages.CHANGING
        )
        return str(reply.json()["run"])


@pytest.mark.parametrize(
    "by", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
async def test_a_run_goes_on_when_the_server_starts_again(tmp_path: Path, by: signal.Signals):
    script = Stalling()
    with ScriptedServer(script) as model:
        with server(model, tmp_path) as (address, process):
            run = await asked(address)
            watching = asyncio.create_task(told_until(address, run, "end"))
            await script.third_turn()
            seen = (await told_until(address, run, "results"))[-1].id
            process.send_signal(by)
            assert await asyncio.to_thread(process.wait, 15) == (-by if by == signal.SIGKILL else 0)
            await asyncio.gather(watching, return_exceptions=True)
        finished = len(model.requests) - script.third
        script.go = True
        with server(model, tmp_path) as (address, _):
            rest = await told_until(address, run, "end", after=seen)
        numbers = [event.id for event in rest]
        assert numbers == list(range(numbers[0], numbers[0] + len(rest))) and numbers[0] > seen
        assert rest[0].name == "restart" and rest[-2].data["status"] == "finished"
        text = "".join(event.data["text"] for event in rest if event.name == "text")
        assert text == "".join(ASKED), "what was told before is told again, once"
        repeated = len(model.requests) - finished - script.third - 1
        assert repeated == 0, "only the turn in flight was asked for again, and then the check"


BEGUN = b'{"id":1,"event":"note","data":{}}\n'


def begun(folder: Path, run: str, request: str) -> Path:
    """A run that a server had begun, and the file of its events."""
    kept = folder / "data" / "runs" / run
    kept.mkdir(parents=True)
    (kept / "request.json").write_text(request)
    (kept / FILE_NAME).write_bytes(BEGUN)
    return kept / FILE_NAME


@pytest.mark.parametrize("request_kept", ["{}", "nonsense"])
async def test_a_run_whose_request_is_damaged_keeps_no_server_from_starting(
    tmp_path: Path, request_kept: str
):
    begun(tmp_path, "odd", request_kept)
    async with pages.scripted_site([], tmp_path) as here:
        told = await here.ended("odd")
        again = await here.http.post("/api/runs/odd/resume")
        listed = (await here.http.get("/api/runs")).json()["runs"]
    assert [event.name for event in told] == ["note", "finished", "end"]
    assert told[1].data["status"] == "failed" and "cannot be read" in told[1].data["reason"]
    assert again.status_code == 500 and "cannot be read" in again.json()["error"]
    assert [run["run"] for run in listed] == ["odd"]


async def test_a_run_that_another_process_works_on_is_left_to_it(tmp_path: Path):
    events = begun(tmp_path, "theirs", "{}")
    journal = Journal(events.parent / "journal.jsonl")
    async with pages.scripted_site([], tmp_path) as here:
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
