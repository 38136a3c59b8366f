"""The bank's index: the questions' embeddings in a persistent Chroma collection.

It is derived from the bank's journal and may be deleted at any time. The collection's metadata
say how far it has followed the journal (generation), the id that stands there, and whose
vectors it holds; where these do not fit it is built anew. Chroma does not show one process what
another has written to an open collection, so it is opened for each use, under a lock, and
closed again: about 20 ms.

Similarity is the inner product of unit vectors: the cosine, in [-1, 1].
"""

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memory.errors import StoreError
from memory.interfaces import Embedder
from memory.schema import Reflection

NEVER = 2**31
"""the generation in which an item that was not replaced is replaced"""
_COLLECTION = "reflections"
_BATCH = 256


@dataclass(frozen=True, slots=True)
class Entry:
    """One reflection of the journal and the generations in which it is the bank's word."""

    reflection: Reflection
    since: int
    until: int = NEVER
    """the generation that replaced it"""

    @property
    def key(self) -> str:
        return question_key(self.reflection.question)

    def shown_at(self, generation: int) -> bool:
        return self.since <= generation < self.until


def question_key(question: str) -> str:
    """SHA-256 of the question: the same words are the same question."""
    return hashlib.sha256(question.strip().encode()).hexdigest()


def entries_of(records: Sequence[Reflection]) -> list[Entry]:
    """Each record with its generations; the next record on a question replaces the one before."""
    until: dict[str, int] = {}
    entries = []
    for since in range(len(records), 0, -1):
        record = records[since - 1]
        key = question_key(record.question)
        entries.append(Entry(record, since, until.get(key, NEVER)))
        until[key] = since
    return entries[::-1]


class BankIndex:
    """Nearest questions among a bank's entries. Blocking: call it from a worker thread."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        self._folder = folder
        self._embedder = embedder

    def nearest(
        self, entries: Sequence[Entry], text: str, k: int, generation: int, besides: str = ""
    ) -> list[tuple[str, float]]:
        """Ids and similarities of the k nearest at a generation, the nearest first.

        `besides`: the key of a question that is left out. Entries are all of the journal's.
        """
        vector = self._embedder.embed([text])[0]
        where: dict[str, Any] = {
            "$and": [
                {"since": {"$lte": generation}},
                {"until": {"$gt": generation}},
                {"question": {"$ne": besides}},
            ]
        }
        with self._locked():
            try:
                return self._query(entries, vector, k, where)
            except Exception:
                # Whatever is wrong with it, it holds nothing that cannot be built again.
                shutil.rmtree(self._folder, ignore_errors=True)
            try:
                return self._query(entries, vector, k, where)
            except Exception as error:
                raise StoreError(
                    f"the index of the bank in {self._folder} cannot be used: {error}",
                    "See that its disk is writable and not full, or use --memory off.",
                ) from error

    def _query(
        self, entries: Sequence[Entry], vector: Any, k: int, where: dict[str, Any]
    ) -> list[tuple[str, float]]:
        with _client(self._held()) as client:
            collection = self._followed(client, entries)
            found = collection.query(
                query_embeddings=[vector], n_results=k, where=where, include=["distances"]
            )
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        # Chroma's distance is 1 - inner product. Equal ones stand in a fixed order.
        return sorted(((i, 1.0 - d) for i, d in pairs), key=lambda pair: (-pair[1], pair[0]))

    def _held(self) -> Path:
        """The collection's folder; one that is built anew gets a name of its own.

        Chroma remembers a folder that it failed to open for as long as the process lives.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / uuid.uuid4().hex[:12]
        return next((path for path in sorted(self._folder.iterdir()) if path.is_dir()), new)

    def _followed(self, client: Any, entries: Sequence[Entry]) -> Any:
        """The collection, brought up to the last entry."""
        collection = self._collection(client, entries)
        at = collection.metadata["generation"]
        changed = [e for e in entries if e.since > at or at < e.until <= len(entries)]
        for start in range(0, len(changed), _BATCH):
            batch = changed[start : start + _BATCH]
            collection.upsert(
                ids=[e.reflection.id for e in batch],
                embeddings=np.asarray(self._embedder.embed([e.reflection.question for e in batch])),
                metadatas=[{"since": e.since, "until": e.until, "question": e.key} for e in batch],
            )
        if at < len(entries):
            collection.modify(metadata=self._position(entries, len(entries)))
        return collection

    def _collection(self, client: Any, entries: Sequence[Entry]) -> Any:
        """The stored collection where it fits the journal, else an empty one."""
        if _COLLECTION in [stored.name for stored in client.list_collections()]:
            collection = client.get_collection(_COLLECTION, embedding_function=None)
            at = (collection.metadata or {}).get("generation", -1)
            fits = 0 <= at <= len(entries)
            if fits and collection.metadata == self._position(entries, at):
                return collection
            client.delete_collection(_COLLECTION)
        return client.create_collection(
            _COLLECTION,
            embedding_function=None,
            configuration={"hnsw": {"space": "ip"}},
            metadata=self._position(entries, 0),
        )

    def _position(self, entries: Sequence[Entry], generation: int) -> dict[str, Any]:
        last = entries[generation - 1].reflection.id if generation else ""
        return {"generation": generation, "last": last, "embedder": self._embedder.name}

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
