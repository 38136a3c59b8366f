"""A run that is killed goes on where it was: nothing that finished is asked for again."""

import asyncio
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from agent.graph import NODES, Position, build_graph
from agent.run import Ask
from benchmarks.judged import OPENINGS
from benchmarks.loopback import TURNS, serving
from memory.errors import PolicyError, SettingsError, StoreError
from memory.journal import Journal
from memory.schema import Author, Status
from tests.conftest import COMMAND, ROOT
from tests.fakes import QUESTION, FixedSearch
from tests.flow import RUN, asked, journalled, plan, researching
from tests.scripted_server import Fault, Hang, ScriptedServer
from tests.waiting import Process, wait_for

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
            graph = build_graph(first, saver)
            question: Position = {"question": QUESTION}
            await graph.ainvoke(question, config, interrupt_after=["research"])
            run = await first.find((await graph.aget_state(config)).values["run"])
            assert run is not None and run.path == [
                "recall", "clarify", "plan", "approve", "tools", "research",
            ]  # fmt: skip
            run.journal.close()
        assert len(server.requests) == 2
        async with researching(server.base_url, tmp_path, source) as second:
            ended = await build_graph(second, saver).ainvoke(None, config)
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
            graph = build_graph(another, InMemorySaver())
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
            graph = build_graph(researcher, InMemorySaver())
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
            graph = build_graph(researcher, InMemorySaver())
            config: Any = {"configurable": {"thread_id": "x"}}
            first = await graph.ainvoke({"question": "First?"}, config)
            second = await graph.ainvoke({"question": "Second?"}, config)
    assert first["run"] != second["run"]
    assert "Second?" in second["report"] and "First?" not in second["report"]


async def test_a_graph_without_a_question_says_so(tmp_path: Path):
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        with pytest.raises(SettingsError, match="There is no question"):
            await build_graph(researcher).ainvoke({"question": " "})


async def test_a_node_that_failed_is_tried_again_from_a_clean_start(tmp_path: Path):
    turns = ["no tags at all", Fault(401), plan(), *RUN[1:]]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            graph = build_graph(researcher, InMemorySaver())
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
async def test_a_thread_that_is_being_answered_is_refused(shared: bool, tmp_path: Path):
    journal = Journal(tmp_path / "all.jsonl") if shared else None
    with ScriptedServer(lambda body, number: Hang()) as server:
        async with researching(server.base_url, tmp_path, journal=journal) as researcher:
            running = asyncio.create_task(researcher.ask(Ask(QUESTION), "t"))
            while not server.requests:
                await asyncio.sleep(0.01)
            with pytest.raises(StoreError, match=r"'t' is being answered"):
                await researcher.ask(Ask(QUESTION), "t")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def test_a_thread_of_another_process_is_refused(tmp_path: Path):
    with ScriptedServer(lambda body, number: Hang()) as server:
        async with researching(server.base_url, tmp_path) as first:
            running = asyncio.create_task(first.ask(Ask(QUESTION), "t"))
            while not server.requests:
                await asyncio.sleep(0.01)
            # Locks are of open files, so another researcher here is refused as another process is.
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
