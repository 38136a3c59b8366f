"""What can go wrong while `rubricem collect` runs as a process, and that nothing is lost by it."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import main
from memory.errors import PolicyError
from tests.chat_clients import ASKED, SAMPLING, client
from tests.conftest import ENVIRONMENT
from tests.flow import answer, plan
from tests.scripted_server import Fault, Reply, Scripted, ScriptedServer
from tests.waiting import PATIENCE, Process, wait_for
from training.run_directory import RunDirectory
from training.tally import tally

COMMAND = (sys.executable, "-c", "from agent.cli import main; main(prog_name='rubricem')")
QUESTIONS = ("Which rule decides?", "What is excepted?")


def turns(body: dict[str, Any], number: int) -> str:
    later = "tool_output" in body["messages"][-1]["content"]
    return answer('It is <cite id="S1">so</cite>.') if later else plan()


def slowly(body: dict[str, Any], number: int) -> Scripted:
    return Reply(turns(body, number), piece_seconds=0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "lru.md").write_text("# lru_cache\nWithout a maxsize, no bound.\n")
    (tmp_path / "questions.txt").write_text("".join(f"{q}\n" for q in QUESTIONS))
    return tmp_path


def arguments_of(folder: Path, server: ScriptedServer, *more: str) -> list[str]:
    named = [str(folder / "questions.txt"), "--out", str(folder / "run"), "--judge", "none"]
    where = ["--base-url", server.base_url, "--source", str(folder / "documents")]
    return ["collect", *named, *where, "--group-size", "2", *more]


def environment_of(folder: Path) -> dict[str, str]:
    prices = '{"scripted": [0, 0, 5000]}'
    return {"RUBRICEM_DATA_DIR": str(folder / "data"), "RUBRICEM_MEMORY": "off",
            "RUBRICEM_PRICES": prices}  # fmt: skip


def begin(folder: Path, server: ScriptedServer, *arguments: str, **options: Any) -> Process:
    """A process of its own, which can be interrupted and limited."""
    return Process(
        [*COMMAND, *arguments_of(folder, server, *arguments)],
        env={**ENVIRONMENT, "HOME": os.environ["HOME"], **environment_of(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def finished(folder: Path, server: ScriptedServer, *arguments: str) -> tuple[int, str, str]:
    environment = environment_of(folder)
    done = CliRunner().invoke(main, arguments_of(folder, server, *arguments), env=environment)
    return done.exit_code, done.stdout, done.stderr


def served(folder: Path) -> int:
    """How many rollouts a run's finished steps hold."""
    return tally(RunDirectory(folder / "run")).finished


def test_ctrl_c_once_finishes_what_is_in_flight_and_the_same_command_goes_on(folder: Path):
    with ScriptedServer(slowly) as server:
        process = begin(folder, server)
        wait_for(lambda: len(server.requests) >= 4)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
        asked = len(server.requests)
        assert process.returncode == 130, errors
        assert "Finishing the calls in flight; ^C again stops at once." in errors
        assert "The run was interrupted. The same command goes on" in errors
        assert not out and served(folder) == 0
        status, out, errors = finished(folder, server)
    assert status == 0, errors
    assert "4 rollouts: 4 finished" in out
    assert len(server.requests) == 8 and asked < 8, "no call was made twice"


def test_ctrl_c_twice_stops_at_once_and_the_same_command_goes_on(folder: Path):
    hanging = threading.Event()

    def script(body: dict[str, Any], number: int) -> Scripted:
        return turns(body, number) if hanging.is_set() else Reply(plan(), hang_after=2)

    with ScriptedServer(script) as server:
        process = begin(folder, server)
        wait_for(lambda: len(server.requests) == 4)
        process.send_signal(signal.SIGINT)
        heard = iter(process.stderr.readline, "")
        assert any("Finishing the calls in flight" in line for line in heard)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130
        assert "Stopped at once. The same command goes on" in errors
        hanging.set()
        status, out, errors = finished(folder, server)
    assert (status, "4 rollouts: 4 finished" in out) == (0, True), errors


