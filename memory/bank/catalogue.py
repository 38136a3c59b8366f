"""The bank's catalogue: where everything is in the journal, in SQLite.

- versions: one row per reflection or episode, its place in the journal and its current standing
- spans: the generations in which a version was the live one of its question, since <= g < until
- questions: one row per question, numbered by its first generation, with a digest of all
  questions up to it, which the index of embeddings follows
- terms: for each episode that is not removed, its names and words and the form of its question, as
  numbers that hold no text
- removals: ids of removed items, the key of their text, whether no run may add it again
- place: how far the journal was followed, and the content of its last line there

It follows the journal from the byte where it stopped, so that a bank of a hundred thousand items
answers by question, id and generation without reading it. It holds no text and is derived: it is
rebuilt if it is damaged or does not fit the journal, and in memory if it cannot be written.
Blocking; threads take turns, and other processes may use the file at once.

Its rules: at most one version per question and kind is live. A new version replaces the live one,
unless it is in quarantine, was added only for the history, or the live one is pinned by a person.
An edited version takes the place of the one that was edited, with the decisions made about it.
"""

import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from math import log
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from rubricem.memory.bank.events import (
    NEVER,
    BankJournal,
    Blank,
    Decided,
    Event,
    Put,
    State,
    event_of,
    words_key,
)
from rubricem.memory.errors import StoreError
from rubricem.memory.language import (
    PAIRED_RUN,
    apart,
    language_of,
    pairs,
    plain_letters,
    stop_words,
)
from rubricem.memory.schema import Episode, ItemKind
from rubricem.memory.text import digest_of


@dataclass(slots=True)
class Version:
    """One item of a question as the events so far have left it."""

    since: int
    """the generation of its put"""
    id: str
    key: str
    offset: int
    """of its line in the journal, in bytes"""
    until: int = NEVER
    flagged: bool = False
    pinned: bool = False
    disabled: bool = False
    released: bool = False
    removed: bool = False
    let_out: int = 0
    """offset in the journal of the line that released it, in bytes; 0: nobody did"""
    kind: ItemKind = "reflection"
    decided: int = 0
    """offset in the journal of the line that disabled it, in bytes; 0: nothing did"""

    @property
    def quarantined(self) -> bool:
        return self.flagged and not self.released

    @property
    def stands(self) -> bool:
        """It is what the bank holds on its question, be it disabled or not."""
        return self.until == NEVER and not self.removed and not self.quarantined

    @property
    def live(self) -> bool:
        return self.stands and not self.disabled


def standing(versions: Sequence[Version]) -> Version | None:
    return next((version for version in versions if version.stands), None)


def put(event: Put | Blank, since: int, offset: int, versions: Sequence[Version]) -> Version:
    """The new version among the others of its question, which are changed where it says so."""
    new = Version(since, event.id, event.key, offset, flagged=event.flagged, kind=event.kind)
    edited = next((v for v in versions if event.replaces and v.id == event.replaces), None)
    held = standing(versions)
    if edited is not None and edited.until == NEVER:
        edited.until = since
        new.pinned, new.disabled = edited.pinned, edited.disabled
    if event.flagged:
        return new
    if event.history or (held is not None and held is not edited and held.pinned):
        new.until = since
    elif held is not None:
        held.until = since
    return new


def decide(event: Decided, at: int, version: Version, versions: Sequence[Version]) -> None:
    """Change the version that the event is about, and what follows from it for the others."""
    if event.event == "pin":
        version.pinned = event.on
    elif event.event == "disable":
        version.disabled = event.on
    elif event.event == "remove":
        version.removed = True
        version.until = min(version.until, at)
    elif version.quarantined:
        version.released, held = True, standing(versions)
        if version.until == NEVER and held is not None:
            newer = held.pinned or held.since > version.since
            (version if newer else held).until = at


_TERM = re.compile(r"[^\W_]+(?:[._'-]+[^\W_]+)*")
MOST_TERMS = 48
"""kept of an episode: its names first, then the words of its question and look-ups"""


def plain(text: str) -> str:
    """The words of a text alone, case folded; of scripts without spaces each character."""
    return " ".join(_TERM.findall(apart(text.casefold())))


