"""A folder of documents as a source of passages: md, txt, rst, html, pdf and docx.

The folder is indexed by the first search and looked at again by later ones: where a file was
added, changed or removed, what changed is read and the index is made anew.
"""

import asyncio
import hashlib
import time
from pathlib import Path

from agent.sources.documents import DocumentCache, FoundFile, ReadFile, file_passages, found_files
from agent.sources.hybrid import HybridIndex, with_vectors
from agent.sources.lexical import LexicalIndex, build_index, open_index
from agent.sources.passages import OnProgress
from agent.sources.query import read_query
from agent.sources.readers import READERS
from memory.errors import SourceError, StoreError
from memory.interfaces import Embedder, Passage


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
