"""Hybrid retrieval: BM25 and embeddings, fused by reciprocal rank.

The vectors of an index are one float32 matrix (n, d) of unit rows, searched exactly: a product
of matrix and vector. Each vector is cached on disk by the hash of its passage, so that only
new passages are embedded when an index changes, and an interrupted embedding goes on where
it stopped. Fusion: sum of 1 / (60 + rank), Cormack et al., SIGIR 2009.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent.sources.lexical import LexicalIndex, Ranking, best, matched_text
from agent.sources.passages import OnProgress, without_near_duplicates
from memory.errors import StoreError
from memory.interfaces import Embedder, Passage

_RANK_OFFSET = 60
_RANKED = 100
"""Rows taken from each ranking."""
_SHARD = 2048
"""Vectors written to disk at once."""

Vectors = NDArray[np.float32]
HASH = np.dtype("S40")


class HybridIndex:
    """BM25 and cosine over the same passages."""

    def __init__(self, lexical: LexicalIndex, vectors: Vectors, embedder: Embedder) -> None:
        self._lexical = lexical
        self._vectors = vectors
        self._embedder = embedder

    def search(self, query: str, limit: int) -> list[Passage]:
        return self.search_with(query, self._embedder.embed([query], query=True)[0], limit)

    def search_with(self, query: str, vector: Vectors, limit: int) -> list[Passage]:
        """Search with the question's unit vector (d,) already at hand."""
        if not len(self._vectors):
            return []
        wanted = max(_RANKED, limit)
        # Half the time of `@` here: one pass in order, and no threads to wait for on a busy
        # machine (100,000 x 384 on two cores: 7 ms against 16).
        cosines = np.einsum("nd,d->n", self._vectors, vector)
        nearest = best(cosines, wanted)
        fused = fuse(self._lexical.rank(query, wanted), nearest)
        rows = (self._lexical.passages[row] for row, _ in fused)
        return without_near_duplicates(rows, limit)


def fuse(*rankings: Ranking) -> Ranking:
    """One ranking of all rows; a row gains 1 / (60 + rank) from each ranking it is in."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, 1):
            scores[row] = scores.get(row, 0.0) + 1 / (_RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def with_vectors(
    lexical: LexicalIndex, embedder: Embedder, cache_dir: Path, on_progress: OnProgress | None
) -> HybridIndex:
    """Embed what of the index is not embedded yet, and open both as one."""
    name = re.sub(r"[^\w.-]", "_", embedder.name)
    store = VectorStore(cache_dir / f"vectors-{name}")
    texts = [matched_text(passage) for passage in lexical.passages]
    return HybridIndex(lexical, store.vectors(texts, embedder, on_progress), embedder)


class VectorStore:
    """Vectors by the hash of their text, in shards that are written once and never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def vectors(
        self, texts: Sequence[str], embedder: Embedder, on_progress: OnProgress | None = None
    ) -> Vectors:
        """(n, d), row i for texts[i]; embeds and keeps those that are missing."""
        hashes = [text_hash(text) for text in texts]
        missing = dict(zip(hashes, texts, strict=True))
        for found, _ in self._shards():
            for known in found.tolist():
                missing.pop(known, None)
        self._embed(missing, embedder, on_progress)
        return self._gather(hashes)

    def _shards(self) -> Iterator[tuple[NDArray[np.bytes_], Vectors]]:
        for path in sorted(self._folder.glob("*.npz")):
            try:
                with np.load(path) as shard:
                    yield shard["hashes"], shard["vectors"]
            except (OSError, ValueError, KeyError):
                path.unlink(missing_ok=True)

    def _embed(
        self, missing: dict[bytes, str], embedder: Embedder, on_progress: OnProgress | None
    ) -> None:
        hashes, texts = list(missing), list(missing.values())
        for start in range(0, len(texts), _SHARD):
            if on_progress:
                on_progress(start, len(texts), "embedding passages")
            vectors = embedder.embed(texts[start : start + _SHARD])
            self._write(hashes[start : start + _SHARD], vectors)

    def _write(self, hashes: list[bytes], vectors: Vectors) -> None:
        name = hashlib.sha256(b"".join(hashes)).hexdigest()[:24]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                np.savez(file, hashes=np.array(hashes, dtype=HASH), vectors=vectors)
            os.replace(file.name, self._folder / f"{name}.npz")
        except OSError as cause:
            raise StoreError(
                f"Vectors could not be written to {self._folder}: {cause.strerror}.",
                "Choose a data directory that you can write to, with room left on its disk.",
            ) from cause

    def _gather(self, hashes: Sequence[bytes]) -> Vectors:
        rows: dict[bytes, list[int]] = {}
        for row, known in enumerate(hashes):
            rows.setdefault(known, []).append(row)
        matrix: Vectors = np.empty((0, 0), dtype=np.float32)
        for found, vectors in self._shards():
            if not matrix.size:
                matrix = np.zeros((len(hashes), vectors.shape[1]), dtype=np.float32)
            for known, vector in zip(found.tolist(), vectors, strict=True):
                matrix[rows.get(known, [])] = vector
        return matrix


def text_hash(text: str) -> bytes:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()