def terms_in(text: str) -> list[int]:
    """The words of a text as 63-bit numbers, each once; of scripts without spaces the pairs."""
    words = [word for word in plain(text).split() if len(word) > 1]
    runs = () if text.isascii() else PAIRED_RUN.findall(plain_letters(text))
    words += [pair for run in runs for pair in pairs(run)]
    return list(map(_number, dict.fromkeys(words)))


def terms_of(episode: Episode) -> list[int]:
    """What an episode is found by."""
    texts = (*episode.names, episode.question, *(look.asked for look in episode.lookups))
    terms = list(dict.fromkeys(t for text in texts for t in terms_in(text)))[:MOST_TERMS]
    form = form_of(episode.question)
    return terms if form is None else [form, *terms]


_LETTERS = re.compile(r"[^\W\d_]+")
_LEAST_FORMED, _LEAST_LETTERS = 2, 3
"""words that tell a form, and letters of each"""


def form_of(question: str) -> int | None:
    """A number that questions share which differ by their names alone; None: it tells too little.

    That of the first word and of those in small letters that bind nothing. Others may share it.
    """
    first, *rest = _LETTERS.findall(question) or [""]
    binding = stop_words(language_of(question))
    plain = (w for w in rest if w.islower() and len(w) >= _LEAST_LETTERS and w not in binding)
    words = [first.casefold(), *plain]
    return _number("\0".join(["", *words])) if len(words) >= _LEAST_FORMED else None


def _number(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8]) >> 1


_COMMON, _LATEST = 5_000, 200
"""episodes with a word up to which they are counted; and that are looked at of a common one"""
_LEAST_SHARED = 0.3
"""of what the words of a text weigh, each by how rare it is"""


def _sharing(
    db: sqlite3.Connection, terms: Sequence[int], generation: int, besides: str, most: int
) -> list[Version]:
    """Words that many episodes have bring the latest of them, and weigh little."""
    counted = "SELECT count(*) FROM (SELECT 1 FROM terms WHERE term = ? LIMIT ?)"
    latest = "SELECT version FROM terms WHERE term = ? AND version <= ? ORDER BY version DESC "
    held = {term: db.execute(counted, (term, _COMMON)).fetchone()[0] for term in terms}
    whole = 1 + (db.execute("SELECT max(since) FROM versions").fetchone()[0] or 0)
    weights = {term: log(whole / count) for term, count in held.items() if count}
    scores: dict[int, float] = {}
    for term in sorted(weights, key=held.__getitem__):
        rows = db.execute(f"{latest} LIMIT {_LATEST}", (term, generation)).fetchall()
        found = {row[0] for row in rows}
        if left := scores.keys() - found:
            marks = ",".join("?" * len(left))
            also = f"SELECT version FROM terms WHERE term = ? AND version IN ({marks})"
            found |= {row[0] for row in db.execute(also, (term, *left))}
        for version in found:
            scores[version] = scores.get(version, 0.0) + weights[term]
    least = _LEAST_SHARED * sum(weights.values())
    best = sorted((v for v in scores if scores[v] >= least), key=lambda v: (-scores[v], -v))
    shown: list[Version] = []
    for version in best:
        row = db.execute(f"{_SHOWN} AND v.since = ?", (generation, generation, version)).fetchone()
        if row is not None and (one := version_of(row)).key != besides:
            shown.append(one)
        if len(shown) == most:
            break
    return shown


VERSION = 5
"""of the tables; those of another version are made again"""
_TABLES = ("versions", "spans", "questions", "terms", "removals", "place")
SCHEMA = f"""
{"".join(f"DROP TABLE IF EXISTS {table};" for table in _TABLES)}
CREATE TABLE versions (
    since INTEGER PRIMARY KEY, id TEXT UNIQUE, key TEXT, offset INTEGER, until INTEGER,
    flagged INTEGER, pinned INTEGER, disabled INTEGER, released INTEGER, removed INTEGER,
    let_out INTEGER, kind TEXT, decided INTEGER);
CREATE INDEX by_key ON versions (key, until);
CREATE TABLE spans (version INTEGER, since INTEGER, until INTEGER);
CREATE INDEX by_version ON spans (version, until);
CREATE INDEX by_until ON spans (until);
CREATE TABLE questions (number INTEGER PRIMARY KEY, key TEXT, digest TEXT, gone INTEGER);
CREATE INDEX by_question ON questions (key, gone);
CREATE INDEX by_gone ON questions (gone, number);
CREATE TABLE terms (term INTEGER, version INTEGER, PRIMARY KEY (term, version)) WITHOUT ROWID;
CREATE INDEX by_episode ON terms (version);
CREATE TABLE removals (id TEXT PRIMARY KEY, words TEXT, barred INTEGER);
CREATE INDEX by_words ON removals (words, barred);
CREATE TABLE place (generation INTEGER, offset INTEGER, last INTEGER, event TEXT);
PRAGMA user_version = {VERSION}
"""


