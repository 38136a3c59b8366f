"""`from rubricem import research`: a report or an error, with and without an event loop.

`research(memory="on")`: the report first, what it teaches behind it, and never at its cost.
"""

import asyncio
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest
from langchain_core.language_models import FakeListChatModel
from langgraph.graph import END, START, StateGraph

import rubricem
from rubricem import (
    Report,
    SettingsError,
    learnt,
    research,
    research_graph,
    research_stream,
    research_sync,
)
from rubricem.agent.learning.lessons import find_queued
from rubricem.agent.library import Options
from rubricem.agent.settings import Settings
from rubricem.agent.transcript.events import Event, SourceProgress, StageStarted, ToolReturned
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Stage, Status
from tests.conftest import ROOT
from tests.support.bank_cli import CALLS, QUESTION, Server, kept
from tests.support.policies import RUN, SUPPORTED, plan
from tests.support.scripted_server import Hang, ScriptedServer
from tests.support.waiting import Process, wait_for


class Outer(TypedDict, total=False):
    """The state of a graph of somebody's own."""

    question: str
    report: str
    status: str


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(documents: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a folder `documents`, and an empty data directory."""
    monkeypatch.chdir(documents.parent)
    return documents.parent


async def test_a_report_has_text_citations_sources_usage_and_its_trajectory(here: Path):
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        report = await research(QUESTION, source=[Path("documents")], base_url=server.base_url)
    assert isinstance(report, Report)
    assert (report.status, report.reason) == (Status.FINISHED, "")
    assert report.text == "It is an unbounded cache [1]."
    assert report.markdown.startswith("# What does lru")
    # As IPython asks for it, to show it in a notebook.
    assert report._repr_markdown_() == report.markdown
    assert "unbounded cache [1]" in repr(report) and "structured_plan" not in repr(report)
    [citation] = report.citations
    assert (citation.number, citation.verdict) == (1, "supported")
    assert report.sources == (citation.source,)
    assert citation.source.location.endswith("cache.md")
    assert report.usage == report.trajectory.usage
    assert report.usage.calls == 4
    assert RunStore(here / "data").load(report.trajectory.thread) == report.trajectory


async def test_a_run_that_is_stopped_is_a_partial_report(here: Path):
    stop = asyncio.Event()

    def told(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage is Stage.RESEARCH:
            stop.set()

    with ScriptedServer([plan(), Hang()]) as server:
        report = await research(
            QUESTION, source="documents", base_url=server.base_url, stop=stop, on_event=told
        )
    assert report.status is Status.PARTIAL
    assert report.trajectory.ended_by == "interrupt"
    assert [source.title for source in report.trajectory.sources] == ["lru_cache"]


async def test_a_cancelled_task_ends_at_once_and_leaves_its_run_to_go_on(here: Path):
    with ScriptedServer([plan(), Hang()]) as server:
        asked = asyncio.create_task(
            research(QUESTION, thread="mine", source="documents", base_url=server.base_url)
        )
        await asyncio.to_thread(wait_for, lambda: len(server.requests) == 2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    assert not RunStore(here / "data").has_ended("mine")
    assert not RunStore(here / "data").running("mine")


async def test_what_cannot_be_asked_is_a_settings_error(here: Path):
    with pytest.raises(SettingsError, match="There is no question"):
        await research("  ", base_url="http://127.0.0.1:9/v1", model="m", source="documents")
    with pytest.raises(SettingsError, match=r"^modle=\.\.\.: there is no setting 'modle'"):
        await research(QUESTION, modle="1.5b")
    with pytest.raises(SettingsError, match=r"^model=\.\.\. cannot be"):
        await research(QUESTION, model=object())
    with pytest.raises(SettingsError, match=r"^FakeListChatModel is a class"):
        await research(QUESTION, model=FakeListChatModel)
    for name, wrong in {"thread": 3, "on_event": 3, "stop": True, "person": print}.items():
        with pytest.raises(SettingsError, match=rf"^{name}=\.\.\. cannot be {wrong!r}"):
            await research(QUESTION, **{name: wrong})
    with pytest.raises(SettingsError, match=r"^max_seconds=\.\.\. cannot be inf"):
        await research(QUESTION, max_seconds=math.inf)
    with pytest.raises(SettingsError, match="There is no question"):
        await research("\0\x1b[31m", source="documents")
    with pytest.raises(SettingsError, match="The source Search has no 'prepare'"):
        named = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
        await research(QUESTION, source=type("Search", (), {"name": "s", "search": 1})(), **named)
    with pytest.raises(SettingsError, match="ask a person, and none is given") as refused:
        await research(QUESTION, approve_plan=True, base_url="http://127.0.0.1:9/v1", model="m")
    assert "person=" in refused.value.remedy
    with pytest.raises(SettingsError, match="where an event loop runs") as refused:
        research_sync(QUESTION)
    assert "await research" in refused.value.remedy


def test_an_interrupt_gives_the_synchronous_form_a_partial_report(here: Path):
    code = (
        "from rubricem import research_sync\n"
        "from rubricem.agent.transcript.events import ToolReturned\n"
        "def told(event):\n    if isinstance(event, ToolReturned): print('ready', flush=True)\n"
        f"report = research_sync({QUESTION!r}, on_event=told)\n"
        "print(report.status, report.trajectory.ended_by)\n"
    )
    with ScriptedServer([plan(), Hang()]) as server:
        options = {"BASE_URL": server.base_url, "SOURCE": "documents", "DATA_DIR": str(here / "d")}
        process = Process(
            [sys.executable, "-c", code],
            cwd=here,
            env={"PYTHONPATH": str(ROOT), **{f"RUBRICEM_{k}": v for k, v in options.items()}},
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            while len(server.requests) < 2:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "partial interrupt\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_examples_of_the_docs_run(
    number: int, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    examples = PYTHON.findall((ROOT / "docs" / "library.md").read_text(encoding="utf-8"))
    with ScriptedServer([*RUN, SUPPORTED] * 2) as server:
        monkeypatch.setenv("RUBRICEM_BASE_URL", server.base_url)
        exec(compile(examples[number], "library.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    assert len(examples) == 3
    if number == 0:
        assert printed == ["It is an unbounded cache [1].", "1 supported lru_cache"]
    elif number == 1:
        assert printed == ["plan", "research", "research", "review", "answer", "finished 1"]
    else:
        assert printed[0] in {"SourceProgress", "BudgetSet", "StageStarted"}
        assert "RunFinished" in printed and printed.count("# What is heap[0]?") == 1
        assert any(line.startswith("finished # What is heap[0]?") for line in printed)


async def test_a_plan_is_approved_from_code(here: Path):
    asked = list[str]()

    class Somebody:
        async def decide(self, about: Mapping[str, Any]) -> dict[str, Any]:
            asked.append(about["ask"])
            return {"verdict": "approve"}

    with ScriptedServer([*RUN, SUPPORTED]) as server:
        named = {"source": "documents", "base_url": server.base_url}
        report = await research(QUESTION, approve_plan=True, person=Somebody(), **named)
    assert (report.status, asked) == (Status.FINISHED, ["approve_plan"])


async def test_a_stream_that_is_left_ends_its_run(here: Path):
    with ScriptedServer([plan(), Hang()]) as server:
        named = {"source": "documents", "base_url": server.base_url}
        async with aclosing(research_stream(QUESTION, thread="t", **named)) as events:
            async for event in events:
                if isinstance(event, ToolReturned):
                    break
    with ScriptedServer([*RUN[1:], SUPPORTED]) as server:
        report = await research(QUESTION, thread="t", source="documents", base_url=server.base_url)
    assert report.status is Status.FINISHED


async def test_a_graph_tells_its_plan_and_sources_and_what_is_written(here: Path):
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        async with research_graph(source="documents", base_url=server.base_url) as graph:
            with pytest.raises(SettingsError, match="There is no question"):
                await graph.ainvoke({})
            outer = StateGraph(Outer).add_node("look", graph)
            outer.add_edge(START, "look").add_edge("look", END)
            told = [
                (mode, part)
                async for _, mode, part in outer.compile().astream(
                    {"question": QUESTION}, stream_mode=["updates", "custom"], subgraphs=True
                )
            ]
    written = "".join(part.get("text", "") for mode, part in told if mode == "custom")
    assert "<answer>" in written and {"doing": "stage: review"} in [part for _, part in told]
    updates = [update for mode, part in told if mode == "updates" for update in part.values()]
    planned = next(each for each in updates if each.get("rubric"))
    assert planned["research_plan"]
    titles = [source["title"] for each in updates for source in each.get("sources", ())]
    assert "lru_cache" in titles
    assert updates[-1]["status"] == "finished" and "unbounded cache [1]" in updates[-1]["report"]


async def test_a_langgraph_server_takes_choices_but_no_powers(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    from rubricem.agent.serve import langgraph_server

    async with AsyncExitStack() as stack:
        monkeypatch.setattr(langgraph_server, "_STACK", stack)
        with ScriptedServer([*RUN, SUPPORTED]) as server:
            monkeypatch.setenv("RUBRICEM_BASE_URL", server.base_url)
            monkeypatch.setenv("RUBRICEM_SOURCE", "documents")
            chosen = {"answer_format": "short", "source": "/", "mcp_servers": {"x": {}}}
            graph = await langgraph_server.research({"configurable": chosen})
            told = await graph.ainvoke({"question": QUESTION})
            assert told["status"] == "finished"
            again = await langgraph_server.research({"configurable": {"max_seconds": 60}})
            assert again is not graph and len(langgraph_server._OPENED) == 1
        with pytest.raises(SettingsError, match=r"^effort=\.\.\."):
            await langgraph_server.research({"configurable": {"effort": "vast"}})
        langgraph_server._OPENED.clear()


def test_importing_the_package_loads_nothing_of_it():
    code = "import sys, agent; print([n for n in sys.modules if n.startswith('agent.')])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "[]\n"
    assert "research" in dir(rubricem) and "import_module" not in dir(rubricem)


@pytest.fixture
def taught(here: Path) -> Path:
    """The data directory that is learnt into."""
    return here / "data"


def options(server: ScriptedServer) -> dict[str, str]:
    return {"base_url": server.base_url, "source": "documents", "memory": "on"}


def test_the_report_comes_first_and_learnt_waits_for_what_it_teaches(taught: Path):
    script, told = Server(), list[Event]()

    async def asked(server: ScriptedServer) -> None:
        report = await research(QUESTION, on_event=told.append, **options(server))
        assert report.status is Status.FINISHED and script.asked == ["research"] * 3
        [lesson] = await learnt()
        assert (lesson.outcome, lesson.thread) == ("kept", report.trajectory.thread)

    with ScriptedServer(script) as server:
        asyncio.run(asked(server))
    assert script.asked == [*["research"] * 3, *CALLS] and len(kept(taught)) == 1
    said = [event.message for event in told if isinstance(event, SourceProgress)]
    assert "judging this run" in said and said[-1].startswith("kept reflection")


def test_the_synchronous_form_has_learnt_when_it_returns(taught: Path):
    with ScriptedServer(Server()) as server:
        report = research_sync(QUESTION, **options(server))
    assert report.status is Status.FINISHED and len(kept(taught)) == 1
    assert find_queued(RunStore(taught)) == []


def test_the_options_are_typed_and_are_the_settings() -> None:
    assert set(Options.__annotations__) == set(Settings.model_fields)
    for call in (research, research_sync):
        assert call.__annotations__["settings"] == Unpack[Options]
