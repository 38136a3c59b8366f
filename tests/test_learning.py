"""`rubricem ask --memory`: what a run teaches, and what the next one is given of it."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import COMMAND, ROOT
from tests.flow import contents
from tests.learning import (
    CALLS,
    GREAT,
    QUESTION,
    Server,
    ask,
    asking,
    command,
    items,
    kept,
    prepared,
)
from tests.scripted_server import Fault, Hang, Scripted, ScriptedServer
from tests.test_reflecting import GOOD
from tests.waiting import Process


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


def test_a_run_teaches_and_the_next_one_on_the_question_is_given_it(data: Path):
    script = Server()
    with ScriptedServer(script) as server:
        first = ask(server, data, "--memory", "on", "--thread", "one")
        assert first.exit_code == 0, first.output
        second = ask(server, data, "--json", "--thread", "two")
        asked = [contents(r.body) for r in server.requests]
    assert script.asked == [*["research"] * 3, *CALLS, *["research"] * 3]
    assert "judging this run" in first.stderr and "kept reflection" in first.stderr
    [item] = kept(data)
    assert (item.question, item.takeaways) == (QUESTION, "- worth 0.9")
    assert item.score == pytest.approx(0.9)
    report = json.loads(second.stdout)
    assert report["recalled"] == [item.id]
    assert report["recollections"] == [
        {"id": item.id, "question": QUESTION, "own": True, "similarity": None, "score": item.score}
    ]
    assert "worth 0.9" not in asked[0][1][1]
    assert "This very question was tried before" in asked[-2][1][1]
    assert "worth 0.9" in asked[-2][1][1] and "Unbounded" not in asked[-2][1][1]
    run = data / "runs" / "one"
    assert json.loads((run / "judgement.json").read_text())["stages"][3]["score"] == 1.0
    assert len(json.loads((run / "reflections.json").read_text())) == 8
    assert not (run / "learning.jsonl").exists() and not (run / "learn.json").exists()


def test_a_reflection_says_where_it_comes_from(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
    [item] = kept(data)
    run = json.loads((data / "runs" / "one" / "trajectory.json").read_text())
    judgement = json.loads((data / "runs" / "one" / "judgement.json").read_text())
    assert (item.trajectory_id, item.policy, item.judge) == (
        run["id"],
        run["policy"],
        run["policy"],
    )
    assert item.judge_version == judgement["rubric_version"] != ""
    assert item.stage_scores == tuple(stage["score"] for stage in judgement["stages"])
    assert item.stage_scores[3] == 1.0 and len(item.stage_scores) == 4
    assert item.reflection_score is not None and item.reflection_score.specificity == 0.9
    assert (item.origin, item.flags) == ("run", ())


def test_the_bank_knows_who_was_given_what_and_how_well_that_came_out(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        ask(server, data, "--thread", "two")
        [item] = items(data)
        assert (item.recalled, item.mean_score) == (1, None)
        ask(server, data, "--thread", "two")
        ask(server, data, "--memory", "off", "--thread", "three")
        done = command("judge", "score", "two", "--base-url", server.base_url)
    assert done.exit_code == 0, done.output
    [item] = items(data)
    assert (item.recalled, item.mean_score) == (1, 1.0)


def test_the_answer_is_shown_before_anything_is_learnt(data: Path):
    def judge(kind: str, number: int) -> Scripted | None:
        return Hang() if kind == "criteria" else None

    with ScriptedServer(Server(at=judge)) as server, asked(server, data) as process:
        assert process.stdout and process.stderr
        shown = process.stdout.readline()
        told = "".join(iter(process.stderr.readline, "  judging this run\n"))
        process.kill()
    assert shown == f"{QUESTION}\n" and "kept reflection" not in told


def test_an_interruption_ends_the_learning_alone_and_nothing_is_asked_twice(data: Path):
    hanging = True

    def judge(kind: str, number: int) -> Scripted | None:
        return Hang() if hanging and kind == "judge reflections" else None

    script = Server(at=judge)
    with ScriptedServer(script) as server:
        with asked(server, data) as process:
            assert process.stderr
            for line in process.stderr:
                if "scoring what was written" in line:
                    process.send_signal(signal.SIGINT)
                    break
            told = process.stderr.read()
            assert process.wait() == 0
        assert "it was interrupted" in told and "rubricem learn one" in told
        assert kept(data) == []
        hanging = False
        done = command("learn")
    assert done.exit_code == 0 and "one: kept reflection" in done.stdout
    # The call that hung was never answered.
    assert script.asked == [*["research"] * 3, *CALLS, "judge reflections"]
    assert len(kept(data)) == 1


def asked(server: ScriptedServer, data: Path) -> Process:
    """`ask --memory on` in a process of its own."""
    arguments = asking(server, data, "--memory", "on", "--thread", "one")
    pipe = subprocess.PIPE
    return Process([*COMMAND, *arguments], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def test_a_run_that_was_learnt_from_is_not_learnt_from_again(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        calls = len(server.requests)
        again = ask(server, data, "--memory", "on", "--thread", "one")
        assert len(server.requests) == calls
    assert again.exit_code == 0 and "learnt from before" in again.stderr


@pytest.mark.parametrize("memory", ["off", "read-only"])
def test_without_on_nothing_is_judged_or_kept(data: Path, memory: str):
    script = Server()
    with ScriptedServer(script) as server:
        assert ask(server, data, "--memory", memory).exit_code == 0
    assert script.asked == ["research"] * 3
    assert not (data / "bank").exists()


def test_off_is_given_nothing(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "on")
        done = ask(server, data, "--memory", "off", "--json")
        last = contents(server.requests[-2].body)[1][1]
    assert json.loads(done.stdout)["recalled"] == []
    assert last.startswith(QUESTION)


@pytest.mark.parametrize(
    ("reflection", "judged", "said"),
    [
        (Fault(401), None, "nothing was learnt from this run"),
        (GREAT, "no JSON", "the judge failed"),
        ("no form", None, "There is no whole reflection_rubrics block"),
        (GOOD.replace("- Read the default, too.", "- worth 0.3"), None, "the best scored 0.30"),
    ],
)
def test_a_failure_of_learning_never_loses_the_answer(
    data: Path, reflection: Scripted, judged: Scripted | None, said: str
):
    with ScriptedServer(Server(reflection, judged)) as server:
        done = ask(server, data, "--memory", "on")
    assert done.exit_code == 0
    assert "It is an unbounded cache [1]" in done.stdout
    assert said in done.stderr
    assert kept(data) == []


def test_a_json_report_stays_one_object(data: Path):
    with ScriptedServer(Server()) as server:
        done = ask(server, data, "--memory", "on", "--json")
    assert json.loads(done.stdout)["status"] == "finished"
    assert done.stderr == ""
