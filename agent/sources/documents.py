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
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rubricem.agent.sources.index import (
    PATIENCE,
    HybridIndex,
    Indexed,
    LexicalIndex,
    OnProgress,
    build_index,
    open_index,
    split_passages,
)
from rubricem.agent.sources.readers import READERS, Document, Section
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import hash_of, writable
from rubricem.memory.schema import Embedder, Passage

READERS_VERSION = 2
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
    """What a file's content came to: a document, and what was the matter with it, if anything."""

    location: str
    digest: str
    document: Document | None
    problem: str = ""


def found_files(root: Path) -> list[FoundFile]:
    """Readable kinds of files under `root`, by path; not hidden ones, nor links out of it."""
    inside, found = root.resolve(), []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        above = Path(folder).relative_to(root).as_posix()
        for name in names:
            if name.startswith(".") or os.path.splitext(name)[1].lower() not in READERS:
                continue
            path = Path(folder, name)
            # Links to folders are not followed; to resolve every path took two thirds of the time.
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            with suppress(OSError):  # gone, or a link to nothing
                state = path.stat()
                if stat.S_ISREG(state.st_mode):
                    location = name if above == "." else f"{above}/{name}"
                    found.append(FoundFile(path, location, state.st_size, state.st_mtime_ns))
    return sorted(found, key=lambda file: file.location)


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
        used = {file.digest for file in read}
        for path in self._folder.glob("*.json"):
            if path.stem not in used:
                path.unlink(missing_ok=True)
        return read

    def _read(self, file: FoundFile) -> ReadFile:
        def problem(digest: str, said: str) -> ReadFile:
            return ReadFile(file.location, digest, None, f"{file.location}{said}")

        if file.size > MOST_BYTES:
            too_large = f" is larger than {MOST_BYTES // 1_000_000} MB. Split it."
            return problem(f"large-{file.size}", too_large)
        try:
            digest = self._digest(file)
        except OSError as cause:
            return problem("unreadable", f" could not be opened: {cause.strerror}.")
        document: Document | None = None
        kept_in = self._folder / f"{digest}.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(kept_in.read_text("utf-8"))
            sections = tuple(Section(**section) for section in known["sections"])
            document = Document(known["title"], sections, known["note"])
        if document is None:
            try:
                document = Document.read(file.path)
            except SourceError as error:
                # Not cached: the remedy may lie outside the file, such as a missing library.
                return problem(digest, f": {error.told()}")
            # Not synced, as write_atomically would: what is lost is read again.
            with writable(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as kept:
                    json.dump(asdict(document), kept)
                os.replace(kept.name, kept_in)
        note = f"{file.location} is {document.note}." if document.note else ""
        return ReadFile(file.location, digest, document, note)

    def _digest(self, file: FoundFile) -> str:
        state = (file.location, file.size, file.changed)
        if state not in self._digests:
            suffix = file.path.suffix.lower().removeprefix(".")
            self._digests[state] = f"{hash_of(file.path)[:40]}-{suffix}-{READERS_VERSION}"
        return self._digests[state]


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
        files = found_files(self._root)
        if self._index is None or files != self._files:
            read = self._documents.read(files, self._on_progress)
            self.problems = tuple(file.problem for file in read if file.problem)
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
            Passage(file.document.title, file.location, section.heading, piece)
            for file in files
            if file.document is not None
            for section in file.document.sections
            for piece in split_passages(section.text)
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
