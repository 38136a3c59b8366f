import json
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.training.collect.directory import (
    GroupRecord,
    Manifest,
    RunDirectory,
    group_of,
    hash_of,
)
from tests.support.collected import QUESTIONS, candidate, judgement, manifest
from tests.training.rows.test_compile import ONE, TWO

RECORD = GroupRecord(
    id="s000-q000", step=0, question_id="0", question="q", trajectories=("one", "two"),
    failures=("The server is down.",),
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.begin(manifest(), QUESTIONS)
    return made


def commit(run: RunDirectory, step: int) -> None:
    run.commit(
        step,
        {
            "trajectories": [ONE, TWO],
            "groups": [RECORD],
            "judgements": [judgement(ONE, [0.5] * 4)],
            "reflections": [candidate(ONE)],
        },
    )


def test_what_is_committed_is_read_back(run: RunDirectory):
    commit(run, 0)
    assert list(run.trajectories()) == [ONE, TWO]
    assert list(run.groups()) == [RECORD]
    assert list(run.judgements()) == [judgement(ONE, [0.5] * 4)]
    assert [c.trajectory_id for c in run.reflections()] == ["one"]
    assert run.questions() == list(QUESTIONS)
    group = group_of(RECORD, {t.id: t for t in run.trajectories()})
    assert (group.trajectories, group.failures) == ((ONE, TWO), RECORD.failures)


def test_lines_of_a_step_that_was_not_committed_are_neither_read_nor_kept(run: RunDirectory):
    commit(run, 0)
    path = run.folder / "trajectories.jsonl"
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(TWO.model_dump_json() + '\n{"id": "ha')
    assert list(run.trajectories()) == [ONE, TWO]
    run.begin(manifest(), QUESTIONS)
    assert path.read_bytes() == whole
    commit(run, 1)
    assert (run.finished_steps(), len(list(run.trajectories()))) == (2, 4)


def test_a_run_killed_before_its_first_commit_has_nothing(run: RunDirectory):
    (run.folder / "groups.jsonl").write_text(RECORD.model_dump_json() + "\n")
    assert list(run.groups()) == []
    run.begin(manifest(), QUESTIONS)
    assert (run.folder / "groups.jsonl").read_bytes() == b""


def test_a_part_of_a_step_is_there_only_once_it_is_whole(run: RunDirectory):
    assert run.part(0, "judged", Manifest) is None
    run.save_part(0, "judged", manifest())
    assert run.part(0, "judged", Manifest) == manifest()
    assert run.part(1, "judged", Manifest) is None


def test_another_run_does_not_go_on_in_its_folder(run: RunDirectory):
    with pytest.raises(SettingsError, match="with another policy version, tool calls"):
        run.begin(manifest(policy_version="2", tool_calls=4), QUESTIONS)
    with pytest.raises(SettingsError, match="with another list of questions"):
        run.begin(manifest(QUESTIONS[:1]), QUESTIONS[:1])


def served(address: str | None, model: str = "qwen") -> Manifest:
    name = f"{model}@{address}" if address else model
    return manifest(policy=name, judge=name, settings={"base_url": address})


def test_a_run_goes_on_at_another_address_with_the_same_model_alone(tmp_path: Path):
    run = RunDirectory(tmp_path / "served")
    run.begin(served("one:8000"), QUESTIONS)
    run.begin(served("two:8000"), QUESTIONS)
    with pytest.raises(SettingsError, match=r"with another policy, judge\.$"):
        run.begin(served("one:8000", "llama"), QUESTIONS)
    with pytest.raises(SettingsError, match="with another policy, judge, settings"):
        run.begin(served(None), QUESTIONS)


def test_order_and_text_of_questions_are_in_their_hash():
    assert hash_of(QUESTIONS) != hash_of(QUESTIONS[::-1])
    assert hash_of(QUESTIONS) == hash_of(tuple(QUESTIONS))


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path):
    with pytest.raises(SettingsError, match="is no collecting run"):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize("damaged", ["manifest.json", "trajectories.jsonl", "steps/000/done.json"])
def test_a_damaged_file_is_named(run: RunDirectory, damaged: str):
    commit(run, 0)
    path = run.folder / damaged
    path.write_text("?" * len(path.read_text()))
    with pytest.raises(StoreError, match=f"{path.name} cannot be read"):
        run.manifest()
        list(run.trajectories())


@pytest.mark.parametrize("sizes", ['{"groups": 1}', "[]", '{"groups": {}}'])
def test_sizes_that_are_none_are_told_of_their_file(run: RunDirectory, sizes: str):
    run.commit(0, {})
    (run.folder / "steps/000/done.json").write_text(f'{{"sizes": {sizes}}}')
    with pytest.raises(StoreError, match=r"done\.json cannot be read"):
        list(run.trajectories())


def test_a_question_with_odd_line_ends_stays_one_question(tmp_path: Path):
    odd = QUESTIONS[0].model_copy(update={"question": "one\u2028two\x85three"})
    run = RunDirectory(tmp_path)
    run.begin(manifest([odd]), [odd])
    assert run.questions() == [odd]


def test_a_manifest_holds_no_key(run: RunDirectory):
    assert "key" not in json.dumps(json.loads((run.folder / "manifest.json").read_text()))
