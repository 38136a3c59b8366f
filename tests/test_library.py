"""`from agent import research`: a report or an error, from code with and without an event loop."""

import asyncio
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent import Report, research, research_sync
from agent.events import Event, StageStarted
from memory.errors import RubricemError, SettingsError
from memory.runs import RunStore
from memory.schema import Stage, Status
from tests.conftest import ROOT
from tests.flow import RUN, SUPPORTED, plan
from tests.scripted_server import Fault, Hang, ScriptedServer
from tests.waiting import Process, wait_for

QUESTION = "What does lru_cache do with maxsize None?"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a folder `documents`, and an empty data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "documents").mkdir()
    text = "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache.\n"
    (tmp_path / "documents" / "cache.md").write_text(text)
    return tmp_path


async def test_a_report_has_text_citations_sources_usage_and_its_trajectory(here: Path) -> None:
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        report = await research(QUESTION, source="documents", base_url=server.base_url)
    assert isinstance(report, Report)
    assert (report.status, report.reason) == (Status.FINISHED, "")
    assert report.text == "It is an unbounded cache [1]."
    assert report.markdown.startswith("# What does lru")
    [citation] = report.citations
    assert (citation.number, citation.verdict) == (1, "supported")
    assert report.sources == (citation.source,)
    assert citation.source.location.endswith("cache.md")
    assert report.usage == report.trajectory.usage
    assert report.usage.calls == 4
    assert RunStore(here / "data").load(report.trajectory.thread) == report.trajectory


async def test_events_are_told_as_they_happen(here: Path) -> None:
    told: list[Event] = []
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        await research(QUESTION, source="documents", base_url=server.base_url, on_event=told.append)
    stages = [event.stage for event in told if isinstance(event, StageStarted)]
    assert stages == [Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.REVIEW, Stage.ANSWER]


async def test_a_run_that_is_stopped_is_a_partial_report(here: Path) -> None:
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


async def test_a_cancelled_task_ends_at_once_and_leaves_its_run_to_go_on(here: Path) -> None:
    with ScriptedServer([plan(), Hang()]) as server:
        asked = asyncio.create_task(
            research(QUESTION, thread="mine", source="documents", base_url=server.base_url)
        )
        await asyncio.to_thread(wait_for, lambda: len(server.requests) == 2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    assert not RunStore(here / "data").ended("mine")
    assert not RunStore(here / "data").running("mine")


async def test_the_same_thread_and_question_repeat_no_finished_call(here: Path) -> None:
    with ScriptedServer([RUN[0], Fault(401), *RUN[1:], SUPPORTED]) as server:
        options = {"thread": "mine", "source": "documents", "base_url": server.base_url}
        with pytest.raises(RubricemError, match="API key") as failed:
            await research(QUESTION, **options)
        report = await research(QUESTION, **options)
    assert failed.value.remedy == "Go on from where it ended: thread='mine'"
    assert report.status is Status.FINISHED
    assert len(server.requests) == 5, "the plan was written once"


async def test_what_cannot_be_asked_is_a_settings_error(here: Path) -> None:
    with pytest.raises(SettingsError, match="There is no question"):
        await research("  ", base_url="http://127.0.0.1:9/v1", model="m", source="documents")
    with pytest.raises(SettingsError, match="no setting 'modle'"):
        await research(QUESTION, modle="1.5b")


async def test_the_synchronous_form_says_what_to_use_in_a_loop(here: Path) -> None:
    with pytest.raises(SettingsError, match="where an event loop runs") as refused:
        research_sync(QUESTION)
    assert "await research" in refused.value.remedy


def test_an_interrupt_gives_the_synchronous_form_a_partial_report(here: Path) -> None:
    code = (
        "from agent import research_sync\nfrom agent.events import ToolReturned\n"
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


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_docs_run(
    number: int, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = PYTHON.findall((ROOT / "docs" / "library.md").read_text(encoding="utf-8"))
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        monkeypatch.setenv("RUBRICEM_BASE_URL", server.base_url)
        exec(compile(examples[number], "library.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    assert len(examples) == 2
    if number == 0:
        assert printed == ["It is an unbounded cache [1].", "1 supported lru_cache"]
    else:
        assert printed == ["plan", "research", "research", "review", "answer", "finished 1"]


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, agent; print([n for n in sys.modules if n.startswith('agent.')])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "[]\n"
