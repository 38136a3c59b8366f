"""Pages that were read lately, on disk, so that asking again costs a site nothing.

One JSON file for each address, found by the digest of the address and of what was allowed when
it was read. A file that cannot be read or written is as good as none.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from memory.errors import StoreError
from memory.interfaces import Passage
from memory.runs import write_atomically

KEPT_SECONDS = 24 * 3600.0


class PageCache:
    """Passages of pages by their address, for as long as they are fresh."""

    def __init__(
        self,
        folder: Path,
        allowed: Sequence[str] = (),
        seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._allowed = sorted(allowed)
        self._seconds = seconds
        self._clock = clock
        self._swept = False

    def find(self, address: str) -> list[Passage] | None:
        """What was read at an address, unless that is too long ago."""
        try:
            entry = json.loads(self._path(address).read_text(encoding="utf-8"))
            fresh = 0 <= self._clock() - entry["read_at"] < self._seconds
            return [Passage(**fields) for fields in entry["passages"]] if fresh else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, address: str, passages: Sequence[Passage]) -> None:
        """Write down what was read, and remove what is too old once in a process."""
        entry = {
            "address": address,
            "read_at": self._clock(),
            "passages": [asdict(passage) for passage in passages],
        }
        with suppress(OSError, StoreError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            write_atomically(self._path(address), json.dumps(entry))

    def _sweep(self) -> None:
        if self._swept:
            return
        self._swept = True
        for path in self._folder.glob("*.json"):
            if self._clock() - path.stat().st_mtime > self._seconds:
                path.unlink(missing_ok=True)

    def _path(self, address: str) -> Path:
        key = "\n".join([address, *self._allowed])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
