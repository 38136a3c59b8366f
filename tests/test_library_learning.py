"""`research(memory="on")`: the report first, what it teaches behind it, and never at its cost."""

import asyncio
from pathlib import Path

import pytest

from agent import learnt, research, research_sync
from agent.events import Event, SourceProgress
from agent.learnable import queued
from agent.library import _QUEUES
from memory.runs import RunStore
from memory.schema import Status
from tests.learning import CALLS, QUESTION, Server, kept, prepared
from tests.scripted_server import Fault, Hang, Scripted, ScriptedServer


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


def options(server: ScriptedServer, data: Path) -> dict[str, str]:
    return {"base_url": server.base_url, "source": str(data.parent / "notes"), "memory": "on"}


def test_the_report_comes_first_and_learnt_waits_for_what_it_teaches(data: Path) -> None:
    script, told = Server(), list[Event]()

    async def asked(server: ScriptedServer) -> None:
        report = await research(QUESTION, on_event=told.append, **options(server, data))
        assert report.status is Status.FINISHED and script.asked == ["research"] * 3
        [lesson] = await learnt()
        assert (lesson.outcome, lesson.thread) == ("kept", report.trajectory.thread)

    with ScriptedServer(script) as server:
        asyncio.run(asked(server))
    assert script.asked == [*["research"] * 3, *CALLS] and len(kept(data)) == 1
    said = [event.message for event in told if isinstance(event, SourceProgress)]
    assert "judging this run" in said and said[-1].startswith("kept reflection")


def test_an_event_loop_that_ends_leaves_the_run_waiting(data: Path) -> None:
    with ScriptedServer(Server()) as server:
        report = asyncio.run(research(QUESTION, **options(server, data)))
    assert report.status is Status.FINISHED
    assert queued(RunStore(data)) == [report.trajectory.thread] and kept(data) == []


def test_the_synchronous_form_has_learnt_when_it_returns(data: Path) -> None:
    with ScriptedServer(Server()) as server:
        report = research_sync(QUESTION, **options(server, data))
    assert report.status is Status.FINISHED and len(kept(data)) == 1
    assert queued(RunStore(data)) == []


def test_a_judge_that_fails_costs_no_report_and_the_run_waits(data: Path) -> None:
    def judge(kind: str, number: int) -> Scripted | None:
        return Fault(401) if kind == "criteria" else None

    told: list[Event] = []
    with ScriptedServer(Server(at=judge)) as server:
        report = research_sync(QUESTION, on_event=told.append, **options(server, data))
    assert report.status is Status.FINISHED
    assert queued(RunStore(data)) == [report.trajectory.thread]
    last = told[-1]
    assert isinstance(last, SourceProgress) and "nothing was learnt" in last.message


async def test_cancelling_what_waits_for_it_leaves_the_run_waiting(data: Path) -> None:
    def judge(kind: str, number: int) -> Scripted | None:
        return Hang() if kind == "criteria" else None

    script = Server(at=judge)
    with ScriptedServer(script) as server:
        report = await research(QUESTION, **options(server, data))
        waiting = asyncio.ensure_future(learnt())
        while "criteria" not in script.asked:
            await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await _QUEUES[asyncio.get_running_loop()].stop()
    assert queued(RunStore(data)) == [report.trajectory.thread]


async def test_without_memory_on_nothing_is_learnt(data: Path) -> None:
    script = Server()
    with ScriptedServer(script) as server:
        await research(QUESTION, **{**options(server, data), "memory": "read-only"})
        assert await learnt() == ()
    assert script.asked == ["research"] * 3
