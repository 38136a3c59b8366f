"""Rows of teachers' traces stand once they are trained on: who goes on gets the same training."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from memory.errors import PolicyError
from tests.judge_tokens import pairs_file, toml
from tests.scripted_server import Fault, Scripted, ScriptedServer
from tests.test_judge_training_distil import run, teaching, verdict, written
from tests.train_rows import quiet
from training.judge_training.config import TeacherConfig, read_distil
from training.judge_training.distilling import distil
from training.judge_training.pairs import read_pairs
from training.judge_training.standing import made_of
from training.local.training_run import train

pytestmark = pytest.mark.usefixtures("one_thread")


def failing(body: dict[str, Any], number: int) -> Scripted:
    """Right about each pair, but of pair 1 nothing comes."""
    asked = body["messages"][1]["content"]
    return Fault(400, "no such thing") if "Which is 1?" in asked else verdict(asked, True)


def right(body: dict[str, Any], number: int) -> Scripted:
    return verdict(body["messages"][1]["content"], True)


def begun(folder: Path) -> tuple[Path, bytes]:
    """The file of a training that was stopped in its first step, whose rows lack pair 1."""

    def stop(event: Any) -> None:
        raise RuntimeError("killed")

    async def interrupted() -> None:
        settings, told = read_distil(path)
        assert (await distil(settings, told, quiet)).rows == 2
        with pytest.raises(PolicyError, match="killed"):
            await train(settings, "sft", quiet, watch=stop)

    with ScriptedServer(failing, models=("first", "second")) as server:
        path = written(folder, server.base_url, second=False)
        asyncio.run(interrupted())
    return path, (folder / "out" / "distilled" / "rows.jsonl").read_bytes()


def test_a_training_goes_on_with_its_rows_though_a_teacher_would_now_answer(tmp_path: Path):
    _, rows = begun(tmp_path)
    with ScriptedServer(right, models=("first",)) as server:
        # Another address of the same teacher, and more money, are the same rows.
        done = run("distil", written(tmp_path, server.base_url, second=False), "--json")
        assert done.exit_code == 0, done.output
        assert server.requests == [], "no teacher is opened or asked"
    told = json.loads(done.stdout)
    assert (told["rows"], told["dropped"]) == (2, {"the teacher failed": 1})
    assert len(told["trained"]["steps"]) == 1
    assert "they stand as they are, and no teacher is asked" in done.stderr
    assert (tmp_path / "out" / "distilled" / "rows.jsonl").read_bytes() == rows


def test_before_the_training_a_teacher_that_failed_is_asked_again(tmp_path: Path):
    with ScriptedServer(failing, models=("first",)) as server:
        first = run("distil", written(tmp_path, server.base_url, second=False), "--rows", "--json")
    with ScriptedServer(right, models=("first",)) as server:
        again = run("distil", written(tmp_path, server.base_url, second=False), "--rows", "--json")
        assert len(server.requests) == 1
    assert [json.loads(done.stdout)["rows"] for done in (first, again)] == [2, 3]


@pytest.mark.parametrize("flags", [(), ("--rows",)])
def test_rows_of_other_pairs_forms_or_teachers_are_refused_and_nobody_is_asked(
    tmp_path: Path, flags: tuple[str, ...]
):
    path, rows = begun(tmp_path)
    text = path.read_text()
    with ScriptedServer(teaching, models=("first", "second")) as server:
        written(tmp_path, server.base_url, second=True)
        changed = {"distil.second_teacher": path.read_text()}
        changed["distil.teacher"] = text.replace('"first"', '"larger"')
        changed["judge"] = text.replace('"no-rubric"', '"full"')
        changed["seed"] = f"seed = 4\n{text}"
        pairs_file(tmp_path / "others.jsonl", 2)
        changed["distil.pairs"] = text.replace("pairs.jsonl", "others.jsonl")
        for name, other in changed.items():
            path.write_text(other)
            said = " ".join(run("distil", path, *flags).output.split())
            assert f"holds a training on rows of another {name}." in said, said
            assert "Put those back to go on with it" in said
        assert server.requests == []
    assert (tmp_path / "out" / "distilled" / "rows.jsonl").read_bytes() == rows


def test_a_folder_with_a_training_of_unknown_rows_is_refused_before_anybody_is_asked(
    tmp_path: Path,
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text("{}")
    with ScriptedServer(right, models=("first",)) as server:
        done = run("distil", written(tmp_path, server.base_url, second=False))
        said = " ".join(done.output.split())
        assert done.exit_code == 2 and "nothing there tells what its rows were made of" in said
        assert server.requests == []


def test_weights_are_the_same_wherever_the_command_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pairs_file(tmp_path / "pairs.jsonl", 1)
    told = {"pairs": ["pairs.jsonl"], "teacher": {"model": "large.gguf"}}
    path = toml(tmp_path / "judge.toml", "distil", told)
    monkeypatch.chdir(tmp_path)
    pairs = read_pairs([path.parent / "pairs.jsonl"])
    made = [made_of(*read_distil(place), pairs) for place in (path, Path(path.name))]
    assert made[0] == made[1] and made[0]["distil.teacher"]["model"] == "../large.gguf"
    config, read = read_distil(path)
    listed = read.model_copy(update={"teacher": TeacherConfig(base_url="http://one/v1")})
    assert made_of(config, listed, pairs)["distil.teacher"]["base_url"] == "http://one/v1"
