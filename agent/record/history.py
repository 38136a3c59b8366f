"""Finding earlier runs: by words of question and report, by tags, by time.

    history.sqlite     an index over the runs' folders, rebuilt if it is missing or damaged

The folders are authoritative and the index follows them: adding or replacing a file in a run's
folder changes the folder's own time, so one look at each folder shows what must be read again.
Folders changed within the last moment are looked at once more, since two changes within one tick of
the clock have the same time.

All words of a search have to stand in one run, in any script, whatever their case and accents.
"""

import json
import math
import re
import sqlite3
import statistics
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricem.agent.record.conversations import ConversationStore
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import searches
from rubricem.agent.transcript.events import Tell, hush
from rubricem.agent.transcript.question import Ask, Effort, Span, UsualCost, new_tokens
from rubricem.memory.errors import RubricemError, SettingsError, StoreError
from rubricem.memory.runs import RunStore, labels_of, writable
from rubricem.memory.schema import Status
from rubricem.memory.text import storable

FILE_NAME = "history.sqlite"
VERSION = 6
LONGEST_PREVIEW = 240
"""characters"""
TICK = 1_000_000_000
"""nanoseconds within which a change could hide behind another one"""
USUAL, FEW = 20, 3
"""runs whose cost is looked at, and those without which none is usual"""
LOOKED = 0.2
"""seconds in which runs that ended since are taken in, before what is usual is told"""
BATCH = 50
"""runs that are taken in at once: others may write in between"""

