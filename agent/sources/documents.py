"""The documents of a folder: which files there are, and what each one says.

What a file says is cached by the hash of its content, so that a folder is read again only
where it changed. A file that cannot be read is a problem kept beside the others, with the
remedy; it never stops the rest.

A folder of documents as a source of passages: md, txt, rst, html, pdf and docx.

The folder is indexed by the first search and looked at again by later ones: where a file was
added, changed or removed, what changed is read and the index is made anew.
"""

import asyncio
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rubricem.agent.sources.index import (
    HybridIndex,
    LexicalIndex,
    OnProgress,
    build_index,
    open_index,
    split_passages,
    with_vectors,
)
from rubricem.agent.sources.readers import READERS, Document, Section, read_document
from rubricem.agent.sources.web import read_query
from rubricem.memory.errors import SourceError, StoreError
from rubricem.memory.interfaces import Embedder, Passage

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
            problem = f"{file.location}: {error.told()}"
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


class Folder:
    """Passages of the documents under one folder."""

    def __init__(
        self,
        path: Path,
        cache_dir: Path,
        embedder: Embedder | None = None,
        on_progress: OnProgress | None = None,
        look_again: float = 5.0,
    ) -> None:
        """With an embedder, search is hybrid; without one it is lexical.

        `look_again` is for how many seconds the folder is taken to be as it was.
        """
        self._look_again = look_again
        self._root = path
        self._embedder = embedder
        self._on_progress = on_progress
        own = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
        self._cache_dir = cache_dir / f"folder-{own}"
        self._documents = DocumentCache(self._cache_dir / "documents")
        self._files: list[FoundFile] = []
        self._index: LexicalIndex | HybridIndex | None = None
        self._looked = 0.0
        self._opening = asyncio.Lock()
        self.problems: tuple[str, ...] = ()
        """what could not be read, or had to be guessed at, as of the last search"""

    @property
    def name(self) -> str:
        return "folder"

    async def search(self, query: str, limit: int) -> list[Passage]:
        index = await self._ready()
        return await asyncio.to_thread(index.search, read_query(query).text, limit)

    async def prepare(self) -> tuple[str, ...]:
        """Bring the index up to date with the folder; returns `problems`."""
        await self._ready()
        return self.problems

    async def _ready(self) -> LexicalIndex | HybridIndex:
        async with self._opening:
            if self._index is None or time.monotonic() - self._looked > self._look_again:
                self._index = await asyncio.to_thread(self._refreshed)
                self._looked = time.monotonic()
            return self._index

    def _refreshed(self) -> LexicalIndex | HybridIndex:
        if not self._root.is_dir():
            raise SourceError(f"There is no folder {self._root}.", "Name an existing folder.")
        files = found_files(self._root)
        if self._index is not None and files == self._files:
            return self._index
        index = self._indexed(self._read(files))
        self._files = files
        if self._embedder is None:
            return index
        return with_vectors(index, self._embedder, self._cache_dir, self._on_progress)

    def _read(self, files: list[FoundFile]) -> list[ReadFile]:
        try:
            read = self._documents.read(files, self._on_progress)
        except OSError as cause:
            raise StoreError(
                f"Documents could not be kept in {self._cache_dir}: {cause.strerror}.",
                "Choose a data directory that you can write to, with room left on its disk.",
            ) from cause
        self.problems = tuple(problem for file in read if (problem := _problem(file)))
        return read

    def _indexed(self, files: list[ReadFile]) -> LexicalIndex:
        states = "\n".join(f"{f.location}\t{f.digest}\t{f.document is None}" for f in files)
        key = hashlib.sha256(states.encode()).hexdigest()
        index = open_index(self._cache_dir, "passages", key)
        if index is None:
            passages = [passage for file in files for passage in file_passages(file)]
            if not passages:
                raise self._empty(len(files))
            index = build_index(passages, self._cache_dir, "passages", key)
        return index

    def _empty(self, files: int) -> SourceError:
        kinds = ", ".join(sorted(suffix.removeprefix(".") for suffix in READERS))
        if not files:
            remedy = f"Put documents in it ({kinds}), or name another folder."
            return SourceError(f"The folder {self._root} has no documents.", remedy)
        remedy = " ".join(self.problems[:3]) or "Its documents are empty."
        return SourceError(f"None of the {files} documents in {self._root} has text.", remedy)


def _problem(file: ReadFile) -> str:
    if file.document is None:
        return file.problem
    return f"{file.location} is {file.document.note}." if file.document.note else ""
