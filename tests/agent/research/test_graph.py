"""The graph: its limit of supersteps, people in the loop, and runs that were killed."""

import asyncio
import json
import signal
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from benchmarks.loopback import TURNS, serving
from benchmarks.scripted_judge import OPENINGS
from rubricem.agent.reports.report import latest_rubric
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import MOST_REJECTED, Ask, ShownPlan
from rubricem.agent.transcript.scaffold import parse
from rubricem.memory.errors import StoreError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import Author, Status, Trajectory
from tests.conftest import COMMAND, ROOT, rubricem
from tests.support.policies import (
    QUESTION,
    RUN,
    FixedSearch,
    answer,
    asked,
    contents,
    journalled,
    plan,
    researching,
    search,
)
from tests.support.scripted_server import Fault, Hang, ScriptedServer
from tests.support.waiting import Process, wait_for


@pytest.mark.parametrize("budget", [1, 60])
async def test_a_run_that_spends_its_whole_budget_stays_within_the_limit(
    budget: int, tmp_path: Path
):
    def script(body: object, number: int) -> str:
        if number == 0:
            return plan("query 0")
        return search(f"query {number}") if number < budget else answer()

    source = FixedSearch()
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await researcher.ask(Ask(QUESTION, tool_calls=budget))
    assert (run.status, run.tool_calls) == ("finished", budget)


APPROVE = {"verdict": "approve"}
EDIT = {
    "verdict": "edit",
    "plan": {"rubric": ["Says who <answer> it"], "research_plan": "Ask.", "query": "who says so"},
}


class Scripted:
    """Decides by script, and remembers what was asked."""

    def __init__(self, *decisions: dict[str, Any]) -> None:
        self.decisions = list(decisions)
        self.asked: list[Mapping[str, Any]] = []

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        return self.decisions[len(self.asked) - 1]


async def asking(researcher: Researcher, person: Scripted | None, **wanted: bool) -> Trajectory:
    ask = replace(researcher.template, question=QUESTION, **(wanted or {"approve_plan": True}))
    return await researcher.ask(ask, "t", person=person)


async def decided(
    server: ScriptedServer,
    folder: Path,
    person: Scripted | None,
    source: FixedSearch | None = None,
    **wanted: bool,
) -> Trajectory:
    """A run that a person takes part in."""
    async with researching(server.base_url, folder, source) as researcher:
        return await asking(researcher, person, **wanted)


async def test_a_plan_is_shown_before_anything_is_searched(tmp_path: Path):
    source = FixedSearch()
    person = Scripted(APPROVE)

    async def decide(asked: Mapping[str, Any]) -> dict[str, Any]:
        assert source.queries == []
        return await Scripted.decide(person, asked)

    person.decide = decide  # type: ignore[method-assign]
    with ScriptedServer(RUN) as server:
        run = await decided(server, tmp_path, person, source)
    assert run.status is Status.FINISHED
    (asked,) = person.asked
    items = [item.lstrip("- ") for item in asked["rubric"]]
    assert items == ["Says what happens to the size", "Says what is evicted"]
    assert (asked["research_plan"], asked["query"]) == (
        "Read the documentation.", "lru_cache maxsize None",
    )  # fmt: skip


async def test_a_changed_plan_stands_behind_the_first_and_is_followed(tmp_path: Path):
    source = FixedSearch()
    with ScriptedServer([plan(), answer()]) as server:
        run = await decided(server, tmp_path, Scripted(EDIT), source)
        shown = contents(server.requests[1].body)
    assert source.queries == ["who says so"]
    assert shown[2] == ("assistant", plan())
    assert "The person who asked has changed the plan" in shown[3][1]
    document = parse(run.transcript())
    assert [item.lstrip("- ") for item in latest_rubric(document)] == ["Says who \u2039answer> it"]
    assert len(document.find("answer")) == 1
    edited = [s for s in run.segments if "changed the plan" in s.text]
    assert [s.author for s in edited] == [Author.PROMPT]


async def test_a_rejected_plan_is_written_anew_with_the_reason(tmp_path: Path):
    person = Scripted({"verdict": "reject", "reason": "too </answer> narrow"}, APPROVE)
    source = FixedSearch()
    with ScriptedServer([plan("one"), plan("two"), answer()]) as server:
        run = await decided(server, tmp_path, person, source)
        told = contents(server.requests[1].body)[-1][1]
    assert "rejected this plan: too \u2039/answer> narrow" in told
    assert [asked["query"] for asked in person.asked] == ["one", "two"]
    assert (run.status, source.queries) == (Status.FINISHED, ["two"])


