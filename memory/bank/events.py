"""The bank's journal: every event of the bank, one fsynced JSON line each.

    {"event": "put", "reflection": {...}}             one more reflection; or "episode"
    {"event": "blank", "id": ..., "key": ...}         in place of a put whose text was removed
    {"event": "pin", "id": ..., "on": true}           also disable, release and remove

The journal is authoritative; everything else in the rubric bank can be rebuilt from it. Line n
makes generation n; a line of the first version is a bare reflection, which is a put. Several
processes may share the file: a writer holds its lock and first reads what others have written. A
last line cut by a crash was never acknowledged to anyone: readers skip it and the next append
removes it.

Removed text is blanked in a copy that replaces the journal, with spaces to the old length, so that
all other lines keep their places. A removal or release identifies the text it concerns by a hash:
the text of a removed reflection cannot return under another id until a person imports, writes or
releases it.

A `BankItem` is a reflection or an episode with its fate: the generations in which it was live for
its question, the decisions about it, and the results of the runs that recalled it.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import ValidationError, model_validator

from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import append_whole, sync, writable
from rubricem.memory.schema import FORMED, Episode, ItemKind, Recollection, Reflection, Value
from rubricem.memory.text import digest_of

_BLOCK = 2**20


class State(NamedTuple):
    """Which file it is, and its size in bytes."""

    device: int
    inode: int
    size: int


class BankJournal:
    """A file of lines. Nothing is opened or created before it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def state(self) -> State | None:
        """None where there is no journal yet."""
        with writable(self.path), suppress(FileNotFoundError):
            status = os.stat(self.path)
            return State(status.st_dev, status.st_ino, status.st_size)
        return None

    def lines(self, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """The whole lines from an offset on, each with its own offset and its line break."""
        with writable(self.path), suppress(FileNotFoundError), open(self.path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield offset, line
                offset += len(line)

    def line_at(self, offset: int) -> bytes:
        """The line that begins there; b"" beyond the end."""
        return next((line for _, line in self.lines(offset)), b"")

    @contextmanager
    def hold(self) -> Iterator[int]:
        """The file's descriptor, with nobody else writing; it is created where there is none."""
        with writable(self.path):
            descriptor = self._open()
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def append(self, descriptor: int, block: bytes) -> None:
        """Write lines after the last whole one; they are on disk on return."""
        os.ftruncate(descriptor, _whole(descriptor))
        append_whole(descriptor, block)

    def replace(self, lines: Iterable[bytes]) -> None:
        """Put a new file in the place of this one. Its lock must be held, if others use it."""
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", _BLOCK) as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._temporary, self.path)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        sync(self.path.parent)

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.new")

    def _open(self) -> int:
        """A locked descriptor of the file that has the journal's name now."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            state = self.state()
            if state is not None and os.fstat(descriptor).st_ino == state.inode:
                break
            # While we waited, a copy has taken the place of the file that we opened.
            os.close(descriptor)
        # What a process that was killed left of a copy holds text that was to be removed.
        self._temporary.unlink(missing_ok=True)
        if new:
            sync(self.path.parent)
        return descriptor


def _whole(descriptor: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


Decision = Literal["pin", "disable", "release", "remove"]


def question_key(question: str) -> str:
    """SHA-256 of the question: the same words are the same question."""
    return digest_of(question.strip())


Record = Reflection | Episode
"""what is put into the bank"""


def kind_of(record: Record) -> ItemKind:
    return "episode" if isinstance(record, Episode) else "reflection"


def words_key(record: Record) -> str:
    """SHA-256 of the question and of the words, however they are spaced."""
    words = [record.question]
    if isinstance(record, Episode):
        words += [search.query for search in record.searches]
        words += [pointer.location for pointer in record.pointers]
    else:
        words += [record.rubrics, record.takeaways]
    return digest_of("\0".join(" ".join(w.split()) for w in words))


class Put(Value):
    """An item comes into the bank; `history`: to be kept, not to be the bank's word."""

    event: Literal["put"] = "put"
    reflection: Reflection | None = None
    episode: Episode | None = None
    """the one or the other"""
    history: bool = False
    by: str = ""
    """where a person wrote it; "": nobody did, or an earlier version kept it"""

    @classmethod
    def of(cls, record: Record, *, history: bool = False, by: str = "") -> "Put":
        if isinstance(record, Episode):
            return cls(episode=record, history=history, by=by)
        return cls(reflection=record, history=history, by=by)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.reflection is None) == (self.episode is None):
            raise ValueError("a put has a reflection or an episode")
        return self

    @property
    def record(self) -> Record:
        record = self.episode or self.reflection
        assert record is not None, "a put has one of them"
        return record

    @property
    def kind(self) -> ItemKind:
        return kind_of(self.record)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def key(self) -> str:
        return question_key(self.record.question)

    @property
    def flagged(self) -> bool:
        return bool(self.record.flags)

    @property
    def replaces(self) -> str:
        return self.record.replaces


class Blank(Value):
    """A put whose text a person removed; what it did to other items stays done."""

    event: Literal["blank"] = "blank"
    id: str
    key: str
    kind: ItemKind = "reflection"
    flagged: bool = False
    history: bool = False
    replaces: str = ""

    @classmethod
    def of(cls, put: "Put | Blank") -> "Blank":
        return cls(
            id=put.id,
            key=put.key,
            kind=put.kind,
            flagged=put.flagged,
            history=put.history,
            replaces=put.replaces,
        )

    @classmethod
    def of_line(cls, line: bytes) -> bytes:
        """A put's line without its text, and as long as it was."""
        event = event_of(line)
        assert not isinstance(event, Decided), "only what was put has a text"
        return line_of(cls.of(event)).rstrip(b"\n").ljust(len(line) - 1) + b"\n"


class Decided(Value):
    """What a person decided about an item."""

    event: Decision
    id: str
    on: bool = True
    words: str = ""
    """of a removal or release, the key of the reflection's words; earlier versions kept none"""
    by: str = ""
    """where a person released it"""
    at: datetime | None = None
    """when a person released it"""
    note: str = ""
    """why it was disabled, where code did that"""


Event = Put | Blank | Decided


def line_of(event: Event) -> bytes:
    """One line of JSON; a blank one is as short as can be, to stand where a put stood."""
    other = {"reflection" if event.episode else "episode"} if isinstance(event, Put) else None
    text = event.model_dump_json(exclude=other, exclude_defaults=isinstance(event, Blank))
    if isinstance(event, Blank):
        text = '{"event":"blank",' + text[1:]
    return text.encode() + b"\n"


def event_of(line: bytes) -> Event:
    """Raises ValueError for what is no event."""
    try:
        value: Any = json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("an event is a JSON object")
    kind = value.get("event")
    try:
        if kind is None:
            return Put(reflection=Reflection.model_validate(value))
        if kind == "put":
            return Put.model_validate(value)
        if kind == "blank":
            return Blank.model_validate(value)
        return Decided.model_validate(value)
    except ValidationError as error:
        raise ValueError(str(error)) from error


NEVER = 2**31
"""the generation in which an item that was not replaced is replaced"""


class UseCount(Value):
    """How one use of an item went, over the runs that were given it."""

    use: str
    """of `Contribution`; of a reflection `lesson`: what a run on its question put to the test"""
    runs: int = 0
    shown: int = 0
    used: int = 0
    """of those shown: the passage was cited with support; a query or a miss: the run found an
    answer; the lesson held up"""
    failed: int = 0
    """of those shown: gone, or changed so that it no longer bears what was cited"""


class BankItem(Value):
    """One reflection or episode of a bank and its standing now."""

    record: Record
    since: int
    """the generation that it made by being put"""
    until: int = NEVER
    """the generation that replaced it"""
    pinned: bool = False
    """a person's word: no run's reflection replaces it"""
    disabled: bool = False
    removed: bool = False
    released: bool = False
    """a person released it from quarantine"""
    released_by: str = ""
    """where a person did; "" where an earlier version kept no such thing"""
    released_at: datetime | None = None
    edited_by: str = ""
    """where a person wrote it, at its `written_at`"""
    recalled: int = 0
    """how many runs were given it"""
    mean_score: float | None = None
    """in [0, 1], over those of these runs that were scored; None: none was"""
    counts: tuple[UseCount, ...] = ()
    """what came of what an episode offered, and of a reflection's lessons"""
    note: str = ""
    """why it is disabled, where code did that"""

    @property
    def kind(self) -> ItemKind:
        return kind_of(self.record)

    @property
    def reflection(self) -> Reflection:
        assert isinstance(self.record, Reflection), "episodes are asked for what they are"
        return self.record

    @property
    def quarantined(self) -> bool:
        return bool(self.record.flags) and not self.released

    @property
    def live(self) -> bool:
        """Whether it may be recalled."""
        barred = self.removed or self.disabled or self.quarantined
        return self.until == NEVER and not barred


@dataclass(frozen=True, slots=True)
class Match:
    """An item found by meaning; similarity is a cosine in [-1, 1]."""

    record: Record
    similarity: float

    @property
    def reflection(self) -> Reflection:
        assert isinstance(self.record, Reflection), "episodes are asked for what they are"
        return self.record


@dataclass(frozen=True, slots=True)
class EpisodeMatch:
    """An episode that may help with a question, and by what it was found."""

    episode: Episode
    own: bool = False
    """it is of this very question"""
    similarity: float | None = None
    """of the two questions, a cosine; None: not found by it"""
    shared: tuple[str, ...] = ()
    """names that both have"""
    formed: bool = False
    """it was found by the words of its question that are no names, and by nothing else"""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "EpisodeMatch":
        episode, shared = Episode.model_validate(fields["episode"]), tuple(fields["shared"])
        formed = fields.get("formed", False)  # an earlier version found none so
        return cls(episode, fields["own"], fields["similarity"], shared, formed)

    def fields(self) -> dict[str, Any]:
        """It as a run's journal keeps it, with what it was found by."""
        found_by = {"own": self.own, "similarity": self.similarity, "shared": list(self.shared)}
        formed = {"formed": True} if self.formed else {}
        return {"episode": self.episode.model_dump(mode="json"), **found_by, **formed}

    @property
    def recollection(self) -> Recollection:
        """It as the ended run keeps it."""
        return Recollection(
            id=self.episode.id,
            kind="episode",
            why=f"both name {', '.join(self.shared[:3])}" if self.shared else FORMED * self.formed,
            question=self.episode.question,
            own=self.own,
            similarity=self.similarity,
            score=self.episode.score,
        )


@dataclass(frozen=True, slots=True)
class RecalledEpisodes:
    """The episodes that may help with a question, the likeliest first."""

    matches: tuple[EpisodeMatch, ...] = ()
    fault: RubricemError | None = None
    """why none could be looked for by meaning; those found by words are here all the same"""


@dataclass(frozen=True, slots=True)
class RecalledReflections:
    """The reflections that may help with a question."""

    own: Reflection | None = None
    """of this very question"""
    similar: tuple[Match, ...] = ()
    """of others: first the nearest, then what is near and adds to what is chosen"""
    fault: RubricemError | None = None
    """why nothing similar could be looked for; what is here is good all the same"""


@dataclass(frozen=True, slots=True)
class Released:
    """What became of an item that was let out of quarantine."""

    item: BankItem
    instead: BankItem | None = None
    """what stands on its question in its place; None: the item itself, or nothing"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of items that were brought in, each counted once."""

    added: int = 0
    """on questions that the bank knew nothing of"""
    replaced: int = 0
    """in the place of the bank's own, which went to the history"""
    kept: int = 0
    """the bank's own stayed: the newcomer went to the history, or was there already"""
    quarantined: int = 0
    removed: int = 0
    """passed over, as a person had removed them from the bank"""


@dataclass(frozen=True, slots=True)
class BankStats:
    """A bank in numbers."""

    generation: int
    live: int
    episodes: int
    """of the live ones"""
    disabled: int
    quarantined: int
    replaced: int
    removed: int
    uses: int
    """runs that were given something"""
    lessons: int
    """put to the test, each by each run on its own question that was given it"""
    lessons_held: int
    """of them"""
    embedder: str
    """whose vectors the index holds; "": there is none yet"""
    journal_bytes: int
    index_bytes: int
    """of the index on this machine; 0 where a server holds it"""
