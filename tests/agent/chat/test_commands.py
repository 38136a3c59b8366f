"""The chat without a terminal, and its parts: lines in, reports out, nothing lost."""

import json
from base64 import b64decode
from io import StringIO
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console

from rubricem.agent.chat.commands import COMMANDS
from rubricem.agent.chat.repl import completions, history_file, one_of, split, toolbar
from rubricem.agent.chat.session import Talk, Terminal
from rubricem.agent.research.conversations import ConversationStore
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from tests.conftest import rubricem
from tests.support.policies import researching
from tests.support.scripted_server import Fault, Json, Scripted, ScriptedServer
from tests.support.terminal import FOLLOW_UP, QUESTION, turns, where


def chat(
    server: ScriptedServer,
    documents: Path,
    *lines: str,
    resume: str = "",
    more: tuple[str, ...] = (),
    code: int = 0,
) -> Result:
    arguments = ["chat", *(["--resume", resume] if resume else []), *more]
    entered = "".join(f"{line}\n" for line in lines)
    return rubricem(*arguments, *where(server, documents), typed=entered, code=code)


def test_lines_are_questions_of_one_thread(documents: Path, data: Path):
    with ScriptedServer(turns) as server:
        done = chat(server, documents, QUESTION, "", FOLLOW_UP, "/cite 1", "/sources")
        asked = [each.body["messages"][1]["content"] for each in server.requests]
    first, _, second = done.stdout.partition(FOLLOW_UP)
    assert "It is an unbounded cache [1]." in first
    assert "It never evicts [1] there either." in second
    assert "[1] It never evicts\n    supported" in second
    assert "S1: lru_cache" in second and "[1]  S1  lru_cache" in second
    assert any("an unbounded cache [S1]." in message for message in asked)
    (thread,) = ConversationStore(data).list_all().conversations
    assert len(thread.runs) == 2
    assert RunStore(data).load(thread.runs[1]).earlier == thread.runs[:1]


def test_a_branch_goes_on_from_an_earlier_question(documents: Path, data: Path):
    entered = (QUESTION, "Is it thread-safe?", "/branch 1", FOLLOW_UP, "/threads", "/new")
    with ScriptedServer(turns) as server:
        done = chat(server, documents, *entered)
        asked = [each.body["messages"][1]["content"] for each in server.requests]
    assert "A branch of 1 question" in done.stdout and "begins a new thread" in done.stdout
    assert done.stdout.count("2 questions") == 2 and "(branch)" in done.stdout
    (follow_up, *_) = (each for each in asked if FOLLOW_UP in each)
    assert "thread-safe" not in follow_up


def test_a_thread_is_gone_on_with_by_its_name(documents: Path, data: Path):
    with ScriptedServer(turns) as server:
        chat(server, documents, QUESTION)
        (thread,) = ConversationStore(data).list_all().conversations
        done = chat(server, documents, FOLLOW_UP, "/sources", resume=thread.id)
        asked = [each.body["messages"][1]["content"] for each in server.requests]
    assert "1  What does lru_cache" in done.stdout
    assert any("an unbounded cache [S1]" in message for message in asked)
    assert len(ConversationStore(data).get(thread.id).runs) == 2


