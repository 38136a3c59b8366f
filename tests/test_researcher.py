"""What the researcher keeps of a run, and how the clients are built from settings."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.choice import EmbeddedChoice, ServerChoice
from agent.clients import choices_of, decoding_of, open_researcher, reserve, template_of
from agent.events import Event, RunFinished
from agent.policy import ChatWriter
from agent.question import LONGEST_QUESTION, checked
from agent.researcher import STARTING, ask_of, new_thread, request_of
from agent.run import Ask
from agent.servers.limiter import Limiter
from agent.settings import load_settings
from memory.errors import SettingsError, StoreError
from memory.schema import AnswerFormat, Decoding, Status
from tests.fakes import QUESTION
from tests.flow import RUN, asked, researching
from tests.scripted_server import ScriptedServer
from tests.waiting import PATIENCE

EMBEDDED, SERVER = EmbeddedChoice("0.5b"), ServerChoice("m", "http://127.0.0.1:9/v1")


async def test_the_kept_trajectory_is_the_one_returned_and_told(tmp_path: Path):
    events: list[Event] = []
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, seed=7) as researcher:
            wanted = replace(researcher.template, question=QUESTION)
            run = await researcher.ask(wanted, "t", events.append)
            assert researcher.store.load("t") == run
    assert events[-1] == RunFinished(run)
    assert (run.thread, run.seed) == ("t", 7)
    assert run.policy.startswith("scripted@127.0.0.1:")


async def test_a_finished_run_lets_its_journal_go(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        await asked(server.base_url, tmp_path)
        async with researching(server.base_url, tmp_path) as researcher:
            journal = researcher.store.journal("t")  # refused while another holds its lock
            assert len(journal.path.read_text().splitlines()) == len(server.requests) + 2
            journal.close()


async def test_a_run_that_cannot_be_kept_is_no_success(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            (tmp_path / "runs" / "t" / "trajectory.json").mkdir(parents=True)
            with pytest.raises(StoreError, match="cannot be used"):
                await researcher.ask(Ask(QUESTION), "t")


async def test_calls_of_all_runs_are_in_flight_though_few_runs_begin_at_once(tmp_path: Path):
    count = 3 * STARTING
    begun = threading.Barrier(count)

    def script(body: Any, number: int) -> str:
        begun.wait(PATIENCE)
        return RUN[sum(message["role"] == "assistant" for message in body["messages"])]

    options = {"limiter": Limiter(count)}
    with ScriptedServer(script) as server:
        async with researching(server.base_url, tmp_path, chat=options) as researcher:
            runs = await asyncio.gather(*(researcher.ask(Ask(QUESTION)) for _ in range(count)))
    assert {run.status for run in runs} == {Status.FINISHED}


async def test_runs_that_cannot_begin_hold_up_no_other(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            (tmp_path / "runs").mkdir(exist_ok=True)
            (tmp_path / "runs" / "bad").write_text("no folder")
            for _ in range(STARTING):
                with pytest.raises(StoreError):
                    await researcher.ask(Ask(QUESTION), "bad")
            async with asyncio.timeout(PATIENCE):
                assert (await researcher.ask(Ask(QUESTION), "t")).status is Status.FINISHED


def test_a_request_comes_back_as_what_was_asked():
    ask = Ask(QUESTION, AnswerFormat.EXACT, tool_calls=3, seed=5)
    assert ask_of(request_of(ask, {"model": "m"})) == ask


def test_every_thread_has_a_name_of_its_own():
    assert len({new_thread() for _ in range(100)}) == 100


@pytest.mark.parametrize("question", ["", " \n", "x" * (LONGEST_QUESTION + 1)])
def test_what_is_no_question_is_refused(question: str):
    with pytest.raises(SettingsError):
        checked(question)


def test_a_question_is_taken_without_the_space_around_it():
    assert checked("  What?\n") == "What?"


@pytest.mark.parametrize(
    ("wanted", "choice", "decoding"),
    [
        ("auto", EMBEDDED, Decoding.FORCED),
        ("auto", SERVER, Decoding.FREE),
        ("free", EMBEDDED, Decoding.FREE),
        ("forced", EMBEDDED, Decoding.FORCED),
    ],
)
def test_decoding_is_forced_on_the_embedded_model_alone(
    wanted: str, choice: EmbeddedChoice | ServerChoice, decoding: Decoding
):
    assert decoding_of(load_settings({"decoding": wanted}), choice) is decoding


def test_a_chat_server_cannot_be_forced():
    with pytest.raises(SettingsError, match="slot by slot"):
        decoding_of(load_settings({"decoding": "forced"}), SERVER)


def test_a_small_model_reads_less_of_what_was_found():
    limits = {"tool_calls": 4, "answer_format": "short", "seed": 3}
    small = template_of(load_settings(limits))
    large = template_of(load_settings({**limits, "base_url": "http://localhost:9/v1"}))
    assert small.passages < large.passages and small.passage_words < large.passage_words
    assert (large.tool_calls, large.answer_format, large.seed) == (4, AnswerFormat.SHORT, 3)


def test_paths_are_kept_whole_since_a_resume_may_start_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("documents", "python"):
        (tmp_path / name).mkdir()
    (tmp_path / "my.gguf").write_text("")
    settings = load_settings({"source": ("documents", "python"), "model": "my.gguf"})
    choices = choices_of(settings)
    assert choices["source"] == [str(tmp_path / "documents"), "python"]
    assert choices["model"] == str(tmp_path / "my.gguf")
    assert "api_key" not in choices


def test_a_thread_is_reserved_before_any_work(tmp_path: Path):
    settings = load_settings({"base_url": "http://127.0.0.1:9/v1", "data_dir": tmp_path})
    assert reserve(settings, "t", QUESTION).question == QUESTION
    assert (tmp_path / "runs" / "t" / "request.json").exists()


async def test_clients_are_built_from_settings_and_closed(tmp_path: Path):
    (tmp_path / "a.md").write_text("# Cache\n\nAn unbounded cache never evicts.\n")
    flags = {"source": (str(tmp_path),), "data_dir": tmp_path / ".data", "temperature": 0.3}
    with ScriptedServer(RUN) as server:
        settings = load_settings({**flags, "base_url": server.base_url})
        async with open_researcher(settings) as researcher:
            assert isinstance(researcher.policy, ChatWriter)
            run = await researcher.ask(replace(researcher.template, question=QUESTION))
        body = server.requests[0].body
    assert run.status is Status.FINISHED
    assert (body["model"], body["temperature"]) == ("scripted", 0.3)
