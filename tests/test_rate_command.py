"""`rubricem rate`: kept with its time, shown to the reflection judge and to nobody else."""

import json
from pathlib import Path

import pytest

from memory.errors import StoreError
from memory.ratings import MOST_CHARACTERS, rate, ratings_in
from memory.runs import RunStore
from tests.flow import contents
from tests.learning import Server, ask, command, kept, mark, prepared
from tests.scripted_server import Fault, Scripted, ScriptedServer
from tests.test_reflection_judge import by_content
from tests.trajectories import trajectory

COMMENT = "It leaves out what is evicted."


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepared(tmp_path, monkeypatch)


def test_every_rating_is_kept_and_the_last_one_counts(tmp_path: Path):
    assert ratings_in(tmp_path) == ()
    rate(tmp_path, 5)
    rate(tmp_path, 2, f"  {COMMENT}\udc80 ")
    first, last = ratings_in(tmp_path)
    assert (first.score, last.score, last.comment) == (5, 2, f"{COMMENT}\ufffd")
    assert first.at <= last.at
    (tmp_path / "rating.json").write_text("[{}]")
    with pytest.raises(StoreError, match="holds no ratings"):
        rate(tmp_path, 3)
    assert (tmp_path / "rating.json").read_text() == "[{}]", "nothing is overwritten unread"


def test_the_judge_of_reflections_is_shown_the_rating_and_the_writer_never(data: Path):
    learning = False

    def judge(kind: str, number: int) -> Scripted | None:
        return Fault(401) if kind == "criteria" and not learning else None

    with ScriptedServer(Server(at=judge)) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        rated = command("rate", "one", "2", "--comment", COMMENT)
        learning = True
        assert command("learn").exit_code == 0
        asked = {contents(r.body)[0][1][:20]: json.dumps(r.body) for r in server.requests}
    assert rated.stdout == (
        "one: rated 2 of 5\nIt waits to be learnt from, with the rating: rubricem learn\n"
    )
    shown = {system for system, body in asked.items() if COMMENT in body or "2 of 5" in body}
    assert shown == {"You judge reviews of"}
    assert any(system.startswith("You review finished") for system in asked)


def test_a_rating_of_a_run_learnt_from_has_its_candidates_scored_anew(data: Path):
    def judge(kind: str, number: int) -> Scripted | None:
        return None if number == 1 or kind != "judge reflections" else "again"

    script = Server(at=judge)
    plain = script.__call__

    def answering(body: dict[str, object], number: int) -> Scripted:
        reply = plain(body, number)
        return by_content(body).replace("0.9", "0.7") if reply == "again" else reply

    with ScriptedServer(answering) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
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
        ask(server, data, "--memory", "on", "--thread", "one")
        assert mark(data, "one")["state"] == "queued"
        before = len(server.requests)
        assert command("learn").exit_code == 0
        [asked] = server.requests[before:]
    assert COMMENT in json.dumps(asked.body)
    assert command("learn").stdout.startswith("Nothing waits")


def test_what_a_rating_turns_down_stands_until_a_person_acts_and_says_so(data: Path):
    replies = iter([None, "down"])
    script = Server(at=lambda kind, _: next(replies) if kind == "judge reflections" else None)

    def answering(body: dict[str, object], number: int) -> Scripted:
        reply = script(body, number)
        return by_content(body).replace("0.9", "0.1") if reply == "down" else reply

    with ScriptedServer(answering) as server:
        ask(server, data, "--memory", "on", "--thread", "one")
        [item] = kept(data)
        command("rate", "one", "1")
        done = command("learn")
    assert "the best scored 0.10" in done.stdout
    assert f"{item.id}, which it taught before, stands" in done.stdout
    assert kept(data) == [item]


def test_a_run_that_does_not_wait_is_told_so(data: Path):
    with ScriptedServer(Server()) as server:
        ask(server, data, "--memory", "read-only", "--thread", "two")
    done = command("rate", "two", "5")
    assert done.stdout.endswith(
        "It does not wait to be learnt from; to do so: rubricem learn two\n"
    )


@pytest.mark.parametrize("score", ["0", "6", "9", "good", "3.5", "٣", "²", ""])
def test_a_score_that_is_none_is_refused(data: Path, score: str):
    RunStore(data).save(run := trajectory("It is."))
    done = command("rate", run.thread, score)
    assert done.exit_code == 2 and "is no rating." in done.stderr
    assert "Give a whole number from 1, of no use, to 5" in done.stderr
    assert ratings_in(data / "runs" / run.thread) == ()


def test_a_run_that_is_not_there_cannot_be_rated(data: Path):
    done = command("rate", "nobody", "3")
    assert done.exit_code == 2
    assert "no run that has ended is called 'nobody'" in done.stderr
    assert command("rate", "../one", "3").exit_code == 2
    assert not data.exists()


def test_a_comment_that_is_too_long_is_refused_and_nothing_is_kept(tmp_path: Path):
    with pytest.raises(ValueError, match=r"2,001 characters"):
        rate(tmp_path, 3, "x" * (MOST_CHARACTERS + 1))
    assert ratings_in(tmp_path) == ()
