"""A bank in numbers, without loading a model or Chroma."""

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
            index_bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        )
