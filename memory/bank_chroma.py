"""What the bank's index asks of Chroma, be it in a folder or on a server."""

import threading
from typing import Any, Protocol

from memory.errors import StoreError

HNSW: dict[str, str | int] = {
    "space": "ip",
    "max_neighbors": 16,
    "ef_construction": 200,
    "ef_search": 300,
    "sync_threshold": 100,
    "batch_size": 100,
}
"""Measured with 100,000 items (4,000 MiniLM vectors, the others within noise of them), 200 further
questions and an ef_construction of 100: of the two exact nearest, ef_search 100 found 0.988, 200
0.995 and 300 all, in 1.0, 1.1 and 1.5 ms; of the 16 nearest 0.983, 0.991 and 0.998. What was not
synced is added to the graph again by whoever opens it, at 0.5 ms each: with Chroma's threshold of
1,000 the first query took 0.7 s of a processor, without any 0.25 s.
"""


class Chroma(Protocol):
    """One collection, kept open between uses. For one thread at a time, which holds `lock`."""

    lock: threading.RLock
    at: int
    """the generation up to which what is open has followed the bank; -1: not known"""
    embedder: str
    """whose vectors are in what is open; "": not known"""

    def stale(self) -> bool:
        """Whether it is not open, or another process has written since it was opened."""
        ...

    def collection(self) -> Any:
        """The collection, opened where it is stale; None where there is none."""
        ...

    def proved(self) -> None:
        """To be called when what was opened was read without harm."""
        ...

    def create(self, metadata: dict[str, Any]) -> Any:
        """An empty collection in the place of what there is."""
        ...

    def writing(self, embedder: str) -> None:
        """To be called before anything is written: others will open it again."""
        ...

    def close(self) -> None: ...

    def give_up(self) -> None:
        """What there is cannot be used: have it made anew, if nothing else can be the cause."""
        ...

    def fault(self, error: Exception) -> StoreError:
        """The sentence for an error that did not go away."""
        ...


def stored(client: Any, name: str) -> Any:
    """The collection of a name; None where there is none."""
    from chromadb.errors import NotFoundError

    try:
        return client.get_collection(name, embedding_function=None)
    except NotFoundError:
        return None


def created(client: Any, name: str, metadata: dict[str, Any]) -> Any:
    return client.create_collection(
        name, embedding_function=None, configuration={"hnsw": HNSW}, metadata=metadata
    )


def settings() -> Any:
    """Chroma's own settings; it tells nobody of its use."""
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False)
