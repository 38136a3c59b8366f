"""The bank's vectors on a Chroma server, in a collection with the bank's own name."""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memory.bank_chroma import created, settings, stored
from memory.bank_mark import write_mark
from memory.errors import StoreError

_SECONDS = 30.0
"""a server may stay silent"""


class ServerChroma:
    """A collection of a Chroma server, which all its clients see alike."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.lock = threading.RLock()
        self.at = -1
        self.embedder = ""
        self._url = url
        self._name = name
        self._folder = folder
        self._client: Any = None
        self._collection: Any = None

    def __del__(self) -> None:
        self.close()

    def stale(self) -> bool:
        return self._collection is None

    def collection(self) -> Any:
        if self._collection is None:
            self._collection = stored(self._opened(), self._name)
        return self._collection

    def proved(self) -> None:
        """A server's files are its own matter."""

    def create(self, metadata: dict[str, Any]) -> Any:
        client = self._opened()
        if stored(client, self._name) is not None:
            client.delete_collection(self._name)
        self._collection = created(client, self._name, metadata)
        return self._collection

    def writing(self, embedder: str) -> None:
        """Others see it without being told; the mark says whose vectors the server holds."""
        write_mark(self._folder, self._url, embedder)

    def close(self) -> None:
        client, self._client, self._collection = self._client, None, None
        self.at, self.embedder = -1, ""
        if client is not None:
            # Its own closing leaves its connections open, and those of a client inside it.
            for part in (client, client._admin_client):
                part._server._session.close()
            client.close()

    def give_up(self) -> None:
        """A server's fault is not mended by embedding everything again."""
        self.close()

    def fault(self, error: Exception) -> StoreError:
        return StoreError(
            f"the Chroma server {self._url} cannot be used: {str(error) or type(error).__name__}",
            "See that it runs, or take the bank_server setting away to index in a folder.",
        )

    def _opened(self) -> Any:
        if self._client is None:
            import chromadb
            import httpx

            # By itself the client waits for a silent server for ever.
            httpx.get(f"{self._url}/api/v2/heartbeat", timeout=_SECONDS).raise_for_status()
            url = urlsplit(self._url)
            ssl = url.scheme == "https"
            self._client = chromadb.HttpClient(
                url.hostname or "localhost",
                url.port or (443 if ssl else 80),
                ssl=ssl,
                settings=settings(),
            )
            self._client._server._session.timeout = _SECONDS
        return self._client
