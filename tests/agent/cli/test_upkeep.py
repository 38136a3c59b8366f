"""The data directory copied while it is worked on, brought back whole or not at all, removed."""

import hashlib
import io
import json
import sqlite3
import stat
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.cli.upkeep import MANIFEST
from rubricem.agent.research.conversations import ConversationStore
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


def test_what_was_copied_comes_back_and_what_was_there_is_moved_aside(
    store: RunStore, data: Path, tmp_path: Path
):
    copy = tmp_path / "copy.tar.gz"
    assert " kB)" in rubricem("backup", copy).stdout
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert "exists already" in refusal("backup", copy)
    store.discard("a")
    (data / "standards").touch()
    assert "no terminal" in refusal_after(copy)
    assert not store.has_ended("a") and (data / "standards").exists()
    done = rubricem("restore", copy, "--yes")
    assert store.load("a").question == "How does lru_cache evict?"
    assert not {"standards", "bank/index/vectors.bin"} & files(data)
    assert (data / "bank" / "journal.jsonl").read_bytes() == b'{"n": 1}\n{"n": 2}\n'
    assert (data / "uploads" / "caf\u00e9" / "empty.txt").exists()
    (aside,) = data.glob("before-restore-*")
    assert {"standards", "bank/index/vectors.bin"} <= files(aside) and str(aside) in done.stdout
    again = tmp_path / "again.tar.gz"
    rubricem("backup", again)
    with tarfile.open(again) as kept:
        assert not any("before-restore" in name for name in kept.getnames())


def refusal_after(copy: Path) -> str:
    return rubricem("restore", copy, code=2).stderr


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
        lines = (folder / "runs/a/journal.jsonl").read_text().splitlines()
        assert [json.loads(line)["n"] for line in lines] == [*range(1, len(lines) + 1)]
        with sqlite3.connect(folder / "bank" / "catalogue.db") as kept:
            assert kept.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert kept.execute("SELECT count(*) FROM pairs WHERE a != b").fetchone() == (0,)


def altered(copy: Path, change: str) -> None:
    """Write the archive anew with one thing wrong in it."""
    with tarfile.open(copy) as archive:
        held = [(entry, archive.extractfile(entry).read()) for entry in archive]  # type: ignore[union-attr]
    with tarfile.open(copy, "w:gz") as archive:
        for entry, content in held:
            if change == "a file is missing" and entry.name == "serve-token":
                continue
            if change == "a file lies elsewhere" and entry.name == "serve-token":
                entry.name = "../../escaped"
            if change == "there is no list" and entry.name == MANIFEST:
                continue
            if change == "it is of a later version" and entry.name == MANIFEST:
                content = json.dumps(json.loads(content) | {"format": 9}).encode()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("a file is missing", "not a complete backup"),
        ("a file lies elsewhere", "not a complete backup"),
        ("there is no list", "not a complete backup"),
        ("it is of a later version", "written by rubricem"),
        ("it is cut", "not a complete backup"),
        ("it is none", "not a complete backup"),
        ("it is not there", "There is no file"),
    ],
)
def test_a_copy_that_is_not_whole_changes_nothing(
    store: RunStore, data: Path, tmp_path: Path, change: str, said: str
):
    copy = tmp_path / "copy.tar.gz"
    rubricem("backup", copy)
    if change == "it is cut":
        copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])
    elif change == "it is none":
        copy.write_bytes(b"text")
    elif change == "it is not there":
        copy.unlink()
    else:
        altered(copy, change)
    before = files(data)
    assert said in refusal("restore", copy, "--yes")
    assert files(data) - {"serve.lock"} == before and not (tmp_path / "escaped").exists()


def strange(copy: Path, *entries: tuple[tarfile.TarInfo, bytes], **said: Any) -> None:
    """A copy by a stranger, who lists the files in it rightly."""
    hashes = {e.name: hashlib.sha256(c).hexdigest() for e, c in entries}
    listed = {"format": 1, "version": "1", "made_at": "now", "files": hashes, **said}
    text = json.dumps(listed).encode()
    with tarfile.open(copy, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        for entry, content in (*entries, (tarfile.TarInfo(MANIFEST), text)):
            entry.size = entry.size or len(content)
            archive.addfile(entry, io.BytesIO(content))


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [(entry("runs/a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")],
        [(entry("runs/a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")],
        [(entry("runs"), b"x"), (entry("runs/a"), b"x")],
        [(entry("runs/a"), b"x"), (entry("runs/a"), b"x")],
        [(entry("/tmp/escaped"), b"x")],
        [(entry("serve.lock"), b"x")],
        [(entry("bank/index/chroma.sqlite3"), b"x")],
    ],
)
def test_a_copy_by_a_stranger_brings_nothing_that_ours_never_has(
    store: RunStore,
    data: Path,
    tmp_path: Path,
    entries: list[tuple[tarfile.TarInfo, bytes]],
):
    strange(copy := tmp_path / "copy.tar.gz", *entries)
    before = files(data)
    assert "not a complete backup" in refusal("restore", copy, "--yes")
    assert files(data) - {"serve.lock"} == before


def test_a_copy_says_nothing_to_the_terminal_and_that_others_may_know_its_tokens(
    data: Path, tmp_path: Path
):
    strange(copy := tmp_path / "copy.tar.gz", (entry("serve-token"), b"x" * 48), made_at="\x1b[2J")
    said = rubricem("restore", copy, "--yes").stdout
    assert "\x1b" not in said and "whoever had the file can log in" in said
    strange(copy, (entry("threads/a"), b"x"))
    assert "log in" not in rubricem("restore", copy, "--yes").stdout
    strange(copy, format=2, version="\x1b[2J")
    assert "\x1b" not in refusal("restore", copy, "--yes")


def test_what_is_worked_on_is_not_replaced(store: RunStore, data: Path, tmp_path: Path):
    copy = tmp_path / "copy.tar.gz"
    rubricem("backup", copy)
    journal = store.journal("a")
    assert "goes on" in refusal("restore", copy, "--yes")
    journal.close()
    assert store.has_ended("a")
