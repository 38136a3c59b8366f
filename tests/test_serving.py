"""The graph served by `langgraph dev`, over its own HTTP API on loopback."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.graph import NODES
from agent.serving import ServedRuns, graph
from memory.errors import SettingsError
from memory.runs import RunStore
from memory.schema import AnswerFormat
from tests.conftest import ROOT
from tests.flow import RUN, SUPPORTED, answer, plan
from tests.scripted_server import Fault, ScriptedServer
from tests.waiting import PATIENCE, Process

SERVED = ("agent", "judge", "memory", "training", "langgraph.json", "pyproject.toml", "README.md")


def test_the_served_graph_has_the_seven_nodes():
    assert set(graph.get_graph().nodes) == {"__start__", *NODES, "__end__"}


async def test_settings_are_read_at_the_first_question(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_SOURCE", "/nowhere")
    monkeypatch.setenv("RUBRICEM_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(SettingsError, match="Unknown source"):
        await ServedRuns().begin("What?", AnswerFormat.LONG)


@contextmanager
def served(folder: Path, model_url: str) -> Iterator[httpx.Client]:
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "RUBRICEM_BASE_URL": model_url,
        "RUBRICEM_SOURCE": "documents",
        "RUBRICEM_DATA_DIR": str(folder / "data"),
    }
    dev = ["-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
    command = [sys.executable, *dev, "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = Process(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
                wait_for(http, process, folder / "log")
                yield http
        finally:
            process.terminate()
            process.wait()


def wait_for(http: httpx.Client, process: Process, log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            if http.get("/ok").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"langgraph dev did not start:\n{log.read_text()[-3000:]}")


def waited(http: httpx.Client, thread: str, question: str) -> dict[str, Any]:
    """The final state of a run in a thread of the server."""
    body = {"assistant_id": "research", "input": {"question": question}}
    reply = http.post(f"/threads/{thread}/runs/wait", json=body)
    reply.raise_for_status()
    state: dict[str, Any] = reply.json()
    return state


@pytest.mark.slow
def test_runs_complete_over_the_api_of_langgraph_dev(tmp_path: Path):
    turns = [*RUN, SUPPORTED, plan(), answer(), SUPPORTED, Fault(401), *RUN, SUPPORTED]
    with ScriptedServer(turns) as model, served(tmp_path, model.base_url) as http:
        thread = http.post("/threads", json={}).json()["thread_id"]
        first = waited(http, thread, "What does lru_cache do with maxsize None?")
        second = waited(http, thread, "And what is evicted?")
        failed = waited(http, thread, "Will it fail?")
        third = waited(http, thread, "And after a failure?")
        kept = http.get(f"/threads/{thread}/state").json()["values"]
    log = (tmp_path / "log").read_text()
    assert "BlockingError" not in log
    assert first["status"] == "finished", log[-3000:]
    assert first["path"][-1] == "verify"
    assert "It is an unbounded cache [1]." in first["report"]
    assert "never evicts" in first["report"]
    assert second["run"] != first["run"] and "And what is evicted?" in second["report"]
    assert failed["__error__"]["error"] == "PolicyError", "the server keeps its words to the log"
    assert "wants an API key and none is set (401)" in log
    assert third["status"] == "finished" and kept["report"] == third["report"]
    store = RunStore(tmp_path / "data")
    assert [store.load(name).status for name in store.threads()] == [
        "finished", "finished", "failed", "finished",
    ]  # fmt: skip
