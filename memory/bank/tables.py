"""The bank's file: its tables, how items are added and released, and how an older bank becomes one.

A bank is changed by these functions alone, today's and one of an older version that is replayed.

A bank written by rubricem up to commit ec15fe0e is a folder with `journal.jsonl`, one JSON line for
each event; `uses.jsonl`, which runs were given which items; and `id`. Line n makes generation n.
The whole folder is kept beside the new one as `bank.ec15fe0e`. What the present bank does not have
becomes what is nearest to it: a pinned item is one that a person wrote, a disabled one waits in
quarantine, episodes stay in the copy. The new bank is made in a folder of its own, and two renames
put it in place; a process that is killed in between leaves what the next one finishes.
"""

import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricem.memory.errors import StoreError
from rubricem.memory.runs import folder_locked, sync, writable
from rubricem.memory.schema import Reflection
from rubricem.memory.text import digest_of

FILE, VERSION = "bank.db", 1
NEVER = 2**31
"""the generation in which an item that was not replaced is replaced"""
NOW = NEVER - 1
"""a generation that has not come: asked at it, the bank answers as it stands"""
_WAIT = 60.0
"""seconds to wait for another process's change"""

SCHEMA = f"""
CREATE TABLE items (
    added INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
    since INTEGER NOT NULL, until INTEGER NOT NULL, fixed INTEGER NOT NULL DEFAULT 0,
    released_by TEXT NOT NULL DEFAULT '', released_at TEXT, edited_by TEXT NOT NULL DEFAULT '',
    reflection TEXT NOT NULL);
CREATE INDEX by_key ON items (key, until);
CREATE TABLE removals (id TEXT PRIMARY KEY, words TEXT NOT NULL, barred INTEGER NOT NULL);
CREATE INDEX by_words ON removals (words, barred);
CREATE TABLE uses (item TEXT, trajectory TEXT, PRIMARY KEY (item, trajectory)) WITHOUT ROWID;
CREATE TABLE scores (trajectory TEXT PRIMARY KEY, mean REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {VERSION}
"""
WAITS = f"until = {NEVER} AND since = {NEVER}"
COUNTS = f"until = {NEVER} AND since < {NEVER}"


def question_key(question: str) -> str:
    """SHA-256 of the question: the same words are the same question."""
    return digest_of(question.strip())


def words_key(reflection: Reflection) -> str:
    """SHA-256 of the question and of the words, however they are spaced."""
    words = (reflection.question, reflection.rubrics, reflection.takeaways)
    return digest_of("\0".join(" ".join(w.split()) for w in words))


