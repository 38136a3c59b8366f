"""`rubricem export` on a run: every form, read back, and what is told of it."""

import asyncio
import gc
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli import main
from memory.schema import Trajectory
from memory.versions import read
from tests.collected import Opened, judgement, manifest
from tests.test_compiling import ONE, TWO, rollout
from training.export_conversations import Conversation
from training.export_judged import JudgedTrajectory, judged_groups
from training.export_pairs import PreferencePair
from training.exporting import each_row
from training.local.windows import read_rows
from training.rows import TrainRow
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


async def test_rows_are_made_with_one_group_in_memory(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.begin(manifest(), [])
    names = [f"g{group}-{member}" for group in range(20) for member in range(2)]
    scores = ([0.5, 0.5, 0.5, 0.25], [0.5, 0.5, 0.5, 0.75])
    run.commit(
        0,
        {
            "trajectories": (rollout(name) for name in names),
            "groups": [
                GroupRecord(id=a, step=0, question_id="0", question="q", trajectories=(a, b))
                for a, b in zip(names[::2], names[1::2], strict=True)
            ],
            "judgements": [
                judgement(rollout(name), scores[place % 2]) for place, name in enumerate(names)
            ],
        },
    )
    alive, made = 0, 0
    async for found in each_row(run):
        assert isinstance(found, TrainRow)
        made += 1
        alive = max(alive, sum(type(one) is Trajectory and one.id in names
                               for one in gc.get_objects()))  # fmt: skip
    assert made == 40 and 2 <= alive <= 6


def test_an_export_that_breaks_off_leaves_the_one_before(tmp_path: Path):
    run = committed(tmp_path / "run")
    assert export(run).exit_code == 0
    rows = (run / "rows.jsonl").read_text()
    assert rows.count("\n") == 2
    path = run / "trajectories.jsonl"
    path.write_text(path.read_text().replace('"id":"three"', '"id":"eerht"'))
    before = set(run.iterdir())
    done = export(run)
    assert done.exit_code == 1 and "lacks the trajectory three" in done.stderr
    assert (run / "rows.jsonl").read_text() == rows and set(run.iterdir()) == before


def test_a_judgement_that_no_group_has_in_its_place_is_told(tmp_path: Path):
    run = committed(tmp_path / "run")
    path = run / "judgements.jsonl"
    path.write_text(path.read_text().replace('"trajectory_id":"two"', '"trajectory_id":"owt"'))
    done = export(run, "--to", "jsonl")
    assert done.exit_code == 1 and "judges owt out of its group's place" in done.stderr


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
