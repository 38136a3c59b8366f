"""A folder of documents as a source of passages: md, txt, rst, html, pdf and docx.

The folder is indexed before the first search and looked at again by later ones: where a file was
added, changed or removed, what changed is read and the index is made anew. What a file says is
cached by the hash of its content. A file that cannot be read is a problem kept beside the
others, with the remedy; it never stops the rest.
"""

import hashlib
import json
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rubricem.agent.sources.index import (
    PATIENCE,
    HybridIndex,
    Indexed,
    LexicalIndex,
    OnProgress,
    build_index,
    open_index,
)
from rubricem.agent.sources.readers import READERS, Document, Section
from rubricem.agent.sources.sandbox.pool import MEGABYTES, SECONDS, Job, Reply, readers
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import hash_of, writable
from rubricem.memory.schema import Embedder, Passage
from rubricem.memory.text import storable

READERS_VERSION = 3
BATCH_FILES = 32
BATCH_BYTES = 2_000_000
"""after which no more files are read in one go"""
AHEAD = 4
"""batches that are being read while what was read is put down"""
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
    """What a file's content came to: its passages, and what was the matter with it, if anything."""

    location: str
    digest: str
    document: Document | None
    problem: str = ""


def found_files(root: Path) -> tuple[list[FoundFile], str]:
    """Readable kinds of files under `root`, by path; not hidden ones, nor links out of it.

    And how many were left out as no text can name or no link reach them, in a sentence, or "".
    """
    inside, found, left = root.resolve(), list[FoundFile](), 0
    for folder, folders, names in os.walk(root):
        named = [name for name in folders if _is_utf8(name)]
        left += len(folders) - len(named)
        folders[:] = [name for name in named if not name.startswith(".")]
        above = Path(folder).relative_to(root).as_posix()
        for name in names:
            if name.startswith(".") or os.path.splitext(name)[1].lower() not in READERS:
                continue
            path = Path(folder, name)
            try:
                if not _is_utf8(name):
                    raise OSError("no text can name it")
                # Links to folders are not followed; to resolve all took two thirds of the time.
                if path.is_symlink() and not path.resolve().is_relative_to(inside):
                    continue
                state = path.stat()
            except FileNotFoundError:  # gone, or a link to nothing
                continue
            except (OSError, RuntimeError):  # a loop of links is a RuntimeError to pathlib
                left += 1
                continue
            if stat.S_ISREG(state.st_mode):
                location = name if above == "." else f"{above}/{name}"
                found.append(FoundFile(path, location, state.st_size, state.st_mtime_ns))
    said = f"{left} entries are left out: loops of links, or names that are not UTF-8."
    return sorted(found, key=lambda file: file.location), said if left else ""


def _is_utf8(name: str) -> bool:
    return storable(name) == name


class DocumentCache:
    """Documents by the hash of their content, one JSON file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[tuple[str, int, int], str] = {}

    def read(self, files: list[FoundFile], on_progress: OnProgress | None) -> list[ReadFile]:
        """What each file says; only content not seen before is really read, some files ahead."""
        ahead: deque[_Batch] = deque()
        left, read = iter(files), list[ReadFile]()
        while len(ahead) < AHEAD and (batch := self._batch(left)).files:
            ahead.append(batch)
        while ahead:
            batch = ahead.popleft()
            if (after := self._batch(left)).files:
                ahead.append(after)
            replies = iter(batch.reading.result() if batch.reading else ())
            for file, known in batch.files:
                if on_progress:
                    on_progress(len(read), len(files), f"reading {file.location}")
                read.append(
                    known if isinstance(known, ReadFile) else self._kept(file, next(replies))
                )
        used = {file.digest for file in read}
        for path in self._folder.glob("*.json"):
            if path.stem not in used:
                path.unlink(missing_ok=True)
        return read

    def _batch(self, files: Iterator[FoundFile]) -> "_Batch":
        """The next files, and the reading of those that are not known."""
        found: list[tuple[FoundFile, ReadFile | None]] = []
        jobs: list[Job] = []
        size = 0
        for file in islice(files, BATCH_FILES):
            found.append((file, known := self._known(file)))
            if known is None:
                size += file.size
                jobs.append(_job(file))
            if size > BATCH_BYTES:
                break
        return _Batch(found, readers().submit(jobs) if jobs else None)

    def _known(self, file: FoundFile) -> ReadFile | None:
        """What is known of a file without reading it."""
        if file.size > MOST_BYTES:
            too_large = f"{file.location} is larger than {MOST_BYTES // 1_000_000} MB. Split it."
            return ReadFile(file.location, f"large-{file.size}", None, too_large)
        try:
            digest = self._digest(file)
        except OSError as cause:
            said = f"{file.location} could not be opened: {cause.strerror}."
            return ReadFile(file.location, "unreadable", None, said)
        with suppress(OSError, ValueError, KeyError, TypeError):
            return _read_file(file, digest, (self._folder / f"{digest}.json").read_bytes())
        return None

    def _kept(self, file: FoundFile, reply: Reply) -> ReadFile:
        """What was read of a file, written down for the next time."""
        digest = self._digest(file)
        if isinstance(reply, SourceError):
            # Not cached: the remedy may lie outside the file, such as a missing library.
            return ReadFile(file.location, digest, None, f"{file.location}: {reply.told()}")
        # Not synced, as write_atomically would: what is lost is read again.
        with writable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("wb", dir=self._folder, delete=False) as kept:
                kept.write(reply)
            os.replace(kept.name, self._folder / f"{digest}.json")
        return _read_file(file, digest, reply)

    def _digest(self, file: FoundFile) -> str:
        state = (file.location, file.size, file.changed)
        if state not in self._digests:
            suffix = file.path.suffix.lower().removeprefix(".")
            self._digests[state] = f"{hash_of(file.path)[:40]}-{suffix}-{READERS_VERSION}"
        return self._digests[state]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files with what is known of each, and the reading of the others in their order."""

    files: list[tuple[FoundFile, ReadFile | None]]
    reading: Future[list[Reply]] | None


