"""The bank's vectors in a folder: a persistent Chroma, and a mark beside it.

Chroma does not show an open client what another process has written, so the mark changes with
every writing, and who sees another mark opens the folder again. Within one process Chroma shares
what it has open by path; so do we, once for each folder.

Chroma's native code may crash on damaged files and take the process with it. So it is written down
that a folder is being opened, and where that was not undone twice, the folder is given up.

A collection that is made anew gets a folder of its own, and the mark then names that one: Chroma
remembers a folder that it failed to open for as long as the process lives.
"""

import shutil
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from memory.bank_chroma import created, settings, stored
from memory.bank_mark import place_of, read_mark, write_mark
from memory.errors import StoreError

_NAME = "reflections"
_OPENING = "opening"
_DEATHS = 2
"""of processes in a row while they opened a folder: one may have been killed"""


class FolderChroma:
    """A persistent Chroma in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.lock = threading.RLock()
        self.at = -1
        self.embedder = ""
        self._folder = folder
        self._mark = ""
        self._client: Any = None
        self._collection: Any = None
        self._place = ""
        self._spoilt = ""

    def __del__(self) -> None:
        self.close()

    def stale(self) -> bool:
        return self._collection is None or self._mark != read_mark(self._folder)

    def collection(self) -> Any:
        if self.stale():
            self.close()
            self._mark = read_mark(self._folder)
            place = self._place = place_of(self._mark) or self._only_one()
            if place and place != self._spoilt and (self._folder / place).is_dir():
                deaths = self._deaths(place)
                if deaths < _DEATHS:
                    self._note(place, deaths + 1)
                    self._open(place)
                    self._collection = stored(self._client, _NAME)
        return self._collection

    def proved(self) -> None:
        with suppress(OSError):
            (self._folder / _OPENING).unlink(missing_ok=True)

    def create(self, metadata: dict[str, Any]) -> Any:
        self.close()
        place = self._place = uuid.uuid4().hex[:12]
        try:
            self._open(place)
            self._collection = created(self._client, _NAME, metadata)
            self._mark = write_mark(self._folder, place, str(metadata["embedder"]))
        except BaseException:
            self.close()
            shutil.rmtree(self._folder / place, ignore_errors=True)
            raise
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != place:
                shutil.rmtree(path, ignore_errors=True)
        return self._collection

    def writing(self, embedder: str) -> None:
        self._mark = write_mark(self._folder, self._place, embedder)

    def close(self) -> None:
        client, self._client, self._collection = self._client, None, None
        self.at, self.embedder = -1, ""
        if client is not None:
            client.close()

    def give_up(self) -> None:
        self.close()
        self._spoilt = place_of(read_mark(self._folder)) or self._only_one()

    def fault(self, error: Exception) -> StoreError:
        return StoreError(
            f"the index of the bank in {self._folder} cannot be used: {error}",
            "See that its disk is writable and not full; what lies there may be removed, as it is "
            "made again. Or use --memory off.",
        )

    def _only_one(self) -> str:
        """The folder that is meant where the mark is lost."""
        try:
            places = [path.name for path in self._folder.iterdir() if path.is_dir()]
        except OSError:
            return ""
        return places[0] if len(places) == 1 else ""

    def _deaths(self, place: str) -> int:
        """How many processes in a row did not come out of opening it."""
        try:
            opened, deaths = (self._folder / _OPENING).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return 0
        return int(deaths) if opened == place and deaths.isdigit() else 0

    def _note(self, place: str, deaths: int) -> None:
        # Where it cannot be written, as on a full disk, there is no guard and all else works.
        with suppress(OSError):
            (self._folder / _OPENING).write_text(f"{place} {deaths}", encoding="ascii")

    def _open(self, place: str) -> None:
        import chromadb

        self._client = chromadb.PersistentClient(self._folder / place, settings=settings())


_FOLDERS: "WeakValueDictionary[str, FolderChroma]" = WeakValueDictionary()
_FOLDERS_LOCK = threading.Lock()


def folder_chroma(folder: Path) -> FolderChroma:
    """The one of this process for a folder."""
    with _FOLDERS_LOCK:
        name = str(folder.resolve())
        return _FOLDERS.setdefault(name, FolderChroma(folder))
