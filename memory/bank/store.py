"""The bank on disk: one SQLite file, `bank.db`, blocking.

    items      each reflection with the generations in which it counts for its question
    removals   ids of removed items, and the hash of their words, which no run may bring back
    uses       which run was given which item
    scores     a run's mean stage score, at most 1
    state      the bank's id, its generation, its number of changes, the mark of its index

A generation is a change of what the bank holds. An item counts from its `since` until its `until`:
at any generation there is at most one for each question. Several processes may use the file at
once; threads take turns. A change is on disk when its call returns (WAL, synchronous); removed
text is overwritten (secure_delete, and the log is emptied).

A snapshot for a training checkpoint is a copy of the file. What a person has removed since stays
removed when the bank goes back to it.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rubricem.memory.bank import tables
from rubricem.memory.bank.tables import COUNTS, FILE, NEVER, NOW, WAITS, question_key
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import sync, writable
from rubricem.memory.schema import Reflection, Value
from rubricem.memory.text import digest_of

_TABLES = ("items", "uses", "scores")
_OF_KEYS = "key IN (SELECT value FROM json_each(?))"
Standing = Literal["current", "active", "quarantine", "replaced"]
"""`current`: whatever was not replaced; `active`: may be recalled"""
_OF: Mapping[Standing, str] = {
    "current": f"until = {NEVER}",
    "active": COUNTS,
    "quarantine": WAITS,
    "replaced": f"until < {NEVER}",
}


class BankItem(Value):
    """One reflection of a bank, and its standing now."""

    reflection: Reflection
    added: int
    """the generation that it made"""
    since: int
    """the generation from which it counts; `NEVER`: it waits in quarantine, or never did"""
    until: int = NEVER
    """the generation that replaced it"""
    fixed: bool = False
    """a person wrote it: no run's reflection replaces it"""
    released_by: str = ""
    """where a person released it from quarantine"""
    released_at: datetime | None = None
    edited_by: str = ""
    """where a person wrote it, at its `written_at`"""
    recalled: int = 0
    """how many runs were given it"""
    mean_score: float | None = None
    """at most 1, over those of these runs that were scored; None: none was"""

    @property
    def quarantined(self) -> bool:
        return self.until == NEVER and self.since == NEVER

    @property
    def state(self) -> Standing:
        if self.until < NEVER:
            return "replaced"
        return "quarantine" if self.quarantined else "active"

    def as_json(self) -> dict[str, Any]:
        """The reflection's fields and its standing, as one object."""
        standing = self.model_dump(mode="json", exclude={"reflection"})
        for name in ("since", "until"):
            standing[name] = None if standing[name] == NEVER else standing[name]
        return self.reflection.model_dump(mode="json") | standing | {"state": self.state}


@dataclass(frozen=True, slots=True)
class Released:
    """What became of an item that was released from quarantine."""

    item: BankItem
    instead: BankItem | None = None
    """what counts for its question in its place; None: the item itself"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of items that were brought in, each counted once."""

    added: int = 0
    kept: int = 0
    """the bank's own stayed on the same question, or the item was there already"""
    quarantined: int = 0
    removed: int = 0
    """passed over, as a person had removed them from the bank"""


@dataclass(frozen=True, slots=True)
class BankStats:
    """A bank in numbers."""

    generation: int
    live: int
    quarantined: int
    replaced: int
    removed: int
    uses: int
    """runs that were given something"""
    embedder: str
    """whose vectors the index holds; "": there is none yet"""
    bytes: int
    """of the file"""


class IndexMark(Value):
    """What the index of the bank holds."""

    place: str = ""
    """its folder's name; "": there is no index"""
    embedder: str = ""
    changes: int = -1
    """the bank's number of changes that it has followed; -1: it is being written"""


