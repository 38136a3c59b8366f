"""`rubricem watch`: asked when due, told what changed, and nothing lost where a part fails."""

import json
import os
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rubricem.agent.cli import watch
from rubricem.memory.runs import RunStore, labels_of
from tests.conftest import refusal, rubricem
from tests.support.policies import answer, plan
from tests.support.scripted_server import Fault, Scripted, ScriptedServer

QUESTION = "What does lru_cache do with maxsize None?"
pytestmark = pytest.mark.usefixtures("data")


class World:
    """A watched question over the documents; what the model answers is set from outside."""

    def __init__(self, documents: Path, data: Path) -> None:
        self.documents, self.store = documents, RunStore(data)
        self.claims, self.failing, self.asked = ["It never evicts"], False, 0
        self.server = ScriptedServer(self.reply)

    def reply(self, body: dict[str, Any], number: int) -> Scripted:
        if self.failing:
            return Fault(401)
        if all(message["role"] != "assistant" for message in body["messages"]):
            self.asked += 1
            return plan()
        return answer(". ".join(f'<cite id="S1">{claim}</cite>' for claim in self.claims))

    def watch(self, *more: str, code: int = 0) -> str:
        there = ("--base-url", self.server.base_url, "--source", str(self.documents))
        return rubricem("watch", QUESTION, *there, *more, code=code).output

    def runs(self) -> list[str]:
        return sorted(run for run in self.store.threads() if run.startswith("watch-"))

    def age(self, **ago: int) -> None:
        """The last run was asked so long ago."""
        stamp = (datetime.now(UTC) - timedelta(**ago)).timestamp()
        path = self.store.folder_of(self.runs()[-1]) / "request.json"
        os.utime(path, (stamp, stamp))


@pytest.fixture
def world(documents: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    found = World(documents, data)
    with found.server:
        yield found


def mailing(path: Path, code: int = 0) -> str:
    """A mail command that keeps what it is given."""
    said = f"import sys; open({str(path)!r}, 'a').write(sys.stdin.read()); sys.exit({code})"
    return shlex.join([sys.executable, "-c", said])


def test_a_question_is_asked_when_it_is_due_and_what_changed_is_delivered(
    world: World, tmp_path: Path
):
    out, mailed = tmp_path / "new.md", tmp_path / "mails"
    ways = ("--once", "--every", "2h", "-o", str(out), "--mail", mailing(mailed))
    first = world.watch(*ways)
    assert "It never evicts [1]" in first and "What changed" not in out.read_text()
    world.watch(*ways)
    assert world.asked == 1, "it is not due"
    world.age(minutes=119)
    world.watch(*ways)
    assert world.asked == 1, "it is still not due"
    world.age(hours=2)
    before = mailed.read_text()
    assert "Nothing changed." in world.watch(*ways) and world.asked == 2
    assert mailed.read_text() == before, "of which no mail is sent"
    assert "Nothing changed." in out.read_text() and "## Sources" in out.read_text()
    world.age(days=1)
    world.claims = ["It never evicts anything", "It has evicted since version 4"]
    world.watch(*ways)
    told = out.read_text().partition("## What changed since")[2]
    assert "### New\n\n- It has evicted since version 4 " in told and "No longer said" not in told
    assert mailed.read_text().endswith(out.read_text()), "the same is mailed"
    world.age(days=1)
    world.claims = ["It has evicted since version 4"]
    world.watch("--once", "--quiet")
    found = json.loads((world.store.folder_of(world.runs()[-1]) / watch.FILE).read_text())
    gone = [change["text"] for change in found["changes"] if change["gone"]]
    assert gone == ["It never evicts anything"] and found["since"] == world.runs()[-2]
    assert len(world.runs()) == 4
    assert {labels_of(world.store, run).tags for run in world.runs()} == {("watched",)}


def test_a_mail_that_was_not_sent_is_sent_the_next_time_without_another_question(
    world: World, tmp_path: Path
):
    mailed = tmp_path / "mails"
    failed = world.watch("--once", "--mail", mailing(tmp_path / "lost", 3), code=1)
    assert "The mail command failed" in failed and "is sent the next time" in failed
    world.watch("--once", "--mail", mailing(mailed))
    assert world.asked == 1 and "It never evicts [1]" in mailed.read_text()
    world.watch("--once", "--mail", mailing(mailed))
    assert mailed.read_text().count("## Sources") == 1


def test_a_run_that_failed_is_gone_on_with_before_another_is_begun(world: World):
    world.failing = True
    world.watch("--once", code=1)
    world.failing = False
    world.watch("--once")
    [run] = world.runs()
    assert world.store.load(run).status == "finished"


def test_it_stays_and_asks_again_until_it_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The clock: each night a day passes, and on the second one the model server is away."""
    nights = 0

    def sleep(seconds: float) -> None:
        nonlocal nights
        nights += 1
        assert seconds == (watch.AGAIN if world.failing else watch.LOOK)
        if nights > 3:
            raise KeyboardInterrupt
        world.age(days=1)
        world.failing = nights == 2

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    told = world.watch("--quiet", code=130)
    assert world.asked == 3 and told.count("error: ") == 1
    assert [world.store.load(run).status for run in world.runs()] == ["finished"] * 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--every", "1x"], "write a number and m, h, d or w"),
        (["-o", "news.pdf"], "news.pdf is no file of Markdown."),
        (["--source", "nowhere"], "Unknown source 'nowhere'."),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    world: World, flags: list[str], said: str
):
    assert said in world.watch(*flags, code=2)
    assert world.asked == 0 and world.runs() == []
    assert "There is no question" in refusal("watch", " ")
