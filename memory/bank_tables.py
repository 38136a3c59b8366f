"""The tables of the bank's catalogue, and how they follow the journal.

- versions: one row per reflection, its place in the journal and its standing now
- spans: the generations in which a version was the bank's live word, since <= g < until
- questions: one row per question, numbered by its first generation, with a digest of all
  questions up to it; what the index of embeddings follows
- removals: ids of what was removed, the key of its words, whether no run may bring these again
- place: how far the journal was followed, and what its last line there says
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from memory.bank_events import Decided, Event, Put, event_of, words_key
from memory.bank_journal import BankJournal, damaged
from memory.bank_rules import Version, decide, put
from memory.items import NEVER

VERSION = 2
"""of the tables; those of another version are made again"""
_TABLES = ("versions", "spans", "questions", "removals", "place")
SCHEMA = f"""
{"".join(f"DROP TABLE IF EXISTS {table};" for table in _TABLES)}
CREATE TABLE versions (
    since INTEGER PRIMARY KEY, id TEXT UNIQUE, key TEXT, offset INTEGER, until INTEGER,
    flagged INTEGER, pinned INTEGER, disabled INTEGER, released INTEGER, removed INTEGER,
    let_out INTEGER);
CREATE INDEX by_key ON versions (key, until);
CREATE TABLE spans (version INTEGER, since INTEGER, until INTEGER);
CREATE INDEX by_version ON spans (version, until);
CREATE INDEX by_until ON spans (until);
CREATE TABLE questions (number INTEGER PRIMARY KEY, key TEXT, digest TEXT, gone INTEGER);
CREATE INDEX by_question ON questions (key, gone);
CREATE INDEX by_gone ON questions (gone, number);
CREATE TABLE removals (id TEXT PRIMARY KEY, words TEXT, barred INTEGER);
CREATE INDEX by_words ON removals (words, barred);
CREATE TABLE place (generation INTEGER, offset INTEGER, last INTEGER, event TEXT);
PRAGMA user_version = {VERSION}
"""


class Question(NamedTuple):
    """A question by the generation it came with, and the SHA-256 of its words."""

    number: int
    key: str


@dataclass(slots=True)
class Place:
    """How far the journal was followed: lines, bytes, the last line's own place, what it is."""

    generation: int = 0
    offset: int = 0
    last: int = 0
    event: str = ""


def version_of(row: Sequence[Any]) -> Version:
    values = [*row[:5], *map(bool, row[5:10]), row[10]]
    return Version(*values)


class Follower:
    """Brings the tables up to the journal's last whole line, inside one transaction."""

    def __init__(self, db: sqlite3.Connection, journal: BankJournal) -> None:
        self._db = db
        self._journal = journal
        row = db.execute("SELECT * FROM place").fetchone()
        self.place = Place(*row) if row else Place()

    def follow(self) -> None:
        """Raises StoreError at a damaged line; what stands before it is followed."""
        if not self._fits():
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table}")
            self.place = Place()
        try:
            for offset, line in self._journal.lines(self.place.offset):
                self._take(offset, line)
        finally:
            self._db.execute("DELETE FROM place")
            self._db.execute("INSERT INTO place VALUES (?, ?, ?, ?)", astuple(self.place))

    def _fits(self) -> bool:
        """Whether the journal still says there what it said when it was followed."""
        if not self.place.generation:
            return True
        line = self._journal.line_at(self.place.last)
        try:
            same = _name_of(event_of(line)) == self.place.event
        except ValueError:
            return False
        return same and self.place.last + len(line) == self.place.offset

    def _take(self, offset: int, line: bytes) -> None:
        generation = self.place.generation + 1
        try:
            event = event_of(line)
        except ValueError as error:
            raise damaged(self._journal.path, generation) from error
        if isinstance(event, Decided):
            self._decide(event, generation, offset)
        else:
            self._put(event, generation, offset)
        self.place = Place(generation, offset + len(line), offset, _name_of(event))

    def _put(self, event: Any, since: int, offset: int) -> None:
        if self._db.execute("SELECT 1 FROM versions WHERE id = ?", (event.id,)).fetchone():
            return
        others = self._current(event.key)
        before = {v.since for v in others if v.live}
        if isinstance(event, Put) and event.reflection.origin != "run" and not event.flagged:
            self._unbar(words_key(event.reflection))
        new = put(event, since, offset, others)
        self._save([*others, new], before, since)
        known = "SELECT 1 FROM questions WHERE key = ? AND gone = ?"
        if not self._db.execute(known, (new.key, NEVER)).fetchone():
            self._name_question(new.key, since)

    def _name_question(self, key: str, number: int) -> None:
        last = "SELECT digest FROM questions ORDER BY number DESC LIMIT 1"
        before = (self._db.execute(last).fetchone() or ("",))[0]
        digest = hashlib.sha256(f"{before} {number} {key}".encode()).hexdigest()
        self._db.execute("INSERT INTO questions VALUES (?, ?, ?, ?)", (number, key, digest, NEVER))

    def _decide(self, event: Decided, generation: int, offset: int) -> None:
        if event.event == "remove":
            removal = "INSERT OR REPLACE INTO removals VALUES (?, ?, ?)"
            self._db.execute(removal, (event.id, event.words, bool(event.words)))
        elif event.event == "release":
            self._unbar(event.words)
        row = self._db.execute("SELECT * FROM versions WHERE id = ?", (event.id,)).fetchone()
        if row is None:
            self._bar(event, generation)
            return
        version = version_of(row)
        others = [v for v in self._current(version.key) if v.since != version.since]
        before = {v.since for v in (*others, version) if v.live}
        decide(event, generation, version, others)
        if event.event == "release" and version.released and not version.let_out:
            version.let_out = offset
        self._save([*others, version], before, generation)
        if version.removed:
            self._forget(version, generation)

    def _unbar(self, words: str) -> None:
        self._db.execute("UPDATE removals SET barred = 0 WHERE words = ?", (words,))

    def _bar(self, event: Decided, at: int) -> None:
        """What was removed before the bank went back to a time without it comes no more."""
        if event.event == "remove":
            self._save([Version(at, event.id, "", 0, until=at, removed=True)], set(), at)

    def _forget(self, version: Version, generation: int) -> None:
        self._db.execute("DELETE FROM spans WHERE version = ?", (version.since,))
        left = "SELECT 1 FROM versions WHERE key = ? AND removed = 0"
        if not self._db.execute(left, (version.key,)).fetchone():
            gone = "UPDATE questions SET gone = ? WHERE key = ? AND gone = ?"
            self._db.execute(gone, (generation, version.key, NEVER))

    def _current(self, key: str) -> list[Version]:
        sql = "SELECT * FROM versions WHERE key = ? AND until = ?"
        return [version_of(row) for row in self._db.execute(sql, (key, NEVER))]

    def _save(self, versions: Sequence[Version], live_before: set[int], at: int) -> None:
        """Write what changed at a generation, and begin or end spans accordingly."""
        for v in versions:
            self._db.execute(
                "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                astuple(v),
            )
            if v.live and v.since not in live_before:
                self._db.execute("INSERT INTO spans VALUES (?, ?, ?)", (v.since, at, NEVER))
            elif not v.live and v.since in live_before:
                end = "UPDATE spans SET until = ? WHERE version = ? AND until = ?"
                self._db.execute(end, (at, v.since, NEVER))


def _name_of(event: Event) -> str:
    """What a line is about; blanking its text does not change it."""
    kind = event.event if isinstance(event, Decided) else "put"
    return f"{kind} {event.id}"
