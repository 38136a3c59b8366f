"""The bank's index: a vector for each question, in Chroma, derived from the bank's SQLite file.

It is a persistent Chroma in a folder. A mark in the SQLite file says where, of which embedder, and
how many of the bank's changes it has followed: whoever is behind compares its ids with the bank's
and adds or deletes what differs. It is built again if it is missing, damaged, of another embedder,
or if a process died while writing it. Chroma does not show an open client what another process
wrote, so a process that finds another mark opens it again. Processes take turns by a lock.

It knows nothing of generations: it is asked for more than is wanted, the SQLite file says which of
those count, and if too few are left it is asked for more. Similarity is the inner product of unit
vectors: the cosine, in [-1, 1]. Of two reflections on the same question in other words the farther
one is not recalled.
"""

import shutil
import sys
import threading
import uuid
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rubricem.memory.bank.store import BankStore, IndexMark
from rubricem.memory.bank.tables import question_key
from rubricem.memory.embedder import MEANING
from rubricem.memory.errors import RubricemError, StoreError, import_extra
from rubricem.memory.runs import folder_locked, writable
from rubricem.memory.schema import Embedder, Reflection

HNSW: dict[str, str | int] = {
    "space": "ip",
    "max_neighbors": 16,
    "ef_construction": 200,
    "ef_search": 300,
    "sync_threshold": 100,
    "batch_size": 100,
}
"""With 100,000 items ef_search 300 found all of the two exact nearest, in 1.5 ms."""
SAME = 0.95
"""similarity from which two questions are the same in nearly the same words"""
_BATCH = 256
"""questions embedded and added at once"""
_FETCHED = 16
"""least number of candidates that the index is asked for"""
_WIDER = 4
"""factor on it if too few of them count"""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Match:
    """A reflection found by meaning; similarity is a cosine in [-1, 1]."""

    reflection: Reflection
    similarity: float


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A question by its key, its similarity to the query, its unit vector."""

    key: str
    similarity: float
    vector: Vector


class _OpenChroma:
    """What a process has open at one place; Chroma itself shares clients by their path."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.mark = IndexMark()
        self.client: Any = None
        self.collection: Any = None

    def close(self) -> None:
        client, self.client, self.collection = self.client, None, None
        self.mark = IndexMark()
        if client is None:
            return
        client.close()

    def __del__(self) -> None:
        # At the end of the program Chroma's own modules are gone already.
        if not sys.is_finalizing():
            self.close()


_OPEN: WeakValueDictionary[str, _OpenChroma] = WeakValueDictionary()
_OPENING = threading.Lock()


