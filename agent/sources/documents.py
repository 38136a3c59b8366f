"""The documents of a folder: which files there are, and what each one says.

What a file says is cached by the hash of its content, so that a folder is read again only
where it changed. A file that cannot be read is a problem kept beside the others, with the
remedy; it never stops the rest.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.sources.passages import OnProgress, split_passages
from agent.sources.readers import READERS, Document, Section, read_document
from memory.errors import SourceError
from memory.interfaces import Passage

READERS_VERSION = 1
MOST_BYTES = 50_000_000
"""Larger files are left out."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: where it is, its path inside the folder, and its last known state."""

    path: Path
    location: str
    size: int
    changed: int
    """time of its last change, in nanoseconds"""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What a file's content came to: a document, or the problem that kept it from being one."""

    location: str
    digest: str
    document: Document | None
    problem: str = ""


def found_files(root: Path) -> list[FoundFile]:
    """Readable kinds of files under `root`, by path; not hidden ones, nor links out of it."""
    return sorted(_walk(root), key=lambda file: file.location)


def _walk(root: Path) -> Iterator[FoundFile]:
    inside = root.resolve()
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder) / name
            if name.startswith(".") or path.suffix.lower() not in READERS:
                continue
            if path.resolve().is_relative_to(inside) and path.is_file():
                state = path.stat()
                location = path.relative_to(root).as_posix()
                yield FoundFile(path, location, state.st_size, state.st_mtime_ns)


class DocumentCache:
    """Documents by the hash of their content, one JSON file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[tuple[str, int, int], str] = {}

    def read(self, files: list[FoundFile], on_progress: OnProgress | None) -> list[ReadFile]:
        """What each file says; only content not seen before is really read."""
        read: list[ReadFile] = []
        for done, file in enumerate(files):
            if on_progress:
                on_progress(done, len(files), f"reading {file.location}")
            read.append(self._read(file))
        self._drop_unused({file.digest for file in read})
        return read

    def _read(self, file: FoundFile) -> ReadFile:
        if file.size > MOST_BYTES:
            problem = f"{file.location} is larger than {MOST_BYTES // 1_000_000} MB. Split it."
            return ReadFile(file.location, f"large-{file.size}", None, problem)
        try:
            digest = self._digest(file)
        except OSError as cause:
            problem = f"{file.location} could not be opened: {cause.strerror}."
            return ReadFile(file.location, "unreadable", None, problem)
        known = self._known(file.location, digest)
        return known or self._read_new(file, digest)

    def _digest(self, file: FoundFile) -> str:
        state = (file.location, file.size, file.changed)
        if state not in self._digests:
            with file.path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            suffix = file.path.suffix.lower().removeprefix(".")
            self._digests[state] = f"{digest[:40]}-{suffix}-{READERS_VERSION}"
        return self._digests[state]

    def _known(self, location: str, digest: str) -> ReadFile | None:
        try:
            kept = json.loads((self._folder / f"{digest}.json").read_text("utf-8"))
            sections = tuple(Section(**section) for section in kept["sections"])
            document = Document(kept["title"], sections, kept["note"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return ReadFile(location, digest, document)

    def _read_new(self, file: FoundFile, digest: str) -> ReadFile:
        try:
            document = read_document(file.path)
        except SourceError as error:
            # Not cached: the remedy may lie outside the file, such as a missing library.
            problem = f"{file.location}: {error} {error.remedy}".strip()
            return ReadFile(file.location, digest, None, problem)
        self._write(digest, document)
        return ReadFile(file.location, digest, document)

    def _write(self, digest: str, document: Document) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
            json.dump(asdict(document), file)
        os.replace(file.name, self._folder / f"{digest}.json")

    def _drop_unused(self, used: set[str]) -> None:
        for path in self._folder.glob("*.json"):
            if path.stem not in used:
                path.unlink(missing_ok=True)


def file_passages(file: ReadFile) -> list[Passage]:
    """The passages of a file, each with the heading, page or lines where it stands."""
    if file.document is None:
        return []
    return [
        Passage(file.document.title, file.location, section.heading, piece)
        for section in file.document.sections
        for piece in split_passages(section.text)
    ]
