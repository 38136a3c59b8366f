"""The bank's index: a vector for each question, in Chroma.

It is derived from the bank's journal and may be deleted at any time. It has a vector for each
question, whatever became of the reflections on it, and no text. The collection's metadata say how
far it has followed the bank (generation), the digest of the questions up to there, and whose
vectors it holds. It stays open between queries; who is behind catches up under a lock.

Similarity is the inner product of unit vectors: the cosine, in [-1, 1].
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.bank_choice import Near
from memory.bank_chroma import Chroma
from memory.bank_store import BankStore
from memory.bank_tables import Question
from memory.errors import RubricemError, SettingsError, StoreError
from memory.interfaces import Embedder

_BATCH = 2048
"""questions that are added before the progress is written down; Chroma syncs once for each"""
_EMBEDDED = 256
"""questions that are embedded at once"""
_PROBES = 16
"""vectors that are looked at when an index is opened"""


class BankIndex:
    """Nearest questions of a bank. Blocking: call it from a worker thread.

    Raises SettingsError where the vectors are another embedder's, StoreError where they cannot
    be had, and what the embedder raises.
    """

    def __init__(self, store: BankStore, embedder: Embedder, chroma: Chroma) -> None:
        self._store = store
        self._embedder = embedder
        self._chroma = chroma

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        """The nearest questions, the nearest first; `vector` is a unit vector (d,)."""
        with self._chroma.lock:
            # Opening it again is tried before it is made again.
            for mend in (self._chroma.close, self._chroma.give_up):
                try:
                    return self._query(vector, count)
                except RubricemError:
                    raise
                except Exception:
                    mend()
            try:
                return self._query(vector, count)
            except RubricemError:
                raise
            except Exception as error:
                self._chroma.close()
                raise self._chroma.fault(error) from error

    def rebuild(self) -> None:
        """Embed every question again, by this index's embedder."""
        with self._chroma.lock, self._locked(fcntl.LOCK_EX):
            try:
                self._catch_up(self._chroma.create(self._position(0)))
            except RubricemError:
                raise
            except Exception as error:
                self._chroma.close()
                raise self._chroma.fault(error) from error

    def _query(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        if self._up_to_date():
            with self._locked(fcntl.LOCK_SH):
                if not self._chroma.stale():
                    return self._found(vector, count)
        # The first query after a writing may write, too: Chroma then takes up what was added.
        with self._locked(fcntl.LOCK_EX):
            collection = self._chroma.collection()
            if collection is not None and self._fits(collection):
                self._prove(collection)
            else:
                collection = self._chroma.create(self._position(0))
            self._catch_up(collection)
            return self._found(vector, count)

    def _found(self, vector: NDArray[np.float32], count: int) -> list[Near]:
        collection = self._chroma.collection()
        found = collection.query(
            query_embeddings=[vector], n_results=count, include=["distances", "embeddings"]
        )
        rows = zip(found["ids"][0], found["distances"][0], found["embeddings"][0], strict=True)
        # Chroma's distance is 1 - inner product. Equal ones stand in a fixed order.
        near = [Near(int(i), 1.0 - d, np.asarray(v)) for i, d, v in rows]
        if len(near) < count and len(near) < (questions := self._store.questions()):
            # A graph of many equal vectors has parts that no way leads to.
            near = self._compared(collection, vector)
            if 2 * len(near) < questions:
                raise ValueError(f"it finds {len(near)} of the bank's questions")
        return sorted(near, key=lambda n: (-n.similarity, n.number))[:count]

    def _compared(self, collection: Any, vector: NDArray[np.float32]) -> list[Near]:
        """Every question with its similarity, without the graph."""
        near: list[Near] = []
        while (batch := collection.get(limit=_BATCH, offset=len(near), include=["embeddings"]))[
            "ids"
        ]:
            vectors = np.asarray(batch["embeddings"], dtype=np.float32)
            rows = zip(batch["ids"], vectors @ vector, vectors, strict=True)
            near += [Near(int(i), float(s), v) for i, s, v in rows]
        return near

    def _up_to_date(self) -> bool:
        """Whether every question of the bank is in what is open."""
        chroma = self._chroma
        same = not chroma.stale() and chroma.embedder == self._embedder.name
        return same and chroma.at >= self._store.changed()

    def _prove(self, collection: Any) -> None:
        """See that vectors of some questions are there and whole: damaged files may say nothing."""
        numbers = self._store.some_questions(collection.metadata["generation"], _PROBES)
        if numbers:
            ids = [str(number) for number in numbers]
            held = collection.get(ids=ids, include=["embeddings"])
            lengths = np.linalg.norm(np.asarray(held["embeddings"]), axis=1)
            if len(lengths) < len(ids) or not np.allclose(lengths, 1.0, atol=0.01):
                raise ValueError("its files are damaged")
        self._chroma.proved()

    def _fits(self, collection: Any) -> bool:
        """Whether what it holds is this bank's; refused where it is not this embedder's."""
        held = collection.metadata or {}
        at = held.get("generation", -1)
        if not 0 <= at <= self._store.generation() or held.get("digest") != self._store.digest(at):
            return False
        if at and held.get("embedder") != self._embedder.name:
            # It was opened without harm: a refusal is no crash, however often it comes.
            self._chroma.proved()
            raise SettingsError(
                f"The bank was indexed by {held.get('embedder')}, not by {self._embedder.name}.",
                "Use that embedder, or have the bank embedded again: rubricem bank rebuild",
            )
        return True

    def _catch_up(self, collection: Any) -> None:
        at = collection.metadata["generation"]
        generation, new, gone = self._store.changes(at)
        if new or gone:
            self._chroma.writing(self._embedder.name)
        if gone:
            collection.delete(ids=[str(number) for number in gone])
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            self._add(collection, batch)
            collection.modify(metadata=self._position(batch[-1].number))
        if new or gone:
            collection.modify(metadata=self._position(generation))
        self._chroma.at, self._chroma.embedder = generation, self._embedder.name

    def _add(self, collection: Any, batch: Sequence[Question]) -> None:
        texts = {question.number: self._store.question(question) for question in batch}
        held = {number: text for number, text in texts.items() if text is not None}
        if held:
            collection.upsert(
                ids=[str(number) for number in held],
                embeddings=self._embedded(list(held.values())),
            )

    def _embedded(self, texts: Sequence[str]) -> NDArray[np.float32]:
        starts = range(0, len(texts), _EMBEDDED)
        return np.vstack([self._embedder.embed(texts[s : s + _EMBEDDED]) for s in starts])

    def _position(self, generation: int) -> dict[str, Any]:
        digest = self._store.digest(generation)
        return {"generation": generation, "digest": digest, "embedder": self._embedder.name}

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Among processes: one that writes, or many that read."""
        path = self._store.folder / "index.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"the bank's index in {path.parent} cannot be used: {error.strerror}",
                "Make the data directory writable, or use --memory off.",
            ) from error
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)