class BankQuestion(NamedTuple):
    """A question by the generation it came with, and the SHA-256 of its words."""

    number: int
    key: str


@dataclass(slots=True)
class JournalPlace:
    """How far the journal was followed: lines, bytes, the last line's own place, what it is."""

    generation: int = 0
    offset: int = 0
    last: int = 0
    event: str = ""


def version_of(row: Sequence[Any]) -> Version:
    values = [*row[:5], *map(bool, row[5:10]), *row[10:]]
    return Version(*values)


class Follower:
    """Brings the tables up to the journal's last whole line, inside one transaction."""

    def __init__(self, db: sqlite3.Connection, journal: BankJournal) -> None:
        self._db = db
        self._journal = journal
        row = db.execute("SELECT * FROM place").fetchone()
        self.place = JournalPlace(*row) if row else JournalPlace()

    def follow(self) -> None:
        """Raises StoreError at a damaged line; what stands before it is followed."""
        if not self._fits():
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table}")
            self.place = JournalPlace()
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
            raise StoreError(
                f"line {generation} of the bank's journal {self._journal.path} is damaged",
                "Remove that line, or move the file away to begin an empty bank.",
            ) from error
        if isinstance(event, Decided):
            self._decide(event, generation, offset)
        else:
            self._put(event, generation, offset)
        self.place = JournalPlace(generation, offset + len(line), offset, _name_of(event))

    def _put(self, event: Any, since: int, offset: int) -> None:
        if self._db.execute("SELECT 1 FROM versions WHERE id = ?", (event.id,)).fetchone():
            return
        others = self._current(event.key, event.kind)
        before = {v.since for v in others if v.live}
        if isinstance(event, Put) and event.record.origin != "run" and not event.flagged:
            self._unbar(words_key(event.record))
        new = put(event, since, offset, others)
        self._save([*others, new], before, since)
        if isinstance(event, Put) and event.episode:
            rows = [(term, since) for term in terms_of(event.episode)]
            self._db.executemany("INSERT OR IGNORE INTO terms VALUES (?, ?)", rows)
        known = "SELECT 1 FROM questions WHERE key = ? AND gone = ?"
        if not self._db.execute(known, (new.key, NEVER)).fetchone():
            last = "SELECT digest FROM questions ORDER BY number DESC LIMIT 1"
            before_it = (self._db.execute(last).fetchone() or ("",))[0]
            digest = digest_of(f"{before_it} {since} {new.key}")
            question = (since, new.key, digest, NEVER)
            self._db.execute("INSERT INTO questions VALUES (?, ?, ?, ?)", question)

    def _decide(self, event: Decided, generation: int, offset: int) -> None:
        if event.event == "remove":
            removal = "INSERT OR REPLACE INTO removals VALUES (?, ?, ?)"
            self._db.execute(removal, (event.id, event.words, bool(event.words)))
        elif event.event == "release":
            self._unbar(event.words)
        row = self._db.execute("SELECT * FROM versions WHERE id = ?", (event.id,)).fetchone()
        if row is None:
            # What was removed before the bank went back to a time without it comes no more.
            if event.event == "remove":
                gone = Version(generation, event.id, "", 0, until=generation, removed=True)
                self._save([gone], set(), generation)
            return
        version = version_of(row)
        current = self._current(version.key, version.kind)
        others = [v for v in current if v.since != version.since]
        before = {v.since for v in (*others, version) if v.live}
        decide(event, generation, version, others)
        if event.event == "release" and version.released and not version.let_out:
            version.let_out = offset
        if event.event == "disable":
            version.decided = offset if event.on else 0
        self._save([*others, version], before, generation)
        if version.removed:
            self._db.execute("DELETE FROM spans WHERE version = ?", (version.since,))
            self._db.execute("DELETE FROM terms WHERE version = ?", (version.since,))
            left = "SELECT 1 FROM versions WHERE key = ? AND removed = 0"
            if not self._db.execute(left, (version.key,)).fetchone():
                ended = "UPDATE questions SET gone = ? WHERE key = ? AND gone = ?"
                self._db.execute(ended, (generation, version.key, NEVER))

    def _unbar(self, words: str) -> None:
        self._db.execute("UPDATE removals SET barred = 0 WHERE words = ?", (words,))

    def _current(self, key: str, kind: ItemKind) -> list[Version]:
        sql = "SELECT * FROM versions WHERE key = ? AND until = ? AND kind = ?"
        return [version_of(row) for row in self._db.execute(sql, (key, NEVER, kind))]

    def _save(self, versions: Sequence[Version], live_before: set[int], at: int) -> None:
        """Write what changed at a generation, and begin or end spans accordingly."""
        for v in versions:
            self._db.execute(
                "INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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


def _of_kind(kind: ItemKind | None) -> str:
    return f" AND kind = '{kind}'" if kind else ""


class Catalogue:
    """What the journal comes to. Raises StoreError where one of both cannot be used."""

    def __init__(self, path: Path, journal: BankJournal) -> None:
        self.lock = threading.RLock()
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
        with self.lock:
            self.close()
            # The file itself goes last: what lies beside a new one belongs to who made that.
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._path}{suffix}")

    def position(self) -> tuple[int, int]:
        """The generation, and the byte where the last whole line of the journal ends."""
        return self._query(lambda db: self._at)

    def generation(self) -> int:
        return self.position()[0]

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

    def by_key(self, key: str, kind: ItemKind | None = None) -> list[Version]:
        """All versions of a question, without the removed ones."""
        return self._versions(
            f"SELECT * FROM versions WHERE key = ? AND removed = 0{_of_kind(kind)} ORDER BY since",
            key,
        )

    def everything(self, kind: ItemKind | None = None) -> list[Version]:
        """All versions, without the removed ones."""
        return self._versions(
            f"SELECT * FROM versions WHERE removed = 0{_of_kind(kind)} ORDER BY since"
        )

    def page(
        self, standing: Standing, limit: int, before: int, kind: ItemKind | None = None
    ) -> list[Version]:
        """The last versions of a standing that came before a generation, the latest first."""
        sql = (
            f"SELECT * FROM versions WHERE removed = 0 AND since < ? AND {_OF[standing]}"
            f"{_of_kind(kind)} ORDER BY since DESC LIMIT ?"
        )
        return self._versions(sql, before, limit)

    def removals(self) -> dict[str, str]:
        """Ids of what a person removed, each with the key of its words."""
        return dict(self._rows("SELECT id, words FROM removals"))

    def is_barred(self, words: str) -> bool:
        """Whether a person removed these very words, and nobody has brought them back."""
        return bool(self._rows("SELECT 1 FROM removals WHERE words = ? AND barred = 1", words))

    def live_versions(self, generation: int, kind: ItemKind | None = None) -> list[Version]:
        """The live version of each question at a generation; of either kind."""
        sql = f"{_SHOWN}{_of_kind(kind)} ORDER BY v.since"
        return self._versions(sql, generation, generation)

    def live_version(self, key: str, generation: int, kind: ItemKind) -> Version | None:
        """The live version of one question at a generation."""
        sql = f"{_SHOWN}{_of_kind(kind)} AND v.key = ?"
        return next(iter(self._versions(sql, generation, generation, key)), None)

    def has_live_besides(self, key: str, generation: int, kind: ItemKind) -> bool:
        """Whether there is a live version of any other question at a generation."""
        sql = f"{_SHOWN}{_of_kind(kind)} AND v.key != ? LIMIT 1"
        return bool(self._versions(sql, generation, generation, key))

    def sharing(self, text: str, generation: int, besides: str, most: int) -> list[Version]:
        """Live episodes that have names or words of a text, those with the rarest first.

        `besides`: the key of a question that is left out. An episode that shares less than
        `_LEAST_SHARED` of what the text's words weigh is not among them.
        """
        return self._query(lambda db: _sharing(db, terms_in(text), generation, besides, most))

    def versions_of_form(
        self, question: str, generation: int, besides: str, most: int
    ) -> list[Version]:
        """The latest live episodes whose questions share the form of one; see `form_of`.

        `besides`: the key of a question that is left out.
        """
        sql = (
            f"{_SHOWN} AND v.key != ? AND v.since IN (SELECT version FROM terms WHERE term = ? "
            "AND version <= ? ORDER BY version DESC LIMIT ?) ORDER BY v.since DESC LIMIT ?"
        )
        form = form_of(question)
        values = (generation, generation, besides, form, generation, _LATEST, most)
        return [] if form is None else self._versions(sql, *values)

    def live_among(self, numbers: list[int], generation: int, kind: ItemKind) -> dict[int, Version]:
        """Number of a question -> its live version at a generation, where it has one."""
        marks = ",".join("?" * len(numbers))
        sql = (
            f"SELECT q.number, v.* FROM questions q JOIN versions v ON v.key = q.key "
            f"JOIN spans s ON s.version = v.since WHERE q.number IN ({marks}){_of_kind(kind)} "
            "AND s.until > ? AND s.since <= ? AND v.removed = 0 AND q.gone = ?"
        )
        values = (*numbers, generation, generation, NEVER)
        return {row[0]: version_of(row[1:]) for row in self._rows(sql, *values)}

    def changes(self, generation: int) -> tuple[int, list[BankQuestion], list[int]]:
        """The generation now, the questions that came since one and are there, in order, and
        the numbers of those that went.
        """
        came = "SELECT number, key FROM questions WHERE number > ? AND gone = ? ORDER BY number"
        went = "SELECT number FROM questions WHERE gone > ? AND gone < ?"
        # Read first: what comes meanwhile is then told again, and not passed over.
        now = self.generation()
        new = [BankQuestion(*row) for row in self._rows(came, generation, NEVER)]
        return now, new, [row[0] for row in self._rows(went, generation, NEVER)]

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

    def last_change(self) -> int:
        """The generation in which a question last came or went."""
        came = "SELECT max(number) FROM questions"
        went = f"SELECT max(gone) FROM questions WHERE gone < {NEVER}"
        return max(int(self._rows(sql)[0][0] or 0) for sql in (came, went))

    def count_questions(self) -> int:
        """How many questions are not gone."""
        return int(self._rows("SELECT count(*) FROM questions WHERE gone = ?", NEVER)[0][0])

    def counts(self) -> dict[str, int]:
        """How many versions there are of each standing."""
        sql = (
            f"SELECT total(until = {NEVER} AND NOT quiet AND NOT disabled AND NOT removed),"
            f" total(until = {NEVER} AND NOT quiet AND disabled AND NOT removed),"
            f" total(until = {NEVER} AND quiet AND NOT removed),"
            f" total(until < {NEVER} AND NOT removed), total(removed),"
            f" total(until = {NEVER} AND NOT quiet AND NOT disabled AND NOT removed"
            " AND kind = 'episode')"
            " FROM (SELECT *, flagged AND NOT released AS quiet FROM versions)"
        )
        names = ("live", "disabled", "quarantined", "replaced", "removed", "episodes")
        return dict(zip(names, map(int, self._rows(sql)[0]), strict=True))

    def _versions(self, sql: str, *values: object) -> list[Version]:
        return [version_of(row) for row in self._rows(sql, *values)]

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._query(lambda db: db.execute(sql, values).fetchall())

    def _query(self, question: Callable[[sqlite3.Connection], _Got]) -> _Got:
        with self.lock:
            for _ in range(2):
                try:
                    return question(self._follow())
                except sqlite3.DatabaseError as error:
                    if getattr(error, "sqlite_errorname", "").startswith(_MADE_AGAIN):
                        self.drop()
                    else:
                        self.close()
                        self._aside = True
            try:
                return question(self._follow())
            except sqlite3.Error as error:
                self.close()
                raise StoreError(
                    f"the catalogue of the bank in {self._path.parent} cannot be used: {error}",
                    "Make the data directory writable and see that its disk is not full.",
                ) from error

    def _follow(self) -> sqlite3.Connection:
        """The database with every whole line of the journal in it."""
        state = self._journal.state()
        db = self._open(state)
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

    def _open(self, state: State | None) -> sqlite3.Connection:
        if state is None:
            self.close()
            self._at = (0, 0)
        if state is None or self._aside:
            self._db = self._db or _prepare(_connect(":memory:"))
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
        db = _connect(self._path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        self._inode = _inode(self._path)
        return _prepare(db)


def _connect(path: Path | str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)


def _prepare(db: sqlite3.Connection) -> sqlite3.Connection:
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