def open_bank(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    return prepare(db)


def connect(path: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")
    return db


def prepare(db: sqlite3.Connection) -> sqlite3.Connection:
    """The database with this version's tables."""
    if _version(db) < VERSION:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) < VERSION:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            for name, value in (("id", uuid.uuid4().hex), ("generation", 0), ("changes", 0)):
                set_value(db, name, value)
        db.execute("COMMIT")
    if _version(db) > VERSION:
        raise StoreError(
            f"The bank is of version {_version(db)}, and {VERSION} is the latest one known.",
            "A newer rubricem wrote it: use that one.",
        )
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def row(db: sqlite3.Connection, where: str, *values: object) -> Any:
    return db.execute(f"SELECT * FROM items WHERE {where}", values).fetchone()


def value_of(db: sqlite3.Connection, name: str) -> Any:
    return db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()[0]


def set_value(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def count_up(db: sqlite3.Connection) -> int:
    """The generation that the change makes."""
    for name in ("generation", "changes"):
        db.execute("UPDATE state SET value = value + 1 WHERE name = ?", (name,))
    return int(value_of(db, "generation"))


def is_known(db: sqlite3.Connection, reflection: Reflection) -> bool:
    """Whether this very item was added or removed before, or its words were removed."""
    removed = "SELECT 1 FROM removals WHERE id = ? OR (words = ? AND barred)"
    found = db.execute(removed, (reflection.id, words_key(reflection))).fetchone()
    return bool(found or row(db, "id = ?", reflection.id))


def unbar(db: sqlite3.Connection, reflection: Reflection) -> None:
    """A person brought these words back."""
    db.execute("UPDATE removals SET barred = 0 WHERE words = ?", (words_key(reflection),))


def release(db: sqlite3.Connection, item: Any, by: str, when: str | None = None) -> str:
    """Let a waiting item count, unless a newer or a person's own one does, whose id is returned."""
    held = row(db, f"key = ? AND {COUNTS}", item["key"])
    at, when = count_up(db), when or datetime.now(UTC).isoformat()
    stays = held is not None and (held["fixed"] or held["added"] > item["added"])
    db.execute(
        "UPDATE items SET since = ?, until = ?, released_by = ?, released_at = ? WHERE added = ?",
        (at, at if stays else NEVER, by, when, item["added"]),
    )
    if held and not stays:
        db.execute("UPDATE items SET until = ? WHERE added = ?", (at, held["added"]))
    return str(held["id"]) if stays else ""


def insert(db: sqlite3.Connection, new: Reflection, by: str = "") -> int:
    """Add an item, which replaces the one that counts unless it is flagged or the other fixed."""
    at, key, hand = count_up(db), question_key(new.question), new.origin == "hand"
    held = row(db, f"key = ? AND {COUNTS}", key)
    since, until = at, NEVER
    if new.flags:
        since = NEVER
    elif held and held["fixed"] and not hand:
        until = at
    elif held:
        db.execute("UPDATE items SET until = ? WHERE added = ?", (at, held["added"]))
    db.execute(
        "INSERT INTO items (added, id, key, since, until, fixed, edited_by, reflection)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (at, new.id, key, since, until, hand, by, new.model_dump_json()),
    )
    return at


JOURNAL, USES, ID = "journal.jsonl", "uses.jsonl", "id"
COMMIT = "ec15fe0e"
_DISABLED = "A person had disabled it."


def migrate(folder: Path) -> None:
    """Bring the bank of a folder into today's file of it, if it is an older one."""
    new, old = folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.{COMMIT}")
    if not ((folder / JOURNAL).exists() or new.exists()) or (folder / FILE).exists():
        return
    with writable(folder), folder_locked(folder.parent):
        if (folder / JOURNAL).exists():
            if old.exists():
                raise StoreError(
                    f"{folder} is a bank of an older rubricem, and {old} already has a copy of one",
                    "Move the one of them away that you do not need.",
                )
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            with closing(open_bank(new / FILE)) as db:
                convert(folder, db)
            sync(new)
            os.rename(folder, old)
        if old.exists() and not folder.exists():
            os.rename(new, folder)
            sync(folder.parent)


class _Replay:
    """Makes in a bank what each event made in the older one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.disabled = set[str]()

    def take(self, number: int, event: dict[str, Any]) -> None:
        set_value(self._db, "generation", number - 1)
        kind, name = event.get("event", "put"), event.get("id", "")
        found = row(self._db, "id = ?", name)
        if kind == "blank":  # what removing it has left of an item
            self._end(number, f"id = ? AND until = {NEVER}", event.get("replaces", ""))
            if not event.get("flagged") and not event.get("history"):
                self._end(number, f"key = ? AND {COUNTS} AND NOT fixed", event["key"])
        elif kind == "remove":
            told = (name, event.get("words", ""), bool(event.get("words")))
            self._db.execute("INSERT OR REPLACE INTO removals VALUES (?, ?, ?)", told)
            self._db.execute("DELETE FROM items WHERE id = ?", (name,))
        elif kind == "put" and not (event.get("episode") or event.get("kind") == "episode"):
            self._put(event, number)
        elif kind == "pin":
            self._db.execute("UPDATE items SET fixed = ? WHERE id = ?", (event["on"], name))
        elif kind == "disable":
            (self.disabled.add if event["on"] else self.disabled.discard)(name)
        elif kind == "release" and found is not None and found["since"] == NEVER == found["until"]:
            release(self._db, found, event.get("by", ""), event.get("at"))
        set_value(self._db, "generation", number)

    def _put(self, event: dict[str, Any], number: int) -> None:
        read = Reflection.model_validate(event.get("reflection") or event)
        if row(self._db, "id = ?", read.id):
            return
        edited = row(self._db, f"id = ? AND until = {NEVER}", read.replaces)
        if edited is not None:
            self._end(number, "id = ?", read.replaces)
            if read.replaces in self.disabled:
                self.disabled.add(read.id)
        at = insert(self._db, read, event.get("by", ""))
        pinned = edited is not None and edited["fixed"]
        self._db.execute("UPDATE items SET fixed = ? WHERE added = ?", (pinned, at))
        if event.get("history"):
            self._end(at, "added = ?", at)

    def _end(self, number: int, where: str, *values: object) -> None:
        self._db.execute(f"UPDATE items SET until = ? WHERE {where}", (number, *values))

    def end(self) -> None:
        """Mark what a person wrote, and set aside what one had disabled."""
        self._db.execute("UPDATE items SET fixed = 1 WHERE reflection ->> 'origin' = 'hand'")
        for name in self.disabled:
            found = row(self._db, "id = ? AND until = ?", name, NEVER)
            if found is not None:
                told = json.loads(found["reflection"])
                told["flags"] = [*told["flags"], _DISABLED]
                waits = (NEVER, json.dumps(told), found["added"])
                self._db.execute(
                    "UPDATE items SET since = ?, reflection = ? WHERE added = ?", waits
                )


def convert(folder: Path, db: sqlite3.Connection) -> None:
    """Fill an empty bank with what the journals of a folder come to; raises StoreError."""
    replay = _Replay(db)

    def use(_: int, line: dict[str, Any]) -> None:
        told = [(name, line["trajectory"]) for name in line.get("ids", ())]
        db.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", told)
        if "mean" in line:
            scored = (line["trajectory"], float(line["mean"]))
            db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?)", scored)

    db.execute("BEGIN IMMEDIATE")
    _read_lines(folder / JOURNAL, replay.take)
    replay.end()
    _read_lines(folder / USES, use)
    if (folder / ID).exists() and (text := (folder / ID).read_text(encoding="utf-8").strip()):
        set_value(db, "id", text)
    db.execute("COMMIT")


def _read_lines(path: Path, take: Callable[[int, dict[str, Any]], None]) -> None:
    """Take each whole line of a file; the last may have been cut by a crash."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            take(number, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"line {number} of the bank's {path.name} in {path.parent} is damaged",
                "Remove that line, or move the folder away to begin an empty bank.",
            ) from error
