"""Archives (zip, tar) and packed files: each file in them as it is read by itself, under its path.

Nothing is unpacked to the disk. How much is read is bounded: archives within archives to a depth of
two, the files, and their bytes, whatever the archive says they are.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import PurePosixPath
from typing import IO, Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from rubricem.agent.sources.readers.document import Document, Input, Section, left_out
from rubricem.memory.errors import SourceError

_OPENS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": gzip.open, ".tgz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open,
}  # fmt: skip
PACKED = {".zip", ".tar", *_OPENS}
_DAMAGED = (BadZipFile, NotImplementedError, EOFError, OSError, ValueError,
            tarfile.TarError, lzma.LZMAError, zlib.error)  # fmt: skip
DEEPEST = 2
MOST_FILES = 1000
MOST_BYTES = 50_000_000
"""of all files of an archive, unpacked"""
RATIO = 200
"""times its packed size that a file may have, where that is more than a megabyte"""


@dataclass
class Holder:
    """An archive or a mail, and what is read of the files in it."""

    given: Input
    sections: list[Section] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """names of files that are not read, with the reason if it is not their kind"""

    def add(self, inner: Input, path: tuple[str, ...]) -> None:
        """Read a file whose sections stand under `path`, the last of which is its name."""
        from rubricem.agent.sources.readers import read

        try:
            document = read(inner)
        except SourceError as error:
            self.leave(path[-1], error)
            return
        self.sections += (Section((*path, *s.path), s.blocks) for s in document.sections)
        self.unread += [f"{path[-1]} is {document.note}"] * bool(document.note)
        self.given.get_on()

    def leave(self, name: str, error: Exception) -> None:
        self.unread.append(f"{name} ({str(error).rstrip('.')})")


@dataclass
class _Unpacking(Holder):
    left: int = MOST_BYTES
    files: int = 0

    def unpack(self, file: BinaryIO, name: str, above: str, depth: int) -> None:
        from rubricem.agent.sources.readers import READERS, is_hidden

        for entry in self._entries(file, name):
            at, path = PurePosixPath(entry.name), f"{above}{entry.name}"
            if any(map(is_hidden, at.parts)):
                continue
            self.files += 1
            if self.files > MOST_FILES:
                raise SourceError(
                    f"{self.given.name} holds more than {MOST_FILES:,} files.", "Unpack it there."
                )
            kind = at.suffix.lower()
            if kind not in READERS or (kind in PACKED and depth == DEEPEST):
                self.unread.append(path)
                continue
            try:
                content = BytesIO(self._content(entry))
                if kind in PACKED:
                    self.unpack(content, at.name, f"{path}/", depth + 1)
                    continue
            except (SourceError, *_DAMAGED) as error:
                if self.left < 0:
                    raise
                self.leave(path, error)
                continue
            inner = replace(self.given, name=at.name, file=content, declared="")
            self.add(inner, (path,))

    def _entries(self, file: BinaryIO, name: str) -> "Iterator[_Entry]":
        """The files in an archive; of a packed file it alone."""
        at = PurePosixPath(name)
        if (kind := at.suffix.lower()) == ".zip":
            with ZipFile(file) as archive:
                for told in archive.infolist():
                    if not told.is_dir():
                        most, locked = RATIO * told.compress_size, bool(told.flag_bits & 1)
                        yield _Entry(told.filename, most, partial(archive.open, told), locked)
            return
        if kind not in (".tar", ".tgz") and PurePosixPath(at.stem).suffix.lower() != ".tar":
            size = file.seek(0, 2)
            file.seek(0)
            yield _Entry(at.stem, RATIO * size, partial(_OPENS[kind], file))
            return
        with tarfile.open(fileobj=file, mode="r:*") as tar:
            for member in tar:
                if member.isfile():
                    yield _Entry(member.name, MOST_BYTES, partial(tar.extractfile, member))

    def _content(self, entry: "_Entry") -> bytes:
        if entry.locked:
            raise SourceError("it is encrypted", "Unpack it.")
        most = min(self.left, max(entry.most, 1_000_000))
        try:
            with entry.open() as file:
                content = file.read(most + 1)
        except _DAMAGED as cause:
            raise SourceError("it is damaged", "Pack it again.") from cause
        self.left -= len(content)
        if len(content) > most:
            self.left = -1
            raise SourceError(
                f"{self.given.name} unpacks to more than {most / 1e6:.0f} MB.",
                "Unpack it, and leave out what is not needed.",
            )
        return content


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of an archive."""

    name: str
    most: int
    """bytes that it may have by its packed size"""
    open: Callable[[], IO[bytes] | Any]
    locked: bool = False


def read_packed(given: Input) -> Document:
    """Sections under the path of their file; what is not read of it is told in the note."""
    given.file.seek(0)
    unpacking = _Unpacking(given)
    try:
        unpacking.unpack(given.file, given.name, "", 1)
    except _DAMAGED as cause:
        kind = given.suffix.removeprefix(".")
        raise SourceError(f"{given.name} is no {kind} file.", "Pack it again.") from cause
    if not unpacking.sections:
        raise SourceError(f"{given.name} holds no document that can be read.", "Unpack it there.")
    return Document(given.stem, tuple(unpacking.sections), left_out(unpacking.unread))
