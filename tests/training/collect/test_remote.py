"""Groups collected by Ray's workers: as in one process, whoever of them dies.

Most tests reach workers in their own process, over a connection that pickles what passes.
"""

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import Completion
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import RunStopped
from tests.conftest import ENVIRONMENT, ROOT
from tests.support.collected import Opened, Remote, left, two_turns
from tests.support.policies import ScriptedPolicy, answer, plan
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import PROC, Process, descendants, listening, name_of, wait_for
from tests.training.cli.test_collect import COMMAND
from tests.training.collect.conftest import Open
from tests.training.collect.test_gate import PATIENT, WRITES

KEY = "sk-4f1d-nobody-else-may-read-this"
GROUP = 4
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
TIMES: dict[str, Any] = dict.fromkeys(("id", "started_at", "seconds", "spent"), True)
TIMES["usage"] = {"cached_tokens"}  # by who came first at the server


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


def arguments(folder: Path, server: ScriptedServer, engine: str) -> list[str]:
    named = [str(folder / "questions.txt"), "--out", str(folder / engine), "--judge", "none"]
    where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    shape = ["--group-size", str(GROUP), f"settings.concurrency={GROUP}"]
    return ["collect", *named, *where, *shape, *(["ray_workers=2"] if engine == "ray" else [])]


@contextmanager
def collecting(folder: Path, server: ScriptedServer, *more: str) -> Iterator[Process]:
    """The command as a process with a home of its own."""
    (folder / "home").mkdir()
    own = {"HOME": str(folder / "home"), "RUBRICEM_DATA_DIR": str(folder / "data")}
    process = Process(
        [*COMMAND, *arguments(folder, server, "ray"), *more],
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
    return [child for child in descendants(pid) if "collect_group" in name_of(child)]


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
            assert len(workers) == 1, "there is one group"
            session = session_of(process.pid)
            assert listening(begun) and listening(begun) <= LOOPBACK
            os.kill(workers[0], signal.SIGKILL)
            wait_for(lambda: model.held == 2 * GROUP, 60)  # nothing else is asked for again
            assert KEY not in written_in(session)
            assert not any(KEY in name_of(pid) for pid in begun)
            model.let_go.set()
            out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        asked = [request.body["messages"] for request in server.requests]
        sent = {request.headers["authorization"] for request in server.requests}
        here = CliRunner().invoke(main, arguments(folder, server, "asyncio"))
    assert here.exit_code == 0, here.output
    assert len(asked) == 3 * GROUP and sent == {f"Bearer {KEY}"}
    assert "a worker ended: " in errors
    assert "4 rollouts: 4 finished" in out and KEY not in out + errors
    assert products(RunDirectory(folder / "ray")) == products(RunDirectory(folder / "asyncio"))
    assert not session.exists(), "what Ray wrote went with it"
    assert list((folder / "home").rglob("*ray*")) == [], "no token in the home directory"
    assert not [pid for pid in begun if name_of(pid)], "no process is left"


@pytest.fixture
def opened(opened: Opened) -> Opened:
    opened.gate.patience = PATIENT
    return opened


async def undisturbed(folder: Path, **options: Any) -> dict[str, Any]:
    """What a run in one process leaves."""
    with Opened(folder) as opened:
        await opened.collector(**options).collect()
    return await left(opened.run)


class Killing(ScriptedPolicy):
    """Calls `kill` before a call of a number; says how often it was asked."""

    def __init__(self, kill: Callable[[int], None]) -> None:
        super().__init__(two_turns)
        self.kill = kill
        self.asked = 0

    async def write(self, *call: Any) -> Completion:
        self.asked = number = self.asked + 1
        self.kill(number)
        await asyncio.sleep(0.01)
        return await super().write(*call)


async def test_a_killed_workers_group_goes_on_elsewhere_from_its_finished_calls(
    opened: Opened, tmp_path: Path
):
    made: list[Remote] = []

    def kill(number: int) -> None:
        if number == 7:  # second turns are under way
            made[0].kill()

    policy = Killing(kill)
    made.append(Remote(opened, policy))
    await made[0].collector.collect()
    again = made[0].jobs[2]
    assert any("a worker ended" in line for line in opened.lines) and again.replies
    assert policy.asked < 2 * WRITES, "finished calls that were reported are not made again"
    assert await left(opened.run) == await undisturbed(tmp_path / "whole")


async def test_a_group_that_ends_every_worker_ends_the_run(opened: Opened):
    made: list[Remote] = []
    made.append(Remote(opened, Killing(lambda number: made[0].kill())))
    with pytest.raises(PolicyError, match="3 workers ended"):
        await made[0].collector.collect()
    assert opened.run.finished_steps() == 0


async def test_an_interrupted_run_keeps_what_was_in_flight_and_goes_on_in_one_process(
    open_run: Open, tmp_path: Path
):
    stop, asked = asyncio.Event(), list[int]()

    def interrupt(number: int) -> None:
        asked.append(number)
        if number == 2:
            stop.set()

    opened = open_run()
    with pytest.raises(RunStopped):
        await Remote(opened, Killing(interrupt)).collector.collect(stop)
    before = len(asked)
    assert 2 <= before < WRITES and opened.run.finished_steps() == 0
    again = open_run()
    await again.collector().collect()
    assert isinstance(again.policy, ScriptedPolicy)
    assert before + len(again.policy.calls) == WRITES, "nothing finished is asked for again"
    assert await left(again.run) == await undisturbed(tmp_path / "whole")


def test_a_limit_of_cost_is_refused_with_workers(folder: Path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with ScriptedServer(Holding()) as server:
        prices = {"RUBRICEM_PRICES": '{"scripted": [0, 0, 5000]}'}
        limited = [*arguments(folder, server, "ray"), "max_run_cost=1"]
        done = CliRunner().invoke(main, limited, env=prices)
    assert done.exit_code == 2 and "ray_workers" in done.stderr
