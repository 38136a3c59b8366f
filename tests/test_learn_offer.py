"""The end of `rubricem ask --memory on` on the embedded model: learning is offered, or named."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory.runs import RunStore
from memory.schema import Status, Trajectory
from tests.conftest import COMMAND, ROOT
from tests.learning import QUESTION, Server, ask, kept, mark, prepared
from tests.scripted_server import Fault, Scripted, ScriptedServer
from tests.trajectories import trajectory
from tests.waiting import PATIENCE, Process

RUN = trajectory("It is.")
AFTER = """
import sys
from agent.commands.after_asking import learn_after
from agent.settings import load_settings
from memory.runs import RunStore
settings = load_settings({"memory": "on"})
run = RunStore(settings.data_dir).load(sys.argv[1])
learn_after(settings, run, quiet=sys.argv[2:] == ["quiet"])
"""
OFFER = "1 run can be learnt from: learn now? [y/N]: "


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


def ended(data: Path, run: Trajectory = RUN, memory: str = "on") -> Trajectory:
    """A run of the embedded model that has been shown."""
    store = RunStore(data)
    store.create(run.thread, {"ask": {"question": run.question}, "choices": {"memory": memory}})
    store.save(run)
    return run


@contextmanager
def on_terminal(*command: str) -> Iterator[tuple[Process, int]]:
    """A command whose input and errors are a terminal, and that terminal's other end."""
    ours, theirs = pty.openpty()
    with Process(
        command, cwd=ROOT, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def interrupted(process: Process, terminal: int) -> None:
    """^C until it is heard: Python forgets one that comes just before it waits for a line."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        if select.select([terminal], [], [], 2)[0]:
            return


def read_until(terminal: int, end: str) -> str:
    """What the terminal shows up to these words; to its end, where they do not come."""
    shown = ""
    while end not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], f"nothing came after {shown!r}"
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other end was closed
            break
        shown += piece.decode()
    return shown


def after(thread: str, *more: str) -> tuple[str, ...]:
    return sys.executable, "-c", AFTER, thread, *more


def without_terminal(thread: str, *more: str) -> str:
    done = subprocess.run(after(thread, *more), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


@pytest.mark.parametrize("reply", ["n\n", "\n", "\x04", "interrupt"])
def test_who_declines_is_told_how_to_learn_later(data: Path, reply: str):
    run = ended(data)
    with on_terminal(*after(run.thread)) as (process, terminal):
        assert read_until(terminal, OFFER).endswith(OFFER)
        if reply == "interrupt":
            interrupted(process, terminal)
        else:
            os.write(terminal, reply.encode())
        assert "Later: rubricem learn" in read_until(terminal, "rubricem learn")
        assert process.wait() == 0
    assert not (data / "bank").exists()


def test_without_a_terminal_one_line_names_the_command(data: Path):
    run = ended(data)
    line = "1 run can be learnt from: rubricem learn\n"
    assert without_terminal(run.thread) == line
    with on_terminal(*after(run.thread, "quiet")) as (_, terminal):
        assert read_until(terminal, "nothing more") == line.replace("\n", "\r\n")


def test_a_run_that_teaches_nothing_is_not_offered(data: Path):
    cut = RUN.model_copy(update={"status": Status.PARTIAL, "ended_by": "interrupt"})
    assert "it was interrupted" in without_terminal(ended(data, cut).thread)


def test_a_run_that_went_on_after_it_was_learnt_from_waits_again(data: Path):
    run = ended(data)
    written = [{"trajectory_id": run.id, "question": run.question, "segments": []}]
    (data / "runs" / run.thread / "reflections.json").write_text(json.dumps(written))
    assert without_terminal(run.thread) == "this run was learnt from before\n"
    RunStore(data).save(run.model_copy(update={"id": "run-2"}))
    assert "1 run can be learnt from" in without_terminal(run.thread)
    assert "it went on" in mark(data, run.thread)["reason"]


def test_a_failure_beside_the_answer_is_a_sentence(data: Path):
    run = ended(data)
    (data / "runs" / run.thread / "reflections.json").write_text("{")
    assert "nothing was learnt from this run: " in without_terminal(run.thread)


@pytest.mark.slow
def test_who_accepts_learns_from_all_that_wait_with_each_ones_own_model(data: Path, tiny: Path):
    failing = True

    def judge(kind: str, number: int) -> Scripted | None:
        return Fault(401) if failing and kind == "criteria" else None

    with ScriptedServer(Server(at=judge)) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        failing = False
        more = ("--model", str(tiny), "--source", str(data.parent / "notes"), "--tool-calls", "1")
        named = ("ask", QUESTION, "--memory", "on", "--thread", "two", *more)
        with on_terminal(*COMMAND, *named) as (process, terminal):
            read_until(terminal, "2 runs can be learnt from: learn now? [y/N]: ")
            assert process.stdout and process.stdout.readline() == f"{QUESTION}\n"
            os.write(terminal, b"y\n")
            told = read_until(terminal, "nothing more")
            assert process.wait() == 0
    assert "one: kept reflection" in told
    # A model of random weights writes no reflection.
    assert "loading tiny.gguf" in told and "\r\ntwo: no" in told
    assert [item.question for item in kept(data)] == [QUESTION]
