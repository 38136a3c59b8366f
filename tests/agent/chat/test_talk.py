"""The chat: line by line from a pipe; in a real terminal interrupted, killed, gone on with."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from rubricem.agent.chat.talk import COMMANDS
from rubricem.agent.record.conversations import ConversationStore
from rubricem.memory.runs import RunStore
from tests.conftest import rubricem
from tests.support import terminal
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.terminal import FOLLOW_UP, QUESTION


def chat(
    server: ScriptedServer, documents: Path, *lines: str, code: int = 0, more: tuple[str, ...] = ()
) -> Result:
    typed = "".join(f"{line}\n" for line in lines)
    return rubricem("chat", *terminal.where(server, documents), *more, code=code, typed=typed)


def test_lines_are_questions_of_one_conversation_and_commands(
    documents: Path, data: Path, tmp_path: Path
):
    with ScriptedServer(terminal.turns) as server:
        lines = (QUESTION, "/sources", f"/save {tmp_path / 'r.md'}", FOLLOW_UP, "/new", QUESTION)
        done = chat(server, documents, *lines, "/help", "/quit", "never asked")
        asked = [request.body["messages"][1]["content"] for request in server.requests]
    store = ConversationStore(data)
    second, first = store.list_all().conversations
    assert (len(first.runs), len(second.runs)) == (2, 1)
    assert RunStore(data).load(first.runs[1]).earlier == first.runs[:1]
    assert "It never evicts [1] there either." in done.stdout and "supported: " in done.stdout
    assert "## Sources" in (tmp_path / "r.md").read_text()
    assert all(f"/{name}" in done.stdout for name in COMMANDS)
    assert any("an unbounded cache [S1]" in message for message in asked)
    assert "never asked" not in str(asked)


def test_a_conversation_or_a_run_of_ask_is_gone_on_with(documents: Path, data: Path):
    store = ConversationStore(data)
    with ScriptedServer(terminal.turns) as server:
        rubricem("ask", QUESTION, "--run", "mine", *terminal.where(server, documents))
        done = chat(server, documents, FOLLOW_UP, more=("--resume", "mine"))
        (kept,) = store.list_all().conversations
        chat(server, documents, QUESTION, more=("--resume", kept.id))
        chat(server, documents, QUESTION, more=("--resume",))
    assert f"1  {QUESTION}  (finished)" in done.stdout
    (kept,) = store.list_all().conversations
    assert kept.runs[0] == "mine" and len(kept.runs) == 4


def test_a_run_is_gone_on_with_over_its_own_sources_unless_others_are_named(
    documents: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (other := tmp_path / "other").mkdir()
    (other / "bees.md").write_text("# Bees\n\nlru_cache is no bee.\n")
    with ScriptedServer(terminal.turns) as server:
        rubricem("ask", QUESTION, "--run", "mine", *terminal.where(server, documents))
        on = ("chat", "--base-url", server.base_url, "--resume", "mine")
        rubricem(*on, typed=f"{FOLLOW_UP}\n")
        rubricem(*on, "--source", str(other), typed=f"{FOLLOW_UP}\n")
        monkeypatch.setenv("RUBRICEM_SOURCE", str(other))
        store = RunStore(data)
        store.mark_restored()  # whoever made a copy names no source
        rubricem(*on, typed=f"{FOLLOW_UP}\n")
    listed = ConversationStore(data).list_all().conversations
    searched = [store.request(each.runs[-1])["choices"]["source"] for each in listed]
    assert searched == [[str(other)], [str(other)], [str(documents)]]


def test_a_failed_question_is_a_failed_run_and_goes_on_where_it_failed(documents: Path, data: Path):
    with ScriptedServer([Fault(401), *[Fault(401)] * 9]) as server:
        done = chat(server, documents, QUESTION, code=1)
        assert "error: " in done.stderr and "/resume" in done.stderr
        server._script = terminal.turns
        again = chat(server, documents, "/resume", more=("--resume",))
    assert "unbounded cache [1]." in again.stdout
    (kept,) = ConversationStore(data).list_all().conversations
    assert len(kept.runs) == 1 and RunStore(data).load(kept.runs[0]).status == "finished"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/sourcse", "There is no command /sourcse."),
        ("/sources", "There is no answer in this conversation yet."),
        ("/save x.md", "There is no answer in this conversation yet."),
        ("/resume", "Every question here has ended."),
        ("why " * 25_000, "The question has 100,"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_remedy(
    documents: Path, data: Path, line: str, said: str
):
    with ScriptedServer([]) as server:
        told = chat(server, documents, line, code=1).stderr
    assert told.startswith(f"error: {said}") and told.count("\n") == 2


def test_an_interrupt_gives_what_there_is_and_the_chat_goes_on(documents: Path, data: Path):
    with ScriptedServer(terminal.hanging) as server, terminal.chatting(server, documents) as chat:
        chat.expect("1>")
        chat.interrupt("1>")
        chat.enter(terminal.QUESTION)
        chat.expect("unbounded cache [1].")
        chat.ask(terminal.FOLLOW_UP, 2)
        chat.expect("research")
        while len(server.requests) < 5:
            chat._more(0.1)
        chat.type(terminal.CTRL_C)
        chat.expect("Ending with what was found", "Ended early", "/resume", "3>")
        chat.enter("/sources")
        chat.expect("supported: ")
    (thread,) = ConversationStore(data).list_all().conversations
    assert RunStore(data).load(thread.runs[1]).status == "partial"


def test_after_a_kill_the_conversation_is_there_and_nothing_finished_is_asked_again(
    documents: Path, data: Path
):
    with ScriptedServer(terminal.silent) as server:
        with terminal.chatting(server, documents) as chat:
            chat.ask(terminal.QUESTION, 1)
            chat.expect("unbounded cache [1].")
            chat.ask(terminal.FOLLOW_UP, 2)
            while len(server.requests) < 5:
                chat._more(0.1)
            chat.kill()
        before = len(server.requests)
        server._script = terminal.turns
        with terminal.chatting(server, documents, "--resume") as chat:
            chat.expect("1  What does lru_cache", "(finished)", "2  And in", "(interrupted)")
            chat.expect("3>")
            chat.enter("/resume")
            chat.expect("It never evicts [1] there either.")
        # The answer and the check of its citation; the plan stood in the journal.
        assert len(server.requests) == before + 2


@pytest.mark.slow
def test_what_a_page_says_cannot_act_on_the_terminal(documents: Path, data: Path):
    (documents / "cache.md").write_text(
        "# lru_cache\n\nlru_cache maxsize None is an unbounded cache \x1b]0;owned\x07\x1b[31mred.\n"
    )
    with ScriptedServer(terminal.turns) as server, terminal.chatting(server, documents) as chat:
        chat.ask(terminal.QUESTION, 1)
        chat.expect("unbounded cache [1].", "2>")
        chat.enter("/sources")
        chat.expect("red.")
    assert b"\x1b]0;" not in chat._raw and b"\x1b[31mred" not in chat._raw
    (thread,) = ConversationStore(data).list_all().conversations
    folder = RunStore(data).folder / thread.runs[0]
    assert "owned" in json.loads((folder / "trajectory.json").read_text())["sources"][0]["text"]
