"""Opening a page: cached, fetched, its text cut into passages that can be cited.

The passages carry the address that answered in the end and the heading they stand under. Pages
that were read lately lie on disk, so that asking again costs a site nothing: one JSON file for each
address, found by the digest of the address and of what was allowed when it was read. A file that
cannot be read or written is as good as none.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from rubricem.agent.sources.fetch import AddressGuard, Fetcher, normal
from rubricem.agent.sources.sandbox.pool import Job, readers
from rubricem.memory.errors import StoreError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Passage

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
            kept = () if self._swept else self._folder.glob("*.json")
            self._swept = True
            for path in kept:
                if self._clock() - path.stat().st_mtime > self._seconds:
                    path.unlink(missing_ok=True)
            write_atomically(self._path(address), json.dumps(entry))

    def _path(self, address: str) -> Path:
        key = "\n".join([address, *self._allowed])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


class WebPages:
    """The `PageReader` of the web."""

    def __init__(self, fetcher: Fetcher, cache: PageCache) -> None:
        self._fetcher = fetcher
        self._cache = cache

    @classmethod
    def of(cls, folder: Path, allowed: Sequence[str] = ()) -> Self:
        """Keeps pages in a folder; `allowed` hosts may be private."""
        return cls(Fetcher(AddressGuard(allowed)), PageCache(folder, allowed))

    async def read(self, address: str) -> list[Passage]:
        wanted = normal(address)
        if (kept := await asyncio.to_thread(self._cache.find, wanted)) is not None:
            return kept
        passages = await self._read(address)
        await asyncio.to_thread(self._cache.keep, wanted, passages)
        return passages

    async def _read(self, address: str) -> list[Passage]:
        page = await self._fetcher.fetch(address)
        asked = {"address": page.address, "declared": page.content_type, "packing": page.packing}
        most = {"most": self._fetcher.limits.bytes}
        job = Job("page", "The page", {**asked, **most}, page.content, remedy="Name another one.")
        read = await readers().read(job)
        return [Passage(read["title"], page.address, *piece) for piece in read["passages"]]
