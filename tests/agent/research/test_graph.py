"""The graph: its nodes and edges, its limit of supersteps, and that it never meets the judge.

People in the loop: plans approved, changed, rejected; a question back; nothing asked twice.

A run that is killed goes on where it was: nothing that finished is asked for again.
"""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from benchmarks.judged import OPENINGS
from benchmarks.loopback import TURNS, serving
from rubricem.agent.reports.report import latest_rubric
from rubricem.agent.research.graph import (
    NODES,
    Position,
    build_graph,
    recursion_limit,
)
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.run import Run
from rubricem.agent.serve.langgraph_server import Conversing
from rubricem.agent.transcript.question import MOST_REJECTED, Ask, ShownPlan
from rubricem.agent.transcript.scaffold import parse
from rubricem.memory.errors import PolicyError, SettingsError, StoreError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import Author, Status, Trajectory
from tests.conftest import COMMAND, ROOT
from tests.support.policies import (
    QUESTION,
    RETURNED,
    RUN,
    SENT_BACK,
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


class Opener:
    """A researcher that is there once somebody asks."""

    researcher: Researcher

    async def opened(self) -> Researcher:
        return self.researcher


async def test_the_drawing_has_every_node_and_the_loop(tmp_path: Path):
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        drawn = researcher.graph().get_graph().draw_mermaid()
    assert all(f"\t{name}({name})" in drawn for name in NODES)
    for edge in (
        "recall --> clarify",
        "clarify --> plan",
        "plan --> approve",
        "tools --> research",
        "review -.-> answer",
        "review -.-> tools",
        "answer --> verify",
    ):
        assert edge in drawn
    assert "approve -.-> tools" in drawn and "approve -.-> plan" in drawn
    assert "research -.-> tools" in drawn and "research -.-> review" in drawn


async def test_runs_that_ask_nobody_go_the_graphs_way_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths, finish = list[list[str]](), Researcher.finish

    async def heard(self: Researcher, run: Run) -> Trajectory:
        paths.append(run.path)
        return await finish(self, run)

    monkeypatch.setattr(Researcher, "finish", heard)
    with ScriptedServer(lambda body, n: [*SENT_BACK, *SENT_BACK][n]) as server:
        async with researching(server.base_url, tmp_path / "graph", FixedSearch()) as researcher:
            asked = {"question": QUESTION}
            ended = [n async for u in researcher.graph().astream(asked, stream_mode="updates")
                     for n in u]  # fmt: skip
            [held] = researcher.store.threads()
            by_graph = researcher.store.load(held)
        async with researching(server.base_url, tmp_path / "alone", FixedSearch()) as researcher:
            alone = await researcher.ask(replace(researcher.template, question=QUESTION))
    assert paths == [ended, ended] and len(set(ended)) == len(NODES) < len(ended)
    assert alone.transcript() == by_graph.transcript()
    assert (alone.status, alone.tool_calls) == (by_graph.status, by_graph.tool_calls)


def test_a_question_to_a_server_imports_no_langgraph(tmp_path: Path):
    (tmp_path / "a.md").write_text("# lru_cache\nAn unbounded cache keeps all.\n")
    code = (
        "import asyncio, sys\n"
        "from rubricem import research\n"
        "from tests.support.policies import QUESTION, answer, plan\n"
        "from tests.support.scripted_server import ScriptedServer\n"
        "with ScriptedServer([plan(), answer()]) as server:\n"
        "    asyncio.run(research(QUESTION, base_url=server.base_url, model='scripted',\n"
        "        source=sys.argv[1], memory='off', verify='off', data_dir=sys.argv[1] + '/data'))\n"
        "sys.exit('langgraph' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("budget", [1, 10, 60])
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
    steps = 2 * budget + len(NODES) - 2
    assert steps <= recursion_limit(budget, 1) < steps + 23
    assert recursion_limit(1000, 0) >= 2 * 1000 + len(NODES), "the largest that settings allow"


BACK = [*NODES[:7], "tools", "research", "review", "answer", "verify"]
"""the way of a run that its review sends back once"""


@pytest.mark.parametrize("saved", [False, True])
async def test_a_review_leads_back_to_the_tools_once(tmp_path: Path, saved: bool):
    source, saver = FixedSearch(), InMemorySaver() if saved else None
    config: Any = {"configurable": {"thread_id": "x"}} if saved else {}
    with ScriptedServer(SENT_BACK) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            position = await researcher.graph(saver).ainvoke({"question": QUESTION}, config)
        assert len(server.requests) == len(SENT_BACK)
    assert (position["path"], position["status"]) == (BACK, "finished")
    assert source.queries == ["lru_cache maxsize None", "eviction"]


async def test_a_conversation_is_asked_after_its_last_message_and_answered_by_one(tmp_path: Path):
    answering = Opener()
    chat = build_graph(answering.opened, InMemorySaver(), state=Conversing)
    config: Any = {"configurable": {"thread_id": "x"}}
    with ScriptedServer([*RUN, plan(), answer()]) as server:
        async with researching(server.base_url, tmp_path, FixedSearch()) as answering.researcher:
            said = {"messages": [("human", QUESTION)]}
            first = await chat.ainvoke(said, config, context={"tool_calls": 2})
            said = {"messages": [("human", [{"type": "text", "text": "And then?"}])]}
            second = await chat.ainvoke(said, config, context={"max_seconds": 0})
            with pytest.raises(SettingsError, match="tool_calls"):
                await chat.ainvoke(said, config, context={"tool_calls": 0})
            requests = [answering.researcher.store.request(run) for run in second["runs"]]
    assert [message.type for message in second["messages"]] == ["human", "ai"] * 2
    assert f"# {QUESTION}\n\n{second['messages'][1].content}" == first["report"] != second["report"]
    assert [each["ask"]["question"] for each in requests] == [QUESTION, "And then?"]
    assert [each["ask"]["tool_calls"] for each in requests] == [2, 10]
    assert requests[1]["ask"]["earlier"] == [first["run"]]


async def test_a_run_that_its_review_sent_back_goes_on_in_another_process(tmp_path: Path):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "x"}}
    source = FixedSearch()
    with ScriptedServer(SENT_BACK) as server:
        async with researching(server.base_url, tmp_path, source) as first:
            asked: Position = {"question": QUESTION}
            graph = first.graph(saver)
            stood = await graph.ainvoke(asked, config, interrupt_after=["review"])
            assert (stood["path"], stood["query"]) == (BACK[:7], "eviction")
            run = await first.at(stood["run"], stood["path"])
            assert run.returns == 1
            run.journal.close()
        assert (len(server.requests), source.queries) == (3, ["lru_cache maxsize None"])
        async with researching(server.base_url, tmp_path, source) as second:
            ended = await second.graph(saver).ainvoke(None, config)
        assert len(server.requests) == len(SENT_BACK)
    assert (ended["path"], ended["status"]) == (BACK, "finished")
    assert source.queries == ["lru_cache maxsize None", "eviction"]


