"""`rubricem learn`: which runs wait, what becomes of each, and that nothing is done twice.

The end of `rubricem ask --memory on` on the embedded model: learning is offered, or named.

`rubricem rate`: kept with its time, shown to the reflection judge and to nobody else.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rubricem.agent.learning import lessons
from rubricem.memory.errors import StoreError
from rubricem.memory.runs import MOST_CHARACTERS, RunStore, rate, ratings_in
from tests.conftest import COMMAND, ROOT
from tests.judge.test_reflection import by_content
from tests.support.bank_cli import CALLS, Failing, Server, ask, command, kept, mark, prepared
from tests.support.policies import contents
from tests.support.scripted_server import Fault, Hang, Scripted, ScriptedServer
from tests.support.waiting import Process, wait_for


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "reply", "reason", "anew"),
    [
        ("criteria", "no JSON", "nothing could be scored", CALLS),
        ("score", Fault(401), "nothing could be scored", CALLS[1:]),
        ("reflect", Fault(401), "requires an API key", CALLS[2:]),
        ("judge reflections", "no JSON", "the judge failed", CALLS[-1:]),
    ],
)
def test_a_judge_that_fails_leaves_the_run_waiting_and_is_asked_anew(
    data: Path, kind: str, reply: Scripted, reason: str, anew: tuple[str, ...]
):
    failing = Failing(reply, kind)
    script = Server(at=failing)
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on", "--run", "one")
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
@pytest.mark.slow
def test_a_killed_learning_goes_on_where_it_was(data: Path, at: int, answered: int):
    failing = Failing(Fault(401))
    counted: list[str] = []

    def stand(kind: str, number: int) -> Scripted | None:
        if not failing.on and kind in CALLS:
            counted.append(kind)
            return Hang() if len(counted) == at else None
        return failing(kind, number)

    with ScriptedServer(Server(at=stand)) as server:
        ask(server, data, "--memory", "on", "--run", "one")
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
    with ScriptedServer(Server(at=(failing := Failing(Fault(401))))) as server:
        ask(server, data, "--memory", "on", "--run", "one")
        ask(server, data, "--memory", "off", "--run", "two")
        ask(server, data, "--memory", "read-only", "--run", "three")
        failing.on = False
        first = json.loads(command("learn", "--json").stdout)["runs"]
        limited = json.loads(command("learn", "--all", "--limit", "1", "--json").stdout)["runs"]
        rest = json.loads(command("learn", "--all", "--json").stdout)["runs"]
    assert [run["thread"] for run in first] == ["one"]
    assert first[0]["outcome"] == "kept" and first[0]["score"] == pytest.approx(0.9)
    assert [run["thread"] for run in limited] == ["two"]
    assert [run["thread"] for run in rest] == ["three"]


def test_a_run_of_a_copy_names_no_server_to_learn_by(data: Path, monkeypatch: pytest.MonkeyPatch):
    with ScriptedServer(Server(at=Failing(Fault(401)))) as server:
        ask(server, data, "--memory", "on", "--run", "one")
        RunStore(data).mark_restored()
        before = len(server.requests)
        monkeypatch.setenv("RUBRICEM_BASE_URL", "http://127.0.0.1:9/v1")
        assert command("learn").exit_code == 1
        assert len(server.requests) == before


def test_a_run_whose_model_is_lost_is_not_learnt_from_by_the_embedded_one(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(tmp_path / "none"))
    with ScriptedServer(Server()) as server:
        for run in ("lost", "gone"):
            ask(server, data, "--memory", "on", "--run", run, "--set", "model=other:7b@x")
        for run, change in (("lost", {}), ("gone", {"model": None, "base_url": None})):
            path = data / "runs" / run / "request.json"
            request = json.loads(path.read_text())
            request["choices"].pop("model")
            request["choices"] |= change
            path.write_text(json.dumps(request))
            (data / "runs" / run / "learn.json").write_text('{"state": "queued"}')
        done = command("learn", "lost", "gone")
        assert done.exit_code == 1 and not (tmp_path / "none").exists()
        assert "does not say which model" in done.stdout and "models fetch" in done.stdout
        refused = command("ask", "--resume", "lost")
        assert refused.exit_code == 1 and "cannot be read" in refused.output


def test_a_server_that_is_gone_leaves_all_waiting_and_an_unreadable_run_holds_nothing_up(
    data: Path,
):
    with ScriptedServer(Server(at=(failing := Failing(Fault(401))))) as server:
        for name in ("one", "two", "three"):
            ask(server, data, "--memory", "on", "--run", name)
        gone = command("learn", "--json", "--base-url", "http://127.0.0.1:9/v1")
        (data / "runs" / "one" / "trajectory.json").write_text("{")
        (data / "runs" / "two" / "learn.json").write_text("{")
        failing.on = False
        runs = json.loads(command("learn", "--json").stdout)["runs"]
    assert gone.exit_code == 1
    assert [run["outcome"] for run in json.loads(gone.stdout)["runs"]] == ["queued"] * 3
    assert [(run["thread"], run["outcome"]) for run in runs] == [("two", "kept"), ("three", "kept")]


COMMENT = "It leaves out what is evicted."


class Rejudging(Server):
    """Scores the reflection of 0.9 otherwise when it is asked for the second time."""

    def __init__(self, score: str) -> None:
        super().__init__()
        self.score = score

    def __call__(self, body: dict[str, object], number: int) -> Scripted:
        reply = super().__call__(body, number)
        again = self.asked[-1] == "judge reflections" and self.asked.count(self.asked[-1]) > 1
        return by_content(body).replace("0.9", self.score) if again else reply


def test_every_rating_is_kept_and_the_last_one_counts_but_none_with_too_long_a_comment(
    tmp_path: Path,
):
    assert ratings_in(tmp_path) == ()
    rate(tmp_path, 5)
    rate(tmp_path, 2, f"  {COMMENT}\udc80 ")
    first, last = ratings_in(tmp_path)
    assert (first.score, last.score, last.comment) == (5, 2, f"{COMMENT}\ufffd")
    assert first.at <= last.at
    (tmp_path / "rating.json").write_text("[{}]")
    with pytest.raises(StoreError, match=r"rating.json cannot be read: "):
        rate(tmp_path, 3)
    assert (tmp_path / "rating.json").read_text() == "[{}]", "nothing is overwritten unread"
    with pytest.raises(ValueError, match=r"2,001 characters"):
        rate(tmp_path / "other", 3, "x" * (MOST_CHARACTERS + 1))
    assert ratings_in(tmp_path / "other") == ()
    with ThreadPoolExecutor(8) as people:
        list(people.map(lambda number: rate(tmp_path / "many", 4, f"{number}"), range(16)))
    assert len(ratings_in(tmp_path / "many")) == 16


def test_the_judge_of_reflections_is_shown_the_rating_and_the_writer_never(data: Path):
    with ScriptedServer(Server(at=(failing := Failing(Fault(401))))) as server:
        ask(server, data, "--memory", "on", "--run", "one")
        rated = command("rate", "one", "2", "--comment", COMMENT)
        failing.on = False
        assert command("learn").exit_code == 0
        asked = {contents(r.body)[0][1][:20]: json.dumps(r.body) for r in server.requests}
    assert rated.stdout == (
        "one: rated 2 of 5\nIt waits to be learnt from, with the rating: rubricem learn\n"
    )
    shown = {system for system, body in asked.items() if COMMENT in body or "2 of 5" in body}
    assert shown == {"You judge reviews of"}
    assert any(system.startswith("You review finished") for system in asked)


def test_a_rating_of_a_run_learnt_from_has_its_candidates_scored_anew(data: Path):
    script = Rejudging("0.7")
    with ScriptedServer(script) as server:
        ask(server, data, "--memory", "on", "--run", "one")
        [before] = kept(data)
        rated = command("rate", "one", "4")
        assert mark(data, "one")["state"] == "queued"
        calls = len(script.asked)
        done = command("learn")
    assert "it waits again: rubricem learn" in rated.stdout
    assert script.asked[calls:] == ["judge reflections"]
    [after] = kept(data)
    assert after.score == pytest.approx(0.7) and after.id in done.stdout
    assert (after.takeaways, after.id != before.id) == (before.takeaways, True)
    assert command("learn").stdout.startswith("Nothing waits")


def test_a_rating_that_comes_while_the_run_is_learnt_from_is_not_lost(data: Path):
    def judge(kind: str, number: int) -> None:
        if kind == "judge reflections" and number == 1:
            rate(data / "runs" / "one", 2, COMMENT)

    with ScriptedServer(Server(at=judge)) as server:
        ask(server, data, "--memory", "on", "--run", "one")
        assert mark(data, "one")["state"] == "queued"
        before = len(server.requests)
        assert command("learn").exit_code == 0
        [asked] = server.requests[before:]
    assert COMMENT in json.dumps(asked.body)
    assert command("learn").stdout.startswith("Nothing waits")


def test_a_rating_that_comes_as_the_learning_ends_is_not_lost(
    data: Path, monkeypatch: pytest.MonkeyPatch
):
    def rate_and_clear(folder: Path) -> None:
        lessons.keep_rating(RunStore(data), "one", 2)
        (folder / lessons.MARK).unlink()

    monkeypatch.setattr(lessons, "clear_mark", rate_and_clear)
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on", "--run", "one")
    assert mark(data, "one")["state"] == "queued"
