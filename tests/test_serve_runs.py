"""Runs over HTTP: asked, followed, decided on by two tabs, stopped, read, refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.serve.desk import Capacity
from tests.flow import SUPPORTED, answer, plan, search
from tests.run_site import QUESTION, Site, settings, site
from tests.scripted_server import Fault, Hang, Reply, ScriptedServer

RUN = (plan(), search("unbounded cache"), answer())
RUBRIC = ["Says what happens to the size", "Says what is evicted"]


def reply(body: dict[str, Any], number: int) -> str:
    """The next turn of `RUN` for whichever run asks."""
    first = body["messages"][0]["content"]
    if "check claims" in first:
        return SUPPORTED
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return RUN[min(said, len(RUN) - 1)]


@pytest.fixture
def model():
    with ScriptedServer(reply) as server:
        yield server


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedServer) -> AsyncIterator[Site]:
    async with site(settings(tmp_path, model)) as made:
        yield made


async def test_a_question_is_followed_to_its_report(here: Site):
    run = await here.ask()
    told = await here.ended(run)
    assert [event.id for event in told] == list(range(1, len(told) + 1))
    names = [event.name for event in told]
    assert names[-4:] == ["usage", "verdicts", "finished", "end"]
    stages = [event.data["stage"] for event in told if event.name == "stage"]
    assert stages == ["plan", "research", "research", "review", "answer"]
    text = "".join(event.data["text"] for event in told if event.name == "text")
    assert text == "".join(RUN)
    [planned] = [event.data["text"] for event in told if event.name == "plan"]
    assert planned == "Read the documentation."
    first, *_, last = [event.data["items"] for event in told if event.name == "rubric"]
    assert [item["text"] for item in first] == RUBRIC and first[0]["state"] == "open"
    assert [item["state"] for item in last] == ["met", "met"]
    assert all(0 <= event.data["t"] < 60 for event in told)


async def test_the_report_says_what_it_stands_on(here: Site):
    run = await here.ask()
    await here.ended(run)
    report = (await here.http.get(f"/api/runs/{run}/report")).json()
    assert (report["question"], report["status"]) == (QUESTION, "finished")
    [citation] = report["citations"]
    assert (citation["n"], citation["id"], citation["verdict"]) == (1, "S1", "supported")
    [source] = report["sources"]
    assert source["passage"].endswith("it is unbounded.") and source["number"] == 1
    assert 'popovertarget="c1"' in report["html"] and "an unbounded " in report["html"]
    assert report["markdown"].startswith("# What does")
    assert [stage["stage"] for stage in report["stages"]] == [
        "plan",
        "research",
        "review",
        "answer",
    ]
    one = await here.one(run)
    assert (one["state"], one["status"], one["tool_calls"]) == ("ended", "finished", 2)
    assert one["usage"]["completion_tokens"] > 0


async def test_runs_are_listed_newest_first_a_page_at_a_time(here: Site):
    runs = [await here.ask(f"Question {n}?") for n in range(3)]
    for run in runs:
        await here.ended(run)
    listed = (await here.http.get("/api/runs?limit=2")).json()["runs"]
    assert [each["run"] for each in listed] == runs[:0:-1]
    rest = (await here.http.get(f"/api/runs?before={runs[1]}")).json()["runs"]
    assert [(each["run"], each["question"]) for each in rest] == [(runs[0], "Question 0?")]


async def test_of_two_tabs_that_decide_on_one_plan_the_second_is_refused(here: Site):
    run = await here.ask(approve_plan=True)
    asked = await here.until(run, "ask")
    assert asked.data["kind"] == "plan" and asked.data["rubric"] == RUBRIC
    assert (await here.one(run))["state"] == "asking"
    decision = {"id": asked.data["id"], "decision": "approve"}
    both = await asyncio.gather(
        *(here.http.post(f"/api/runs/{run}/answer", json=decision) for _ in range(2))
    )
    assert sorted(reply.status_code for reply in both) == [200, 409]
    refused = next(reply for reply in both if reply.status_code == 409).json()
    assert refused["error"].startswith("This was answered already")
    told = await here.ended(run)
    assert [event.data["decision"] for event in told if event.name == "answered"] == ["approve"]
    assert told[-2].data["status"] == "finished"


async def test_an_edited_plan_is_followed(here: Site, model: ScriptedServer):
    run = await here.ask(approve_plan=True)
    asked = await here.until(run, "ask")
    edited = asked.data["text"].replace("lru_cache maxsize None", "functools cache")
    body = {"id": asked.data["id"], "decision": "edit", "text": edited}
    assert (await here.http.post(f"/api/runs/{run}/answer", json=body)).status_code == 200
    told = await here.ended(run)
    assert next(e.data["query"] for e in told if e.name == "tool") == "functools cache"


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        ({"decision": "edit", "text": "no heading"}, 422),
        ({"decision": "edit", "plan": {"rubric": "x"}}, 422),
        ({"decision": "answer", "text": "yes"}, 422),
        ({"decision": "perhaps"}, 422),
        ({"decision": "approve", "id": "another"}, 409),
    ],
)
async def test_a_decision_that_cannot_be_is_refused_and_can_be_made_again(
    here: Site, decision: dict[str, Any], status: int
):
    run = await here.ask(approve_plan=True)
    asked = (await here.until(run, "ask")).data["id"]
    refused = await here.http.post(f"/api/runs/{run}/answer", json={"id": asked, **decision})
    assert refused.status_code == status
    assert refused.json()["error"].endswith(".") and refused.json()["remedy"]
    fine = {"id": asked, "decision": "approve"}
    assert (await here.http.post(f"/api/runs/{run}/answer", json=fine)).status_code == 200
    assert (await here.ended(run))[-2].data["status"] == "finished"


async def test_a_question_back_is_answered_by_whoever_watches(tmp_path: Path):
    script = ["Which version do you mean?", *RUN, SUPPORTED]
    with ScriptedServer(script) as model:
        async with site(settings(tmp_path, model)) as here:
            run = await here.ask(clarify=True)
            asked = await here.until(run, "ask")
            assert (asked.data["kind"], asked.data["text"]) == ("clarify", script[0])
            body = {"id": asked.data["id"], "decision": "answer", "text": "3.12"}
            assert (await here.http.post(f"/api/runs/{run}/answer", json=body)).status_code == 200
            assert (await here.ended(run))[-2].data["status"] == "finished"
        assert "The person answered: 3.12" in str(model.requests[1].body)


async def test_a_stopped_run_ends_with_what_there_is(tmp_path: Path):
    slow = [plan(), search("unbounded cache"), Reply(answer(), piece_seconds=0.3)]
    with ScriptedServer(slow) as model:
        async with site(settings(tmp_path, model)) as here:
            run = await here.ask()
            assert (await here.http.get(f"/api/runs/{run}/report")).status_code == 409
            async for event in here.events(run):
                if event.name == "text" and event.data["stage"] == "research":
                    break
            assert (await here.http.post(f"/api/runs/{run}/stop")).status_code == 200
            told = await here.ended(run)
            assert told[-2].data == told[-2].data | {"status": "partial"}
            report = (await here.http.get(f"/api/runs/{run}/report")).json()
            assert report["status"] == "partial" and report["reason"] == "it was interrupted"
            again = await here.http.post(f"/api/runs/{run}/stop")
            assert again.status_code == 409


async def test_a_run_stopped_while_it_asks_can_be_resumed_and_asks_again(here: Site):
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
    assert "".join(e.data["text"] for e in told if e.name == "text") == "".join(RUN)
    over = await here.http.post(f"/api/runs/{run}/resume")
    assert (over.status_code, over.json()["error"]) == (409, "The run has come to its end.")


async def test_a_follow_up_knows_its_thread(here: Site, model: ScriptedServer):
    first = await here.ask()
    await here.ended(first)
    thread = (await here.one(first))["thread"]
    second = await here.ask("And with 128?", thread=thread)
    await here.ended(second)
    assert "an unbounded cache [S1]" in str(model.requests[-2].body["messages"])
    found = (await here.http.get(f"/api/threads/{thread}")).json()
    assert [run["run"] for run in found["runs"]] == [first, second]
    assert found["title"] == QUESTION


async def test_a_failed_model_is_a_failed_run_with_its_reason(tmp_path: Path):
    with ScriptedServer([Fault(401, "wrong key")]) as model:
        async with site(settings(tmp_path, model)) as here:
            told = await here.ended(await here.ask())
    assert told[-2].data["status"] == "failed" and "key" in told[-2].data["reason"]


async def test_runs_wait_for_a_place_and_too_many_are_refused(tmp_path: Path):
    with ScriptedServer([Hang()] * 3) as model:
        async with site(settings(tmp_path, model), capacity=Capacity(1, waiting=1)) as here:
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
