"""Conversations: which runs belong together, in the order in which they were asked.

    threads/ID.json     one conversation; the runs themselves stay in runs/

A file is replaced whole, under a lock on the folder that all processes share, so that two of
them that add a run at once lose none. One that cannot be read is said to be so and left alone.
"""

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from memory.errors import RubricemError, SettingsError, StoreError
from memory.printable import one_line
from memory.runs import folder_locked, unusable, writable, write_atomically
from memory.text import storable
from memory.values import Value

LONGEST_TITLE = 120
"""characters"""
_ID = re.compile(r"[A-Za-z0-9][\w-]{0,63}")


class Parent(Value):
    """Where a conversation branched off: another one, and the last run they share."""

    conversation: str
    run: str


class Conversation(Value):
    """Runs that belong together; a branch begins with those of its parent."""

    id: str
    title: str = ""
    """"" until somebody names it: the first question says what it is about"""
    runs: tuple[str, ...] = ()
    """keys of the runs, in the order in which they were asked"""
    parent: Parent | None = None
    created_at: datetime
    changed_at: datetime

    @property
    def own_runs(self) -> tuple[str, ...]:
        """Those that were asked here, and not before it branched off."""
        if self.parent is None or self.parent.run not in self.runs:
            return self.runs
        return self.runs[self.runs.index(self.parent.run) + 1 :]


@dataclass(frozen=True, slots=True)
class Listing:
    """All conversations, the one changed last first, and a sentence for each unreadable file."""

    conversations: tuple[Conversation, ...]
    problems: tuple[str, ...]


class ConversationStore:
    """The conversations of one data directory. Every method reads or writes files.

    Raises SettingsError for a name that none has, StoreError for files that cannot be used.
    """

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "threads"

    def create(self, title: str = "") -> Conversation:
        """A conversation without any run yet."""
        return self._begun(title, (), None)

    def get(self, identifier: str) -> Conversation:
        path = self._path(identifier)
        try:
            return Conversation.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise SettingsError(
                f"There is no conversation {identifier!r}.", "The list of threads names them all."
            ) from None
        except OSError as error:
            raise unusable(path, error) from error
        except ValidationError as error:
            raise StoreError(
                f"The conversation {identifier!r} cannot be read: {error.errors()[0]['msg']}.",
                f"Its runs are still there; move {path} away to be rid of this.",
            ) from error

    def listed(self) -> Listing:
        """Every conversation; one that cannot be read keeps no other from being listed."""
        found, problems = [], []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(self.get(path.stem))
            except RubricemError as error:
                problems.append(f"{error} {error.remedy}".strip())
        found.sort(key=lambda each: (each.changed_at, each.id), reverse=True)
        return Listing(tuple(found), tuple(problems))

    def of_run(self, run: str) -> Conversation | None:
        """The conversation in which a run was asked; None for one that was asked alone."""
        holding = [each for each in self.listed().conversations if run in each.runs]
        own = (each for each in holding if run in each.own_runs)
        return next(own, holding[-1] if holding else None)

    def after(self, run: str) -> Conversation:
        """A conversation whose last run is this one: its own, a branch of that, or a new one."""
        found = self.of_run(run)
        if found is None:
            return self._begun("", (run,), None)
        return found if found.runs[-1] == run else self.branch(found.id, run)

    def add_run(self, identifier: str, run: str) -> Conversation:
        """Add a run at the end; one that is there already stays where it is."""
        with folder_locked(self.folder):
            kept = self.get(identifier)
            runs = kept.runs if run in kept.runs else (*kept.runs, run)
            return self._changed(kept, runs=runs)

    def rename(self, identifier: str, title: str) -> Conversation:
        """Give it a title; an empty one lets the first question speak again."""
        with folder_locked(self.folder):
            return self._changed(self.get(identifier), title=_title(title))

    def branch(self, identifier: str, run: str) -> Conversation:
        """A new conversation that begins with all up to and with a run, and goes on by itself."""
        parent = self.get(identifier)
        if run not in parent.runs:
            raise SettingsError(
                f"The run {run!r} is not in the conversation {identifier!r}.",
                f"It holds {', '.join(parent.runs[-5:]) or 'no run yet'}.",
            )
        runs = parent.runs[: parent.runs.index(run) + 1]
        return self._begun(parent.title, runs, Parent(conversation=identifier, run=run))

    def delete(self, identifier: str) -> None:
        """Forget the conversation; its runs stay. A file that cannot be read goes as well."""
        path = self._path(identifier)
        with folder_locked(self.folder):
            if not path.exists():
                self.get(identifier)
            with writable(path):
                path.unlink(missing_ok=True)

    def _begun(self, title: str, runs: tuple[str, ...], parent: Parent | None) -> Conversation:
        now = datetime.now(UTC)
        begun = Conversation(
            id=uuid.uuid4().hex[:12],
            title=_title(title),
            runs=runs,
            parent=parent,
            created_at=now,
            changed_at=now,
        )
        self._write(begun)
        return begun

    def _changed(self, kept: Conversation, **values: object) -> Conversation:
        changed = kept.model_copy(update={**values, "changed_at": datetime.now(UTC)})
        self._write(changed)
        return changed

    def _write(self, conversation: Conversation) -> None:
        write_atomically(self._path(conversation.id), conversation.model_dump_json(indent=1))

    def _path(self, identifier: str) -> Path:
        if not _ID.fullmatch(identifier):
            raise SettingsError(
                f"{one_line(identifier, 80)!r} names no conversation.",
                "Their names are of letters, digits, dashes and underscores, at most 64.",
            )
        return self.folder / f"{identifier}.json"


def _title(title: str) -> str:
    return storable(one_line(title, LONGEST_TITLE))
