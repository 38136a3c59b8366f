"""A teacher's rollouts: collected like others, marked, and good for imitation alone."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from agent.rejection import Rule
from memory.schema import Author, Segment, Stage, Status, Trajectory
from tests.flow import answer, plan
from tests.recorded_server import Json
from tests.scripted_server import Scripted, ScriptedServer
from training.exporting import needs_tokeniser, run_rows
from training.rejecting import breaking
from training.run_directory import RunDirectory
from training.sequences import Tokeniser
from training.teaching import NOTHING_WRITTEN, imitation_rows


class Spelling:
    """A tokeniser of one token a character."""

    async def render(self, messages: object) -> tuple[int, ...]:
        assert isinstance(messages, list)
        return tuple(map(ord, "".join(message.content for message in messages)))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


STUDENT: Tokeniser = Spelling()


def by_script(body: Json, number: int) -> Scripted:
    if "tool_output" in body["messages"][-1]["content"]:
        return answer('It is <cite id="S1">the oldest entry</cite>.')
    return plan()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "lru.md").write_text("# lru_cache\nIt evicts the oldest entry.\n")
    (tmp_path / "questions.txt").write_text("What does functools.lru_cache evict?\n")
    return tmp_path


def collect(*arguments: str) -> Result:
    shape = ["--source", "documents", "--group-size", "2", "--judge", "none"]
    return CliRunner().invoke(
        main, ["collect", "questions.txt", "--out", "run", *shape, *arguments]
    )


def test_a_teachers_traces_are_marked_and_become_rows_of_imitation(folder: Path):
    with ScriptedServer(by_script) as server:
        done = collect("--teacher", "scripted", "--teacher-base-url", server.base_url)
    assert done.exit_code == 0, done.output
    run = RunDirectory(folder / "run")
    assert run.manifest().teacher.startswith("scripted@127.0.0.1:")
    assert needs_tokeniser(run)
    rows = asyncio.run(run_rows(run, STUDENT)).rows
    assert [(row.objective, row.ratio_allowed) for row in rows] == [("sft", False)] * 2
    (first, _), trace = rows, next(run.trajectories())
    learnt = "".join(chr(i) for i, on in zip(first.ids, first.loss_mask, strict=True) if on)
    assert learnt == "".join(s.text for s in trace.segments if s.author is Author.POLICY)
    assert "tool_output" not in learnt and first.behaviour_logprobs == (0.0,) * len(first.ids)
    assert asyncio.run(run_rows(run)).dropped == {"it has no token ids": 2}


def test_a_teacher_takes_the_policys_place(folder: Path):
    with ScriptedServer(by_script) as server:
        both = collect("--teacher", "scripted", "--model", "0.5b", "--base-url", server.base_url)
        assert both.exit_code == 2 and "A teacher writes the rollouts in place of" in both.stderr
        only = collect("--teacher-base-url", server.base_url)
        assert only.exit_code == 0, only.output
        policy = collect("--base-url", server.base_url)
    assert policy.exit_code == 2 and "holds a run with another teacher" in policy.stderr


def test_what_is_not_accepted_is_dropped_with_the_reason(folder: Path):
    with ScriptedServer(by_script) as server:
        collect("--teacher", "scripted", "--teacher-base-url", server.base_url)
    trace = next(RunDirectory(folder / "run").trajectories())
    partial = trace.model_copy(update={"status": Status.PARTIAL})
    broken = trace.model_copy(update={"segments": _with_answer(trace, "No.")})
    made = asyncio.run(imitation_rows([trace, partial, broken], STUDENT))
    assert len(made.rows) == 1
    assert made.dropped["it is partial, not finished"] == 1
    assert sum(count for why, count in made.dropped.items() if why.startswith("rejected")) == 1
    unknown = trace.model_copy(update={"sources": ()})
    made = asyncio.run(imitation_rows([unknown], STUDENT, breaking([Rule.CITATION])))
    assert made.rows == () and made.dropped == {"rejected by the rule citation": 1}


def test_a_trace_in_which_nothing_was_written_is_no_row(folder: Path):
    with ScriptedServer(by_script) as server:
        collect("--teacher", "scripted", "--teacher-base-url", server.base_url)
    trace = next(RunDirectory(folder / "run").trajectories())

    class Silent(Spelling):
        async def encode(self, text: str) -> tuple[int, ...]:
            return ()

    made = asyncio.run(imitation_rows([trace], Silent()))
    assert made.rows == () and made.dropped == {NOTHING_WRITTEN: 1}


def _with_answer(trace: Trajectory, text: str) -> tuple[Segment, ...]:
    return tuple(
        s.model_copy(update={"text": text}) if s.stage is Stage.ANSWER else s
        for s in trace.segments
    )