def test_a_disk_that_fills_up_in_a_step_commits_nothing_and_loses_nothing_finished(folder: Path):
    long = plan().replace("Look it up.", " ".join(map(str, range(1500))))

    def script(body: dict[str, Any], number: int) -> str:
        said = turns(body, number)
        return long if said == plan() else said

    def limit() -> None:
        # What the system says of a file that may not grow is what it says of a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (24_000, 24_000))

    with ScriptedServer(script) as server:
        process = begin(folder, server, "--concurrency", "1", preexec_fn=limit)
        _, errors = process.communicate()
        before = len(server.requests)
        assert process.returncode == 1, errors
        told = [line for line in errors.splitlines() if line.startswith("error: ")]
        assert len(told) == 1 and "cannot be used" in told[0], errors
        assert "disk is not full" in errors
        assert served(folder) == 0
        status, out, errors = finished(folder, server, "--concurrency", "1")
    assert status == 0, errors
    assert "4 rollouts: 4 finished" in out
    assert 8 <= len(server.requests) <= 9 and before < 8, "only the call that was not kept"


def test_a_run_in_use_is_told_and_left_alone(folder: Path):
    told = threading.Event()

    def script(body: dict[str, Any], number: int) -> str:
        told.wait(PATIENCE)
        return turns(body, number)

    with ScriptedServer(script) as server:
        process = begin(folder, server)
        wait_for(lambda: len(server.requests) >= 1)
        status, _, errors = finished(folder, server)
        assert (status, "in use by another process" in errors) == (1, True), errors
        told.set()
        out, errors = process.communicate()
    assert (process.returncode, "4 rollouts: 4 finished" in out) == (0, True), errors


def test_a_group_whose_rollouts_all_fail_is_kept_with_its_reasons(folder: Path):
    def script(body: dict[str, Any], number: int) -> Scripted:
        refused = QUESTIONS[0] in str(body["messages"])
        return Fault(400, "this is refused") if refused else turns(body, number)

    with ScriptedServer(script) as server:
        status, out, errors = finished(folder, server)
    assert status == 0, errors
    assert "4 rollouts: 2 finished" in out and "2 failed" in out
    first, second = RunDirectory(folder / "run").groups()
    assert (first.trajectories, len(second.trajectories)) == ((), 2)
    assert len(first.failures) == 2 and "this is refused" in first.failures[0]


def test_a_limit_of_money_ends_the_run_and_a_larger_one_goes_on(folder: Path):
    # Twenty written tokens cost a tenth of a dollar.
    with ScriptedServer(turns) as server:
        status, _, errors = finished(folder, server, "--max-run-cost", "0.35")
        assert status == 3, errors
        assert "The run's money is spent: 0.30 of 0.35 US dollars" in errors
        assert "--max-run-cost" in errors and len(server.requests) == 3
        status, out, errors = finished(folder, server, "--max-run-cost", "5")
    assert (status, "4 rollouts: 4 finished" in out) == (0, True), errors
    assert len(server.requests) == 8


def test_a_limit_of_money_needs_a_price(folder: Path):
    with ScriptedServer(turns, models=("nameless",)) as server:
        status, _, errors = finished(folder, server, "--max-run-cost", "1")
    assert status == 2
    assert "the price of nameless@" in errors and "rubricem.toml" in errors


@pytest.mark.parametrize(
    ("fault", "away"),
    [(Fault(503), True), (Fault(429), True), (Fault(401), False), (Fault(400), False), ("", False)],
)
async def test_a_server_that_serves_nobody_is_told_from_one_that_refuses_a_call(
    fault: Scripted, away: bool
):
    with ScriptedServer([fault] * 4) as server:
        async with client(server.base_url) as chat:
            with pytest.raises(PolicyError) as caught:
                await chat.chat(ASKED, SAMPLING)
    assert caught.value.away == away


async def test_a_server_that_is_gone_serves_nobody():
    with ScriptedServer([]) as server:
        address = server.base_url
    async with client(address) as chat:
        with pytest.raises(PolicyError, match="no model server answers") as caught:
            await chat.chat(ASKED, SAMPLING)
    assert caught.value.away
