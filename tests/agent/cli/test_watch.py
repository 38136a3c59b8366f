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
from tests.support.sites import PageSite, Sent, article

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

    def watch(self, *more: str, code: int = 0, folder: bool = True) -> str:
        there = ["--base-url", self.server.base_url]
        there += ["--source", str(self.documents)] if folder else []
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
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, mailed = tmp_path / "new.md", tmp_path / "mails"
    ways = ("--once", "--every", "2h", "-o", str(out), "--mail", mailing(mailed))
    first = world.watch(*ways)
    assert "It never evicts [1]" in first and "What changed" not in out.read_text()
    assert world.watch(*ways) == "" and world.asked == 1, "it is not due"
    monkeypatch.setattr(watch, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    assert "It is asked again from 20" in world.watch(*ways)
    world.age(minutes=119)
    world.watch(*ways)
    world.age(minutes=-119)
    world.watch(*ways)
    assert world.asked == 1, "it is still not due"
    world.age(days=-2)  # asked before the clock was set back
    before = mailed.read_text()
    assert "Nothing changed." in world.watch(*ways) and world.asked == 2
    assert mailed.read_text() == before, "of which no mail is sent"
    assert "Nothing changed." in out.read_text() and "## Sources" in out.read_text()
    world.age(days=1)
    world.claims = ["It never evicts anything", "It has evicted since version 4"]
    world.watch(*ways)
    assert "Nothing changed." in out.with_suffix(".before.md").read_text()
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
    shown = (rubricem("runs", "show", run).output for run in world.runs())
    told = [each.partition("## What changed\n\n")[2].partition("\n")[0] for each in shown]
    assert told == ["", "Nothing changed.", "### New", "### No longer said"]
    assert {labels_of(world.store, run).tags for run in world.runs()} == {("watched",)}


@pytest.mark.parametrize("how", ["all", "one of two sources", "a budget"])
def test_research_that_was_cut_short_is_told_and_neither_compared_nor_delivered(
    world: World, tmp_path: Path, how: str
):
    out, mailed = tmp_path / "new.md", tmp_path / "mails"
    page = article("Cache", "lru_cache maxsize None: 7. " * 40)
    with PageSite({"/healthz": "OK", "/c": page}) as site:
        row = {"title": "Cache", "url": site.address("/c"), "content": "lru_cache maxsize None"}
        site.pages["/search"] = working = Sent(json.dumps({"results": [row]}))
        ways = ["--once", "-o", str(out), "--mail", mailing(mailed)]
        ways += ["--source", f"searxng:{site.address('')}", "--set", "allow_hosts=127.0.0.1"]
        watched = {"folder": how != "all"}
        world.watch(*ways, **watched)
        before = out.read_text(), mailed.read_text()
        world.age(days=2)
        world.claims = ["It evicts 7"]
        if how == "a budget":
            told = world.watch(*ways, "--set", "max_total_tokens=200", **watched)
            assert "Not compared, since it ended early: the budget of 200 new tokens" in told
        else:
            site.pages["/search"] = Sent("", status=500)
            told = world.watch(*ways, **watched)
            assert "Not compared, since a search failed: " in told and "500" in told
        assert "No longer said" not in told and (out.read_text(), mailed.read_text()) == before
        assert world.watch(*ways, **watched) == "", "it is told once"
        site.pages["/search"] = working
        world.age(days=2)
        assert "### New\n\n- It evicts 7 (" in world.watch(*ways, **watched)
    first, _, last = world.runs()
    assert json.loads((world.store.folder_of(last) / watch.FILE).read_text())["since"] == first


def test_a_mail_that_was_not_sent_is_sent_the_next_time_without_another_question(
    world: World, tmp_path: Path
):
    mailed = tmp_path / "mails"
    failed = world.watch("--once", "--mail", mailing(tmp_path / "lost", 3), code=1)
    assert "status 3.\n" in failed and "is sent the next time" in failed
    world.watch("--once", "--mail", mailing(mailed))
    assert world.asked == 1 and "It never evicts [1]" in mailed.read_text()
    world.watch("--once", "--mail", mailing(mailed))
    assert mailed.read_text().count("## Sources") == 1


def test_a_mail_program_gets_no_command_of_its_own_and_no_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RUBRICEM_API_KEY", "sk-ours")
    monkeypatch.setattr(watch, "markdown", lambda now: "# T\n\n~!touch x\n.\nend ~")
    world.watch("--once", "--mail", f"sh -c 'env > {tmp_path}/m; cat >> {tmp_path}/m'")
    told = (tmp_path / "m").read_text()
    assert "sk-ours" not in told and told.endswith("# T\n\n ~!touch x\n .\nend ~")


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
    told = world.watch(code=130)
    assert told.count("It is asked again from 20") == 3
    assert world.asked == 3 and told.count("error: ") == 1
    assert [world.store.load(run).status for run in world.runs()] == ["finished"] * 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--every", "1x"], "write a number and m, h, d or w"),
        (["-o", "news.pdf"], "news.pdf is no file of Markdown."),
        (["--source", "nowhere"], "Unknown source 'nowhere'."),
        (["--mail", "nosuchcmd me"], "There is no program 'nosuchcmd' for --mail."),
        (["--mail", "mail 'me"], 'There is no program "mail \'me" for --mail.'),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(
    world: World, flags: list[str], said: str
):
    assert said in world.watch(*flags, code=2)
    assert world.asked == 0 and world.runs() == []
    assert "There is no question" in refusal("watch", " ")
