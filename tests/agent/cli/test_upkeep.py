"""The data directory copied while it is worked on, brought back whole or not at all."""

import errno
import json
import os
import sqlite3
import stat
import tarfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.cli.doctor import check_data_dir
from rubricem.agent.record.conversations import ConversationStore
from rubricem.agent.settings.users import UserBudget, Users
from rubricem.memory.runs import RunStore, write_atomically
from tests.conftest import refusal, rubricem, unpack
from tests.support.values import trajectory


@pytest.fixture
def store(data: Path) -> RunStore:
    """A run of a thread, a bank with an index, an upload, the token of a server."""
    store = RunStore(data)
    store.create("a", {"ask": {"question": "Why?"}, "choices": {}})
    store.save(trajectory("Because.").model_copy(update={"thread": "a"}))
    conversations = ConversationStore(data)
    conversations.add_run(conversations.create("Reasons").id, "a")
    (data / "bank" / "index").mkdir(parents=True)
    (data / "bank" / "index" / "vectors.bin").write_bytes(b"derived")
    (data / "bank" / "journal.jsonl").write_bytes(b'{"n": 1}\n{"n": 2}\n{"half')
    (data / "uploads" / "caf\u00e9").mkdir(parents=True)
    (data / "uploads" / "caf\u00e9" / "empty.txt").touch()
    write_atomically(data / "serve-token", "s3cret" * 8)
    return store


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_was_copied_comes_back_where_nothing_is(store: RunStore, data: Path, tmp_path: Path):
    copy = tmp_path / "copy.tar.gz"
    rubricem("backup", copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert "exists already" in refusal("backup", copy)
    assert "not empty" in refusal("restore", copy)
    before = files(data)
    data.rename(tmp_path / "old")
    rubricem("restore", copy)
    assert store.load("a").question == "How does lru_cache evict?"
    assert before - files(data) == {"bank/index/vectors.bin", "serve-token"}
    assert files(data) - {"runs/a/restored"} < before
    assert (data / "bank" / "journal.jsonl").read_bytes() == b'{"n": 1}\n{"n": 2}\n{"half'


def test_a_copy_made_while_all_is_written_to_holds_nothing_that_is_half_there(
    store: RunStore, data: Path, tmp_path: Path
):
    begun, ending = threading.Event(), threading.Event()
    database = data / "bank" / "catalogue.db"
    with sqlite3.connect(database) as live:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("CREATE TABLE pairs (a INTEGER, b INTEGER)")

    def work() -> None:
        number = 0
        live = sqlite3.connect(database)
        with (store.folder / "a" / "journal.jsonl").open("ab", buffering=0) as journal:
            begun.set()
            while not ending.is_set():
                number += 1
                line = json.dumps({"n": number, "filled": "x" * 5000}).encode() + b"\n"
                journal.write(line[:2500])
                journal.write(line[2500:])
                with live:
                    live.execute("INSERT INTO pairs VALUES (?, ?)", [number, number])
                write_atomically(data / "threads" / "t.json", json.dumps({"n": number}))
        live.close()

    writing = threading.Thread(target=work)
    writing.start()
    assert begun.wait(60)
    try:
        for number in range(5):
            rubricem("backup", tmp_path / f"{number}.tar.gz")
    finally:
        ending.set()
        writing.join()
    for number in range(5):
        folder = tmp_path / f"copy{number}"
        with tarfile.open(tmp_path / f"{number}.tar.gz") as archive:
            unpack(archive, folder)
        # The last one may be cut, as by a kill: whoever reads a journal expects that.
        lines = (folder / "runs/a/journal.jsonl").read_text().split("\n")[:-1]
        assert [json.loads(line)["n"] for line in lines] == [*range(1, len(lines) + 1)]
        with sqlite3.connect(folder / "bank" / "catalogue.db") as kept:
            assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert kept.execute("SELECT count(*) FROM pairs WHERE a != b").fetchone() == (0,)


def test_a_copy_leaves_out_what_holds_nothing_and_never_what_cannot_be_read(
    store: RunStore, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(data / "runs" / "a" / "pipe")
    rubricem("backup", tmp_path / "copy.tar.gz")
    (data / "history.sqlite").write_bytes(b"SQLite format 3\0and nothing more")
    assert "history.sqlite cannot be copied" in refusal("backup", tmp_path / "b", code=1)
    real = os.scandir

    def refusing(path: Any) -> Any:
        if str(path) == str(data / "runs" / "a"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    told = refusal("backup", tmp_path / "b", code=1)
    assert told.startswith(f"error: {data / 'runs' / 'a'} cannot be used: Permission denied")
    assert [path.name for path in tmp_path.glob("*b*")] == []


def test_a_directory_is_copied_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = tmp_path / "100%25 #1?"
    data.mkdir()
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(data))
    with sqlite3.connect(data / "history.sqlite") as held:
        held.execute("CREATE TABLE runs (name TEXT)")
    assert check_data_dir(data).state == "ok"
    with closing(sqlite3.connect(data / "history.sqlite")) as held:
        held.execute("BEGIN IMMEDIATE")
        assert "locks its history" in check_data_dir(data).found
    rubricem("backup", tmp_path / "copy.tar.gz")
    with tarfile.open(tmp_path / "copy.tar.gz") as archive:
        assert archive.getnames() == ["history.sqlite"]


@pytest.mark.parametrize("change", ["it is cut", "it is none", "a file lies elsewhere"])
def test_a_copy_that_is_not_whole_changes_nothing(
    store: RunStore, data: Path, tmp_path: Path, change: str
):
    copy = tmp_path / "copy.tar.gz"
    rubricem("backup", copy)
    if change == "it is cut":
        copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])
    elif change == "it is none":
        copy.write_bytes(b"text")
    else:
        with tarfile.open(copy, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("../escaped"))
    data.rename(tmp_path / "old")
    assert "not a whole copy" in refusal("restore", copy)
    assert {path.name for path in tmp_path.iterdir()} == {"copy.tar.gz", "old"}


