from contextlib import nullcontext
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.training.collect.directory import GroupRecord, Manifest, RunDirectory, hash_of
from tests.support.collected import QUESTIONS, candidate, judgement, manifest
from tests.training.rows.test_credit import ONE, TWO

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
    group = RECORD.group({t.id: t for t in run.trajectories()})
    assert (group.trajectories, group.failures) == ((ONE, TWO), RECORD.failures)


def test_lines_of_a_step_that_was_not_committed_are_neither_read_nor_kept(run: RunDirectory):
    (run.folder / "groups.jsonl").write_text(RECORD.model_dump_json() + "\n")
    assert list(run.groups()) == []
    run.begin(manifest(), QUESTIONS)
    assert (run.folder / "groups.jsonl").read_bytes() == b"", "nor before the first commit"
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


def test_a_file_that_has_lost_committed_lines_is_neither_read_nor_gone_on_with(run: RunDirectory):
    commit(run, 0)
    path = run.folder / "groups.jsonl"
    path.write_text("")
    for work in (lambda: list(run.groups()), lambda: run.begin(manifest(), QUESTIONS)):
        with pytest.raises(StoreError, match=r"groups\.jsonl is shorter than it was"):
            work()


def served(address: str | None, model: str = "qwen") -> Manifest:
    name = f"{model}@{address}" if address else model
    return manifest(policy=name, judge=name, settings={"base_url": address})


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (manifest(), manifest(group_size=3, seed=8), "group size, seed"),
        (manifest(), manifest(policy_version="2", tool_calls=4), "policy version, tool calls"),
        (manifest(), manifest(QUESTIONS[:1]), "list of questions"),
        (served("one:8000"), served("two:8000"), ""),
        (served("one:8000"), served("two:8000", "llama"), "policy, judge"),
        (served("one:8000"), served(None), "policy, judge, settings"),
    ],
)
def test_a_run_goes_on_at_another_address_but_as_no_other_run(
    before: Manifest, after: Manifest, differs: str, tmp_path: Path
):
    run = RunDirectory(tmp_path)
    run.begin(before, QUESTIONS)
    with (
        pytest.raises(SettingsError, match=rf"(?m)with another {differs}\.$")
        if differs
        else (nullcontext())
    ):
        run.begin(after, QUESTIONS)
    assert run.manifest() == before


def test_questions_are_kept_as_they_are_and_their_hash_is_of_order_and_text(tmp_path: Path):
    odd = QUESTIONS[0].model_copy(update={"question": "one\u2028two\x85three"})
    run = RunDirectory(tmp_path)
    with pytest.raises(SettingsError, match="is no collecting run"):
        run.manifest()
    run.begin(manifest([odd]), [odd])
    assert run.questions() == [odd]
    assert "key" not in (tmp_path / "manifest.json").read_text()
    assert hash_of(QUESTIONS) != hash_of(QUESTIONS[::-1])
    assert hash_of(QUESTIONS) == hash_of(tuple(QUESTIONS))


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        ("manifest.json", None),
        ("trajectories.jsonl", None),
        ("steps/000/done.json", None),
        ("steps/000/done.json", '{"sizes": {"groups": 1}}'),
    ],
)
def test_a_damaged_file_is_named(run: RunDirectory, damaged: str, text: str | None):
    commit(run, 0)
    path = run.folder / damaged
    path.write_text(text or "?" * len(path.read_text()))
    with pytest.raises(StoreError, match=f"{path.name} cannot be read"):
        run.manifest()
        list(run.trajectories())
