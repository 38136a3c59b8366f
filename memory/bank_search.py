"""Looking a question up by meaning, as the bank stood at a generation.

The index holds every question and knows nothing of generations: more is asked of it than is
wanted, the catalogue says what of it is live, and where too little is left more is asked.
"""

from collections.abc import Sequence
from typing import Any

from memory.bank_choice import Near, diverse
from memory.bank_chroma import Chroma
from memory.bank_events import question_key
from memory.bank_index import BankIndex
from memory.bank_rules import Version
from memory.bank_store import BankStore
from memory.interfaces import Embedder
from memory.items import Match

FETCHED = 16
"""candidates for what is recalled; also the least that is asked of the index"""
_WIDER = 4
"""how many times more is asked where too little was left"""


class BankSearch:
    """Searches one bank with one embedder. Blocking: call it from a worker thread."""

    def __init__(self, store: BankStore, embedder: Embedder, chroma: Chroma) -> None:
        self.index = BankIndex(store, embedder, chroma)
        self._store = store
        self.embedder = embedder

    def nearest(
        self, text: str, k: int, floor: float, generation: int, besides: str = ""
    ) -> list[Match]:
        """The k nearest live items; `besides`: the key of a question that is left out."""
        vector = self.embedder.embed([text], query=True)[0]
        near, live = self._live(vector, k, floor, generation, besides)
        return self._matches(near[:k], live)

    def diverse(
        self, question: str, k: int, floor: float, generation: int, own: bool
    ) -> list[Match]:
        """At most k live items on other questions, no two of them about the same one."""
        vector = self.embedder.embed([question], query=True)[0]
        near, live = self._live(vector, FETCHED, floor, generation, question_key(question))
        chosen = [self.embedder.embed([question])[0]] if own else []
        return self._matches(diverse(near, k, chosen), live)

    def _live(
        self, vector: Any, count: int, floor: float, generation: int, besides: str
    ) -> tuple[list[Near], dict[int, Version]]:
        """The nearest `count` live questions that reach the floor, and their versions."""
        asked = max(count, FETCHED)
        while True:
            found = self.index.nearest(vector, asked)
            with self._store.lock:
                live = self._store.catalogue.shown_among([n.number for n in found], generation)
            near = [
                n
                for n in found
                if n.similarity >= floor and n.number in live and live[n.number].key != besides
            ]
            if len(near) >= count or len(found) < asked or found[-1].similarity < floor:
                return near[:count], live
            asked *= _WIDER

    def _matches(self, near: Sequence[Near], live: dict[int, Version]) -> list[Match]:
        read = [(self._store.read(live[n.number]), n.similarity) for n in near]
        return [Match(reflection, s) for reflection, s in read if reflection is not None]
