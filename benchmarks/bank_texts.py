"""Questions of a bank and their vectors, as many as are wanted, from few that are real.

Texts are the first sentences of the standard library's documentation, each with the name that it
documents; their vectors are really embedded, once, and kept in a file. Where more items are
wanted than there are texts, a text comes again as another case of itself, with seeded noise of
length `NOISE` on its unit vector: cosine 0.89 to the text itself and 0.80 among its cases, as far
apart as questions on one thing and not yet the same question (0.95).
"""

import hashlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rubricem.agent.sources.python import library_passages
from rubricem.memory.language import sentences
from rubricem.memory.schema import Embedder

SEED = 20260806
NOISE = 0.5
_LEAST_WORDS, _CHARACTERS = 5, 200
_BATCH = 500
Vectors = NDArray[np.float32]


def library_texts(count: int) -> list[str]:
    """So many distinct texts of the standard library, or all there are, in a seeded order."""
    found: dict[str, None] = {}
    for passage in library_passages():
        said = next((s for s in sentences(passage.text) if len(s.split()) >= _LEAST_WORDS), "")
        if said:
            found[f"{passage.place}: {' '.join(said.split())[:_CHARACTERS]}"] = None
    texts = list(found)
    random.Random(SEED).shuffle(texts)
    return texts[:count]


def embed(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """(n, d) unit rows; from the file that an earlier run left for these texts, if there is one."""
    key = hashlib.sha256("\0".join([embedder.name, *texts]).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"rubricem-bank-texts-{key}.npy"
    if path.exists():
        kept: Vectors = np.load(path)
        return kept
    parts = []
    for start in range(0, len(texts), _BATCH):
        parts.append(embedder.embed(texts[start : start + _BATCH]))
        print(f"embedded {min(start + _BATCH, len(texts))} of {len(texts)} texts", flush=True)
    vectors: Vectors = np.concatenate(parts)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npy", delete=False) as file:
        np.save(file, vectors)
    Path(file.name).replace(path)
    return vectors


def multiply(texts: Sequence[str], vectors: Vectors, count: int) -> tuple[list[str], Vectors]:
    """`count` texts and their (count, d) unit vectors; the first ones are as they were given."""
    rng = np.random.default_rng(SEED)
    rounds = [i // len(texts) for i in range(count)]
    rows = [i % len(texts) for i in range(count)]
    noise = rng.standard_normal((count, vectors.shape[1]), dtype=np.float32)
    noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    noise[: len(texts)] = 0
    moved = vectors[rows] + noise
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    named = [
        texts[row] if turn == 0 else f"{texts[row]} (case {turn})"
        for row, turn in zip(rows, rounds, strict=True)
    ]
    return named, moved


def exact_nearest(vectors: Vectors, query: Vectors, k: int) -> list[int]:
    """Rows of the k largest inner products with the query, the largest first."""
    near = vectors @ query
    top = np.argpartition(-near, k - 1)[:k] if k < len(near) else np.arange(len(near))
    return [int(row) for row in top[np.argsort(-near[top], kind="stable")]]


def recall_at(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> float:
    """Share of the exact neighbours that were found, over all queries."""
    hits = sum(len(set(one) & set(other)) for one, other in zip(found, exact, strict=True))
    return hits / sum(map(len, exact))
