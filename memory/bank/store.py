"""The bank on disk: its journal, its catalogue and its uses as one, blocking.

It is used from worker threads, which take turns; other processes may use the folder at once.

The uses say which runs were given which items, and how these runs were scored:

    {"trajectory": ..., "ids": [...], "question": sha256}    items were put before its question
    {"trajectory": ..., "mean": 0.7}                         its mean stage score, in [0, 1]

They are no events of the bank, so that recalling makes no generations. A run told of twice is
one use, and its last score counts: writing looks nothing up. One fsynced line each.
"""

import hashlib
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rubricem.memory.bank.catalogue import BankQuestion, Catalogue, Standing, Version, standing
from rubricem.memory.bank.events import (
    BankJournal,
    Blank,
    Decided,
    Decision,
    Put,
    State,
    event_of,
    line_of,
    question_key,
    words_key,
)
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import unusable, write_atomically
from rubricem.memory.schema import NEVER, BankItem, Reflection, Released, Value

Uses = Mapping[str, tuple[int, float | None]]
"""id -> how many runs were given it, and the mean score of those that were scored"""


def item_of(version: Version, put: Put, journal: BankJournal, uses: Uses) -> BankItem:
    release = _release(journal, version)
    recalled, mean_score = uses.get(version.id, (0, None))
    return BankItem(
        reflection=put.reflection,
        since=version.since,
        until=version.until,
        pinned=version.pinned,
        disabled=version.disabled,
        released=version.released,
        released_by=release.by if release else "",
        released_at=release.at if release else None,
        edited_by=put.by,
        recalled=recalled,
        mean_score=mean_score,
    )


def edited(old: Reflection, rubrics: str, takeaways: str) -> Reflection:
    """A version in a person's words; the same words in its place always have the same id."""
    text = "\0".join((old.id, rubrics, takeaways))
    return old.model_copy(
        update={
            "id": hashlib.sha256(text.encode()).hexdigest()[:12],
            "rubrics": rubrics,
            "takeaways": takeaways,
            "origin": "hand",
            "replaces": old.id,
            "flags": (),
            "written_at": datetime.now(UTC),
        }
    )


def _release(journal: BankJournal, version: Version) -> Decided | None:
    """The line that let it out of quarantine, where there is one."""
    if not version.let_out:
        return None
    try:
        event = event_of(journal.line_at(version.let_out))
    except ValueError:
        return None
    return event if isinstance(event, Decided) and event.id == version.id else None


class Used(Value):
    trajectory: str
    ids: tuple[str, ...]
    question: str
    """its key: no text is kept here that would have to be removed"""


class ScoredUse(Value):
    trajectory: str
    mean: float


_LINE: TypeAdapter[Used | ScoredUse] = TypeAdapter(Used | ScoredUse)


