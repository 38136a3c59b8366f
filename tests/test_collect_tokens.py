"""Collecting on a server that speaks in token ids: rows that a policy gradient can be formed of."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.schema import Author
from tests.flow import answer, plan
from tests.recorded_server import Json, RecordedServer
from tests.spelling_server import spelled, spelling
from training.rows import TrainRow
from training.run_directory import RunDirectory


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "lru.md").write_text("# lru_cache\nIt evicts the oldest entry.\n")
    (tmp_path / "questions.txt").write_text("What does functools.lru_cache evict?\n")
    (tmp_path / "lengths.py").write_text(
        "from judge.rubrics import Rubric\n\n\nclass Even(Rubric):\n"
        "    def forward(self, action, observation):\n        return len(action) % 7 / 7\n"
    )
    return tmp_path


def two_turns(before: str, asked: Json) -> str:
    """A search, then an answer whose length differs with the seed."""
    if "<tool_output" not in before.partition("[assistant] ")[2]:
        return plan()
    return answer(f'It is <cite id="S1">gone{"." * (asked["seed"] % 7 + 1)}</cite>')


def collect(server: RecordedServer, *arguments: str) -> Result:
    named = ["questions.txt", "--out", "run", "--base-url", server.base_url]
    judged = ["--source", "documents", "--judge", "rubric:lengths:Even", "--reflections", "0"]
    group = ["--group-size", "4", "--tool-calls", "1"]
    return CliRunner().invoke(main, ["collect", *named, *judged, *group, *arguments])


def rows(folder: Path) -> list[TrainRow]:
    wanted = ["--credit", "answer-only", "--out", "rows.jsonl"]
    done = CliRunner().invoke(main, ["export", "run", *wanted])
    assert done.exit_code == 0, done.output
    lines = (folder / "rows.jsonl").read_text().splitlines()
    return [TrainRow.model_validate_json(line) for line in lines if line]


def test_rows_of_a_server_that_gives_ids_and_logprobs_can_form_ratios(folder: Path):
    with spelling(two_turns) as server:
        done = collect(server)
        sent = server.bodies("POST /v1/completions")
    assert done.exit_code == 0, done.output
    assert "is asked in token ids, as vllm takes them" in done.stderr
    run = RunDirectory(folder / "run")
    first = next(run.trajectories())
    assert run.manifest().policy_version == first.policy_version == "org/speller"
    kept = [s for s in first.segments if s.kept]
    assert all(list(s.token_ids or ()) == spelled(s.text) for s in kept[1:])
    assert not any(s.retokenised for s in kept)
    prefix = [one for s in kept if s.turn < 2 for one in s.token_ids or ()]
    assert any(body["prompt"][: len(prefix)] == prefix for body in sent), "appended, never redone"
    made = rows(folder)
    assert made and all(row.ratio_allowed for row in made)
    for row in made:
        chances = {b for b, on in zip(row.behaviour_logprobs, row.loss_mask, strict=True) if on}
        assert chances == {-0.5}


@pytest.mark.parametrize(
    ("lie", "logprob", "told"),
    [(1, -0.5, "8 of 8 turns form no ratio: 8 retokenised"),
     (0, None, "8 of 8 turns form no ratio: 8 without log-probabilities")],
)  # fmt: skip
def test_a_server_that_lies_or_leaves_out_gives_rows_without_ratios_and_that_is_told(
    folder: Path, lie: int, logprob: float | None, told: str
):
    with spelling(two_turns, lie, logprob) as server:
        done = collect(server)
    assert done.exit_code == 0, done.output
    assert told in done.stdout
    trajectory = next(RunDirectory(folder / "run").trajectories())
    written = [s for s in trajectory.segments if s.author is Author.POLICY and s.kept]
    assert [list(s.token_ids or ()) for s in written] == [spelled(s.text) for s in written]
    made = rows(folder)
    assert made and not any(row.ratio_allowed for row in made)


def test_the_same_server_can_be_asked_by_chat(folder: Path):
    with spelling(two_turns) as server:
        done = collect(server, "--dialect", "openai")
    assert done.exit_code == 1, "this server has no chat"
    assert "POST /v1/completions" not in dict(server.asked)
