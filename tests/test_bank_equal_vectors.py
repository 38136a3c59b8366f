"""Questions whose vectors are equal: a graph of them may lead to a few only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.bank_chroma import Chroma
from memory.bank_folder import folder_chroma
from memory.bank_index import BankIndex
from memory.bank_store import BankStore
from memory.errors import StoreError
from tests.bank_parts import WordEmbedder, reflection


class Astray:
    """A collection whose graph leads to two of its vectors; `held` is how many it has left."""

    def __init__(self, collection: Any, held: int | None) -> None:
        self._collection = collection
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collection, name)

    def query(self, **wanted: Any) -> Any:
        return self._collection.query(**wanted | {"n_results": 2})

    def get(self, **wanted: Any) -> Any:
        if "limit" in wanted and self._held is not None:
            wanted["limit"] = max(0, self._held - wanted["offset"])
        return self._collection.get(**wanted) if wanted.get("limit", 1) else {"ids": []}


class AstrayChroma:
    """A Chroma with such a collection."""

    def __init__(self, chroma: Chroma, held: int | None = None) -> None:
        self._chroma = chroma
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chroma, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("_chroma", "_held")
        object.__setattr__(self if own else self._chroma, name, value)

    def collection(self) -> Any:
        found = self._chroma.collection()
        return Astray(found, self._held) if found is not None else None


def indexed(folder: Path, held: int | None = None) -> BankIndex:
    """A bank of twenty equal questions, and one apart."""
    store = BankStore(folder / "bank")
    for number in range(20):
        store.put(reflection(f"cache number {'x' * number}", f"r{number}"))
    store.put(reflection("heap", "apart"))
    chroma: Any = AstrayChroma(folder_chroma(store.folder / "index"), held)
    return BankIndex(store, WordEmbedder(), chroma)


def test_where_the_graph_misses_some_all_are_compared(tmp_path: Path):
    index = indexed(tmp_path)
    vector = WordEmbedder().embed(["cache"])[0]
    found = index.nearest(vector, 16)
    assert [near.number for near in found] == list(range(1, 17))
    np.testing.assert_allclose([near.similarity for near in found], 1.0, atol=1e-6)
    apart = index.nearest(vector, 30)[-1]
    assert (apart.number, round(apart.similarity, 4)) == (21, 0.0)
    np.testing.assert_allclose(apart.vector, WordEmbedder().embed(["heap"])[0], atol=1e-6)


def test_where_the_vectors_themselves_are_missing_it_is_told(tmp_path: Path):
    index = indexed(tmp_path, held=5)
    with pytest.raises(StoreError, match="it finds 5 of the bank's questions"):
        index.nearest(WordEmbedder().embed(["cache"])[0], 16)
