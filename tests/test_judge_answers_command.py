"""`rubricem judge score --judge pairwise|checklist`, over a scripted server."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.buffers import BufferStore
from memory.schema import Stage
from tests.chains import chain
from tests.judged import QUESTION, varied
from tests.scripted_server import Fault, ScriptedServer

POINTS = (6, 4, 2, 1, -5)
CHECKLIST = json.dumps(
    {"rubrics": [{"criterion": f"Says {n}.", "points": p} for n, p in enumerate(POINTS)]}
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collected run of one group of three."""
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    runs = [
        varied("a", "It is LRU."),
        varied("b", "It is FIFO."),
        varied("c", "It is LRU, surely."),
    ]
    path = tmp_path / "run"
    path.mkdir()
    (path / "trajectories.jsonl").write_text("".join(r.model_dump_json() + "\n" for r in runs))
    return path


def score(server: ScriptedServer, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["judge", "score", *arguments, "--base-url", server.base_url])


def scores(folder: Path) -> list[float | None]:
    kept = json.loads((folder / "judgement.json").read_text())
    return [judgement["stages"][-1]["score"] for judgement in kept]


def right_one(body: dict[str, Any], number: int) -> str:
    """Prefers the reply that says LRU; of two, the one that says it first."""
    said = body["messages"][1]["content"]
    first, second = said.split(" reply B]", 1)
    return chain("A" if "LRU" in first or "LRU" not in second else "B")


def test_a_collected_group_is_judged_in_pairs(folder: Path):
    with ScriptedServer(right_one) as server:
        done = score(server, str(folder), "--judge", "pairwise")
    assert done.exit_code == 0, done.output
    assert scores(folder) == [0.75, 0, 0.75]
    assert len(server.requests) == 6
    assert "2 of 3 pairs had the same winner in both orders" in done.stderr


def test_a_flip_shows_each_pair_once(folder: Path):
    with ScriptedServer(right_one) as server:
        assert score(server, str(folder), "--judge", "pairwise", "--flip").exit_code == 0
    assert len(server.requests) == 3


def test_a_checklist_is_made_once_kept_and_scored_on(folder: Path, tmp_path: Path):
    def script(body: dict[str, Any], number: int) -> str:
        said = body["messages"][1]["content"]
        if "Items:" in said:
            marks = [{"number": n, "criteria_met": "LRU" in said and n < 3} for n in range(1, 6)]
            return json.dumps({"verdicts": marks})
        return CHECKLIST if "a good reply" in said else "The oldest goes."

    with ScriptedServer(script) as server:
        done = score(server, str(folder), "--judge", "checklist")
        assert done.exit_code == 0, done.output
        assert scores(folder) == [10 / 13, 0, 10 / 13]
        assert len(server.requests) == 5, "an answer, a checklist, three checks"
        score(server, str(folder), "--judge", "checklist", "--no-cache")
        assert len(server.requests) == 8, "the checklist stands in the buffer"
    buffer = BufferStore(tmp_path / "data" / "buffers").load(QUESTION)
    assert [c.weight for c in buffer.persistent[Stage.ANSWER]] == [6, 4, 2, 1, 5]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("--judge", "checklist", "--flip"), "pairwise"),
        (("--judge", "pairwise", "--repeat", "2"), "stage"),
    ],
)
def test_what_a_judge_does_not_do_is_misuse(folder: Path, arguments: tuple[str, ...], kind: str):
    with ScriptedServer(right_one) as server:
        done = score(server, str(folder), *arguments)
    assert done.exit_code == 2 and f"--judge {kind}" in done.stderr
    assert not server.requests


@pytest.mark.parametrize("kind", ["pairwise", "checklist"])
@pytest.mark.parametrize("reply", [Fault(400, "no such model"), "I would rather not."])
def test_a_judge_that_gives_no_score_fails_with_the_reason_and_keeps_nothing(
    folder: Path, tmp_path: Path, kind: str, reply: Fault | str
):
    with ScriptedServer(lambda body, number: reply) as server:
        done = score(server, str(folder), "--judge", kind)
    assert done.exit_code == 1 and "Nothing could be scored" in done.stderr
    told = "no such model" if isinstance(reply, Fault) else "in 3 tries"
    assert told in done.stderr
    assert not (folder / "judgement.json").exists()
    assert BufferStore(tmp_path / "data" / "buffers").load(QUESTION).version == 0


def test_a_corrupted_buffer_is_neither_judged_on_nor_overwritten(folder: Path, tmp_path: Path):
    path = BufferStore(tmp_path / "data" / "buffers").path(QUESTION)
    path.parent.mkdir(parents=True)
    path.write_text('{"question": "cut')
    with ScriptedServer(right_one) as server:
        done = score(server, str(folder), "--judge", "checklist")
    assert done.exit_code == 1 and str(path) in done.stderr
    assert (server.requests, path.read_text()) == ([], '{"question": "cut')


def test_a_lone_run_has_nothing_to_be_compared_with(folder: Path, tmp_path: Path):
    lone = tmp_path / "lone.json"
    lone.write_text(varied("a", "It is LRU.").model_dump_json())
    with ScriptedServer(right_one) as server:
        done = score(server, str(lone), "--judge", "pairwise", "--json")
    (judgement,) = json.loads(done.stdout)["groups"][0]["judgements"]
    assert judgement["stages"][-1]["unscored_reason"] == "no other answer to compare"
    assert (done.exit_code, server.requests) == (0, [])