def _job(file: FoundFile) -> Job:
    """Time and memory in proportion to the file: it is the user's own."""
    megabytes = file.size // 1_000_000
    return Job(
        "document",
        file.path.name,
        {"path": os.path.abspath(file.path)},
        seconds=SECONDS + megabytes // 2,
        megabytes=MEGABYTES + 4 * megabytes,
        remedy="Split it, or take it out.",
    )


def _read_file(file: FoundFile, digest: str, told: bytes) -> ReadFile:
    known = json.loads(told)
    sections = tuple(Section(**section) for section in known["sections"])
    note = f"{file.location} is {known['note']}." if known["note"] else ""
    return ReadFile(file.location, digest, Document(known["title"], sections, known["note"]), note)


class Folder(Indexed):
    """Passages of the documents under one folder."""

    name = "folder"

    def __init__(
        self,
        path: Path,
        cache_dir: Path,
        embedder: Embedder | None = None,
        on_progress: OnProgress | None = None,
        patience: float = PATIENCE,
        look_again: float = 5.0,
    ) -> None:
        """`look_again` is for how many seconds the folder is taken to be as it was."""
        own = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
        super().__init__(cache_dir / f"folder-{own}", embedder, on_progress, patience)
        self._look_again = look_again
        self._root = path
        self._documents = DocumentCache(self._cache_dir / "documents")
        self._files: list[FoundFile] = []
        self._looked = 0.0

    def _is_stale(self) -> bool:
        return time.monotonic() - self._looked > self._look_again

    def _open(self) -> LexicalIndex | HybridIndex:
        if not self._root.is_dir():
            raise SourceError(f"There is no folder {self._root}.", "Name an existing folder.")
        files, left = found_files(self._root)
        if self._index is None or files != self._files:
            read = self._documents.read(files, self._on_progress)
            self.problems = tuple(filter(None, (left, *(file.problem for file in read))))
            self._index = self._with_vectors(self._lexical(read))
            self._files = files
        self._looked = time.monotonic()
        return self._index

    def _lexical(self, files: list[ReadFile]) -> LexicalIndex:
        states = "\n".join(f"{f.location}\t{f.digest}\t{f.document is None}" for f in files)
        key = hashlib.sha256(states.encode()).hexdigest()
        index = open_index(self._cache_dir, "passages", key)
        if index is not None:
            return index
        passages = [
            Passage(file.document.title, file.location, section.heading, section.text)
            for file in files
            if file.document is not None
            for section in file.document.sections
        ]
        if passages:
            return build_index(passages, self._cache_dir, "passages", key, pages=True)
        if files:
            remedy = " ".join(self.problems[:3]) or "Its documents are empty."
            raise SourceError(
                f"None of the {len(files)} documents in {self._root} has text.", remedy
            )
        kinds = ", ".join(sorted(suffix.removeprefix(".") for suffix in READERS))
        remedy = f"Put documents in it ({kinds}), or name another folder."
        raise SourceError(f"The folder {self._root} has no documents.", remedy)