async def test_a_run_that_is_always_sent_back_stays_within_the_limit(tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> str:
        if number == 0:
            return plan()
        told = body["messages"][-1]["content"]
        if "names what is missing" in told:
            return search(f"query {number}")
        return answer() if "No further search" in told else RETURNED

    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, review_returns=10) as researcher:
            run = await researcher.ask(replace(researcher.template, question=QUESTION))
    assert (run.status, run.ended_by, run.tool_calls) == ("finished", "tool_calls", 6)


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
    researcher.person = person
    ask = replace(researcher.template, question=QUESTION, **(wanted or {"approve_plan": True}))
    return await researcher.ask(ask, "t")


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
            researcher.person = Gone()
            ask = replace(researcher.template, question=QUESTION, approve_plan=True)
            with pytest.raises(KeyboardInterrupt):
                await researcher.ask(ask, "t")
        person = Scripted(APPROVE)
        run = await decided(server, tmp_path, person)
        assert len(server.requests) == len(RUN)
    assert (len(person.asked), run.status) == (1, Status.FINISHED)


async def test_without_a_person_a_plan_is_approved_unseen_and_no_riddle_is_a_decision(
    tmp_path: Path,
):
    with ScriptedServer([*RUN, *RUN]) as server:
        unseen = await decided(server, tmp_path / "unseen", None)
        run = await decided(server, tmp_path, Scripted({"verdict": "perhaps"}))
    assert (unseen.status, run.status) == (Status.FINISHED, Status.FAILED)
    assert "the decision of the person who asked cannot be read" in run.reason


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


async def test_another_process_goes_on_from_the_interrupt(tmp_path: Path):
    """As a LangGraph server does: the position is in its saver, the decision comes from outside."""
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "x"}}
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, approve_plan=True) as first:
            paused = await first.graph(saver).ainvoke({"question": QUESTION}, config)
            run = await first.at(paused["run"], paused["path"])
            run.journal.close()
        assert paused["__interrupt__"][0].value["ask"] == "approve_plan"
        async with researching(server.base_url, tmp_path, approve_plan=True) as second:
            graph = second.graph(saver)
            ended = await graph.ainvoke(Command(resume=APPROVE), config)
        assert len(server.requests) == len(RUN)
    assert ended["status"] == "finished"


def test_a_plan_is_the_same_after_it_was_shown_and_read_and_the_last_one_counts():
    shown = ShownPlan(rubric=("Says a", "Says b"), research_plan="One.\nTwo.", query="a query")
    assert ShownPlan.read(shown.text()) == shown
    assert ShownPlan.read("words without a heading") == ShownPlan()
    text = plan("one") + plan("two").replace("Says what is evicted", "Says why")
    assert ShownPlan.of(text, "two").rubric[-1].endswith("Says why")


DELAY = 0.4


class Loopback:
    """The benchmark's server in a process of its own, and what it counted."""

    def __init__(self, address: str) -> None:
        self.address = address

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.address.removesuffix('/v1')}/count") as response:
            counted: dict[str, int] = json.load(response)
        return counted

    def wait_for(self, calls: int) -> None:
        wait_for(lambda: self.counts()["calls"] >= calls)


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with serving(DELAY, chunks=20) as address:
        yield Loopback(address)