def test_a_copy_brings_no_token_no_consent_and_no_settings_of_whoever_made_it(
    store: RunStore, data: Path, tmp_path: Path
):
    token = Users(data).put("anna", UserBudget(day_runs=3))
    folder = Users(data).folder("anna")
    RunStore(folder).create("hers", {"ask": {"question": "Why?"}, "choices": {}})
    for name in ("trusted", "rubricem.toml", "page.toml", "sitecustomize.py", "serve.lock~"):
        (data / name).write_text("model = 1")
    (data / "september").mkdir()
    (data / "september" / "manifest.json").write_text("{}")
    for each in (data, folder, data / "september" / "data"):
        for name in ("pages", "indexes", "bank/index"):
            (each / name).mkdir(parents=True, exist_ok=True)
            (each / name / "x").touch()
    (folder / "allowed_tools.json").touch()
    (data / "unknown").mkdir()
    (data / "unknown" / "x.toml").touch()
    rubricem("backup", tmp_path / "copy.tar.gz")
    data.rename(tmp_path / "old")
    said = rubricem("restore", tmp_path / "copy.tar.gz").stdout
    allowed = f"{folder.relative_to(data)}/allowed_tools.json"
    left = "page.toml, rubricem.toml, serve-token, serve.lock~, sitecustomize.py, trusted, unknown"
    assert f"left in the copy: {left}, {allowed}" in said
    assert not [*data.rglob("pages"), *data.rglob("indexes"), *data.rglob("index")]
    known = {"runs", "threads", "bank", "uploads", "users", "users.json", "september"}
    assert {path.name for path in data.iterdir()} == known
    users = Users(data)
    assert users.by_token(token) is None and users.all()["anna"].allowance.day_runs == 3
    users.put("anna", UserBudget())
    hers = RunStore(users.folder("anna"))
    assert hers.holds("hers"), "she keeps what is hers"
    assert hers.is_restored("hers") and store.is_restored("a")


@pytest.mark.parametrize(
    "name", ["runs/../page.toml", "runs/a/page.toml", "pages/x", "page.toml", "users/u/pages/x"]
)
def test_nothing_in_a_copy_comes_round_what_is_left_in_it(data: Path, tmp_path: Path, name: str):
    copy = tmp_path / "copy.tar.gz"
    link = tarfile.TarInfo("runs/a")
    link.type, link.linkname = tarfile.SYMTYPE, ".."
    marks = [tarfile.TarInfo(f"{each}/manifest.json") for each in ("page.toml", "pages")]
    marks[0].type, marks[0].linkname = tarfile.SYMTYPE, "x"
    with tarfile.open(copy, "w:gz") as archive:
        for each in (link, *marks, tarfile.TarInfo(name)):
            archive.addfile(each)
    rubricem("restore", copy)
    assert {str(path) for path in files(data)} <= {"runs/a/page.toml", "runs/a/restored"}
    assert not (data / "runs" / "a").is_symlink()