def test_a_failed_question_is_a_failed_run_and_goes_on_where_it_failed(documents: Path, data: Path):
    def failing(body: Json, number: int) -> Scripted:
        return Fault(400) if number in (1, 2) else turns(body, number)

    with ScriptedServer(failing) as server:
        done = chat(server, documents, QUESTION, code=1)
        assert "error: " in done.stderr and "/resume" in done.stderr
        (thread,) = ConversationStore(data).list_all().conversations
        assert RunStore(data).load(thread.runs[0]).status == "failed"
        # The status is 1, since one of the lines failed.
        done = chat(server, documents, "/resume", "/resume", resume=thread.id, code=1)
        assert len(server.requests) == 5, "the plan was not asked for again"
    assert "It is an unbounded cache [1]." in done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/nope", "There is no command /nope."),
        ("/cpoy", "There is no command /cpoy. Did you mean /copy?"),
        ("/re", "There is no command /re. Did you mean /resume or /rename?"),
        ("/cite 1", "There is no answer in this thread yet."),
        ("/budget seconds soon", "--max-seconds"),
        ("/budget", ""),
        ("/budget hats 3", "sets no budget"),
        ("/plan perhaps", "neither on nor off"),
        ("/branch", "nothing to branch off"),
        ("/resume", "nothing to resume"),
        ("/threads nowhere", "no conversation"),
        ("/threads ../x", "names no conversation"),
        ("/threads " + "9" * 5000, "names no conversation"),
        ("/branch " + "9" * 5000, "no number of a question"),
        ("/export report.exe", "no answer in this thread"),
        ("/share", "no answer in this thread"),
        ("/source nowhere-at-all", "nowhere-at-all"),
        ("/source 'papers", "quotation mark is not closed"),
        ("/model nowhere.gguf", "nowhere.gguf"),
        ("/rename x", "no thread yet"),
        ("x" * 20_001, "characters"),
    ],
)
async def test_what_cannot_be_done_is_one_sentence_and_a_remedy(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from rubricem.agent.chat.repl import _work

    with ScriptedServer([]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            settings = load_settings({"max_seconds": 60})
            talk = Talk(researcher, settings, {}, ConversationStore(tmp_path), Terminal())
            assert await _work(talk, line)
    told = capsys.readouterr().err.splitlines()
    if said:
        assert said in told[0] and told[0].startswith("error: ") and len(told) == 2
        assert talk.worst == 1
    else:
        assert told == [] and talk.worst == 0


async def test_what_completes_a_line(tmp_path: Path):
    with ScriptedServer([]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            conversations = ConversationStore(tmp_path)
            talk = Talk(researcher, load_settings({}), {}, conversations, Terminal())
            thread = conversations.create("about caches")
            bar = toolbar(talk)

            def words(before: str) -> list[tuple[str, int]]:
                return [(word, start) for word, start, _ in completions(talk, before)]

            assert words("/re") == [("/resume", -3), ("/rename", -3)]
            assert words("/plan o") == [("on", -1), ("off", -1)]
            assert words("/threads ") == [(thread.id, 0)]
            assert words("/cite ") == [] == words("/nope x") == words("why /re")
            assert words("/re\nsume") == []
    assert "scripted" in bar and "new thread" in bar and "0 tokens" in bar
    assert "each at most 200,000 tokens, 900 s, $1" in bar


def test_a_command_may_be_cut_short_as_long_as_it_is_clear():
    assert one_of("cit") is COMMANDS["cite"] and one_of("source") is COMMANDS["source"]
    for unclear in ("r", "", "x", "so"):
        with pytest.raises(SettingsError, match="no command"):
            one_of(unclear)
    assert split("  /CITE   2 ") == ("cite", "2")


def test_the_history_is_its_owners_alone(tmp_path: Path):
    path = tmp_path / "chat_history"
    path.write_text("+what was asked\n")
    path.chmod(0o644)
    assert history_file(tmp_path) == path
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_text() == "+what was asked\n"


def test_another_model_and_another_folder_answer_from_the_next_question_on(
    documents: Path, data: Path
):
    other = documents.parent / "other papers"
    other.mkdir()
    (other / "new.md").write_text("# In 3.12\n\nIn Python 3.12 lru_cache is as it was.\n")
    entered = (
        QUESTION, "/model another", f"/source '{other}'", "/source nowhere", FOLLOW_UP, "/sources",
    )  # fmt: skip
    with ScriptedServer(turns) as server:
        done = chat(server, documents, *entered, more=("--model", "first"), code=1)
        asked = [each.body["model"] for each in server.requests]
    assert "The next question is answered by another@" in done.stdout
    assert f"is searched for in {other}." in done.stdout
    assert "error: " in done.stderr and "nowhere" in done.stderr
    assert asked == ["first"] * 3 + ["another"] * 3
    assert "In 3.12" in done.stdout.rpartition(FOLLOW_UP)[2]
    (thread,) = ConversationStore(data).list_all().conversations
    kept = [RunStore(data).request(run)["choices"] for run in thread.runs]
    assert [(each["model"], each["source"]) for each in kept] == [
        ("first", [str(documents)]),
        ("another", [str(other)]),
    ]


def test_a_thread_is_shared_as_one_page(
    documents: Path, data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(documents)
    with ScriptedServer(turns) as server:
        lines = (QUESTION, FOLLOW_UP, "/rename Caches", "/share", "/share thread.md")
        done = chat(server, documents, *lines, code=1)
    (thread,) = ConversationStore(data).list_all().conversations
    shared = (documents / f"rubricem-{thread.id}.html").read_text()
    assert '<h1 dir="auto">Caches</h1>' in shared and shared.count("<article") == 2
    assert "error: 'thread.md' is no page." in done.stderr


def test_reports_are_exported_under_the_name_of_their_run(
    documents: Path, data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(documents)
    with ScriptedServer(turns) as server:
        lines = (
            QUESTION,
            "/export json",
            "/export report.md",
            "/rate 5 good",
            "/export x.exe",
            "/copy",
        )
        done = chat(server, documents, *lines, more=("--quiet",), code=1)
    assert done.stderr.startswith("error: 'x.exe' names no format")
    assert "error: There is no terminal to copy with." in done.stderr
    (thread,) = ConversationStore(data).list_all().conversations
    kept = json.loads((documents / f"rubricem-{thread.runs[0]}.json").read_text())
    assert kept["question"] == QUESTION
    assert "unbounded cache" in (documents / "report.md").read_text()
    assert f"{thread.runs[0]}: rated 5 of 5" in done.stdout


def test_a_text_is_handed_to_the_clipboard_of_the_terminal():
    terminal = Terminal()
    terminal.console = Console(file=StringIO(), force_terminal=True)
    terminal.copy("# It \u00fc")
    assert isinstance(terminal.console.file, StringIO)
    begun, _, held = terminal.console.file.getvalue().partition("\x1b]52;c;")
    assert begun == "" and b64decode(held.removesuffix("\x07")).decode() == "# It \u00fc"


def test_going_on_where_there_is_no_thread_says_so(documents: Path, data: Path):
    with ScriptedServer([]) as server:
        for name in ("-", "nowhere"):
            done = chat(server, documents, QUESTION, resume=name, code=2)
            assert "error: There is no" in done.stderr
        assert server.requests == []


def test_a_damaged_run_of_the_thread_is_told_and_the_rest_goes_on(documents: Path, data: Path):
    with ScriptedServer(turns) as server:
        chat(server, documents, QUESTION, FOLLOW_UP)
        (thread,) = ConversationStore(data).list_all().conversations
        (data / "runs" / thread.runs[0] / "trajectory.json").write_text("{")
        done = chat(server, documents, "/cite 1", resume=thread.id)
    assert "(unreadable)" in done.stdout and "cannot be read" in done.stderr
    assert "[1] It never evicts" in done.stdout


def test_a_follow_up_is_resumed_by_ask_as_well(documents: Path, data: Path):
    def failing(body: Json, number: int) -> Scripted:
        return Fault(400) if number == 4 else turns(body, number)

    with ScriptedServer(failing) as server:
        chat(server, documents, QUESTION, FOLLOW_UP, code=1)
        (thread,) = ConversationStore(data).list_all().conversations
        report = json.loads(rubricem("ask", "--resume", thread.runs[1], "--json").stdout)
    assert report["answer"] == "It never evicts [1] there either."
