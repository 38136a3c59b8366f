"""`rubricem collect --engine ray` on a real Ray of this machine, one of its workers killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import main
from tests.conftest import ENVIRONMENT, ROOT
from tests.flow import answer, plan
from tests.processes import PROC, descendants, listening, name_of
from tests.scripted_server import ScriptedServer
from tests.test_collect_faults import COMMAND
from tests.waiting import Process, wait_for
from training.run_directory import RunDirectory

KEY = "sk-4f1d-nobody-else-may-read-this"
GROUP = 4
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
TIMES = {"id", "started_at", "seconds"}


class Holding:
    """A model that answers the second turn of a rollout when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.held = 0
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], number: int) -> str:
        if "tool_output" not in body["messages"][-1]["content"]:
            return plan()
        with self._lock:
            self.held += 1
        assert self.let_go.wait(600)
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "lru.md").write_text("# lru_cache\nWithout a maxsize, no bound.\n")
    (tmp_path / "questions.txt").write_text("Which rule decides?\n")
    return tmp_path


def arguments(folder: Path, server: ScriptedServer, engine: str) -> list[str]:
    named = [str(folder / "questions.txt"), "--out", str(folder / engine), "--judge", "none"]
    where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    # So many places that each of two workers gets half of the rollouts.
    shape = ["--group-size", str(GROUP), "--concurrency", str(GROUP)]
    return ["collect", *named, *where, *shape, "--engine", engine]


@contextmanager
def collecting(folder: Path, server: ScriptedServer) -> Iterator[Process]:
    """The command as a process with a home of its own."""
    (folder / "home").mkdir()
    own = {"HOME": str(folder / "home"), "RUBRICEM_DATA_DIR": str(folder / "data")}
    process = Process(
        [*COMMAND, *arguments(folder, server, "ray")],
        env={**ENVIRONMENT, **own, "RUBRICEM_API_KEY": KEY, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def products(run: RunDirectory) -> list[dict[str, Any]]:
    """A run's trajectories without what no two runs share."""
    return [json.loads(t.model_dump_json(exclude=TIMES)) for t in run.trajectories()]


def workers_of(pid: int) -> list[int]:
    return [child for child in descendants(pid) if "RolloutActor" in name_of(child)]


def session_of(pid: int) -> Path:
    """The folder that Ray keeps its files in."""
    (raylet,) = {
        part.partition("=")[2]
        for child in descendants(pid)
        for part in name_of(child).split()
        if part.startswith("--session-dir=") or part.startswith("--session_dir=")
    }
    return Path(raylet)


def written_in(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


@pytest.mark.slow
@pytest.mark.skipif(not PROC.is_dir(), reason="it looks at processes as Linux shows them")
def test_a_killed_workers_rollouts_go_on_and_nothing_finished_is_repeated(folder: Path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    model = Holding()
    with ScriptedServer(model) as server:
        with collecting(folder, server) as process:
            wait_for(lambda: model.held == GROUP or process.poll() is not None, 300)
            assert process.poll() is None, process.communicate()
            begun = [process.pid, *descendants(process.pid)]
            workers = workers_of(process.pid)
            assert len(workers) == 2
            session = session_of(process.pid)
            assert listening(begun) and listening(begun) <= LOOPBACK
            os.kill(workers[0], signal.SIGKILL)
            # Its two rollouts ask for their second turns again, and for nothing else.
            wait_for(lambda: model.held == GROUP + 2, 300)
            assert KEY not in written_in(session)
            assert not any(KEY in name_of(pid) for pid in begun)
            model.let_go.set()
            out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        asked = [request.body["messages"] for request in server.requests]
        sent = {request.headers["authorization"] for request in server.requests}
        here = CliRunner().invoke(main, arguments(folder, server, "asyncio"))
    assert here.exit_code == 0, here.output
    assert len(asked) == 2 * GROUP + 2 and sent == {f"Bearer {KEY}"}
    assert "worker 1 ended: " in errors or "worker 2 ended: " in errors
    assert "4 rollouts: 4 finished" in out and KEY not in out + errors
    assert products(RunDirectory(folder / "ray")) == products(RunDirectory(folder / "asyncio"))
    assert not session.exists(), "what Ray wrote went with it"
    assert list((folder / "home").rglob("*ray*")) == [], "no token in the home directory"
    assert not [pid for pid in begun if name_of(pid)], "no process is left"


def test_without_ray_the_command_says_how_to_install_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ray", None)
    with ScriptedServer(Holding()) as server:
        done = CliRunner().invoke(main, arguments(folder, server, "ray"))
    assert done.exit_code == 2
    assert "This needs ray, which is not installed." in done.stderr
    assert "pip install 'rubricem[ray]'" in done.stderr


def test_a_cluster_that_does_not_answer_is_told_at_once(folder: Path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with ScriptedServer(Holding()) as server:
        there = [*arguments(folder, server, "ray"), "--ray-address", address]
        done = CliRunner().invoke(main, there)
    assert done.exit_code == 2
    assert f"Ray cannot be reached at {address}: [Errno 111] Connection refused." in done.stderr
    assert "name a running cluster by --ray-address" in done.stderr


def test_an_address_of_ray_without_its_engine_is_refused(folder: Path):
    with ScriptedServer(Holding()) as server:
        here = [*arguments(folder, server, "asyncio"), "--ray-address", "auto"]
        done = CliRunner().invoke(main, here)
    assert done.exit_code == 2 and "Add --engine ray." in done.stderr
