"""The bank's catalogue: where everything stands in the journal, in SQLite.

It follows the journal from the byte where it stopped, so that a bank of a hundred thousand items
answers by question, id and generation without reading it. It holds no text, is derived, and
is made again where it is damaged or does not fit the journal, in memory where it cannot be
written. Blocking, and for one thread at a time; other processes may use the file at once.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from memory.bank_journal import BankJournal, State
from memory.bank_rules import Version
from memory.bank_tables import SCHEMA, VERSION, Follower, Question, version_of
from memory.errors import StoreError
from memory.items import NEVER

NOW = NEVER - 1
"""a generation that has not come: asked at it, the bank answers as it stands"""
_MADE_AGAIN = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT")
_WAIT = 60.0
"""seconds for another process to catch up with a whole journal"""
_SHOWN = (
    "SELECT v.* FROM versions v JOIN spans s ON s.version = v.since "
    "WHERE s.until > ? AND s.since <= ? AND v.removed = 0"
)
Standing = Literal["current", "active", "quarantine", "disabled", "replaced"]
"""`current`: whatever was not replaced. `active`: may be recalled."""
_OF = {
    "current": f"until = {NEVER}",
    "active": f"until = {NEVER} AND disabled = 0 AND NOT (flagged AND NOT released)",
    "quarantine": f"until = {NEVER} AND flagged AND NOT released",
    "disabled": f"until = {NEVER} AND disabled AND NOT (flagged AND NOT released)",
    "replaced": f"until < {NEVER}",
}
_Got = TypeVar("_Got")


class Catalogue:
    """What the journal comes to. Raises StoreError where one of both cannot be used."""

    def __init__(self, path: Path, journal: BankJournal) -> None:
        self._path = path
        self._journal = journal
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._aside = False
        self._seen: State | None = None
        self._at = (0, 0)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; the next question opens it again."""
        if self._db is not None:
            self._db.close()
        self._db = self._seen = None

    def drop(self) -> None:
        """Remove the file: the next question makes it again from the journal."""
        self.close()
        # The file itself goes last: what lies beside a new one belongs to who made that.
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{suffix}")

    def position(self) -> tuple[int, int]:
        """The generation, and the byte where the last whole line of the journal ends."""
        return self._asked(lambda db: self._at)

    def by_id(self, identifier: str) -> Version | None:
        """The version of this very id, be it removed or not."""
        return next(iter(self._versions("SELECT * FROM versions WHERE id = ?", identifier)), None)

    def by_prefix(self, prefix: str) -> list[Version]:
        """Versions whose id begins so, without the removed ones."""
        return self._versions(
            "SELECT * FROM versions WHERE id >= ? AND id < ? AND removed = 0 ORDER BY since",
            prefix,
            prefix + "\U0010ffff",
        )

    def by_key(self, key: str) -> list[Version]:
        """All versions of a question, without the removed ones."""
        return self._versions(
            "SELECT * FROM versions WHERE key = ? AND removed = 0 ORDER BY since", key
        )

    def everything(self) -> list[Version]:
        """All versions, without the removed ones."""
        return self._versions("SELECT * FROM versions WHERE removed = 0 ORDER BY since")

    def page(self, standing: Standing, limit: int, before: int) -> list[Version]:
        """The last versions of a standing that came before a generation, the latest first."""
        sql = (
            f"SELECT * FROM versions WHERE removed = 0 AND since < ? AND {_OF[standing]} "
            "ORDER BY since DESC LIMIT ?"
        )
        return self._versions(sql, before, limit)

    def removed(self) -> dict[str, str]:
        """Ids of what a person removed, each with the key of its words."""
        return dict(self._rows("SELECT id, words FROM removals"))

    def barred(self, words: str) -> bool:
        """Whether a person removed these very words, and nobody has brought them back."""
        return bool(self._rows("SELECT 1 FROM removals WHERE words = ? AND barred = 1", words))

    def shown(self, generation: int) -> list[Version]:
        """The live version of each question at a generation."""
        return self._versions(f"{_SHOWN} ORDER BY v.since", generation, generation)

    def shown_of(self, key: str, generation: int) -> Version | None:
        """The live version of one question at a generation."""
        found = self._versions(f"{_SHOWN} AND v.key = ?", generation, generation, key)
        return next(iter(found), None)

    def shown_besides(self, key: str, generation: int) -> bool:
        """Whether there is a live version of any other question at a generation."""
        sql = f"{_SHOWN} AND v.key != ? LIMIT 1"
        return bool(self._versions(sql, generation, generation, key))

    def shown_among(self, numbers: list[int], generation: int) -> dict[int, Version]:
        """Number of a question -> its live version at a generation, where it has one."""
        marks = ",".join("?" * len(numbers))
        sql = (
            f"SELECT q.number, v.* FROM questions q JOIN versions v ON v.key = q.key "
            f"JOIN spans s ON s.version = v.since WHERE q.number IN ({marks}) "
            "AND s.until > ? AND s.since <= ? AND v.removed = 0 AND q.gone = ?"
        )
        values = (*numbers, generation, generation, NEVER)
        return {row[0]: version_of(row[1:]) for row in self._rows(sql, *values)}

    def questions_after(self, generation: int) -> list[Question]:
        """Questions that came after a generation and are not gone, in order."""
        sql = "SELECT number, key FROM questions WHERE number > ? AND gone = ? ORDER BY number"
        return [Question(*row) for row in self._rows(sql, generation, NEVER)]

    def gone_after(self, generation: int) -> list[int]:
        """Numbers of questions of which nothing was left since a generation."""
        sql = "SELECT number FROM questions WHERE gone > ? AND gone < ?"
        return [row[0] for row in self._rows(sql, generation, NEVER)]

    def some_questions(self, generation: int, count: int) -> list[int]:
        """Numbers of at most `count` questions, spread over those up to a generation."""
        next_one = "SELECT max(number) FROM questions WHERE number <= ? AND gone = ?"
        ends = [generation * part // count for part in range(1, count + 1)]
        found = {self._rows(next_one, end, NEVER)[0][0] for end in ends}
        return sorted(found - {None})

    def digest(self, generation: int) -> str:
        """Of all questions up to a generation; "" where there was none."""
        sql = "SELECT digest FROM questions WHERE number <= ? ORDER BY number DESC LIMIT 1"
        return next((str(row[0]) for row in self._rows(sql, generation)), "")

    def changed(self) -> int:
        """The generation in which a question last came or went."""
        came = "SELECT max(number) FROM questions"
        went = f"SELECT max(gone) FROM questions WHERE gone < {NEVER}"
        return max(int(self._rows(sql)[0][0] or 0) for sql in (came, went))

    def held(self) -> int:
        """How many questions are not gone."""
        return int(self._rows("SELECT count(*) FROM questions WHERE gone = ?", NEVER)[0][0])

    def counts(self) -> dict[str, int]:
        """How many versions there are of each standing."""
        sql = (
            f"SELECT total(until = {NEVER} AND NOT quiet AND NOT disabled AND NOT removed),"
            f" total(until = {NEVER} AND NOT quiet AND disabled AND NOT removed),"
            f" total(until = {NEVER} AND quiet AND NOT removed),"
            f" total(until < {NEVER} AND NOT removed), total(removed)"
            " FROM (SELECT *, flagged AND NOT released AS quiet FROM versions)"
        )
        names = ("live", "disabled", "quarantined", "replaced", "removed")
        return dict(zip(names, map(int, self._rows(sql)[0]), strict=True))

    def _versions(self, sql: str, *values: object) -> list[Version]:
        return [version_of(row) for row in self._rows(sql, *values)]

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._asked(lambda db: db.execute(sql, values).fetchall())

    def _asked(self, question: Callable[[sqlite3.Connection], _Got]) -> _Got:
        for _ in range(2):
            try:
                return question(self._followed())
            except sqlite3.DatabaseError as error:
                self._mend(error)
        try:
            return question(self._followed())
        except sqlite3.Error as error:
            self.close()
            raise StoreError(
                f"the catalogue of the bank in {self._path.parent} cannot be used: {error}",
                "Make the data directory writable and see that its disk is not full.",
            ) from error

    def _mend(self, error: sqlite3.DatabaseError) -> None:
        """Begin again where the file is damaged, in memory where it cannot be written."""
        if getattr(error, "sqlite_errorname", "").startswith(_MADE_AGAIN):
            self.drop()
        else:
            self.close()
            self._aside = True

    def _followed(self) -> sqlite3.Connection:
        """The database with every whole line of the journal in it."""
        state = self._journal.state()
        db = self._opened(state)
        if state is not None and state != self._seen:
            db.execute("BEGIN IMMEDIATE")
            try:
                follower = Follower(db, self._journal)
                try:
                    follower.follow()
                finally:
                    self._at = follower.place.generation, follower.place.offset
                    db.commit()
            except BaseException:
                db.rollback()
                raise
            # Half a line may be replaced by another of the same length.
            self._seen = state if state.size == self._at[1] else None
        return db

    def _opened(self, state: State | None) -> sqlite3.Connection:
        if state is None:
            self.close()
            self._at = (0, 0)
        if state is None or self._aside:
            self._db = self._db or _prepared(_connected(":memory:"))
        elif self._db is None or self._inode != _inode(self._path):
            self.close()
            self._db = self._on_disk()
        assert self._db is not None
        return self._db

    def _on_disk(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        db = _connected(self._path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        self._inode = _inode(self._path)
        return _prepared(db)


def _connected(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    """The database with this version's tables; others are emptied and made again."""
    if _version(db) != VERSION:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) != VERSION:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
        db.commit()
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return -1
