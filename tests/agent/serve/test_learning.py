"""What a server learns from its runs: behind the answers, one at a time, never at their cost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.learning import lessons as learning_lessons
from rubricem.agent.learning.lessons import find_queued
from rubricem.agent.serve.desk import Lessons, Researchers
from rubricem.agent.serve.requests import RequestRefused
from rubricem.agent.settings import Settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.bank import RubricBank
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Reflection
from tests.support.bank_cli import REWORDED, Failing, Server
from tests.support.pages import RunSite, run_settings, scripted_site, site
from tests.support.scripted_server import Fault, Hang, ScriptedServer
from tests.support.values import trajectory
from tests.support.waiting import PATIENCE

SECOND = "And in Python 3.12?"


async def learnt(here: RunSite, waiting: int = 0) -> dict[str, Any]:
    """The state of learning once nothing is learnt from, and so many runs wait."""
    async with asyncio.timeout(PATIENCE):
        while True:
            state: dict[str, Any] = (await here.http.get("/api/learning")).json()
            if not state["now"] and state["waiting"] == waiting and state["lessons"]:
                return state
            await asyncio.sleep(0.05)


async def left(here: RunSite, waiting: int) -> None:
    """Return once a run is learnt from, and so many wait behind it: a run ends before it waits."""
    async with asyncio.timeout(PATIENCE):
        while (now := (await here.http.get("/api/learning")).json()["now"]) is None or (
            now["left"] != waiting
        ):
            await asyncio.sleep(0.05)


async def asked(script: Server, kind: str) -> None:
    while kind not in script.asked:
        await asyncio.sleep(0.02)


async def kept(folder: Path) -> list[Reflection]:
    return [item.reflection for item in await RubricBank(folder / "data").items()]


async def test_a_run_is_learnt_from_behind_its_answer_and_the_next_one_is_given_it(tmp_path: Path):
    script = Server(at=(failing := Failing(Hang())))
    async with scripted_site(script, tmp_path, memory="on") as here:
        run = await here.ask()
        told = await here.ended(run)
        assert told[-2].data["status"] == "finished"
        await asyncio.wait_for(asked(script, "criteria"), PATIENCE)
        # The judge hangs; the answer stands.
        report = (await here.http.get(f"/api/runs/{run}/report")).json()
        assert "unbounded" in report["html"]
        now = (await here.http.get("/api/learning")).json()
        assert (now["at_once"], now["waiting"]) == (True, 1)
        assert (now["now"]["run"], now["now"]["left"]) == (run, 0)
        assert now["now"]["doing"] == "judging this run"
        failing.on = False
        await here.http.post("/api/learning/stop")
        await here.http.post("/api/learning")
        state = await learnt(here)
        [item] = await kept(tmp_path)
        lesson = state["lessons"][0]
        assert (lesson["run"], lesson["outcome"]) == (run, "kept")
        assert lesson["reflection"] == item.id and lesson["question"].startswith("What does")
        again = await here.ask()
        await here.ended(again)
        recalled = (await here.http.get(f"/api/runs/{again}/report")).json()["recalled"]
    assert [r["id"] for r in recalled if r["kind"] == "reflection"] == [item.id]


async def test_stopping_leaves_what_waits_and_a_follow_up_is_learnt_from_with_its_thread(
    tmp_path: Path,
):
    script = Server(at=(failing := Failing(Hang())))
    async with scripted_site(script, tmp_path, memory="on") as here:
        first = await here.ask()
        await here.ended(first)
        second = await here.ask(SECOND, thread=(await here.one(first))["thread"])
        await here.ended(second)
        await asyncio.wait_for(asked(script, "criteria"), PATIENCE)
        await left(here, 1)
        stopped = (await here.http.post("/api/learning/stop")).json()
        assert stopped["now"] is None and stopped["waiting"] == 2
        assert sorted(find_queued(here.desk.store)) == sorted([first, second])
        failing.on = False
        await here.http.post("/api/learning")
        state = await learnt(here)
    assert [each["outcome"] for each in state["lessons"]] == ["kept", "kept"]
    questions = {item.question for item in await kept(tmp_path)}
    assert REWORDED in questions


async def test_a_judge_that_fails_is_a_note_and_the_run_waits(tmp_path: Path):
    script = Server(at=(failing := Failing(Fault(401))))
    async with scripted_site(script, tmp_path, memory="on") as here:
        run = await here.ask()
        told = await here.ended(run)
        state = await learnt(here, waiting=1)
        one = await here.one(run)
        failing.on = False
        begun = await here.http.post("/api/learning")
        after = await learnt(here)
    assert told[-2].data["status"] == one["status"] == "finished" and begun.status_code == 202
    assert state["lessons"][0]["outcome"] == "queued" and "API key" in state["lessons"][0]["said"]
    assert after["lessons"][0]["outcome"] == "kept"


async def test_a_server_that_ends_leaves_the_run_to_whoever_comes_next(tmp_path: Path):
    script = Server(at=(failing := Failing(Hang())))
    with ScriptedServer(script) as model:
        chosen = run_settings(tmp_path, model, memory="on")
        async with site(chosen) as here:
            run = await here.ask()
            await asyncio.wait_for(asked(script, "criteria"), PATIENCE)
        assert find_queued(here.desk.store) == [run]
        failing.on = False
        async with site(chosen) as here:
            assert (await here.http.get("/api/learning")).json()["waiting"] == 1
            await here.http.post("/api/learning")
            await learnt(here)
    assert len(await kept(tmp_path)) == 1
    assert script.asked.count("reflect") == 8


async def test_with_the_embedded_model_runs_wait_until_somebody_wants_them_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    setup = setup_of(Settings(data_dir=tmp_path, model=str(tmp_path / "none.gguf"), memory="on"))
    lessons, run = Lessons(setup, Researchers(setup.model)), trajectory("It is.")
    store = RunStore(tmp_path)
    for each in (run, run.model_copy(update={"thread": "another"})):
        store.create(each.thread, {"ask": {"question": run.question}, "choices": setup.choices})
        store.save(each)
        await lessons.after(each)
    state = await lessons.state()
    assert (state["at_once"], state["waiting"], state["now"]) == (False, 2, None)
    monkeypatch.setattr(learning_lessons, "MOST_WAITING", 1)
    with pytest.raises(RequestRefused, match="1 runs wait to be learnt from") as refused:
        await lessons.begin()
    assert refused.value.status == 429
    while (state := await lessons.state())["now"] or not state["lessons"]:
        await asyncio.sleep(0.02)
    await lessons.aclose()
    # The weights are not there, which is a note; the run still waits.
    assert state["waiting"] == 2 and "none.gguf" in state["lessons"][0]["said"]