class BankStore:
    """Everything of a bank but its vectors. Raises StoreError if its file cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None

    def __del__(self) -> None:
        if self._db is not None:
            self._db.close()

    def generation(self) -> int:
        """The number of changes so far."""
        return int(self._state("generation", 0))

    def changes(self) -> int:
        """Grows with every change of the questions that the bank holds; never goes back."""
        return int(self._state("changes", 0))

    def mark(self) -> IndexMark:
        found = self._state("index", None)
        return IndexMark.model_validate_json(found) if found else IndexMark()

    def set_mark(self, mark: IndexMark) -> None:
        with self._change() as db:
            tables.set_value(db, "index", mark.model_dump_json())

    def put(self, reflection: Reflection) -> bool:
        """Add an item; it is on disk on return. False if this very item was added before.

        False, too, if a person removed the same words on its question and nobody has written or
        released them since. It replaces the item that counts for its question, unless it has flags
        or a person wrote the other.
        """
        with self._change() as db:
            if tables.is_known(db, reflection):
                return False
            tables.insert(db, reflection)
        return True

    def bring_in(self, reflections: Iterable[Reflection]) -> Imported:
        """Add items of another bank, which the caller has screened; all of them or none.

        The bank's own stays where it has one on the question, and what was removed here stays so.
        """
        added = kept = quarantined = removed = 0
        with self._change() as db:
            for given in reflections:
                new = given.model_copy(update={"origin": "import", "replaces": ""})
                if tables.row(db, "id = ?", new.id):
                    kept += 1
                elif tables.is_known(db, new):
                    removed += 1
                elif new.flags:
                    tables.insert(db, new)
                    quarantined += 1
                elif tables.row(db, f"key = ? AND {COUNTS}", question_key(new.question)):
                    kept += 1
                else:
                    tables.insert(db, new)
                    added += 1
        return Imported(added, kept, quarantined, removed)

    def edit(self, identifier: str, rubrics: str, takeaways: str, by: str = "") -> BankItem:
        """Add a version that a person wrote, at the place `by`; the old one goes to the history."""
        with self._change() as db:
            old = self._current(db, identifier)
            text = "\0".join((old.reflection.id, rubrics, takeaways))
            told = {
                "id": digest_of(text, 12),
                "rubrics": rubrics,
                "takeaways": takeaways,
                "origin": "hand",
                "replaces": old.reflection.id,
                "flags": (),
                "written_at": datetime.now(UTC),
            }
            new = old.reflection.model_copy(update=told)
            if not tables.row(db, "id = ?", new.id):
                tables.unbar(db, new)
                at = tables.insert(db, new, by)
                db.execute("UPDATE items SET until = ? WHERE added = ?", (at, old.added))
        return self.item(new.id)

    def release(self, identifier: str, by: str = "") -> Released:
        """Release it from quarantine: it counts, unless a newer or a person's own one does."""
        with self._change() as db:
            item = self._current(db, identifier)
            if not item.quarantined:
                raise SettingsError(
                    f"The item {identifier} is not in quarantine.",
                    "List those that are: rubricem bank list --every",
                )
            stays = tables.release(db, tables.row(db, "added = ?", item.added), by)
            tables.unbar(db, item.reflection)
        return Released(self.item(identifier), self.item(stays) if stays else None)

    def publish(self, identifier: str) -> None:
        """Let an item go to any model and before any run: a person says that it is not private."""
        with self._change() as db:
            item = self._current(db, identifier)
            new = item.reflection.model_copy(update={"private": False})
            told = (new.model_dump_json(), item.added)
            db.execute("UPDATE items SET reflection = ? WHERE added = ?", told)

    def remove(self, identifier: str) -> None:
        """Remove it from every view, and its text from the disk."""
        with self._change() as db:
            item = self._found(db, identifier)
            words = tables.words_key(item.reflection)
            db.execute("INSERT OR REPLACE INTO removals VALUES (?, ?, 1)", (identifier, words))
            db.execute("DELETE FROM items WHERE added = ?", (item.added,))
            tables.count_up(db)
        with self._turn() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def note_use(self, trajectory: str, ids: Sequence[str]) -> None:
        """Record that a run was given these items; repeating it for the run changes nothing."""
        with self._change() as db:
            uses = [(identifier, trajectory) for identifier in ids]
            db.executemany("INSERT OR IGNORE INTO uses VALUES (?, ?)", uses)

    def note_score(self, trajectory: str, mean: float) -> None:
        with self._change() as db:
            db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?)", (trajectory, mean))

    def items_at(self, generation: int) -> list[BankItem]:
        """The item that counted for each question, in the order in which they were added."""
        return self._items("since <= ? AND until > ? ORDER BY added", generation, generation)

    def page(
        self, standing: Standing = "current", limit: int = 50, before: int = NEVER
    ) -> list[BankItem]:
        """Items of this standing that were added before a generation, the latest first."""
        where = f"{_OF[standing]} AND added < ? ORDER BY added DESC LIMIT ?"
        return self._items(where, before, limit)

    def everything(self) -> list[BankItem]:
        return self._items("1 ORDER BY added")

    def find(self, prefix: str) -> list[BankItem]:
        """Every item whose id has this prefix; none for ""."""
        where = "id >= ? AND id < ? ORDER BY added"
        return self._items(where, prefix, prefix + "\U0010ffff") if prefix else []

    def history(self, question: str) -> list[BankItem]:
        """Every item on the question, in the order in which they were added."""
        return self._items("key = ? ORDER BY added", question_key(question))

    def within(self, question: str, generation: int = NOW) -> Reflection | None:
        """The reflection that counts for this very question; None if there is none."""
        where = "key = ? AND since <= ? AND until > ?"
        found = self._items(where, question_key(question), generation, generation)
        return found[0].reflection if found else None

    def item(self, identifier: str) -> BankItem:
        with self._turn() as db:
            return self._found(db, identifier)

    def has_others(self, key: str, generation: int = NOW) -> bool:
        """Whether anything counted for another question at a generation."""
        sql = "SELECT 1 FROM items WHERE since <= ? AND until > ? AND key != ? LIMIT 1"
        return bool(self._rows(sql, generation, generation, key))

    def live_among(self, keys: Sequence[str], generation: int) -> dict[str, Reflection]:
        """Key of a question -> what counted for it at a generation, if anything did."""
        sql = f"SELECT key, reflection FROM items WHERE {_OF_KEYS} AND since <= ? AND until > ?"
        rows = self._rows(sql, json.dumps(keys), generation, generation)
        return {row["key"]: Reflection.model_validate_json(row["reflection"]) for row in rows}

    def keys(self) -> set[str]:
        """The key of every question that the bank holds something on."""
        return {row["key"] for row in self._rows("SELECT DISTINCT key FROM items")}

    def questions(self, keys: Sequence[str]) -> dict[str, str]:
        """Key -> question, without those that were removed in the meantime."""
        sql = f"SELECT key, reflection ->> 'question' AS asked FROM items WHERE {_OF_KEYS}"
        rows = self._rows(sql, json.dumps(keys))
        return {row["key"]: row["asked"] for row in rows}

    def stats(self) -> BankStats:
        sql = f"SELECT total({COUNTS}), total({WAITS}), total(until < {NEVER}) FROM items"
        live, waiting, replaced = map(int, self._rows(sql)[0])
        path = self.folder / FILE
        return BankStats(
            generation=self.generation(),
            live=live,
            quarantined=waiting,
            replaced=replaced,
            removed=self._rows("SELECT count(*) FROM removals")[0][0],
            uses=self._rows("SELECT count(DISTINCT trajectory) FROM uses")[0][0],
            embedder=self.mark().embedder,
            bytes=path.stat().st_size if path.exists() else 0,
        )

    def snapshot(self, folder: Path) -> None:
        """Copy the bank into a folder."""
        path = folder / f".{FILE}.new"
        with writable(folder), self._change():
            folder.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        with writable(folder), self._turn() as db:
            db.execute("VACUUM INTO ?", (str(path),))
            os.replace(path, folder / FILE)
            sync(folder)

    def restore(self, folder: Path) -> None:
        """Go back to a snapshot; an empty bank takes its id.

        Raises SettingsError for another bank's snapshot, and for a folder without a whole one.
        """
        with closing(_snapshot(folder)) as copy, self._change() as db:
            bank, generation = tables.value_of(copy, "id"), int(tables.value_of(copy, "generation"))
            if not int(tables.value_of(db, "generation")):
                tables.set_value(db, "id", bank)
            elif bank != tables.value_of(db, "id"):
                raise SettingsError(
                    f"The snapshot is of another bank ({bank[:8]}).",
                    "Restore it into an empty data directory.",
                )
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")
                _copy_rows(copy, db, table)
            _copy_rows(copy, db, "removals")
            db.execute("DELETE FROM items WHERE id IN (SELECT id FROM removals)")
            tables.set_value(db, "generation", generation)
            tables.set_value(db, "changes", int(tables.value_of(db, "changes")) + 1)

    def _items(self, where: str, *values: object) -> list[BankItem]:
        sql = (
            "SELECT *, (SELECT count(*) FROM uses WHERE item = items.id) AS recalled,"
            " (SELECT avg(mean) FROM uses JOIN scores USING (trajectory) WHERE item = items.id)"
            f" AS mean_score FROM items WHERE {where}"
        )
        return [_item(row) for row in self._rows(sql, *values)]

    def _found(self, db: sqlite3.Connection, identifier: str) -> BankItem:
        for item in self._items("id = ?", identifier):
            return item
        raise SettingsError(
            f"There is no item {identifier!r} in the bank.", "Give an id from: rubricem bank list"
        )

    def _current(self, db: sqlite3.Connection, identifier: str) -> BankItem:
        """The item of this id, if nothing has replaced it."""
        item = self._found(db, identifier)
        if item.until < NEVER:
            held = tables.row(db, f"key = ? AND {COUNTS}", question_key(item.reflection.question))
            by = f" by {held['id']}" if held else ""
            raise SettingsError(
                f"The reflection {identifier} was replaced{by}.",
                f"Decide on {held['id'] if held else 'another one'} instead.",
            )
        return item

    def _state(self, name: str, default: Any) -> Any:
        rows = self._rows("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else default

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._turn() as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        """The file for this thread; an empty bank in memory if there is none."""
        with self._lock:
            try:
                if self._db is None:
                    tables.migrate(self.folder)
                    if (self.folder / FILE).exists():
                        self._db = tables.open_bank(self.folder / FILE)
                if self._db is not None:
                    yield self._db
                    return
                with closing(tables.prepare(tables.connect(":memory:"))) as empty:
                    yield empty
            except sqlite3.Error as error:
                raise StoreError(
                    f"the bank in {self.folder} cannot be used: {error}",
                    "Make the data directory writable and see that its disk is not full.",
                ) from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """The file in a transaction, which is on disk afterwards; it is created if missing."""
        with self._turn() as db:
            if db is not self._db:
                with writable(self.folder):
                    self.folder.mkdir(parents=True, exist_ok=True)
                    db = self._db = tables.open_bank(self.folder / FILE)
            if db.in_transaction:
                yield db
                return
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


def _snapshot(folder: Path) -> sqlite3.Connection:
    try:
        copy = tables.connect(f"{(folder / FILE).as_uri()}?mode=ro&immutable=1")
        tables.value_of(copy, "generation")
        return copy
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise SettingsError(
            f"There is no whole snapshot of a bank in {folder}: {error}.",
            "Name the folder of another one; the bank was left as it is.",
        ) from error


def _copy_rows(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    rows = [tuple(row) for row in source.execute(f"SELECT * FROM {table}")]
    if rows:
        marks = ",".join("?" * len(rows[0]))
        target.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)


def _item(row: sqlite3.Row) -> BankItem:
    fields = {name: row[name] for name in row.keys() if name not in ("id", "key", "reflection")}  # noqa: SIM118
    return BankItem(reflection=Reflection.model_validate_json(row["reflection"]), **fields)
