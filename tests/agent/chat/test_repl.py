"""The chat in a real terminal: typed at, interrupted, killed, gone on with."""

import json
import os
import signal
from pathlib import Path

import pytest

from rubricem.agent.research.conversations import ConversationStore
from rubricem.memory.runs import RunStore
from tests.support import terminal
from tests.support.scripted_server import ScriptedServer


@pytest.mark.slow
def test_a_question_of_several_lines_is_sent_whole_and_is_in_the_history(
    documents: Path, data: Path
):
    with ScriptedServer(terminal.turns) as server, terminal.chatting(server, documents) as chat:
        chat.expect("1>")
        chat.type("What does lru_cache do")
        chat.type(terminal.ALT_ENTER)
        chat.enter("with maxsize None?")
        chat.expect("unbounded cache [1].", "2>")
        chat.type(terminal.UP)
        chat.expect("with maxsize None?")
        chat.type(terminal.CTRL_C)
        asked = server.requests[0].body["messages"][1]["content"]
    assert asked.startswith("What does lru_cache do\nwith maxsize None?")


def test_commands_and_their_arguments_are_completed(documents: Path, data: Path):
    with ScriptedServer(terminal.turns) as server, terminal.chatting(server, documents) as chat:
        chat.expect("1>")
        chat.type("/exp")
        chat.expect("/export", "write the report into a file")
        chat.type(terminal.TAB + terminal.ENTER)
        chat.type(" js")
        # Of what stood there before, only the letters that differ are drawn anew.
        chat.expect("json")
        chat.type(terminal.TAB + terminal.ENTER)
        chat.type(terminal.ENTER)
        chat.expect("error: There is no answer in this thread yet.", "Ask a question first.")
        chat.expect("1>")
        chat.enter("/expp")
        chat.expect("There is no command /expp.")


def test_an_interrupt_gives_what_there_is_and_the_chat_goes_on(documents: Path, data: Path):
    with ScriptedServer(terminal.hanging) as server, terminal.chatting(server, documents) as chat:
        chat.ask(terminal.QUESTION, 1)
        chat.expect("unbounded cache [1].")
        chat.ask(terminal.FOLLOW_UP, 2)
        chat.expect("Research")
        while len(server.requests) < 5:
            chat._more(0.1)
        chat.type(terminal.CTRL_C)
        chat.expect("Ending with what was found", "Ended early", "/resume", "3>")
        chat.enter("/sources")
        chat.expect("S1")
    (thread,) = ConversationStore(data).list_all().conversations
    assert RunStore(data).load(thread.runs[1]).status == "partial"


@pytest.mark.slow
def test_a_second_interrupt_abandons_at_once_and_the_run_goes_on_later(documents: Path, data: Path):
    with ScriptedServer(terminal.silent) as server, terminal.chatting(server, documents) as chat:
        chat.ask(terminal.QUESTION, 1)
        chat.expect("unbounded cache [1].")
        chat.ask(terminal.FOLLOW_UP, 2)
        while len(server.requests) < 5:
            chat._more(0.1)
        # Both at once: the second falls into the ending of the first.
        os.killpg(chat.process.pid, 2)
        os.killpg(chat.process.pid, 2)
        chat.expect("3>")
        server._script = terminal.turns
        chat.enter("/resume")
        chat.expect("there either.")
    (thread,) = ConversationStore(data).list_all().conversations
    assert RunStore(data).load(thread.runs[1]).status == "finished"


def test_after_a_kill_the_thread_is_there_and_nothing_finished_is_asked_again(
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


def test_a_question_ends_with_its_terminal_though_the_signal_is_ignored(
    documents: Path, data: Path
):
    with ScriptedServer(terminal.silent) as server:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        chat = terminal.Session(*terminal.where(server, documents))
        signal.signal(signal.SIGHUP, before)
        try:
            chat.ask(terminal.QUESTION, 1)
            chat.ask(terminal.FOLLOW_UP, 2)
            while len(server.requests) < 5:
                chat._more(0.1)
            chat.hang_up()
            assert chat.process.wait() == 129
        finally:
            chat.close()


@pytest.mark.slow
def test_a_plan_is_approved_in_the_chat_once_that_is_on(documents: Path, data: Path):
    with ScriptedServer(terminal.turns) as server, terminal.chatting(server, documents) as chat:
        chat.expect("1>")
        chat.enter("/plan on")
        chat.expect("shown to you")
        chat.ask(terminal.QUESTION, 1)
        chat.expect("Says what happens to the size", "[a]pprove")
        chat.type("a\r")
        chat.expect("unbounded cache [1].", "2>")
        chat.enter("/budget seconds 60")
        chat.expect("60 seconds")
        chat.expect("2>")
        chat.enter("/budget seconds never")
        chat.expect("error: ")


@pytest.mark.slow
def test_what_a_page_says_cannot_act_on_the_terminal(documents: Path, data: Path):
    (documents / "cache.md").write_text(
        "# lru_cache\n\nlru_cache maxsize None is an unbounded cache \x1b]0;owned\x07\x1b[31mred.\n"
    )
    with ScriptedServer(terminal.turns) as server, terminal.chatting(server, documents) as chat:
        chat.ask(terminal.QUESTION, 1)
        chat.expect("unbounded cache [1].", "2>")
        chat.enter("/cite 1")
        chat.expect("red.")
    assert b"owned" not in chat._raw
    (thread,) = ConversationStore(data).list_all().conversations
    folder = RunStore(data).folder / thread.runs[0]
    assert "owned" in json.loads((folder / "trajectory.json").read_text())["sources"][0]["text"]
