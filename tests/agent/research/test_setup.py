"""What `auto` stands for.

The graph served by `langgraph dev`, over its own HTTP API on loopback.
"""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rubricem.agent.research.setup import Answers, Setup, ask_once, reserve, resolve_auto
from rubricem.agent.serve.desk import Researchers
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of, with_default_source
from rubricem.agent.sources.choice import web_answers
from rubricem.agent.transcript.events import Event
from rubricem.agent.transcript.question import Budgets
from rubricem.memory.errors import SettingsError, SourceError
from rubricem.memory.runs import RunStore
from tests.conftest import ROOT
from tests.support.policies import RUN, SUPPORTED
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.sites import JsonSite, Sent
from tests.support.waiting import PATIENCE, Process, free_port

SERVER = "http://127.0.0.1:9/v1"


def auto(tmp_path: Path, *source: str) -> Setup:
    flags: dict[str, Any] = {"base_url": SERVER, "data_dir": tmp_path, "source": source}
    return setup_of(load_settings(flags))


async def online() -> bool:
    return True


async def offline() -> bool:
    return False


async def never() -> bool:
    raise AssertionError("the web was probed")


async def test_sources_that_get_ready_late_hold_up_neither_their_budget_nor_other_researchers(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_text("Bees dance.")
    with JsonSite(Sent("", delay=60)) as slow:
        flags: dict[str, Any] = {"base_url": SERVER, "model": "m", "data_dir": tmp_path}
        late, soon = (
            setup_of(load_settings({**flags, "source": (name,)}))
            for name in (f"searxng:{slow.url}", str(tmp_path))
        )
        researchers = Researchers(late.model)
        bounded = replace(late, budgets=Budgets(seconds=0.3))
        with pytest.raises(SourceError, match=r"not read within the run's 0\.3 s"):
            async with researchers.of(bounded):
                pass
        waiting = asyncio.create_task(researchers.of(late).__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(20), researchers.of(soon):
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await researchers.retire()


async def test_a_run_that_gets_ready_is_at_work_for_other_processes(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("Bees dance.")
    store, heard = RunStore(tmp_path), dict[str, bool]()

    def hear(event: Event) -> None:
        heard[str(getattr(event, "message", ""))] = store.running("t")

    with ScriptedServer(RUN) as server:
        flags: dict[str, Any] = {"base_url": server.base_url, "model": "m", "data_dir": tmp_path}
        setup = setup_of(load_settings({**flags, "source": (str(tmp_path / "docs"),)}))
        await ask_once(setup, "Do bees dance?", "t", hear)
    assert heard["indexing what was read"] and not store.running("t")


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ({"base_url": SERVER}, ("auto",)),
        ({"model": "gpt-x", "api_key": "k"}, ("auto",)),
        ({}, ("python",)),
        ({"model": "0.5b"}, ("python",)),
        ({"base_url": SERVER, "source": ("python",)}, ("python",)),
    ],
)
def test_auto_is_the_default_where_a_server_answers(
    flags: dict[str, Any], source: tuple[str, ...]
) -> None:
    assert with_default_source(load_settings(flags)).source == source


@pytest.mark.parametrize(
    ("names", "answers", "taken", "said"),
    [
        (("auto",), online, ("web",), "source: the web, which answered in 0.0 s"),
        (
            ("auto",),
            offline,
            ("python",),
            "source: the Python libraries installed here, since the web did not answer in 0.0 s; "
            "name another with --source",
        ),
        (("papers", "auto", "web"), online, ("papers", "web"), "source: the web, which answered"),
    ],
    ids=["web", "libraries", "joins the others once"],
)
async def test_auto_takes_the_web_where_it_answers_else_the_libraries_and_says_so(
    names: tuple[str, ...], answers: Answers, taken: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    told: list[str] = []
    setup = await resolve_auto(auto(tmp_path, *names), None, told.append, answers)
    assert setup.sources.names == taken
    (line,) = told
    assert line.startswith(said)


async def test_a_thread_goes_on_with_what_it_took_whatever_the_web_does_now(
    tmp_path: Path,
) -> None:
    first = await resolve_auto(auto(tmp_path, "auto"), "mine", answers=online)
    reserve(first, "mine", "How?")
    again = await resolve_auto(auto(tmp_path, "auto"), "mine", answers=never)
    assert again.sources.names == ("web",)
    with pytest.raises(SettingsError, match="cannot name a thread"):
        await resolve_auto(auto(tmp_path, "auto"), "a/b", answers=never)


async def test_one_address_that_answers_or_sends_elsewhere_is_enough() -> None:
    away = Sent(b"", 301, {"location": "https://elsewhere.example/"})
    with JsonSite(Sent({}, 503)) as bad, JsonSite(Sent(b"", 200)) as good:
        assert await web_answers([bad.url, good.url])
        assert not await web_answers([bad.url])
    assert not await web_answers([good.url])
    with JsonSite(away) as site:
        assert await web_answers([site.url])


SERVED = ("agent", "judge", "memory", "training", "langgraph.json", "pyproject.toml", "README.md")


@contextmanager
def served(folder: Path, **model: str) -> Iterator[httpx.Client]:
    """A `langgraph dev` in a copy of the project, with a folder of documents beside it."""
    for name in SERVED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, folder / name)
    (folder / "documents").mkdir()
    (folder / "documents" / "cache.md").write_text(
        "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache that never evicts.\n"
    )
    port = free_port()
    environment = {
        **os.environ,
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "RUBRICEM_SOURCE": "documents",
        "RUBRICEM_DATA_DIR": str(folder / "data"),
        **model,
    }
    dev = ["-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
    command = [sys.executable, *dev, "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = Process(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
                ended(http, process, folder / "log")
                yield http
        finally:
            process.terminate()
            process.wait()


def ended(http: httpx.Client, process: Process, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            if http.get("/ok").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"langgraph dev did not start:\n{log.read_text()[-3000:]}")


def waited(http: httpx.Client, thread: str, question: str) -> dict[str, Any]:
    """What a run in a thread of the server gives."""
    body = {"assistant_id": "research", "input": {"question": question}}
    reply = http.post(f"/threads/{thread}/runs/wait", json=body)
    reply.raise_for_status()
    state: dict[str, Any] = reply.json()
    return state


@pytest.mark.slow
def test_runs_complete_over_the_api_of_langgraph_dev(tmp_path: Path):
    turns = [*RUN, SUPPORTED, Fault(401), *RUN, SUPPORTED]
    with (
        ScriptedServer(turns) as model,
        served(tmp_path, RUBRICEM_BASE_URL=model.base_url) as http,
    ):
        thread = http.post("/threads", json={}).json()["thread_id"]
        first = waited(http, thread, "What does lru_cache do with maxsize None?")
        failed = waited(http, thread, "Will it fail?")
        third = waited(http, thread, "And after a failure?")
    log = (tmp_path / "log").read_text()
    assert "BlockingError" not in log
    assert first["status"] == "finished", log[-3000:]
    assert "It is an unbounded cache [1]." in first["report"]
    assert failed["__error__"]["error"] == "PolicyError", "the server keeps its words to the log"
    assert "requires an API key and none is set (401)" in log
    assert third["status"] == "finished" and third["run"] != first["run"]
    store = RunStore(tmp_path / "data")
    assert [store.load(name).status for name in store.threads()] == [
        "finished", "failed", "finished",
    ]  # fmt: skip