class BankUses:
    """The uses of one bank, read on as the file grows. Blocking, for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.file = BankJournal(path)
        self._state: State | None = None
        self._offset = 0
        self._lines = 0
        self._ids: dict[str, tuple[str, ...]] = {}
        self._means: dict[str, float] = {}

    def used(self, trajectory: str, ids: Sequence[str], question: str) -> None:
        """Returns once it is on disk."""
        key = question_key(question)
        self._append(Used(trajectory=trajectory, ids=tuple(ids), question=key))

    def scored(self, trajectory: str, mean: float) -> None:
        """Returns once it is on disk."""
        self._append(ScoredUse(trajectory=trajectory, mean=mean))

    def count(self) -> int:
        """Runs that were given something."""
        self._read_on()
        return len(self._ids)

    def by_item(self) -> dict[str, tuple[int, float | None]]:
        """Id -> how many runs were given it, and the mean score of those that were scored."""
        self._read_on()
        means: dict[str, list[float]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for trajectory, ids in self._ids.items():
            for identifier in ids:
                counts[identifier] += 1
                if trajectory in self._means:
                    means[identifier].append(self._means[trajectory])
        return {i: (n, sum(m) / len(m) if (m := means[i]) else None) for i, n in counts.items()}

    def _append(self, line: Value) -> None:
        with self.file.locked() as descriptor:
            self.file.append(descriptor, line.model_dump_json().encode() + b"\n")

    def _read_on(self) -> None:
        state = self.file.state()
        if state is None or self._state is None or state[:2] != self._state[:2]:
            self._offset = self._lines = 0
            self._ids, self._means = {}, {}
        self._state = state
        for offset, line in self.file.lines(self._offset):
            self._take(line)
            self._offset = offset + len(line)

    def _take(self, line: bytes) -> None:
        self._lines += 1
        try:
            told = _LINE.validate_json(line)
        except ValidationError as error:
            raise StoreError(
                f"line {self._lines} of the bank's uses {self.file.path} is damaged",
                "Remove that line, or move the file away to count from nought.",
            ) from error
        if isinstance(told, Used):
            self._ids.setdefault(told.trajectory, told.ids)
        else:
            self._means[told.trajectory] = told.mean


class BankStore:
    """Everything of a bank but its embeddings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.journal = BankJournal(folder / "journal.jsonl")
        self.uses = BankUses(folder / "uses.jsonl")
        self.catalogue = Catalogue(folder / "catalogue.db", self.journal)

    def identity(self) -> str:
        """The bank's own id, which it gets when it is first asked for."""
        path = self.folder / "id"
        with self.lock, self.journal.locked():
            try:
                return path.read_text(encoding="ascii").strip()
            except FileNotFoundError:
                write_atomically(path, uuid.uuid4().hex)
                return path.read_text(encoding="ascii").strip()
            except OSError as error:
                raise unusable(path, error) from error

    def generation(self) -> int:
        with self.lock:
            return self.catalogue.position()[0]

    def put(self, reflection: Reflection) -> bool:
        """Return once it is on disk; False where this very one, or its words, shall not come."""
        with self.lock, self.journal.locked() as descriptor:
            if self.catalogue.by_id(reflection.id) is not None:
                return False
            if reflection.origin == "run" and self.catalogue.barred(words_key(reflection)):
                return False
            self.journal.append(descriptor, line_of(Put(reflection=reflection)))
        return True

    def edit(self, identifier: str, rubrics: str, takeaways: str, by: str = "") -> BankItem:
        """Put a version that a person wrote in the place of the one that is current."""
        with self.lock, self.journal.locked() as descriptor:
            old = self.read(self._current(identifier))
            assert old is not None, "nothing is removed while the lock is held"
            new = edited(old, rubrics, takeaways)
            if self.catalogue.by_id(new.id) is None:
                self.journal.append(descriptor, line_of(Put(reflection=new, by=by)))
        return self.item(new.id)

    def decide(self, decision: Decision, identifier: str, on: bool = True, by: str = "") -> None:
        """Write down what a person decided; nothing where it is so already."""
        with self.lock, self.journal.locked() as descriptor:
            version = self._current(identifier)
            if decision == "pin" and version.quarantined:
                raise SettingsError(
                    f"The reflection {identifier} is in quarantine.",
                    f"Read it, then: rubricem bank release {identifier}",
                )
            if decision == "release":
                is_so = not version.quarantined
            else:
                is_so = on == (version.pinned if decision == "pin" else version.disabled)
            if is_so:
                return
            event = Decided(event=decision, id=identifier, on=on)
            if decision == "release":
                told = {"words": self._words(version), "by": by, "at": datetime.now(UTC)}
                event = event.model_copy(update=told)
            self.journal.append(descriptor, line_of(event))

    def release(self, identifier: str, by: str = "") -> Released:
        """Let it out of quarantine, and say what stands on its question then."""
        with self.lock:
            self.decide("release", identifier, by=by)
            version = self.known(identifier)
            held = standing(self.catalogue.by_key(version.key))
            other = held if held is not None and held.id != identifier else None
            return Released(self.item(identifier), self.item(other.id) if other else None)

    def remove(self, identifier: str) -> None:
        """Blank the text of a reflection, and have it gone."""
        with self.lock, self.journal.locked():
            version = self.known(identifier)

            lines = (
                blanked(line) if offset == version.offset else line
                for offset, line in self.journal.lines()
            )
            words = self._words(version)
            removal = line_of(Decided(event="remove", id=identifier, words=words))
            self.journal.replace(chain(lines, [removal]))

    def shown(self, generation: int, every: bool) -> Iterator[BankItem]:
        """The live item of each question at a generation, or every item there is."""
        with self.lock:
            catalogue = self.catalogue
            versions = catalogue.everything() if every else catalogue.shown(generation)
        return self.items(versions)

    def page(self, standing: Standing, limit: int, before: int) -> list[BankItem]:
        with self.lock:
            versions = self.catalogue.page(standing, limit, before)
        return list(self.items(versions))

    def find(self, prefix: str) -> list[BankItem]:
        with self.lock:
            versions = self.catalogue.by_prefix(prefix) if prefix else []
        return list(self.items(versions))

    def history(self, question: str) -> list[BankItem]:
        with self.lock:
            versions = self.catalogue.by_key(question_key(question))
        return list(self.items(versions))

    def within(self, question: str, generation: int) -> Reflection | None:
        with self.lock:
            version = self.catalogue.shown_of(question_key(question), generation)
            return self.read(version) if version else None

    def has_others(self, key: str, generation: int) -> bool:
        with self.lock:
            return self.catalogue.shown_besides(key, generation)

    def questions(self) -> int:
        """How many questions the bank has something on."""
        with self.lock:
            return self.catalogue.held()

    def changed(self) -> int:
        """The generation in which a question last came or went."""
        with self.lock:
            return self.catalogue.changed()

    def changes(self, generation: int) -> tuple[int, list[BankQuestion], list[int]]:
        """The generation now, and the questions that came and those that went since one."""
        with self.lock:
            now = self.catalogue.position()[0]
            catalogue = self.catalogue
            return now, catalogue.questions_after(generation), catalogue.gone_after(generation)

    def some_questions(self, generation: int, count: int) -> list[int]:
        """Numbers of at most `count` questions, spread over those up to a generation."""
        with self.lock:
            return self.catalogue.some_questions(generation, count)

    def digest(self, generation: int) -> str:
        with self.lock:
            return self.catalogue.digest(generation)

    def used(self, trajectory_id: str, ids: Sequence[str], question: str) -> None:
        with self.lock:
            self.uses.used(trajectory_id, ids, question)

    def scored(self, trajectory_id: str, mean: float) -> None:
        with self.lock:
            self.uses.scored(trajectory_id, mean)

    def item(self, identifier: str) -> BankItem:
        with self.lock:
            version = self.known(identifier)
            return next(self.items([version]))

    def items(self, versions: Sequence[Version]) -> Iterator[BankItem]:
        """Read from the journal one by one; what is removed in the meantime is left out."""
        with self.lock:
            uses = self.uses.by_item()
        for version in versions:
            if (put := self._put(version)) is not None:
                yield item_of(version, put, self.journal, uses)

    def read(self, version: Version) -> Reflection | None:
        """None where its text was removed in the meantime."""
        put = self._put(version)
        return put.reflection if put else None

    def question(self, question: BankQuestion) -> str | None:
        """The words of a question; None where they were removed in the meantime."""
        with self.lock:
            versions = self.catalogue.by_key(question.key)
        read = next((r for r in map(self.read, versions) if r is not None), None)
        return read.question if read else None

    def known(self, identifier: str) -> Version:
        version = self.catalogue.by_id(identifier)
        if version is None or version.removed:
            raise SettingsError(
                f"There is no reflection {identifier!r} in the bank.",
                "Give an id from: rubricem bank list",
            )
        return version

    def _current(self, identifier: str) -> Version:
        """The version of this id, if nothing has replaced it."""
        version = self.known(identifier)
        if version.until != NEVER:
            held = standing(self.catalogue.by_key(version.key))
            by = f" by {held.id}" if held else ""
            raise SettingsError(
                f"The reflection {identifier} was replaced{by}.",
                f"Decide on {held.id if held else 'another one'} instead.",
            )
        return version

    def _words(self, version: Version) -> str:
        read = self.read(version)
        return words_key(read) if read else ""

    def _put(self, version: Version) -> Put | None:
        put = self._put_of(version)
        if put is None:
            # The catalogue says where it stands, and is wrong: it is made again.
            with self.lock:
                self.catalogue.drop()
                found = self.catalogue.by_id(version.id)
            put = self._put_of(found) if found else None
        return put if isinstance(put, Put) else None

    def _put_of(self, version: Version) -> Put | Blank | None:
        """What stands at its place in the journal; None where that is not its own line."""
        try:
            event = event_of(self.journal.line_at(version.offset))
        except ValueError:
            return None
        return None if isinstance(event, Decided) or event.id != version.id else event


def blanked(line: bytes) -> bytes:
    """A put's line without its text, and as long as it was."""
    event = event_of(line)
    assert not isinstance(event, Decided), "only what was put has a text"
    return line_of(Blank.of(event)).rstrip(b"\n").ljust(len(line) - 1) + b"\n"
