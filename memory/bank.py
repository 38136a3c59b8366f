"""The rubric bank: what judged runs have taught, found again by question.

    bank/journal.jsonl    every reflection put into it: the truth
    bank/index/           the questions' embeddings (Chroma), derived from the journal

Within a question the latest reflection counts; a new one replaces it, and the old one stays in
the history (RubricEM, arXiv:2605.10899, section 3.4 and appendix D). Across questions the
nearest are found by the inner product of embeddings. A generation is the number of reflections
ever put: asked at one, the bank answers as it stood then, so that all the groups of a step see
the same. A bank without items loads neither Chroma nor an embedding model.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from memory.bank_index import BankIndex, Entry, entries_of, question_key
from memory.bank_journal import BankJournal
from memory.errors import SettingsError
from memory.interfaces import Embedder
from memory.schema import Reflection

NEAREST = 2
"""similar questions recalled at most"""
FLOOR = 0.4
"""similarity below which a question is another matter

Measured with MiniLM on 27 questions of 9 subjects, 7 of them Python's: of 324 pairs of other
subjects none reached 0.35; of the 27 pairs of one subject 81% reached 0.4, and 67% 0.5.
"""

OpenEmbedder = Callable[[], Awaitable[Embedder]]


@dataclass(frozen=True, slots=True)
class Match:
    """A reflection found by meaning; similarity is a cosine in [-1, 1]."""

    reflection: Reflection
    similarity: float


class RubricBank:
    """The bank of one data directory. Many processes may use it at once."""

    def __init__(self, data_dir: Path, open_embedder: OpenEmbedder | None = None) -> None:
        """`open_embedder` is called when something is first looked up by meaning."""
        self.folder = data_dir / "bank"
        self._journal = BankJournal(self.folder / "journal.jsonl")
        self._open_embedder = open_embedder
        self._index: BankIndex | None = None
        self._lock = asyncio.Lock()

    async def put(self, reflection: Reflection) -> bool:
        """Return once it is on disk; False where this very reflection is there already."""
        async with self._lock:
            return await asyncio.to_thread(self._journal.append, reflection)

    async def generation(self) -> int:
        """How many reflections were ever put."""
        return len(await self._entries())

    async def items(self, generation: int | None = None) -> list[Reflection]:
        """The reflection that counts for each question, the latest last."""
        entries = await self._entries()
        at = len(entries) if generation is None else generation
        return [entry.reflection for entry in entries if entry.shown_at(at)]

    async def find(self, identifier: str) -> list[Reflection]:
        """Every reflection ever put whose id begins so."""
        found = [e.reflection for e in await self._entries()]
        return [r for r in found if identifier and r.id.startswith(identifier)]

    async def history(self, question: str) -> list[Reflection]:
        """Every reflection ever put for the question; the last one counts."""
        key = question_key(question)
        return [e.reflection for e in await self._entries() if e.key == key]

    async def within(self, question: str, generation: int | None = None) -> Reflection | None:
        """What was learnt from this very question."""
        key = question_key(question)
        shown = await self.items(generation)
        return next((r for r in shown if question_key(r.question) == key), None)

    async def across(
        self,
        question: str,
        k: int = NEAREST,
        floor: float = FLOOR,
        generation: int | None = None,
    ) -> list[Match]:
        """What was learnt from the k nearest other questions, the nearest first."""
        nearest = await self._nearest(question, k, generation, besides=question_key(question))
        return [match for match in nearest if match.similarity >= floor]

    async def search(self, text: str, k: int = 10) -> list[Match]:
        """The k items whose questions are nearest to a text, however far they are."""
        return await self._nearest(text, k, None)

    async def _entries(self) -> list[Entry]:
        async with self._lock:
            return entries_of(await asyncio.to_thread(self._journal.read))

    async def _nearest(
        self, text: str, k: int, generation: int | None, besides: str = ""
    ) -> list[Match]:
        entries = await self._entries()
        at = len(entries) if generation is None else generation
        held = {e.reflection.id: e.reflection for e in entries if e.shown_at(at)}
        if k < 1 or all(question_key(r.question) == besides for r in held.values()):
            return []
        index = await self._opened()
        found = await asyncio.to_thread(index.nearest, entries, text, k, at, besides)
        return [Match(held[i], similarity) for i, similarity in found]

    async def _opened(self) -> BankIndex:
        if self._index is None:
            if self._open_embedder is None:
                raise SettingsError(
                    "The bank was opened without an embedding model, so it cannot be searched.",
                    "Look a question up by its own words.",
                )
            self._index = BankIndex(self.folder / "index", await self._open_embedder())
        return self._index
