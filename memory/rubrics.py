"""The evolving rubrics of questions, on disk.

Each buffer is one JSON file, including its history, named by the question's hash and replaced as a
whole. Raises StoreError for a file that cannot be read or written, and for one that was changed by
another writer in the meantime.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import folder_locked, value_in, writable, write_atomically
from rubricem.memory.schema import RubricBuffer


class BufferStore:
    """The buffers of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, question: str) -> Path:
        return self.folder / f"{RubricBuffer(question=question).id}.json"

    def load(self, question: str) -> RubricBuffer:
        """The question's buffer; an empty one of version 0 if there is none."""
        return self._read(self.path(question)) or RubricBuffer(question=question)

    def all(self) -> Iterator[RubricBuffer]:
        """Every buffer, in the order of the questions' hashes."""
        for path in sorted(self.folder.glob("*.json")):
            if buffer := self._read(path):
                yield buffer

    def find(self, name: str) -> RubricBuffer:
        """The buffer of a question, or of an id's prefix. Raises SettingsError if there is none."""
        if buffer := self._read(self.path(name)):
            return buffer
        named = [path for path in self.folder.glob("*.json") if name and path.stem.startswith(name)]
        if len(named) == 1 and (buffer := self._read(named[0])):
            return buffer
        found = f"{len(named)} questions have ids that begin with" if named else "no rubrics for"
        raise SettingsError(f"There are {found} {name!r}.", "See: rubricem judge rubrics show")

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
        """Copy all current buffers into a folder, which is created."""
        with folder_locked(self.folder), writable(folder):
            shutil.copytree(self.folder, folder)

    def go_back_to(self, folder: Path) -> None:
        """Restore the buffers of a copy, and remove all others."""
        with folder_locked(self.folder):
            kept = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
            for path in self.folder.glob("*.json"):
                if path.name not in kept:
                    path.unlink()
            for name, text in kept.items():
                write_atomically(self.folder / name, text)

    def _read(self, path: Path) -> RubricBuffer | None:
        remedy = "Move that file away to begin with new rubrics; nothing was overwritten."
        return value_in(path, RubricBuffer, remedy, f"the rubrics in {path}")
