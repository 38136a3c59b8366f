"""The command under ^C, a full disk, two processes and a key that is refused half-way."""

import json
import os
import pty
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rubricem.agent.cli import main
from tests.conftest import COMMAND, ROOT
from tests.support.policies import RUN, answer, plan
from tests.support.scripted_server import Fault, Reply, ScriptedServer
from tests.support.waiting import PATIENCE, Process, wait_for

HANGING = Reply(pieces=["<think>"], hang_after=1)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one document, and a data directory for every process of the test."""
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text("# lru_cache\n\nWithout maxsize the cache never evicts.\n")
    return folder


def command(server: ScriptedServer, documents: Path, *more: str) -> list[str]:
    where = ("--base-url", server.base_url, "--source", str(documents), "--thread", "t")
    return [*COMMAND, "ask", "What evicts?", *where, *more]


def begun(arguments: list[str], **options: Any) -> Process:
    return Process(
        arguments, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def ask(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["ask", *arguments])


def sentences(text: str) -> str:
    assert "Traceback" not in text, text
    return text


def test_one_interrupt_gives_a_partial_report_that_can_be_resumed(documents: Path):
    with ScriptedServer([RUN[0], HANGING, *RUN[1:]]) as server:
        with begun(command(server, documents, "--json")) as process:
            wait_for(lambda: len(server.requests) == 2)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate()
        report = json.loads(said)
        resumed = ask("--resume", "--json")
        assert len(server.requests) == 4
    assert process.returncode == 130
    assert "rubricem ask --resume t" in sentences(errors)
    assert (report["status"], report["ended_by"]) == ("partial", "interrupt")
    assert "never evicts" in report["answer"] and report["citations"][0]["id"] == "S1"
    assert (resumed.exit_code, json.loads(resumed.stdout)["status"]) == (0, "finished")


def test_two_interrupts_stop_at_once_and_lose_nothing(documents: Path):
    with ScriptedServer([RUN[0], HANGING, *RUN[1:]]) as server:
        with begun(command(server, documents, "--json")) as process:
            wait_for(lambda: len(server.requests) == 2)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate()
        resumed = ask("--resume", "t", "--json")
        assert len(server.requests) == 4
    assert (process.returncode, resumed.exit_code) == (130, 0)
    assert "--resume t" in sentences(errors)
    assert said == "" or json.loads(said)["ended_by"] == "interrupt"


def test_a_budget_that_runs_out_is_exit_status_3_with_a_report(documents: Path):
    with ScriptedServer(RUN) as server:
        where = ("--base-url", server.base_url, "--source", str(documents), "--thread", "t")
        done = ask("What evicts?", *where, "--max-total-tokens", "200")
        kept = ask("--resume", "t", "--quiet")
        again = ask("--resume", "t", "--max-total-tokens", "0", "--quiet")
        assert len(server.requests) == 3
    assert (done.exit_code, kept.exit_code, again.exit_code) == (3, 3, 0)
    assert "at most 10 searches, 200 tokens, 900 seconds, 1 US dollar" in done.stderr
    assert "Ended early: the budget of 200 tokens ran out" in done.stdout
    assert "never evicts [1]" in done.stdout
    assert "--resume t --max-total-tokens" in done.stderr


def test_a_key_that_is_refused_half_way_can_be_mended(
    documents: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "good-for-two-calls")
    with ScriptedServer([RUN[0], RUN[1], Fault(401), RUN[2]]) as server:
        where = ("--base-url", server.base_url, "--source", str(documents), "--thread", "t")
        refused = ask("What evicts?", *where, "--quiet")
        monkeypatch.setenv("OPENAI_API_KEY", "the-new-key")
        mended = ask("--resume", "t", "--json")
        keys = [request.headers["authorization"] for request in server.requests]
    assert refused.exit_code == 1
    assert "401" in sentences(refused.stderr) and "--resume t" in refused.stderr
    assert "good-for-two-calls" not in refused.stderr
    assert (mended.exit_code, json.loads(mended.stdout)["usage"]["calls"]) == (0, 3)
    assert keys[-1] == "Bearer the-new-key"


def test_a_disk_that_is_full_is_one_sentence_and_loses_nothing_finished(documents: Path):
    long = plan().replace("Look it up.", " ".join(map(str, range(6000))))

    def limit() -> None:
        # What the system says of a file that may not grow is what it says of a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with ScriptedServer([long, long, answer()]) as server:
        with begun(command(server, documents, "--quiet"), preexec_fn=limit) as process:
            _, errors = process.communicate()
        resumed = ask("--resume", "t", "--json")
        assert len(server.requests) == 3, "the call whose reply was lost is the one that is made"
    assert process.returncode == 1
    told = [line for line in sentences(errors).splitlines() if line]
    assert told[0].startswith("error: ") and "journal.jsonl cannot be used: " in told[0]
    assert "disk is not full" in errors
    assert json.loads(resumed.stdout)["status"] == "finished"


def test_two_processes_share_a_data_directory_and_not_a_thread(documents: Path):
    with ScriptedServer([HANGING, *RUN]) as server, begun(command(server, documents)) as first:
        wait_for(lambda: len(server.requests) == 1)
        same = ask("--resume", "t", "--quiet")
        where = ("--base-url", server.base_url, "--source", str(documents))
        other = ask("What evicts?", *where, "--thread", "other", "--json")
        listed = CliRunner().invoke(main, ["runs", "--json"])
        first.kill()
        first.communicate()
    assert same.exit_code == 1
    assert "in use by another process" in sentences(same.stderr)
    assert (other.exit_code, json.loads(other.stdout)["status"]) == (0, "finished")
    states = {run["thread"]: run["status"] for run in json.loads(listed.stdout)["runs"]}
    assert states == {"t": "running", "other": "finished"}


def test_a_plan_is_never_waited_for_without_a_terminal(documents: Path):
    with ScriptedServer(RUN) as server:
        arguments = command(server, documents, "--approve-plan", "--json")
        with begun(arguments, stdin=subprocess.DEVNULL) as process:
            said, errors = process.communicate()
    assert (process.returncode, json.loads(said)["status"]) == (0, "finished")
    assert "no terminal to ask at: the plan is approved" in errors


def test_a_plan_is_edited_at_the_terminal(documents: Path, tmp_path: Path):
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/lru_cache maxsize None/a better query/" "$1"\n')
    editor.chmod(0o700)
    terminal, end = pty.openpty()
    with ScriptedServer([plan(), answer()]) as server:
        process = Process(
            command(server, documents, "--approve-plan", "--json"), cwd=ROOT,
            stdin=end, stderr=end, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "EDITOR": str(editor), "TERM": "xterm"},
        )  # fmt: skip
        os.close(end)
        shown = read_until(terminal, "[r]eject?")
        os.write(terminal, b"e\n")
        said, _ = process.communicate()
    os.close(terminal)
    assert "Says what is evicted" in shown and "## First search" in shown
    stages = {stage["stage"]: stage["text"] for stage in json.loads(said)["stages"]}
    assert "The first search is for: a better query" in stages["plan"] + stages["research"]


def read_until(terminal: int, words: str) -> str:
    shown, until = "", time.monotonic() + PATIENCE
    while words not in shown:
        assert time.monotonic() < until, shown
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown
