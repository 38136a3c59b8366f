"""`rubricem judge rubrics make`: a checklist kept before anything is judged."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.buffers import BufferStore
from memory.rubrics import RubricBuffer
from memory.schema import Stage
from tests.judged import QUESTION
from tests.scripted_server import ScriptedServer

POINTS = (6, 4, 2, 1, -5)
CHECKLIST = json.dumps(
    {"rubrics": [{"criterion": f"Says {n}.", "points": p} for n, p in enumerate(POINTS)]}
)


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def script(body: dict[str, Any], number: int) -> str:
    said = body["messages"][1]["content"]
    return CHECKLIST if "a good reply" in said else "The oldest goes."


def make(server: ScriptedServer, *arguments: str) -> Result:
    command = ["judge", "rubrics", "make", QUESTION, *arguments, "--base-url", server.base_url]
    return CliRunner().invoke(main, command)


def buffer(data_dir: Path) -> RubricBuffer:
    return BufferStore(data_dir / "buffers").load(QUESTION)


def test_a_checklist_is_written_from_an_answer_of_the_models_own_and_kept(data_dir: Path):
    with ScriptedServer(script) as server:
        done = make(server)
        assert (done.exit_code, len(server.requests)) == (0, 2), done.output
        assert done.stdout.splitlines() == [
            "6  Says 0.", "4  Says 1.", "2  Says 2.", "1  Says 3.", "-5  Says 4.", "5 new",
        ]  # fmt: skip
        assert make(server).stdout == "0 new\n", "what is there already is not added again"
    kept = buffer(data_dir)
    assert [c.weight for c in kept.persistent[Stage.ANSWER]] == [6, 4, 2, 1, 5]
    assert kept.history[0].reason == "a checklist from the question"


def test_a_given_answer_is_gone_by(data_dir: Path, tmp_path: Path):
    (tmp_path / "good.txt").write_text("The least recently used one.")
    with ScriptedServer(script) as server:
        assert make(server, "--answer", str(tmp_path / "good.txt")).exit_code == 0
    (request,) = server.requests
    assert "The least recently used one." in request.body["messages"][1]["content"]
    assert buffer(data_dir).history[0].reason == "a checklist from the question and an answer"


@pytest.mark.parametrize("held", [b" \n", b"\xff\xfe\x00"])
def test_an_answer_that_is_no_text_is_misuse(data_dir: Path, tmp_path: Path, held: bytes):
    (tmp_path / "bad.txt").write_bytes(held)
    with ScriptedServer(script) as server:
        done = make(server, "--answer", str(tmp_path / "bad.txt"))
    assert (done.exit_code, server.requests) == (2, [])


def test_a_model_that_writes_none_changes_nothing(data_dir: Path):
    with ScriptedServer(lambda body, number: "I would rather not.") as server:
        done = make(server)
    assert done.exit_code == 1 and "no usable JSON" in done.stderr
    assert buffer(data_dir).version == 0


def test_an_empty_question_is_misuse(data_dir: Path):
    done = CliRunner().invoke(main, ["judge", "rubrics", "make", "  "])
    assert done.exit_code == 2 and "empty" in done.stderr