class BankIndex:
    """Searches one bank with one embedder. Blocking: call it from a worker thread.

    Raises StoreError if the vectors cannot be read, and whatever the embedder raises.
    """

    def __init__(self, store: BankStore, embedder: Embedder) -> None:
        self.embedder = embedder
        self._store = store
        self._folder = store.folder / "index"
        with _OPENING:
            self._open = _OPEN.setdefault(str(store.folder.resolve()), _OpenChroma())

    def nearest(self, text: str, k: int, floor: float, generation: int) -> list[Match]:
        """The k nearest reflections that counted at a generation."""
        vector = self.embedder.embed([text], query=True)[0]
        near, live = self._counting(vector, k, floor, generation, "")
        return [Match(live[n.key], n.similarity) for n in near[:k]]

    def diverse(
        self, question: str, k: int, floor: float, generation: int, own: bool
    ) -> list[Match]:
        """At most k on other questions, no two of them about the same one.

        `own`: the question's own reflection comes before them.
        """
        vector = self.embedder.embed([question], query=True)[0]
        near, live = self._counting(vector, _FETCHED, floor, generation, question_key(question))
        taken = [self.embedder.embed([question])[0]] if own else []
        chosen = list[Match]()
        for n in near:
            if len(chosen) < k and all(float(n.vector @ v) < SAME for v in taken):
                chosen.append(Match(live[n.key], n.similarity))
                taken.append(n.vector)
        return chosen

    def _counting(
        self, vector: Vector, count: int, floor: float, generation: int, besides: str
    ) -> tuple[list[Near], dict[str, Reflection]]:
        """The nearest `count` questions that reach the floor, and what counts for them."""
        asked = max(count, _FETCHED)
        while True:
            found = self.near(vector, asked)
            live = self._store.live_among([n.key for n in found if n.key != besides], generation)
            near = [n for n in found if n.similarity >= floor and n.key in live]
            if len(near) >= count or len(found) < asked or found[-1].similarity < floor:
                return near[:count], live
            asked *= _WIDER

    def near(self, vector: Vector, count: int) -> list[Near]:
        """The nearest questions, the nearest first; `vector` is a unit vector (d,)."""
        with self._open.lock, folder_locked(self._store.folder):
            for again in (True, False):
                try:
                    return _query(self._follow(), vector, count)
                except RubricemError:
                    raise
                except Exception as error:
                    self._open.close()
                    if not again:
                        raise self._fault(error) from error
                    self._store.set_mark(IndexMark())
            raise AssertionError("the second try returns or raises")

    def _follow(self) -> Any:
        """The collection with every question of the bank in it."""
        mark, changes = self._store.mark(), self._store.changes()
        if self._open.collection is None or mark != self._open.mark or not self._fits(mark):
            self._open.close()
            self._reopen(mark)
        collection = self._open.collection
        if self._open.mark.changes != changes:
            self._mark(changes=-1)
            held, wanted = set(collection.get(include=[])["ids"]), self._store.keys()
            gone, new = sorted(held - wanted), sorted(wanted - held)
            for start in range(0, len(gone), _BATCH):
                collection.delete(ids=gone[start : start + _BATCH])
            for start in range(0, len(new), _BATCH):
                texts = self._store.questions(new[start : start + _BATCH])
                if texts:
                    vectors = self.embedder.embed(list(texts.values()))
                    collection.upsert(ids=list(texts), embeddings=vectors)
            self._mark(changes=changes)
        return collection

    def _reopen(self, mark: IndexMark) -> None:
        """Open what the mark says, or an empty collection in its place."""
        fits = self._fits(mark)
        place = mark.place if fits else uuid.uuid4().hex[:12]
        chromadb = import_extra("chromadb", "memory", MEANING)
        with writable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._open.client = chromadb.PersistentClient(self._folder / place, settings=_private())
        self._open.collection = self._open.client.get_or_create_collection(
            "reflections", embedding_function=None, configuration={"hnsw": HNSW}
        )
        self._open.mark = mark
        if not fits or not self._open.collection.count():
            self._open.mark = IndexMark(place=place, embedder=self.embedder.name)
            for path in self._folder.glob("*"):
                if path.name != place:
                    shutil.rmtree(path, ignore_errors=True)

    def _mark(self, changes: int) -> None:
        self._open.mark = self._open.mark.model_copy(update={"changes": changes})
        self._store.set_mark(self._open.mark)

    def _fits(self, mark: IndexMark) -> bool:
        """Whether whole vectors of this embedder are where this index is to be."""
        there = mark.place and (self._folder / mark.place).is_dir()
        return bool(there and mark.embedder == self.embedder.name and mark.changes >= 0)

    def _fault(self, error: Exception) -> StoreError:
        return StoreError(
            f"the index of the bank in {self._folder} cannot be used: {error}",
            "See that its disk is writable and not full, or use --memory off.",
        )


def _query(collection: Any, vector: Vector, count: int) -> list[Near]:
    found = collection.query(
        query_embeddings=[vector], n_results=count, include=["distances", "embeddings"]
    )
    ids, vectors = found["ids"][0], np.asarray(found["embeddings"][0])
    if len(ids) < min(count, collection.count()):
        # A graph of many equal vectors has parts that no way leads to: all are compared.
        held = collection.get(include=["embeddings"])
        ids, vectors = held["ids"], np.asarray(held["embeddings"])
    near = [Near(key, float(each @ vector), each) for key, each in zip(ids, vectors, strict=True)]
    return sorted(near, key=lambda n: (-n.similarity, n.key))[:count]


def _private() -> Any:
    """Chroma's own settings, without its telemetry.

    By default it would read the `.env` of the working directory, and a folder from elsewhere could
    send the bank's vectors to a server of its choice.
    """
    from chromadb.config import Settings

    return Settings(_env_file=None, anonymized_telemetry=False)  # type: ignore[call-arg]
