"""The bank on disk: its journal and its catalogue as one, blocking.

It is used from worker threads, which take turns; other processes may use the folder at once.
"""

import threading
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from memory.bank_catalogue import Catalogue, Standing
from memory.bank_events import (
    Blank,
    Decided,
    Decision,
    Put,
    event_of,
    line_of,
    question_key,
    words_key,
)
from memory.bank_items import edited, item_of
from memory.bank_journal import BankJournal
from memory.bank_rules import Version, standing
from memory.bank_tables import Question
from memory.bank_uses import BankUses
from memory.errors import SettingsError
from memory.items import NEVER, BankItem, Released
from memory.reflections import Reflection
from memory.runs import unusable, write_atomically


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
            if _is_so(version, decision, on):
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

    def changes(self, generation: int) -> tuple[int, list[Question], list[int]]:
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

    def question(self, question: Question) -> str | None:
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


def _is_so(version: Version, decision: Decision, on: bool) -> bool:
    if decision == "release":
        return not version.quarantined
    return on == (version.pinned if decision == "pin" else version.disabled)
