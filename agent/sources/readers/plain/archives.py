"""Archives (zip): each file in them as it is read by itself, under its path.

Nothing is unpacked to the disk. How much is read is bounded: archives within archives to a depth of
two, the files, and their bytes, whatever the archive says they are.
"""

from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from rubricem.agent.sources.readers.document import Document, Input, Section, left_out
from rubricem.memory.errors import SourceError

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

    def unpack(self, file: BinaryIO, above: str, depth: int) -> None:
        from rubricem.agent.sources.readers import READERS, is_hidden

        with ZipFile(file) as archive:
            for entry in archive.infolist():
                at, path = PurePosixPath(entry.filename), f"{above}{entry.filename}"
                if entry.is_dir() or any(map(is_hidden, at.parts)):
                    continue
                self.files += 1
                if self.files > MOST_FILES:
                    raise SourceError(
                        f"{self.given.name} holds more than {MOST_FILES:,} files.",
                        "Unpack it there.",
                    )
                kind = at.suffix.lower()
                if kind not in READERS or (kind == ".zip" and depth == DEEPEST):
                    self.unread.append(path)
                    continue
                try:
                    content = BytesIO(self._content(archive, entry))
                    if kind == ".zip":
                        self.unpack(content, f"{path}/", depth + 1)
                        continue
                except (SourceError, BadZipFile) as error:
                    if self.left < 0:
                        raise
                    self.leave(path, error)
                    continue
                inner = replace(self.given, name=at.name, file=content, declared="")
                self.add(inner, (path,))

    def _content(self, archive: ZipFile, entry: ZipInfo) -> bytes:
        if entry.flag_bits & 1:
            raise SourceError("it is encrypted", "Unpack it.")
        most = min(self.left, max(RATIO * entry.compress_size, 1_000_000))
        try:
            with archive.open(entry) as file:
                content = file.read(most + 1)
        except (BadZipFile, NotImplementedError, EOFError, OSError) as cause:
            raise SourceError("it is damaged", "Pack it again.") from cause
        self.left -= len(content)
        if len(content) > most:
            self.left = -1
            raise SourceError(
                f"{self.given.name} unpacks to more than {most / 1e6:.0f} MB.",
                "Unpack it, and leave out what is not needed.",
            )
        return content


def read_zip(given: Input) -> Document:
    """Sections under the path of their file; what is not read of it is told in the note."""
    given.file.seek(0)
    unpacking = _Unpacking(given)
    try:
        unpacking.unpack(given.file, "", 1)
    except BadZipFile as cause:
        raise SourceError(f"{given.name} is no zip file.", "Pack it again.") from cause
    if not unpacking.sections:
        raise SourceError(f"{given.name} holds no document that can be read.", "Unpack it there.")
    return Document(given.stem, tuple(unpacking.sections), left_out(unpacking.unread))
