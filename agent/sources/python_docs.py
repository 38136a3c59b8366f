"""The documentation of the Python libraries installed here, as a source of passages.

The index is built on the first search, kept in the data directory, and built again when a
distribution is installed, removed or changes its version. Of two passages that match equally
well, the one from the standard library comes first: a bare `lru_cache` is the one of
functools.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution
from pathlib import Path

from agent.sources.distributions import distribution_passages, fingerprint, installed
from agent.sources.hybrid import HybridIndex, with_vectors
from agent.sources.lexical import LexicalIndex, build_index, open_index
from agent.sources.passages import OnProgress
from agent.sources.query import read_query
from agent.sources.stdlib_docs import library_passages
from memory.errors import SourceError, boundary
from memory.interfaces import Embedder, Passage

DOCS_VERSION = 1
"""Part of the index's key: raise it when other passages are made of the same libraries."""
_OUTSIDE_WEIGHT = 0.85


class PythonDocs:
    """Passages from docstrings, signatures, READMEs and the language reference."""

    def __init__(
        self,
        cache_dir: Path,
        embedder: Embedder | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """With an embedder, search is hybrid; without one it is lexical."""
        self._cache_dir = cache_dir
        self._embedder = embedder
        self._on_progress = on_progress
        self._index: LexicalIndex | HybridIndex | None = None
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        return "python"

    async def search(self, query: str, limit: int) -> list[Passage]:
        index = await self._ready()
        return await asyncio.to_thread(index.search, read_query(query).text, limit)

    async def prepare(self) -> tuple[str, ...]:
        """Open the index, building it where there is none; there is nothing to complain of."""
        await self._ready()
        return ()

    async def _ready(self) -> LexicalIndex | HybridIndex:
        async with self._opening:
            if self._index is None:
                self._index = await asyncio.to_thread(self._open)
            return self._index

    def _open(self) -> LexicalIndex | HybridIndex:
        with boundary(SourceError, "Reading the documentation of the installed libraries"):
            found = installed()
            key = fingerprint(found)
            name = f"python-{DOCS_VERSION}"
            index = open_index(self._cache_dir, name, key)
            if index is None:
                passages = collect(found, self._on_progress)
                index = build_index(passages, self._cache_dir, name, key, _weight)
            if self._embedder is None:
                return index
            return with_vectors(index, self._embedder, self._cache_dir, self._on_progress)


def collect(found: list[Distribution], on_progress: OnProgress | None = None) -> list[Passage]:
    """All passages of the standard library and of the distributions."""
    with _collector_paused():
        passages: list[Passage] = []
        for done, distribution in enumerate([None, *found]):
            if on_progress:
                what = distribution.name if distribution else "the standard library"
                on_progress(done, len(found) + 1, f"reading {what}")
            read = distribution_passages(distribution) if distribution else library_passages()
            passages += read
    return passages


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Syntax trees hold no cycles, but make the collector run all the time (a fifth of it)."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _weight(passage: Passage) -> float:
    own = passage.location.startswith(("lib/python", "python:"))
    return 1.0 if own else _OUTSIDE_WEIGHT
