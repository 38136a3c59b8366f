from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent.sources.hybrid import VectorStore, fuse, with_vectors
from agent.sources.lexical import build_index
from memory.interfaces import Passage

PASSAGES = [
    Passage("Cars", "a.md", "", "An automobile needs fuel."),
    Passage("Ships", "b.md", "", "A ship needs water."),
    Passage("Birds", "c.md", "", "A bird needs air."),
]


class TopicEmbedder:
    """One axis for each topic, whatever word names it; counts what it embeds."""

    name = "topics/v1"
    axes = (("automobile", "car"), ("ship", "boat"), ("bird", "sparrow"))

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self.embedded += texts
        rows = [[float(any(w in t.lower() for w in axis)) for axis in self.axes] for t in texts]
        return np.array(rows, dtype=np.float32)


def test_fusion_by_hand() -> None:
    fused = fuse([(7, 9.0), (8, 1.0)], [(8, 0.5)])
    assert fused == [(8, 1 / 62 + 1 / 61), (7, 1 / 61)]


def test_meaning_finds_what_words_do_not(tmp_path: Path) -> None:
    lexical = build_index(PASSAGES, tmp_path, "t", "a")
    assert lexical.search("sparrow", 1) == []
    hybrid = with_vectors(lexical, TopicEmbedder(), tmp_path, None)
    assert hybrid.search("sparrow", 1) == [PASSAGES[2]]


def test_words_still_count(tmp_path: Path) -> None:
    hybrid = with_vectors(
        build_index(PASSAGES, tmp_path, "t", "a"), TopicEmbedder(), tmp_path, None
    )
    assert hybrid.search("fuel", 1) == [PASSAGES[0]]


def test_only_new_texts_are_embedded(tmp_path: Path) -> None:
    embedder = TopicEmbedder()
    store = VectorStore(tmp_path)
    store.vectors(["a car", "a boat"], embedder)
    vectors = store.vectors(["a bird", "a car", "a car"], embedder)
    assert embedder.embedded == ["a car", "a boat", "a bird"]
    np.testing.assert_array_equal(vectors, [[0, 0, 1], [1, 0, 0], [1, 0, 0]])


def test_damaged_vectors_are_made_again(tmp_path: Path) -> None:
    embedder = TopicEmbedder()
    VectorStore(tmp_path).vectors(["a car"], embedder)
    next(tmp_path.glob("*.npz")).write_bytes(b"PK not an archive")
    vectors = VectorStore(tmp_path).vectors(["a car"], embedder)
    np.testing.assert_array_equal(vectors, [[1, 0, 0]])


def test_embedding_tells_how_far_it_is(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    VectorStore(tmp_path).vectors(["a car"], TopicEmbedder(), lambda *step: seen.append(step))
    assert seen == [(0, 1, "embedding passages")]
