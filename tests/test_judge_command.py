"""`rubricem judge score`: threads, files and collected runs, over a scripted server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from agent.judging import open_judge_model
from agent.settings import Settings
from judge.building import JudgeModel
from memory.buffers import BufferStore
from memory.runs import RunStore
from memory.schema import Judgement, Stage, Trajectory
from tests.judged import QUESTION, varied
from tests.scripted_server import Fault, ScriptedServer

PROPOSAL = json.dumps(
    {"answer": {"positive": [{"title": "Rule", "description": "Names the rule.", "weight": 3}]}}
)


def scripted(body: dict[str, Any], number: int) -> str:
    """One criterion, for the answer; the runs that say LRU hold it."""
    said = body["messages"][1]["content"]
    if "Criteria:" not in said:
        return PROPOSAL
    points = 2 if "LRU" in said else 0
    return json.dumps(
        {"verdicts": [{"number": 1, "justification": "so [it] is", "points": points}]}
    )


def score(server: ScriptedServer, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["judge", "score", *arguments, "--base-url", server.base_url])


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def thread(data_dir: Path) -> Trajectory:
    run = varied("mine", "<answer>It is LRU.</answer>")
    RunStore(data_dir).create("mine", {})
    RunStore(data_dir).save(run)
    return run


def test_a_thread_is_scored_shown_and_kept_beside_its_trajectory(
    data_dir: Path, thread: Trajectory
):
    with ScriptedServer(scripted) as server:
        done = score(server, "mine")
    assert (done.exit_code, done.stderr) == (0, "")
    for shown in (QUESTION, "answer", "1.00", "Names the rule.", "so [it] is", "no criteria"):
        assert shown in " ".join(done.stdout.split()), shown
    text = (data_dir / "runs" / "mine" / "judgement.json").read_text()
    judgement = Judgement.model_validate_json(text)
    assert (judgement.trajectory_id, judgement.score(Stage.ANSWER)) == (thread.id, 1)
    buffer = BufferStore(data_dir / "buffers").load(QUESTION)
    assert [c.title for c in buffer.persistent[Stage.ANSWER]] == ["Rule"]
    assert judgement.rubric_version == buffer.label


def test_scoring_again_uses_the_rubrics_that_are_there(data_dir: Path, thread: Trajectory):
    with ScriptedServer(scripted) as server:
        score(server, "mine")
        assert score(server, "mine", "--no-cache").exit_code == 0
    assert len(server.requests) == 3, "proposed once, scored twice"


def test_scoring_the_same_again_asks_nobody(data_dir: Path, thread: Trajectory):
    with ScriptedServer(scripted) as server:
        first = score(server, "mine", "--json")
        again = score(server, "mine", "--json")
    assert len(server.requests) == 2
    stages = [json.loads(r.stdout)["groups"][0]["judgements"][0]["stages"] for r in (first, again)]
    assert stages[0] == stages[1]


def test_a_file_is_scored_and_json_is_one_object(data_dir: Path, tmp_path: Path):
    path = tmp_path / "kept.json"
    path.write_text(varied("a", "No idea.").model_dump_json())
    with ScriptedServer(scripted) as server:
        done = score(server, str(path), "--json")
    value = json.loads(done.stdout)
    assert value["file"] == str(tmp_path / "judgement.json")
    answer = value["groups"][0]["judgements"][0]["stages"][-1]
    assert (answer["score"], answer["verdicts"][0]["justification"]) == (0, "so [it] is")


def test_a_collected_run_is_scored_group_by_group(data_dir: Path, tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    runs = [varied("a", "It is LRU."), varied("b", "It is FIFO."), varied("c", "It is LRU!")]
    lines = "".join(run.model_dump_json() + "\n" for run in runs)
    (folder / "trajectories.jsonl").write_text(lines + '{"id": "cut')
    groups = [{"question": QUESTION, "trajectories": names} for names in (["a", "b"], ["c"])]
    (folder / "groups.jsonl").write_text("".join(json.dumps(g) + "\n" for g in groups))
    with ScriptedServer(scripted) as server:
        assert score(server, str(folder)).exit_code == 0
    kept = json.loads((folder / "judgement.json").read_text())
    assert [j["trajectory_id"] for j in kept] == ["a", "b", "c"]
    assert [j["stages"][-1]["score"] for j in kept] == [1, 0, 1]


def test_a_collected_run_without_groups_is_grouped_by_its_questions(data_dir: Path, tmp_path: Path):
    runs = [varied("a", "It is LRU."), varied("b", "It is FIFO.")]
    lines = "".join(run.model_dump_json() + "\n" for run in runs)
    (tmp_path / "trajectories.jsonl").write_text(lines)
    with ScriptedServer(scripted) as server:
        assert score(server, str(tmp_path)).exit_code == 0
    assert len(server.requests) == 3, "one contrast and two scorings"


@pytest.mark.parametrize("name", ["nothing-here", "../not-there/nothing"])
def test_a_run_that_is_not_there_is_misuse(data_dir: Path, name: str):
    with ScriptedServer(scripted) as server:
        done = score(server, name)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (2, 2)


def test_a_folder_that_holds_no_run_is_misuse(data_dir: Path, tmp_path: Path):
    with ScriptedServer(scripted) as server:
        done = score(server, str(tmp_path))
    assert done.exit_code == 2
    assert "neither trajectory.json nor trajectories.jsonl" in done.stderr


def test_a_file_that_is_no_trajectory_is_a_sentence(data_dir: Path, tmp_path: Path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    with ScriptedServer(scripted) as server:
        done = score(server, str(path))
    assert done.exit_code == 1 and "cannot be read as trajectory" in done.stderr


def test_a_judge_that_does_not_answer_fails_and_keeps_nothing(data_dir: Path, thread: Trajectory):
    with ScriptedServer(lambda body, number: Fault(400, "no such model")) as server:
        done = score(server, "mine")
    assert done.exit_code == 1
    assert "Nothing could be scored" in done.stderr and "no such model" in done.stderr
    assert not (data_dir / "runs" / "mine" / "judgement.json").exists()


def two_runs(folder: Path) -> str:
    runs = [varied("a", "It is LRU."), varied("b", "It is FIFO.")]
    lines = "".join(run.model_dump_json() + "\n" for run in runs)
    (folder / "trajectories.jsonl").write_text(lines)
    return str(folder)


def one_against_the_other(body: dict[str, Any], number: int) -> str:
    """The run that says LRU is worth 0.75."""
    said = body["messages"][1]["content"]
    first = 0.75 if "LRU" in said.split("Attempt 2")[0] else 0.25
    given = [("1", first), ("2", 1 - first)]
    return json.dumps(
        {"scores": [{"id": i, "explanation": f"so much: {s}", "score": s} for i, s in given]}
    )


def test_a_relative_judge_scores_a_group_by_standards_of_ones_own(data_dir: Path, tmp_path: Path):
    (tmp_path / "mine.md").write_text("- LRU wins.\n")
    wanted = ("--judge", "relative", "--rubric", str(tmp_path / "mine.md"), "--both-orders")
    with ScriptedServer(one_against_the_other) as server:
        done = score(server, two_runs(tmp_path), *wanted, "--seed", "5")
    assert done.exit_code == 0, done.output
    assert "so much: 0.75" in " ".join(done.stdout.split())
    assert "The order shown moved scores by 0.00." in done.stderr
    assert len(server.requests) == 2
    assert "- LRU wins." in server.requests[0].body["messages"][0]["content"]
    kept = json.loads((tmp_path / "judgement.json").read_text())
    assert [j["stages"][-1]["score"] for j in kept] == [0.75, 0.25]
    version, _, seed = kept[0]["rubric_version"].split()
    assert seed == "5"
    assert (data_dir / "standards" / f"{version}.md").read_text() == "- LRU wins."


def by_place(body: dict[str, Any], number: int) -> str:
    """Each attempt that is shown is worth 0.5."""
    shown = dict.fromkeys(re.findall(r"Attempt (\d+)", body["messages"][1]["content"]))
    given = [{"id": i, "explanation": "so it is", "score": 0.5} for i in shown]
    return json.dumps({"scores": given})


def test_a_relative_judge_scores_stage_by_stage_as_it_does_in_collecting(
    data_dir: Path, tmp_path: Path
):
    with ScriptedServer(by_place) as server:
        done = score(server, two_runs(tmp_path), "--judge", "relative-stages")
    assert done.exit_code == 0, done.output
    assert len(server.requests) == 4, "a call for each stage"
    kept = json.loads((tmp_path / "judgement.json").read_text())
    assert [[stage["score"] for stage in j["stages"]] for j in kept] == [[0.5] * 4] * 2


@pytest.mark.parametrize(
    "flags",
    [
        ("--both-orders",),
        ("--judge", "relative", "--repeat", "2"),
        ("--judge", "relative", "--rubric", "empty.md"),
        ("--graded",),
    ],
)
def test_what_a_judge_does_not_do_is_misuse(
    data_dir: Path, tmp_path: Path, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("empty.md").write_text(" ")
    with ScriptedServer([]) as server:
        done = score(server, two_runs(tmp_path), *flags)
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (2, 2), done.output
    assert server.requests == []


def test_repeated_scoring_shows_its_spread(data_dir: Path, thread: Trajectory):
    def wavering(body: dict[str, Any], number: int) -> str:
        if "Criteria:" not in body["messages"][1]["content"]:
            return PROPOSAL
        given = {"number": 1, "justification": "so", "points": 2 if body["seed"] else 0}
        return json.dumps({"verdicts": [given]})

    with ScriptedServer(wavering) as server:
        done = score(server, "mine", "--repeat", "2")
    assert "0.50 ±0.50" in " ".join(done.stdout.split())


class Shared:
    """A local model that is open already."""

    name, version, context_tokens = "shared", "1", 4096
    render = encode = complete = weigh = None


async def test_an_open_model_is_shared_where_the_settings_name_an_embedded_one():
    held: Any = Shared()
    async with open_judge_model(Settings(model="0.5b"), held) as model:
        assert model is held


async def test_a_named_server_judges_even_beside_an_open_model():
    held: Any = Shared()
    settings = Settings(model="scripted", base_url="http://127.0.0.1:9/v1")
    async with open_judge_model(settings, held) as model:
        opened: JudgeModel = model
    assert opened is not held and opened.name == "scripted@127.0.0.1:9"
