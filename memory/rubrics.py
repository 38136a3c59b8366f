"""The rubrics of one question as they evolve: what counts now, what was retired, and why.

A buffer is a value: the judge makes a new one of it, and its caller saves that at a step's end.
Persistent criteria came with the question, or were made from it before any run was seen, and
are never pruned; active ones were proposed by contrasting runs (RubricEM, arXiv:2605.10899,
appendix C).

On disk each is one JSON file, named by the question's hash and replaced whole, with the history of
its rubrics in it. Raises StoreError for a file that cannot be read or written, and for one that has
meanwhile been changed by somebody else.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import folder_locked, unusable, writable, write_atomically
from rubricem.memory.schema import Criterion, Stage, Value

ChangeKind = Literal["added", "returned", "retired", "pinned"]


class RubricChange(Value):
    """One line of a buffer's history."""

    version: int
    """of the buffer that the change led to"""
    step: int
    stage: Stage
    kind: ChangeKind
    criterion: Criterion
    reason: str


Criteria = Mapping[Stage, tuple[Criterion, ...]]
"""by stage; a stage without any may be left out"""


class RubricBuffer(Value):
    """Every criterion of one question. A version counts each set of changes made at once."""

    question: str
    version: int = 0
    persistent: Criteria = Field(default_factory=dict)
    active: Criteria = Field(default_factory=dict)
    retired: Criteria = Field(default_factory=dict)
    """those that are no longer scored, the latest last"""
    history: tuple[RubricChange, ...] = ()

    @property
    def id(self) -> str:
        """Names the question: its hash."""
        return question_id(self.question)

    def at(self, version: int) -> "RubricBuffer":
        """The buffer as it was at an earlier version, replayed from its history."""
        buffer = RubricBuffer(question=self.question)
        for change in self.history:
            if change.version <= version:
                buffer = buffer._after(change)
        return buffer

    def changed(
        self, step: int, changes: Iterable[tuple[Stage, ChangeKind, Criterion, str]]
    ) -> "RubricBuffer":
        """The next version: what happened to which criterion of which stage, and why.

        The same buffer if nothing changed.
        """
        buffer = self
        for stage, kind, criterion, reason in changes:
            buffer = buffer._after(
                RubricChange(
                    version=self.version + 1,
                    step=step,
                    stage=stage,
                    kind=kind,
                    criterion=criterion,
                    reason=reason,
                )
            )
        return buffer

    def _after(self, change: RubricChange) -> "RubricBuffer":
        """With one change made, on whichever shelves the criterion stood."""
        shelves: dict[str, dict[Stage, tuple[Criterion, ...]]] = {
            "persistent": dict(self.persistent),
            "active": dict(self.active),
            "retired": dict(self.retired),
        }
        stage, criterion = change.stage, change.criterion
        for shelf in shelves.values():
            if stage in shelf:
                shelf[stage] = tuple(c for c in shelf[stage] if not same(c, criterion))
        kept = "persistent" if criterion.persistent else "active"
        place = shelves["retired" if change.kind == "retired" else kept]
        place[stage] = (*place.get(stage, ()), criterion)
        history = (*self.history, change)
        return self.model_copy(update={**shelves, "version": change.version, "history": history})

    def criteria(self, stage: Stage) -> tuple[Criterion, ...]:
        """What this stage is scored on: the persistent ones, then the active ones."""
        return self.persistent.get(stage, ()) + self.active.get(stage, ())

    @property
    def label(self) -> str:
        """Names what is scored now: the version, and a hash of the criteria in force."""
        keys = [f"{stage}:{c.key}:{c.weight}" for stage in Stage for c in self.criteria(stage)]
        return f"{self.version}-{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:8]}"


def question_id(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:24]


def meaning(criterion: Criterion) -> str:
    """What a criterion says, without case, punctuation and sign."""
    text = f"{criterion.title} {criterion.description}".casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in text).split())


def same(one: Criterion, other: Criterion) -> bool:
    return meaning(one) == meaning(other)


class BufferStore:
    """The buffers of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, question: str) -> Path:
        return self.folder / f"{question_id(question)}.json"

    def load(self, question: str) -> RubricBuffer:
        """The question's buffer; an empty one of version 0 if there is none."""
        return self._read(self.path(question)) or RubricBuffer(question=question)

    def all(self) -> Iterator[RubricBuffer]:
        """Every buffer, in the order of the questions' hashes."""
        for path in sorted(self.folder.glob("*.json")):
            if buffer := self._read(path):
                yield buffer

    def find(self, name: str) -> RubricBuffer:
        """The buffer of a question, or of an id's beginning. Raises SettingsError for none."""
        if buffer := self._read(self.path(name)):
            return buffer
        named = [path for path in self.folder.glob("*.json") if name and path.stem.startswith(name)]
        if len(named) == 1 and (buffer := self._read(named[0])):
            return buffer
        found = f"{len(named)} questions have ids that begin with" if named else "no rubrics for"
        raise SettingsError(f"There are {found} {name!r}.", "See: rubricem judge rubrics list")

    def save(self, buffer: RubricBuffer) -> None:
        """Replace the question's buffer; saving the same one again changes nothing."""
        with folder_locked(self.folder):
            stored = self.load(buffer.question)
            if stored == buffer:
                return
            if buffer.history[: len(stored.history)] != stored.history or (
                stored.version >= buffer.version
            ):
                raise StoreError(
                    f"the rubrics of this question are at version {stored.version} already",
                    "They were changed meanwhile by another process: judge again.",
                )
            write_atomically(self.path(buffer.question), buffer.model_dump_json(indent=1))

    def copy_to(self, folder: Path) -> None:
        """Copy all buffers as they stand into a folder, which is made."""
        with folder_locked(self.folder), writable(folder):
            shutil.copytree(self.folder, folder)

    def go_back_to(self, folder: Path) -> None:
        """Have the buffers of a copy, and none besides."""
        with folder_locked(self.folder):
            kept = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
            for path in self.folder.glob("*.json"):
                if path.name not in kept:
                    path.unlink()
            for name, text in kept.items():
                write_atomically(self.folder / name, text)

    def _read(self, path: Path) -> RubricBuffer | None:
        try:
            return RubricBuffer.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(path, error) from error
        except ValueError as error:
            fault = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise StoreError(
                f"the rubrics in {path} cannot be read: {fault}",
                "Move that file away to begin with new rubrics; nothing was overwritten.",
            ) from error
