"""`rubricem runs`: what is listed and shown, and which run a resume takes up."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rubricem.agent.cli.ask import latest
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Status, Usage
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
    usage = Usage(prompt_tokens=1000, cached_tokens=600, completion_tokens=200, calls=3)
    add(store, "old", 30, usage=usage)
    add(store, "dear", 20, usage=usage.model_copy(update={"cost": 0.0123}), status=Status.PARTIAL,
        reason="spent", ended_by="cost")  # fmt: skip
    add(store, "killed", 10)
    listed = runs().stdout.splitlines()
    assert "runs alone lists them" in rubricem("runs", "list", code=2).stderr
    assert [line.split()[0] for line in listed] == ["old", "dear", "killed", "3"]
    assert "finished" in listed[0] and "600 new tokens" in listed[0]
    assert "partial" in listed[1] and "$0.0123" in listed[1]
    assert "unfinished" in listed[2] and "2023-11-1" in listed[2]
    assert "\x1b" not in "".join(listed)
    took = "; those listed took 6 calls, 800 new tokens read, 400 written, $0.0123"
    assert listed[3] == f"3 runs{took} where a price is known"
    told = json.loads(runs("--json", "-n", "2").stdout)
    rows = told["runs"]
    assert (told["usage"]["cost"], told["usage"]["calls"]) == (0.0123, 3)
    assert [(row["thread"], row["status"], row["ended_by"]) for row in rows] == [
        ("dear", "partial", "cost"), ("killed", "unfinished", ""),
    ]  # fmt: skip
    assert rows[0]["usage"]["cost"] == 0.0123


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


def test_a_run_that_cannot_be_read_does_not_hide_the_others(store: RunStore):
    add(store, "good-by-a-long-name", 10, status=Status.FINISHED)
    add(store, "bad", 0)
    (store.folder / "bad" / "trajectory.json").write_text("{")
    lines = runs().stdout.splitlines()
    assert lines[0].startswith("good-by-a-long-name  2023-") and "unreadable" in lines[1]


@pytest.mark.parametrize("request_json", ["{", "{}", '{"ask": 7, "choices": 8}', None])
def test_a_run_whose_request_cannot_be_read_is_listed_and_deleted(
    store: RunStore, request_json: str | None
):
    add(store, "good", 10, status=Status.FINISHED)
    add(store, "bad", 0, status=Status.FINISHED)
    path = store.folder / "bad" / "request.json"
    path.unlink()
    path.write_text(request_json) if request_json else path.symlink_to(path)
    assert "unreadable" in next(one for one in runs().stdout.splitlines() if "bad" in one)
    assert "good" in runs("search", "answer").stdout
    assert "error: " in refusal("ask", "--resume", "bad", code=1)
    if request_json:
        assert "deleted: bad" in runs("rm", "bad", "--yes").stdout


def test_the_latest_run_that_did_not_end_is_resumed(store: RunStore):
    add(store, "killed", 30)
    add(store, "partial", 20, status=Status.PARTIAL, reason="spent")
    add(store, "nothing", 10, status=Status.NO_EVIDENCE, reason="nothing was found")
    add(store, "done", 0, status=Status.FINISHED)
    assert latest(store) == "partial"
    add(store, "partial", 20, status=Status.FINISHED)
    assert latest(store) == "killed"
    add(store, "killed", 30, status=Status.FINISHED)
    with pytest.raises(SettingsError, match="no run to resume"):
        latest(store)


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
