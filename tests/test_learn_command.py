"""`rubricem learn`: which runs wait, what becomes of each, and that nothing is done twice."""

import json
import subprocess
from pathlib import Path

import pytest

from agent.learnable import learnt_candidates
from tests.conftest import COMMAND, ROOT
from tests.learning import CALLS, GREAT, Server, ask, command, kept, mark, prepared
from tests.scripted_server import Fault, Hang, Scripted, ScriptedServer
from tests.waiting import Process, wait_for
from training.compiling import reflection_rows


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


class Failing:
    """Stands in the way of calls of one kind until it is told to stop."""

    def __init__(self, kind: str, reply: Scripted) -> None:
        self.kind, self.reply, self.on = kind, reply, True

    def __call__(self, kind: str, number: int) -> Scripted | None:
        return self.reply if self.on and kind == self.kind else None


@pytest.mark.parametrize(
    ("kind", "reply", "reason", "anew"),
    [
        ("criteria", "no JSON", "nothing could be scored", CALLS),
        ("score", Fault(401), "nothing could be scored", CALLS[1:]),
        ("reflect", Fault(401), "wants an API key", CALLS[2:]),
        ("judge reflections", "no JSON", "the judge failed", CALLS[-1:]),
    ],
)
def test_a_judge_that_fails_leaves_the_run_waiting_and_is_asked_anew(
    data: Path, kind: str, reply: Scripted, reason: str, anew: tuple[str, ...]
):
    failing = Failing(kind, reply)
    script = Server(at=failing)
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        failed = command("learn")
        assert failed.exit_code == 1 and "one: nothing was learnt from this run" in failed.stdout
        assert mark(data, "one")["state"] == "queued"
        assert reason in mark(data, "one")["reason"] and reason in failed.stdout
        server.settle()
        failing.on = False
        before = len(script.asked)
        done = command("learn")
    assert (done.exit_code, script.asked[before:]) == (0, list(anew)), done.output
    assert "one: kept reflection" in done.stdout
    assert len(kept(data)) == 1
    assert command("learn").stdout.startswith("Nothing waits")


@pytest.mark.parametrize(
    ("at", "answered"), [(1, 0), pytest.param(2, 1, marks=pytest.mark.slow), (6, 9), (11, 10)]
)
def test_a_killed_learning_goes_on_where_it_was(data: Path, at: int, answered: int):
    failing = Failing("criteria", Fault(401))
    counted: list[str] = []

    def stand(kind: str, number: int) -> Scripted | None:
        if not failing.on and kind in CALLS:
            counted.append(kind)
            return Hang() if len(counted) == at else None
        return failing(kind, number)

    with ScriptedServer(Server(at=stand)) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        failing.on = False
        with Process([*COMMAND, "learn"], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: len(counted) >= at and journalled(data) == answered)
            process.kill()
        done = command("learn")
    assert done.exit_code == 0, done.output
    # All but the one that hung were answered, and none of them is asked again.
    assert len(counted) == len(CALLS) + 1
    assert len(kept(data)) == 1


def journalled(data: Path) -> int:
    path = data / "runs" / "one" / "learning.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_only_runs_asked_with_memory_on_wait_unless_all_are_wanted(data: Path):
    failing = Failing("criteria", Fault(401))
    with ScriptedServer(Server(at=failing)) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        ask(server, data, "--memory", "off", "--thread", "two")
        ask(server, data, "--memory", "read-only", "--thread", "three")
        failing.on = False
        first = json.loads(command("learn", "--json").stdout)["runs"]
        limited = json.loads(command("learn", "--all", "--limit", "1", "--json").stdout)["runs"]
        rest = json.loads(command("learn", "--all", "--json").stdout)["runs"]
    assert [run["thread"] for run in first] == ["one"]
    assert first[0]["outcome"] == "kept" and first[0]["score"] == pytest.approx(0.9)
    assert [run["thread"] for run in limited] == ["two"]
    assert [run["thread"] for run in rest] == ["three"]


def test_a_named_run_is_learnt_from_however_it_was_asked(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "off", "--thread", "two")
        done = command("learn", "two")
        again = command("learn", "two")
    assert "two: kept reflection" in done.stdout
    assert "two: this run was learnt from before" in again.stdout
    unknown = command("learn", "nobody")
    assert unknown.exit_code == 2 and "no run that has ended is called 'nobody'" in unknown.stderr


def test_a_skipped_run_waits_no_longer(data: Path):
    failing = Failing("criteria", Fault(401))
    with ScriptedServer(Server(at=failing)) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        assert "one: it waits no longer" in command("learn", "--skip").stdout
    assert command("learn").stdout.startswith("Nothing waits")
    assert mark(data, "one") == {"state": "skipped", "reason": "a person skipped it", "failed": []}


def test_of_several_runs_of_a_question_only_the_chosen_one_waits(data: Path):
    script = Server(at=lambda kind, number: Fault(401) if kind == "criteria" else None)
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on", "--thread", "t", "--best-of", "2")
    assert mark(data, "t-1")["state"] == "queued"
    assert mark(data, "t-2")["reason"] == "another run of its question was chosen"


def test_a_server_that_is_gone_leaves_all_waiting(data: Path):
    with ScriptedServer(Server(at=Failing("criteria", Fault(401)))) as server:
        for name in ("one", "two"):
            ask(server, data, "--memory", "on", "--thread", name)
    done = command("learn", "--json")
    assert done.exit_code == 1
    assert [run["outcome"] for run in json.loads(done.stdout)["runs"]] == ["queued", "queued"]


def test_an_unreadable_run_holds_nothing_up(data: Path):
    with ScriptedServer(Server(at=(failing := Failing("criteria", Fault(401))))) as server:
        for name in ("one", "two", "three"):
            ask(server, data, "--memory", "on", "--thread", name)
        (data / "runs" / "one" / "trajectory.json").write_text("{")
        (data / "runs" / "two" / "learn.json").write_text("{")
        failing.on = False
        runs = json.loads(command("learn", "--json").stdout)["runs"]
    assert [(run["thread"], run["outcome"]) for run in runs] == [("two", "kept"), ("three", "kept")]


def test_what_was_written_and_scored_makes_training_rows(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
    [candidates] = learnt_candidates(data)
    assert [c.accepted for c in candidates] == [True] + [False] * 7
    assert all(c.score and c.segments[1].text == GREAT for c in candidates)
    # A server gives no token ids, so a row needs a tokenizer first; each says so.
    compiled = reflection_rows(candidates)
    assert sum(compiled.dropped.values()) + len(compiled.rows) == 8