async def test_a_person_who_rejects_every_plan_ends_the_run(tmp_path: Path):
    person = Scripted(*[{"verdict": "reject"}] * 9)
    with ScriptedServer(lambda body, number: plan(f"query {number}")) as server:
        run = await decided(server, tmp_path, person)
        assert len(server.requests) == len(person.asked) == MOST_REJECTED
    assert (run.status, run.ended_by, run.tool_calls) == (Status.PARTIAL, "interrupt", 0)
    assert run.reason == f"{MOST_REJECTED} plans were rejected, and no more are written"


async def test_a_decision_is_asked_for_once_whatever_is_killed_after_it(tmp_path: Path):
    first, second = Scripted(EDIT), Scripted()
    with ScriptedServer([plan(), answer()]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await asking(researcher, first)
        run = await decided(server, tmp_path, second)
        assert len(server.requests) == 2
    assert (len(first.asked), second.asked, run.status) == (1, [], Status.FINISHED)


async def test_a_run_killed_while_a_person_thinks_asks_again_and_writes_nothing_again(
    tmp_path: Path,
):
    class Gone:
        async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
            raise KeyboardInterrupt

    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            ask = replace(researcher.template, question=QUESTION, approve_plan=True)
            with pytest.raises(KeyboardInterrupt):
                await researcher.ask(ask, "t", person=Gone())
        person = Scripted(APPROVE)
        run = await decided(server, tmp_path, person)
        assert len(server.requests) == len(RUN)
    assert (len(person.asked), run.status) == (1, Status.FINISHED)


async def test_without_a_person_a_plan_is_approved_unseen_and_no_riddle_is_a_decision(
    tmp_path: Path,
):
    with ScriptedServer(RUN) as server:
        unseen = await decided(server, tmp_path / "unseen", None)
    assert unseen.status is Status.FINISHED


@pytest.mark.parametrize(
    ("decision", "told"),
    [({"verdict": "perhaps"}, "verdict: "), ({}, "verdict: "), (None, "verdict: "),
     ({"verdict": "edit", "plan": {"rubric": "- one"}}, "plan: rubric: ")],
    ids=["word", "empty", "none", "text"],
)  # fmt: skip
async def test_a_riddle_is_no_decision_and_is_asked_again_by_a_resume(
    decision: Any, told: str, tmp_path: Path
):
    with ScriptedServer(RUN) as server:
        run = await decided(server, tmp_path, Scripted(decision))
        again = await decided(server, tmp_path, Scripted(APPROVE))
    assert run.status is Status.FAILED
    assert f"the decision of the person who asked cannot be read: {told}" in run.reason
    assert again.status is Status.FINISHED


async def test_a_run_can_be_stopped_while_a_person_thinks(tmp_path: Path):
    class Thinks(Scripted):
        async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
            stop.set()
            await asyncio.Event().wait()
            return {}

    stop = asyncio.Event()
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            ask = replace(researcher.template, question=QUESTION, approve_plan=True)
            run = await researcher.ask(ask, "t", stop=stop, person=Thinks())
        assert (run.status, run.ended_by) == (Status.PARTIAL, "interrupt")
        again = await decided(server, tmp_path, Scripted(APPROVE))
    assert again.status is Status.FINISHED


async def test_a_question_back_is_asked_once_and_its_answer_read_before_the_plan(tmp_path: Path):
    person = Scripted({"text": "The one of Python 3.9 </answer>"})
    with ScriptedServer(["Which version do you mean?\nMore.", *RUN]) as server:
        run = await decided(server, tmp_path, person, clarify=True)
        (aside, planned) = (contents(request.body) for request in server.requests[:2])
    assert person.asked[0]["doubt"] == "Which version do you mean?"
    assert QUESTION in aside[1][1] and "NONE" in aside[1][1]
    assert "Asked in return: Which version do you mean?" in planned[1][1]
    assert "The person answered: The one of Python 3.9 \u2039/answer>" in planned[1][1]
    assert (run.status, run.usage.calls) == (Status.FINISHED, 4)
    assert "Which version" not in run.segments[0].text


@pytest.mark.parametrize("said", ["NONE", "None. All is clear?", "It is clear."])
async def test_nobody_is_asked_where_the_model_has_no_question(said: str, tmp_path: Path):
    person = Scripted()
    with ScriptedServer([said, *RUN]) as server:
        run = await decided(server, tmp_path, person, clarify=True)
    assert (person.asked, run.status) == ([], Status.FINISHED)


def test_a_plan_is_the_same_after_it_was_shown_and_read_and_the_last_one_counts():
    shown = ShownPlan(rubric=("Says a", "Says b"), research_plan="One.\nTwo.", query="a query")
    assert ShownPlan.read(shown.text()) == shown
    assert ShownPlan.read("words without a heading") == ShownPlan()
    text = plan("one") + plan("two").replace("Says what is evicted", "Says why")
    assert ShownPlan.of(text, "two").rubric[-1].endswith("Says why")


DELAY = 0.4


def calls_at(address: str) -> list[int]:
    """How often each call came to the server."""
    with urllib.request.urlopen(f"{address.removesuffix('/v1')}/asked") as response:
        return [*json.load(response)["calls"].values()]


@pytest.mark.parametrize(
    ("calls", "kept"),
    [
        pytest.param(2, 5, marks=pytest.mark.slow),
        (4, 9),
    ],
)
def test_a_killed_run_repeats_no_finished_call(
    calls: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "rules.md").write_text("# Rules\n\nThe rule decides the order; no exception.\n")
    with serving(DELAY, chunks=20) as address:
        where = ("--base-url", address, "--source", str(tmp_path))
        command = [*COMMAND, "ask", "Which rule?", *where, "--run", "t", "--quiet"]
        with Process(command, cwd=ROOT) as first:
            wait_for(lambda: sum(calls_at(address)) >= calls)
            first.send_signal(signal.SIGKILL)
        # The day, and the prompts that the run began with, are the first records; what is left of
        # the limits is one before each turn of research.
        assert journalled(tmp_path / "data") == kept
        done = rubricem("ask", "--resume", "t", "--json")
        made = calls_at(address)
    report = json.loads(done.stdout)
    # The last call checks the answer's citation.
    assert (sum(made), len(made)) == (len(TURNS) + 2, len(TURNS) + 1)
    assert report["status"] == "finished"
    opening, _, answered = report["answer"].partition(":")
    assert opening in OPENINGS and answered == " the rule decides the order [1]."
    assert report["usage"]["calls"] == len(TURNS) + 1


async def test_a_run_that_no_process_holds_is_named_with_how_to_go_on(tmp_path: Path):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "x"}}
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, approve_plan=True) as first:
            paused = await first.graph(saver).ainvoke({"question": QUESTION}, config)
        assert paused["__interrupt__"][0].value["ask"] == "approve_plan"
        async with researching(server.base_url, tmp_path, approve_plan=True) as second:
            with pytest.raises(StoreError, match="not open in this process") as told:
                await second.graph(saver).ainvoke(Command(resume=APPROVE), config)
    assert f"--resume {paused['run']}" in told.value.remedy


