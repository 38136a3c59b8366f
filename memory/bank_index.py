"""The bank's index: the questions' embeddings in a persistent Chroma collection.

It is derived from the bank's journal and may be deleted at any time. The collection's metadata
say how far it has followed the journal (generation), the digest of the questions up to there,
and whose vectors it holds. It holds a vector for each question, whatever became of the
reflections on it, and no text.

Similarity is the inner product of unit vectors: the cosine, in [-1, 1].
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from memory.bank_choice import Near
from memory.bank_store import BankStore
from memory.errors import RubricemError, SettingsError, StoreError
from memory.interfaces import Embedder
from memory.items import BankStats

_COLLECTION = "reflections"
_BATCH = 256


class BankIndex:
    """Nearest questions of a bank. Blocking: call it from a worker thread."""

    def __init__(self, store: BankStore, embedder: Embedder) -> None:
        self._store = store
        self._folder = store.folder / "index"
        self._embedder = embedder

    def nearest(self, vector: Any, count: int) -> list[Near]:
        """The nearest questions, the nearest first."""
        with self._locked():
            try:
                return self._query(vector, count)
            except RubricemError:
                raise
            except Exception:
                # Whatever is wrong with it, it holds nothing that cannot be built again.
                shutil.rmtree(self._folder, ignore_errors=True)
            try:
                return self._query(vector, count)
            except RubricemError:
                raise
            except Exception as error:
                raise StoreError(
                    f"the index of the bank in {self._folder} cannot be used: {error}",
                    "See that its disk is writable and not full, or use --memory off.",
                ) from error

    def rebuild(self) -> None:
        with self._locked():
            shutil.rmtree(self._folder, ignore_errors=True)
            with _client(self._held()) as client:
                self._followed(client)

    def _query(self, vector: Any, count: int) -> list[Near]:
        with _client(self._held()) as client:
            collection = self._followed(client)
            found = collection.query(
                query_embeddings=[vector], n_results=count, include=["distances", "embeddings"]
            )
        rows = zip(found["ids"][0], found["distances"][0], found["embeddings"][0], strict=True)
        # Chroma's distance is 1 - inner product. Equal ones stand in a fixed order.
        near = [Near(int(i), 1.0 - d, np.asarray(v)) for i, d, v in rows]
        return sorted(near, key=lambda n: (-n.similarity, n.number))

    def _held(self) -> Path:
        """The collection's folder; one that is built anew gets a name of its own.

        Chroma remembers a folder that it failed to open for as long as the process lives.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / uuid.uuid4().hex[:12]
        return next((path for path in sorted(self._folder.iterdir()) if path.is_dir()), new)

    def _followed(self, client: Any) -> Any:
        """The collection, brought up to the last question."""
        with self._store.lock:
            generation = self._store.generation()
            collection = self._collection(client, generation)
            at = collection.metadata["generation"]
            new = self._store.catalogue.questions_after(at)
            gone = self._store.catalogue.gone_after(at)
            for start in range(0, len(new), _BATCH):
                batch = [(q, self._store.question(q)) for q in new[start : start + _BATCH]]
                collection.upsert(
                    ids=[str(q.number) for q, text in batch if text is not None],
                    embeddings=np.asarray(self._embedder.embed([t for _, t in batch if t])),
                )
            if gone:
                collection.delete(ids=[str(number) for number in gone])
            if at < generation:
                collection.modify(metadata=self._position(generation))
        return collection

    def _collection(self, client: Any, generation: int) -> Any:
        """The stored collection where it fits the journal, else an empty one."""
        if _COLLECTION in [stored.name for stored in client.list_collections()]:
            collection = client.get_collection(_COLLECTION, embedding_function=None)
            held = collection.metadata or {}
            at = held.get("generation", -1)
            if 0 <= at <= generation and held.get("digest") == self._store.catalogue.digest(at):
                if at and held.get("embedder") != self._embedder.name:
                    raise SettingsError(
                        f"The bank was indexed by {held.get('embedder')}, not by "
                        f"{self._embedder.name}.",
                        "Use that embedder, or have the bank embedded again: rubricem bank rebuild",
                    )
                return collection
            client.delete_collection(_COLLECTION)
        return client.create_collection(
            _COLLECTION,
            embedding_function=None,
            configuration={"hnsw": {"space": "ip"}},
            metadata=self._position(0),
        )

    def _position(self, generation: int) -> dict[str, Any]:
        digest = self._store.catalogue.digest(generation)
        return {"generation": generation, "digest": digest, "embedder": self._embedder.name}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._folder.with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"the bank's index in {path.parent} cannot be used: {error.strerror}",
                "Make the data directory writable, or use --memory off.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def stats_of(store: BankStore) -> BankStats:
    """The bank in numbers; loads no model and no Chroma."""
    folder = store.folder / "index"
    with store.lock:
        generation, journal_bytes = store.catalogue.position()
        return BankStats(
            generation=generation,
            **store.catalogue.counts(),
            uses=store.uses.count(),
            embedder="",
            journal_bytes=journal_bytes,
            index_bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        )


@contextmanager
def _client(folder: Path) -> Iterator[Any]:
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    client: Any = chromadb.PersistentClient(folder, settings=settings)
    try:
        yield client
    finally:
        client.close()
