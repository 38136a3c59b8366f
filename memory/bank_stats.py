"""A bank in numbers, without loading a model or Chroma."""

import os
from contextlib import suppress
from pathlib import Path

from memory.bank_mark import embedder_of, read_mark
from memory.bank_store import BankStore
from memory.items import BankStats


def stats_of(store: BankStore) -> BankStats:
    folder = store.folder / "index"
    with store.lock:
        generation, journal_bytes = store.catalogue.position()
        return BankStats(
            generation=generation,
            **store.catalogue.counts(),
            uses=store.uses.count(),
            embedder=embedder_of(read_mark(folder)),
            journal_bytes=journal_bytes,
            index_bytes=_bytes_in(folder),
        )


def _bytes_in(folder: Path) -> int:
    """Of its files; what another process is just removing counts for nothing."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(parent, name)).st_size
    return size
