"""`rubricem export` on a run: every form, read back, and what is told of it."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.versions import read
from tests.collected import Opened, judgement, manifest
from tests.test_compiling import ONE, TWO, rollout
from training.export_conversations import Conversation
from training.export_judged import JudgedTrajectory, judged_groups
from training.export_pairs import PreferencePair
from training.local.windows import read_rows
from training.run_directory import GroupRecord, RunDirectory

OLD = Path(__file__).parent / "run_v1"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run of version 1, without the rows that were exported from it then."""
    run = Path(shutil.copytree(OLD, tmp_path / "old"))
    (run / "rows.jsonl").unlink()
    return run


def export(run: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", str(run), *arguments])


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_a_run_of_version_1_gives_the_rows_that_it_gave_then(old: Path):
    done = export(old)
    assert done.exit_code == 0, done.output
    assert "2 rows (2 policy)" in done.stdout
    assert read_rows([old / "rows.jsonl"]) == read_rows([OLD])


def test_jsonl_is_every_trajectory_with_its_judgement_and_place(old: Path):
    done = export(old, "--to", "jsonl")
    assert done.exit_code == 0 and f"in {old / 'judged.jsonl'}" in done.stdout
    judged = [read(line, JudgedTrajectory) for line in lines(old / "judged.jsonl")]
    run = RunDirectory(OLD)
    kept = list(run.trajectories())
    assert [
        JudgedTrajectory(**dict(t), **_place(j)) for t, j in zip(kept, judged, strict=True)
    ] == judged
    assert [one.judgement for one in judged] == list(run.judgements())
    assert {(one.group, one.step, one.question_id) for one in judged} == {("s000-q000", 0, "0")}


def _place(one: JudgedTrajectory) -> dict[str, object]:
    return {name: getattr(one, name) for name in ("group", "step", "question_id", "judgement")}


def test_sft_tells_how_many_were_left_out_for_which_reason(tmp_path: Path):
    run = committed(tmp_path / "run")
    done = export(run, "--to", "sft")
    assert done.stdout.splitlines()[:2] == [
        "0 conversations", "3 dropped: rejected by the rule no_answer",
    ]  # fmt: skip
    assert lines(run / "sft.jsonl") == []


def test_conversations_of_a_collected_run(tmp_path: Path):
    opened = Opened(tmp_path)
    asyncio.run(opened.collector().collect())
    opened.close()
    out = tmp_path / "c.jsonl"
    done = export(opened.run.folder, "--to", "sft", "--rule", "citation", "--out", str(out))
    assert "6 conversations" in done.stdout
    made = [read(line, Conversation) for line in lines(out)]
    assert {c.trajectory for c in made} == {t.id for t in opened.run.trajectories()}


def test_pairs_are_written_and_groups_without_one_counted(tmp_path: Path):
    run = committed(tmp_path / "run")
    done = export(run, "--to", "pairs", "--by", "answer", "--margin", "0.3")
    assert done.stdout.splitlines()[:2] == [
        "1 pairs", "1 dropped: fewer than two of the group have what is compared",
    ]  # fmt: skip
    (pair,) = (read(line, PreferencePair) for line in lines(run / "pairs.jsonl"))
    assert (pair.chosen_trajectory, pair.chosen_value) == ("two", 0.75)


@pytest.mark.parametrize("of", ["rows", "trajectories"])
def test_tables_are_called_after_what_is_in_them(old: Path, of: str):
    pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    from pyarrow.parquet import read_table

    done = export(old, "--to", "parquet", "--of", of)
    assert done.exit_code == 0, done.output
    assert read_table(old / f"{of}.parquet").num_rows == 2


def test_a_dataset_is_not_written_over(old: Path):
    pytest.importorskip("datasets", reason="the extra `data` is not installed")
    first, again = (export(old, "--to", "hf") for _ in range(2))
    assert first.exit_code == 0, first.output
    assert again.exit_code == 2 and "rows_hf exists already" in again.stderr


@pytest.mark.parametrize("form", ["rows", "sft", "pairs", "jsonl", "parquet", "hf"])
def test_a_folder_that_is_no_run_is_told(tmp_path: Path, form: str):
    done = export(tmp_path, "--to", form)
    assert done.exit_code == 2 and "is no collecting run" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_newer_rubricem_is_refused(old: Path):
    path = old / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 7}))
    done = export(old, "--to", "sft")
    assert done.exit_code == 1
    assert "This Manifest is of schema 7" in done.stderr and "newer rubricem" in done.stderr


def test_a_group_that_names_what_is_not_there_is_told(tmp_path: Path):
    run = committed(tmp_path / "run")
    path = run / "trajectories.jsonl"
    path.write_text(path.read_text().replace('"id":"two"', '"id":"owt"'))
    done = export(run, "--to", "jsonl")
    assert done.exit_code == 1 and "lacks the trajectory two" in done.stderr


def test_groups_are_read_one_after_another(tmp_path: Path):
    groups = list(judged_groups(RunDirectory(committed(tmp_path / "run"))))
    assert [[t.id for t in g.rollouts.trajectories] for g in groups] == [["one", "two"], ["three"]]
    assert [[j is not None for j in g.judgements] for g in groups] == [[True, True], [False]]


def committed(folder: Path) -> Path:
    """A judged group of two, and one of a single rollout that was not judged."""
    run, three = RunDirectory(folder), rollout("three")
    run.begin(manifest(), [])
    records = [
        GroupRecord(id="a", step=0, question_id="0", question="q", trajectories=("one", "two")),
        GroupRecord(id="b", step=0, question_id="1", question="q", trajectories=("three",)),
    ]
    judgements = [judgement(ONE, [0.5, 0.5, 0.5, 0.25]), judgement(TWO, [0.5, 0.5, 0.5, 0.75])]
    products = {"trajectories": [ONE, TWO, three], "groups": records, "judgements": judgements}
    run.commit(0, products)  # type: ignore[arg-type]
    return folder
