"""The bank's journal: every reflection ever put into it, one fsynced JSON line each.

It is the truth of the rubric bank; whatever else there is of it can be built again from here.
Line n makes generation n. Several processes may share the file: each append takes a lock for as
long as it lasts, and what others have written is read on. A last line cut by a crash was never
acknowledged to anybody: readers pass over it and the next append removes it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from memory.errors import StoreError
from memory.runs import unusable, writable
from memory.schema import Reflection


class BankJournal:
    """The file and what was read of it. Nothing is opened or created before it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[Reflection] = []
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def read(self) -> tuple[Reflection, ...]:
        """Everything on disk by now, in order. Raises StoreError for a damaged line."""
        try:
            with open(self.path, "rb") as file:
                self._read_on(file.fileno())
        except FileNotFoundError:
            self._records, self._offset = [], 0
        except StoreError:
            raise
        except OSError as error:
            raise unusable(self.path, error) from error
        return tuple(self._records)

    def append(self, reflection: Reflection) -> bool:
        """Return once it is on disk; False where a reflection of this id is there already."""
        line = reflection.model_dump_json().encode() + b"\n"
        with writable(self.path), self._locked() as descriptor:
            self._read_on(descriptor)
            if any(record.id == reflection.id for record in self._records):
                return False
            os.ftruncate(descriptor, self._offset)
            _write(descriptor, line)
            self._read_on(descriptor)
        return True

    @contextmanager
    def _locked(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _read_on(self, descriptor: int) -> None:
        """Take up the whole lines that were not read yet."""
        state = os.fstat(descriptor)
        if self._file != (state.st_dev, state.st_ino) or state.st_size < self._offset:
            # Another file has taken its place: nothing that was read is known to be in it.
            self._records, self._offset = [], 0
            self._file = (state.st_dev, state.st_ino)
        block = os.pread(descriptor, state.st_size - self._offset, self._offset)
        for line in block[: block.rfind(b"\n") + 1].splitlines(keepends=True):
            self._records.append(self._record(line))
            self._offset += len(line)

    def _record(self, line: bytes) -> Reflection:
        try:
            return Reflection.model_validate_json(line)
        except ValidationError as error:
            raise StoreError(
                f"line {len(self._records) + 1} of the bank's journal {self.path} is damaged",
                "Remove that line, or move the file away to begin an empty bank.",
            ) from error


def _write(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    view = memoryview(line)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        # Half a line would join with the next one into a line that nobody can read.
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
