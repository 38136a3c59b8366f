"""`rubricem runs`: what is listed and shown, and which run a resume takes up."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rubricem.agent.cli.ask import latest
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import CallKey, RunStore
from rubricem.memory.schema import Spent, Status, Usage
from tests.conftest import refusal, rubricem
from tests.support.values import trajectory

ASKED: dict[str, Any] = {"ask": {"question": "What is \x1b[31mred?"}, "choices": {}}


@pytest.fixture
def store(data: Path) -> RunStore:
    return RunStore(data)


def add(store: RunStore, thread: str, age: int, **fields: Any) -> None:
    """A run asked `age` seconds before the others; without fields it has not ended."""
    store.create(thread, ASKED)
    path = store.folder / thread / "request.json"
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    if fields:
        ended = trajectory("An answer.").model_copy(update={"thread": thread, **fields})
        store.save(ended)


def runs(*arguments: str) -> Result:
    return rubricem("runs", *arguments)


def test_runs_are_listed_with_how_they_ended_and_what_they_cost(store: RunStore):
    usage = Usage(prompt_tokens=1000, completion_tokens=200, calls=3)
    add(store, "old", 30, usage=usage)
    add(store, "dear", 20, usage=usage.model_copy(update={"cost": 0.0123}), status=Status.PARTIAL,
        reason="spent", ended_by="cost")  # fmt: skip
    add(store, "killed", 10)
    listed = runs().stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["old", "dear", "killed", "3"]
    assert "finished" in listed[0] and "1,200 tokens" in listed[0]
    assert "partial" in listed[1] and "$0.0123" in listed[1]
    assert "unfinished" in listed[2] and "2023-11-1" in listed[2]
    assert "\x1b" not in "".join(listed)
    rows = json.loads(runs("--json", "-n", "2").stdout)["runs"]
    assert [(row["thread"], row["status"], row["ended_by"]) for row in rows] == [
        ("dear", "partial", "cost"), ("killed", "unfinished", ""),
    ]  # fmt: skip
    assert rows[0]["usage"]["cost"] == 0.0123


def test_one_run_is_shown_as_its_report(store: RunStore):
    add(store, "a", 0, status=Status.FINISHED)
    add(store, "b", 0)
    assert "An answer." in runs("show", "a").stdout
    assert json.loads(runs("show", "a", "--json").stdout)["answer"] == "An answer."
    assert "rubricem ask --resume b" in runs("show", "b").stdout
    assert "no run is called 'c'" in refusal("runs", "show", "c")


@pytest.mark.parametrize("name", ["r.md", "r.html", "r.json"])
def test_the_report_of_a_past_run_is_written_without_a_model(
    store: RunStore, tmp_path: Path, name: str
):
    add(store, "a", 0, status=Status.FINISHED)
    assert (
        runs("show", "a", "--out", str(tmp_path / name)).stdout == f"written: {tmp_path / name}\n"
    )
    text = (tmp_path / name).read_text()
    assert "An answer." in text


def test_a_report_that_cannot_be_written_is_refused_with_what_can(store: RunStore, tmp_path: Path):
    add(store, "a", 0, status=Status.FINISHED)
    add(store, "killed", 1)
    assert ".pdf" in refusal("runs", "show", "a", "--out", str(tmp_path / "r.txt"))
    assert "no run that has ended" in refusal("runs", "show", "killed", "--out", "r.md")
    assert "--json" in refusal("runs", "show", f"{tmp_path}/", "--out", "r.md")


def test_where_its_time_went_is_shown_for_debugging_the_longest_first(store: RunStore):
    claims = Spent(slot="claim", calls=2, seconds=1.25, read=900, written=41)
    reading = Spent(slot="reading", calls=3, seconds=30.0, read=12_000)
    add(store, "a", 0, status=Status.FINISHED, spent=(claims, reading))
    lines = rubricem("--debug", "runs", "show", "a").stderr.splitlines()
    assert [line.split()[:3] for line in lines] == [["reading", "3", "x"], ["claim", "2", "x"]]
    assert lines[1].endswith("1.2 s  900 tokens read, 41 written")
    assert runs("show", "a").stderr == ""


def test_a_run_that_cannot_be_read_does_not_hide_the_others(store: RunStore):
    add(store, "good", 10, status=Status.FINISHED)
    add(store, "bad", 0)
    (store.folder / "bad" / "trajectory.json").write_text("{")
    lines = runs().stdout.splitlines()
    assert "finished" in lines[0] and "unreadable" in lines[1]


def test_the_latest_run_that_did_not_end_is_resumed(store: RunStore):
    add(store, "killed", 30)
    add(store, "partial", 20, status=Status.PARTIAL, reason="spent")
    add(store, "nothing", 10, status=Status.NO_EVIDENCE, reason="nothing was found")
    add(store, "done", 0, status=Status.FINISHED)
    assert latest(store) == "partial"
    add(store, "partial", 20, status=Status.FINISHED)
    assert latest(store) == "killed"
    add(store, "killed", 30, status=Status.FINISHED)
    with pytest.raises(SettingsError, match="no run to resume: all have"):
        latest(store)


async def test_a_run_without_a_call_or_under_way_does_not_hide_one_that_can_be_resumed(
    store: RunStore,
):
    add(store, "partial", 20, status=Status.PARTIAL, reason="spent")
    add(store, "refused", 10)
    add(store, "going", 0)
    journal = store.journal("going")
    await journal.append(CallKey("going", 1, 0, "x"), {"text": "said"})
    assert latest(store) == "partial"
    add(store, "partial", 20, status=Status.FINISHED)
    assert latest(store) == "going"
    journal.close()
    assert latest(store) == "going"


def test_an_empty_data_directory_lists_nothing(store: RunStore):
    assert runs().stdout == "0 runs\n"


def test_runs_are_found_named_tagged_and_deleted_for_good(store: RunStore):
    add(store, "old", 30, status=Status.FINISHED)
    add(store, "killed", 10)
    found = runs("search", "answer").stdout.splitlines()
    assert found[0].startswith("old") and "An answer." in found[1] and found[2] == "1 run"
    assert json.loads(runs("search", "--json", "answer").stdout)["runs"][0]["preview"]
    runs("rename", "old", "My", "reds")
    assert runs("tag", "old", "Red", "blue").stdout == "Red, blue\n"
    assert runs("tag", "old", "--remove", "RED").stdout == "blue\n"
    assert "My reds #blue" in runs("search", "--tag", "blue").stdout
    assert "Nothing is sought" in refusal("runs", "search")
    assert "no terminal" in rubricem("runs", "rm", "old", code=2).stderr
    assert "deleted: old" in runs("rm", "old", "--yes").stdout
    assert not (store.folder / "old").exists()
    assert "no run is called" in refusal("runs", "rm", "old", "--yes")