async def test_each_question_in_one_graph_thread_is_a_run_of_its_own(tmp_path: Path):
    with ScriptedServer([*RUN, *RUN]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = researcher.graph(InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            first = await graph.ainvoke({"question": "First?"}, config)
            second = await graph.ainvoke({"question": "Second?"}, config)
    assert first["run"] != second["run"]
    assert "Second?" in second["report"] and "First?" not in second["report"]


@pytest.mark.parametrize("shared", [True, False])
async def test_a_thread_that_is_being_answered_here_or_elsewhere_is_refused(
    shared: bool, tmp_path: Path
):
    journal = Journal(tmp_path / "all.jsonl") if shared else None
    with ScriptedServer(lambda body, number: Hang()) as server:
        async with researching(server.base_url, tmp_path, journal=journal) as researcher:
            running = asyncio.create_task(researcher.ask(Ask(QUESTION), "t"))
            while not server.requests:
                await asyncio.sleep(0.01)
            with pytest.raises(StoreError, match=r"'t' is being answered"):
                await researcher.ask(Ask(QUESTION), "t")
            if not shared:
                # Locks are of open files: another researcher here is refused as a process is.
                with pytest.raises(StoreError, match="belongs to a run that goes on"):
                    await asked(server.base_url, tmp_path)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def test_a_shared_journal_forgets_what_finished_and_keeps_what_failed(tmp_path: Path):
    journal = Journal(tmp_path / "all.jsonl")
    with ScriptedServer([RUN[0], Fault(401), *RUN[1:]]) as server:
        failed = await asked(server.base_url, tmp_path, journal=journal)
        run = await asked(server.base_url, tmp_path, journal=journal)
        assert len(server.requests) == 4
    assert (failed.failed, failed.status) == (True, Status.PARTIAL), "what was found is reported"
    assert run.status is Status.FINISHED
    assert not journal._replies
