"""`rubricem ask`: one JSON object, or one sentence and its remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from tests.support.policies import RUN, SUPPORTED
from tests.support.scripted_server import Fault, ScriptedServer


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder with three small documents."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "cache.md").write_text(
        "# lru_cache\n\nIf maxsize is None, lru_cache is an unbounded cache that never evicts.\n"
    )
    (folder / "heap.md").write_text("# heapq\n\nThe smallest element is always heap[0].\n")
    (folder / "path.txt").write_text("Path.glob yields the paths that match a pattern.\n")
    return folder


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ask", *arguments])


def asked(server: ScriptedServer, documents: Path, *arguments: str) -> Result:
    where = ("--base-url", server.base_url, "--source", str(documents))
    return ask("What does lru_cache do with maxsize None?", *where, *arguments)


def only_object(done: Result) -> dict[str, Any]:
    """What was printed, which must be one JSON object and nothing else."""
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def sentences(done: Result) -> list[str]:
    """The lines of an error: what went wrong, and the remedy."""
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line]


def test_a_question_is_answered_from_a_folder_as_one_json_object(documents: Path):
    with ScriptedServer(RUN) as server:
        done = asked(server, documents, "--json", "--thread", "mine")
    assert (done.exit_code, done.stderr) == (0, "")
    report = only_object(done)
    assert (report["status"], report["thread"]) == ("finished", "mine")
    assert [stage["stage"] for stage in report["stages"]] == [
        "plan", "research", "review", "answer",
    ]  # fmt: skip
    assert report["answer"] == "It is an unbounded cache [1]."
    source = report["citations"][0]["source"]
    assert source["location"].endswith("cache.md")
    assert "never evicts" in source["passage"]
    assert report["usage"]["calls"] == 3


def test_the_report_is_shown_on_stdout_and_progress_on_stderr(documents: Path, tmp_path: Path):
    with ScriptedServer(RUN) as server:
        done = asked(server, documents, "--out", str(tmp_path / "report.md"))
    assert done.exit_code == 0
    assert "It is an unbounded cache [1]" in done.stdout
    assert "functools.cache unbounded" in done.stderr
    assert "## Sources" in (tmp_path / "report.md").read_text()


def test_an_unreadable_pdf_does_not_hide_the_good_file_beside_it(documents: Path):
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    with ScriptedServer(RUN) as server:
        done = asked(server, documents, "--json")
    assert only_object(done)["status"] == "finished"


def test_an_empty_folder_is_told_before_anything_is_asked_or_fetched(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with ScriptedServer(RUN) as server:
        done = asked(server, tmp_path / "empty", "--quiet")
        assert server.requests == []
    embedded = ask("What?", "--source", str(tmp_path / "empty"), "--quiet")
    for refused in (done, embedded):
        assert refused.exit_code == 1
        told, remedy = sentences(refused)
        assert "has no documents" in told and "name another folder" in remedy


def test_a_name_is_free_again_where_nothing_was_done(documents: Path):
    with ScriptedServer(RUN) as server:
        where = ("--base-url", server.base_url, "--thread", "mine", "--quiet")
        assert ask("How?", *where, "--source", "nowhere").exit_code == 2
        assert ask("How?", *where, "--source", str(documents)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["  "], "error: There is no question."),
        (["why " * 25_000], "error: The question has 100,000 characters"),
        (["What?", "--source", "nowhere"], "error: Unknown source 'nowhere'."),
        (["What?", "--thread", "a/b"], "error: 'a/b' cannot name a thread"),
        (["What?", "--resume", "unknown"], "error: no run is called 'unknown'"),
        (["What?", "--decoding", "forced"], "error: A chat server cannot be led slot by slot"),
        (["What?", "--out", "report.doc"], "error: 'report.doc' names no format"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_a_remedy(arguments: list[str], sentence: str):
    done = ask(*arguments, "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--quiet")
    assert done.exit_code == 2
    assert done.stdout == ""
    told, remedy = sentences(done)
    assert told.startswith(sentence) and remedy


def test_a_failed_run_is_one_sentence_on_stderr_or_an_object(documents: Path):
    with ScriptedServer([Fault(401), Fault(401)]) as server:
        done = asked(server, documents, "--quiet", "--thread", "mine")
        failed = asked(server, documents, "--json")
    assert done.exit_code == 1
    told, *_, last = sentences(done)
    assert "wants an API key and none is set (401)" in told
    assert last == "Try again from where it ended: --resume mine"
    assert failed.exit_code == 1
    report = only_object(failed)
    assert (report["status"], report["answer"]) == ("failed", "")
    assert "401" in report["reason"]


def test_a_data_directory_that_is_a_file_is_one_sentence(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "file"))
    with ScriptedServer(RUN) as server:
        done = asked(server, documents, "--quiet")
        assert server.requests == []
    assert done.exit_code == 1
    told, remedy = sentences(done)
    assert "cannot be used" in told and "RUBRICEM_DATA_DIR" in remedy


def test_a_finished_thread_holds_one_question_with_its_settings_and_costs_nothing_again(
    documents: Path, monkeypatch: pytest.MonkeyPatch
):
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        first = only_object(asked(server, documents, "--json", "--thread", "mine"))
        again = only_object(asked(server, documents, "--json", "--thread", "mine"))
        another = [
            ask("Another?", "--base-url", server.base_url, "--thread", "mine", "--quiet"),
            ask("Another?", "--resume", "mine", "--quiet"),
        ]
        other = ask("--resume", "mine", "--tool-calls", "3", "--quiet")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        resumed = only_object(ask("--resume", "mine", "--json"))
        assert len(server.requests) == 4
    assert first["answer"] == again["answer"] == resumed["answer"]
    assert resumed["status"] == "finished"
    for done in another:
        assert done.exit_code == 2
        assert "holds another question" in sentences(done)[0]
    assert other.exit_code == 2 and "was asked with other settings" in sentences(other)[0]