_TABLES = f"""
BEGIN IMMEDIATE;
DROP TABLE IF EXISTS runs;
DROP TABLE IF EXISTS words;
CREATE TABLE runs (thread TEXT PRIMARY KEY, state INTEGER, asked INTEGER, question TEXT,
    title TEXT, tags TEXT, status TEXT, report TEXT, words TEXT, tokens INTEGER, cost REAL,
    seconds REAL, calls INTEGER, model TEXT, effort TEXT, form TEXT);
CREATE INDEX asked ON runs (asked DESC, thread DESC);
CREATE INDEX known ON runs (thread, state);
CREATE INDEX usual ON runs (status, model, effort, form, asked, calls, tokens, seconds, cost);
PRAGMA user_version = {VERSION};
COMMIT;
"""
"""`known` and `usual`: what they hold is read without the texts beside it"""
_WORD = re.compile(r"[^\W_]+")
_MARKUP = re.compile(
    r"^\s*(?:#{1,6}|[-*>])\s+|^[\s:|-]*---[\s:|-]*$|[`|]|\*\*(?=\S)|(?<=\S)\*\*"
    r"|!?\[(?=[^\]\n]+\]\()|(?<=\w)\]\([^()\s]*\)",
    re.M,
)
"""of Markdown, what a preview in plain text is the easier to read without"""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run as the list has it."""

    thread: str
    asked_at: datetime
    question: str
    title: str
    tags: tuple[str, ...]
    status: str
    """"" for one that has not ended"""
    report: str

    def preview(self, words: str = "") -> str:
        """The part of the report where the first of the words stands, or its beginning."""
        text = " ".join(_MARKUP.sub("", self.report).split())
        found = [text.casefold().find(word.casefold()) for word in _WORD.findall(words)]
        at = max(min((each for each in found if each >= 0), default=0) - LONGEST_PREVIEW // 3, 0)
        shown = text[at : at + LONGEST_PREVIEW]
        return f"{'… ' if at else ''}{shown}{' …' if at + len(shown) < len(text) else ''}"


class History:
    """The index of one data directory; blocking, and each call opens it anew.

    Raises StoreError where the data directory cannot be used.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._path = store.folder.parent / FILE_NAME

    def page(
        self, words: str = "", tag: str = "", before: str | None = None, limit: int = 20
    ) -> list[PastRun]:
        """Runs with all these words and this tag, the newest first, those after `before`."""
        where, values = _match_words(words, tag)
        if before is not None:
            where += " AND (asked, thread) < (SELECT asked, thread FROM runs WHERE thread = ?)"
            values.append(before)
        rows = self._read(
            "SELECT thread, asked, question, title, tags, status, report FROM runs "
            f"WHERE {where} ORDER BY asked DESC, thread DESC LIMIT ?",
            [*values, limit],
        )
        runs = []
        for thread, asked, question, title, tags, *rest in rows:
            at = datetime.fromtimestamp(asked / 1e9, UTC)
            runs.append(PastRun(thread, at, question, title, tuple(json.loads(tags)), *rest))
        return runs

    def count(self, words: str = "", tag: str = "") -> int:
        """How many runs such a search finds in all."""
        where, values = _match_words(words, tag)
        [(found,)] = self._read(f"SELECT count(*) FROM runs WHERE {where}", values)
        return int(found)

    def tags(self) -> dict[str, int]:
        """Every tag with the number of its runs, the most used first."""
        counted = (
            "SELECT value, count(*) FROM runs, json_each(tags) WHERE tags != '[]' "
            "GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return {str(tag): int(n) for tag, n in self._read(counted, ())}

    def usual(self, model: str) -> dict[tuple[str, str], UsualCost]:
        """What the latest finished runs of a model took, by their effort and form of answer.

        None of those of which fewer than three are known.
        """
        ranked = (
            "SELECT effort, form, calls, tokens, seconds, cost, row_number() OVER "
            "(PARTITION BY effort, form ORDER BY asked DESC) AS rank FROM runs "
            "WHERE status = ? AND model = ?"
        )
        kinds: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        with suppress(StoreError):  # what cannot be read holds up nothing
            values = [Status.FINISHED.value, model, USUAL]
            rows = self._read(f"SELECT * FROM ({ranked}) WHERE rank <= ?", values)
            for effort, form, *figures, _ in rows:
                kinds.setdefault((effort, form), []).append(tuple(figures))
        return {kind: _usual(taken) for kind, taken in kinds.items() if len(taken) >= FEW}

    def follow(self, tell: Tell = hush, seconds: float = math.inf) -> int:
        """Take in what changed in the folders, the latest first; how many are still to be read.

        After so many seconds it ends, and the next call goes on.
        """
        began, left = time.monotonic(), 0
        with self._connect() as database:
            known = dict(database.execute("SELECT thread, state FROM runs"))
            found = self._store.states()
            changed = [thread for thread, state in found.items() if known.get(thread) != state]
            changed.sort(key=found.__getitem__, reverse=True)
            gone = [thread for thread in known if thread not in found]
            for at in range(0, len(changed), BATCH):
                if time.monotonic() - began > seconds:
                    left = len(changed) - at
                    break
                if len(changed) > BATCH:
                    tell(f"reading {at:,} of {len(changed):,} runs")
                rows = [self._row(each, found[each]) for each in changed[at : at + BATCH]]
                _put(database, [row for row in rows if row], changed[at : at + BATCH])
            if gone:
                _put(database, [], gone)
                # What is removed is to be nowhere, also in no free page.
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return left

    def _row(self, thread: str, state: int) -> tuple[Any, ...] | None:
        """A run as the index has it; None for one whose folder goes at this moment."""
        question, status, report, tokens, cost = "", "", "", 0, None
        seconds, calls, kind = None, 0, ("", "", "")
        try:
            asked = self._store.asked_at(thread)
            request = self._store.request(thread)
            asked_for, choices = request["ask"], request.get("choices") or {}
            kind = kind_of(choices, asked_for.get("answer_format"))
            question = str(asked_for["question"])
            if self._store.has_ended(thread):
                ended = self._store.load(thread)
                status, used = ended.status.value, ended.usage
                tokens, cost, calls = new_tokens(used), used.cost, searches(ended)
                seconds = ended.seconds
                report = cited_answer(ended).text(lambda piece: "")
        except (RubricemError, LookupError, TypeError, ValueError):
            # It is listed all the same, by what could be read of it.
            status = "unreadable"
        except OSError:
            return None
        kept = labels_of(self._store, thread)
        state = 0 if time.time_ns() - state < TICK else state
        stamp = int(asked.timestamp() * 1e6) * 1000
        tags = json.dumps(kept.tags, ensure_ascii=False)
        words = _plain("\n".join([question, kept.title, tags, report]))
        said = (question, kept.title, tags, status, report, words)
        spent = tokens, cost, seconds, calls
        return thread, state, stamp, *map(storable, said), *spent, *map(storable, kind)

    def _read(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._connect() as database:
            return database.execute(statement, values).fetchall()

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            try:
                with writable(self._path):
                    database = _open_database(self._path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                # It is derived: one that is damaged is made anew.
                for path in self._path.parent.glob(f"{FILE_NAME}*"):
                    path.unlink(missing_ok=True)
                database = _open_database(self._path)
            with closing(database):
                yield database
        except sqlite3.Error as error:
            raise StoreError(
                f"{self._path} cannot be used: {error}",
                "See that its disk is not full; the file may be deleted, and is made again.",
            ) from error


def kind_of(choices: Mapping[str, Any], form: object) -> tuple[str, str, str]:
    """The model, effort and form of answer of a run: what its cost depends on."""
    # Runs of earlier versions name no effort.
    effort = choices.get("effort") or Effort.STANDARD
    return str(choices.get("model") or ""), str(effort), str(form)


def usual_cost(store: RunStore, choices: Mapping[str, Any], ask: Ask) -> UsualCost | None:
    """What such a question took before; None where too few are known, or nothing can be read."""
    model, effort, form = kind_of(choices, ask.answer_format)
    with suppress(StoreError):
        history = History(store)
        history.follow(seconds=LOOKED)
        return history.usual(model).get((effort, form))
    return None


def _usual(taken: Sequence[tuple[Any, ...]]) -> UsualCost:
    """Of calls, tokens, seconds and cost of several runs."""

    def span(values: Sequence[float]) -> Span:
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return tenths[0], tenths[-1]

    calls, tokens, seconds, costs = zip(*taken, strict=True)
    cost = span(priced) if len(priced := [c for c in costs if c is not None]) >= FEW else None
    median = statistics.median(seconds)
    return UsualCost(len(taken), span(calls), span(tokens), span(seconds), cost, median)


def _open_database(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        database.execute("PRAGMA secure_delete = ON")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_TABLES)  # what another process made meanwhile is made again
    except BaseException:
        database.close()
        raise
    return database


def _put(
    database: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], instead: Sequence[str]
) -> None:
    """Have these rows in the place of those of the named runs."""
    database.execute("BEGIN IMMEDIATE")
    database.executemany("DELETE FROM runs WHERE thread = ?", [(thread,) for thread in instead])
    for row in rows:
        database.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)
    database.execute("COMMIT")


def _plain(text: str) -> str:
    """A text without case, accents and double spaces, as it is searched."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in letters if not unicodedata.combining(c)).split())


def _match_words(words: str, tag: str) -> tuple[str, list[object]]:
    """The condition, and its values."""
    where, values = "1", list[object]()
    if tag:
        where += " AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ? COLLATE NOCASE)"
        values.append(tag)
    for word in _plain(words).split():
        where += " AND instr(words, ?)"
        values.append(word)
    return where, values


def remove(store: RunStore, thread: str) -> None:
    """Delete a run for good: its folder, its place in conversations, its words in the index.

    Raises SettingsError where there is none, or somebody works on it.
    """
    if not store.holds(thread):
        store.request(thread)
    if store.running(thread):
        raise SettingsError(f"The run {thread} goes on.", "Stop it, or wait for its end.")
    ConversationStore(store.folder.parent).drop_run(thread)
    store.discard(thread)
    try:
        History(store).follow()
    except StoreError as error:
        raise StoreError(
            f"The run {thread} is deleted, but its words are still in the index: {error}",
            "They go with the next look at the history for which the disk has room.",
        ) from error