def ask(*arguments: str) -> Process:
    command = [*COMMAND, "ask", "--json", *arguments]
    return Process(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("calls", "kept"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.slow), (3, 5), (4, 6)]
)
def test_a_killed_run_repeats_no_finished_call(
    calls: int, kept: int, loopback: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "rules.md").write_text("# Rules\n\nThe rule decides the order; no exception.\n")
    where = ("--base-url", loopback.address, "--source", str(tmp_path))
    with ask("Which rule?", *where, "--thread", "t") as first:
        loopback.wait_for(calls)
        first.send_signal(signal.SIGKILL)
    # What was recalled before the question (nothing) is the first record.
    assert journalled(tmp_path / "data") == kept

    with ask("--resume", "t") as second:
        assert second.stdout
        report: dict[str, Any] = json.load(second.stdout)
    counts = loopback.counts()
    # The last call checks the answer's citation.
    assert (counts["calls"], counts["distinct"]) == (len(TURNS) + 2, len(TURNS) + 1)
    assert report["status"] == "finished"
    opening, _, answered = report["answer"].partition(":")
    assert opening in OPENINGS and answered == " the rule decides the order [1]."
    assert report["usage"]["calls"] == len(TURNS) + 1


async def test_a_position_goes_on_with_another_researcher(tmp_path: Path):
    saver = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "x"}}
    source = FixedSearch()
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, source) as first:
            graph = first.graph(saver)
            question: Position = {"question": QUESTION}
            await graph.ainvoke(question, config, interrupt_after=["research"])
            stood = (await graph.aget_state(config)).values
            run = await first.at(stood["run"], stood["path"])
            assert run.path == stood["path"] == [
                "recall", "clarify", "plan", "approve", "tools", "research",
            ]  # fmt: skip
            run.journal.close()
        assert len(server.requests) == 2
        async with researching(server.base_url, tmp_path, source) as second:
            ended = await second.graph(saver).ainvoke(None, config)
        assert len(server.requests) == len(RUN)
    assert ended["status"] == "finished"
    assert "an unbounded cache [1]" in ended["report"]
    assert source.queries == ["lru_cache maxsize None", "functools.cache unbounded"]


async def test_a_finished_way_is_walked_again_without_any_call(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        source = FixedSearch()
        await asked(server.base_url, tmp_path, source=source)
        async with researching(server.base_url, tmp_path, source) as another:
            way = [*NODES[:6], "tools", "research", "review", "answer"]
            graph = another.graph(InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            await graph.aupdate_state(
                config, {"question": QUESTION, "run": "t", "path": way}, as_node="answer"
            )
            ended = await graph.ainvoke(None, config)
        assert (len(server.requests), len(source.queries)) == (len(RUN), 2)
    assert ended["path"] == [*way, NODES[-1]]
    assert "an unbounded cache [1]" in ended["report"]


async def test_an_earlier_position_of_a_run_in_memory_is_walked_to_anew(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = researcher.graph(InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            question: Position = {"question": QUESTION}
            await graph.ainvoke(question, config, interrupt_after=["review"])
            earlier = [s async for s in graph.aget_state_history(config) if s.next == ("tools",)]
            ended = await graph.ainvoke(None, earlier[-1].config)
        assert len(server.requests) == len(RUN)
    assert ended["status"] == "finished"


async def test_each_question_in_one_graph_thread_is_a_run_of_its_own(tmp_path: Path):
    with ScriptedServer([*RUN, *RUN]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = researcher.graph(InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            first = await graph.ainvoke({"question": "First?"}, config)
            second = await graph.ainvoke({"question": "Second?"}, config)
    assert first["run"] != second["run"]
    assert "Second?" in second["report"] and "First?" not in second["report"]


@pytest.mark.parametrize("question", [" ", 7, ["Why?"], {"text": "Why?"}])
async def test_a_graph_without_a_question_says_so(tmp_path: Path, question: Any):
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        with pytest.raises(SettingsError, match="There is no question"):
            await researcher.graph().ainvoke({"question": question})


async def test_a_node_that_failed_is_tried_again_from_a_clean_start(tmp_path: Path):
    turns = ["no tags at all", Fault(401), plan(), *RUN[1:]]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = researcher.graph(InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            with pytest.raises(PolicyError):
                await graph.ainvoke({"question": QUESTION}, config)
            key = (await graph.aget_state(config)).values["run"]
            assert researcher.store.load(key).status is Status.FAILED
            ended = await graph.ainvoke(None, config)
            run = researcher.store.load(key)
        assert len(server.requests) == 5, "the attempt that finished was not asked for again"
    assert ended["status"] == "finished"
    assert [s.text for s in run.segments if not s.kept] == ["no tags at all"]
    assert len([s for s in run.segments if s.author is Author.PROMPT]) == 2


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
                with pytest.raises(StoreError, match="in use by another process"):
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
    assert (failed.status, run.status) == (Status.FAILED, Status.FINISHED)
    assert not journal._replies
