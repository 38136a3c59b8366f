"""The rubric bank: what judged runs taught, retrieved by question.

    bank/bank.db    everything, in SQLite; authoritative
    bank/index/     the embeddings of the questions (Chroma), derived from it

For one question the latest reflection counts; a new one replaces it, and the old one goes to the
history (RubricEM, arXiv:2605.10899, section 3.4 and appendix D). Across questions the nearest are
found by the inner product of embeddings. Asked at a generation, a number of changes, the bank
answers as it was then, so that all groups of a step see the same; only removed items are gone from
every generation. What a person wrote is replaced by no run, and a flagged item waits in quarantine
until a person releases it. If the bank is empty, or the question's own words already find all that
is wanted, neither Chroma nor an embedding model is loaded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rubricem.memory.bank.index import BankIndex, Match
from rubricem.memory.bank.store import (
    NEVER,
    NOW,
    BankItem,
    BankStats,
    BankStore,
    Imported,
    Released,
    Standing,
    question_key,
)
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Embedder, Judgement, Reflection

__all__ = [
    "FLOOR",
    "NEAREST",
    "NEVER",
    "BankItem",
    "BankStats",
    "Imported",
    "Match",
    "RecalledReflections",
    "Released",
    "RubricBank",
    "Standing",
]

NEAREST = 2
"""at most so many items are recalled"""
FLOOR = 0.4
"""similarity below which two questions count as unrelated

Measured with MiniLM on 27 questions about 9 subjects, 7 of them from Python: of 324 pairs about
different subjects none reached 0.35; of 27 pairs about the same subject 81% reached 0.4, 67% 0.5.
"""

OpenEmbedder = Callable[[], Awaitable[Embedder]]


@dataclass(frozen=True, slots=True)
class RecalledReflections:
    """The reflections that may help with a question."""

    own: Reflection | None = None
    """of this very question"""
    similar: tuple[Match, ...] = ()
    """of others: first the nearest, then what is near and adds to what is chosen"""
    fault: RubricemError | None = None
    """why nothing similar could be looked for; what is here is good all the same"""


class RubricBank:
    """The bank of one data directory. Many processes may use it at once.

    Raises StoreError if its files cannot be used, SettingsError for an unknown id.
    """

    def __init__(self, data_dir: Path, open_embedder: OpenEmbedder | None = None) -> None:
        """`open_embedder` is called at the first search by meaning; None: there is none."""
        self.folder = data_dir / "bank"
        self._store = BankStore(self.folder)
        self._open_embedder = open_embedder
        self._opened: BankIndex | None = None
        self._opening = asyncio.Lock()

    @property
    def embedder(self) -> Embedder | None:
        """The embedding model; None until the first search by meaning."""
        return self._opened.embedder if self._opened else None

    async def put(self, reflection: Reflection) -> bool:
        """Add an item; returns once it is on disk. False if this very item was added before.

        False, too, if a person removed the same words on its question and nobody has written or
        released them since. It replaces the item that counts for its question, unless it has flags
        or a person wrote the other.
        """
        return await asyncio.to_thread(self._store.put, reflection)

    async def bring_in(self, reflections: Iterable[Reflection]) -> Imported:
        """Add items of another bank, which the caller has screened; all of them or none.

        The bank's own stays where it has one on the question, and what was removed here stays so.
        """
        return await asyncio.to_thread(self._store.bring_in, list(reflections))

    async def generation(self) -> int:
        """The number of changes so far."""
        return await asyncio.to_thread(self._store.generation)

    async def items(self, generation: int = NOW, *, every: bool = False) -> list[BankItem]:
        """The items that count, one per question, in the order in which they were added.

        `every`: also replaced and quarantined ones.
        """
        if every:
            return await asyncio.to_thread(self._store.everything)
        return await asyncio.to_thread(self._store.items_at, generation)

    async def page(
        self, standing: Standing = "current", limit: int = 50, before: int = NEVER
    ) -> list[BankItem]:
        """Items of this standing that were added before a generation, the latest first."""
        return await asyncio.to_thread(self._store.page, standing, limit, before)

    async def find(self, prefix: str) -> list[BankItem]:
        """Every item whose id has this prefix; none for ""."""
        return await asyncio.to_thread(self._store.find, prefix)

    async def item(self, identifier: str) -> BankItem | None:
        """The item with exactly this id; None if there is none."""
        found = await self.find(identifier)
        return next((item for item in found if item.reflection.id == identifier), None)

    async def history(self, question: str) -> list[BankItem]:
        """Every item on the question, in the order in which they were added."""
        return await asyncio.to_thread(self._store.history, question)

    async def within(self, question: str, generation: int = NOW) -> Reflection | None:
        """The reflection on this very question; None if there is none."""
        return await asyncio.to_thread(self._store.within, question, generation)

    async def search(self, text: str, k: int = 10) -> list[Match]:
        """The k items whose questions are nearest to a text, without a similarity floor."""
        if not await asyncio.to_thread(self._store.has_others, "", NOW):
            return []
        index = await self._index()
        return await asyncio.to_thread(index.nearest, text, k, -1.0, NOW)

    async def recall(
        self,
        question: str,
        k: int = NEAREST,
        floor: float = FLOOR,
        generation: int | None = None,
        *,
        own: bool = True,
    ) -> RecalledReflections:
        """At most k reflections to put before a question.

        The question's own comes first, if `own`. Of the others no two are about the same question,
        and each adds to those before it.
        """
        at = NOW if generation is None else generation
        itself = await self.within(question, at) if own and k > 0 else None
        left = k - (itself is not None)
        try:
            others = self._store.has_others
            if left <= 0 or not await asyncio.to_thread(others, question_key(question), at):
                return RecalledReflections(itself)
            index = await self._index()
            similar = await asyncio.to_thread(
                index.diverse, question, left, floor, at, itself is not None
            )
        except RubricemError as error:
            return RecalledReflections(itself, fault=error)
        return RecalledReflections(itself, tuple(similar))

    async def edit(self, identifier: str, rubrics: str, takeaways: str, by: str = "") -> BankItem:
        """Add a version that a person wrote, at the place `by`; the old one goes to the history."""
        return await asyncio.to_thread(self._store.edit, identifier, rubrics, takeaways, by)

    async def release(self, identifier: str, by: str = "") -> Released:
        """Release it from quarantine: it counts, unless a newer or a person's own one does."""
        return await asyncio.to_thread(self._store.release, identifier, by)

    async def publish(self, identifier: str) -> None:
        """Let an item go to any model and before any run: a person says that it is not private."""
        await asyncio.to_thread(self._store.publish, identifier)

    async def remove(self, identifier: str) -> None:
        """Remove it from every view, and its text from the disk."""
        await asyncio.to_thread(self._store.remove, identifier)

    async def note_use(self, trajectory_id: str, ids: Sequence[str]) -> None:
        """Record that a run was given these items; repeating it for the run changes nothing."""
        await asyncio.to_thread(self._store.note_use, trajectory_id, ids)

    async def note_judgements(self, judgements: Iterable[Judgement]) -> None:
        """Record how well runs were judged: for each, the mean over its scored stages."""
        for judgement in judgements:
            known = [
                stage.score
                for stage in judgement.stages
                if stage.score is not None and not stage.unscored_reason
            ]
            if known:
                mean = sum(known) / len(known)
                await asyncio.to_thread(self._store.note_score, judgement.trajectory_id, mean)

    async def stats(self) -> BankStats:
        return await asyncio.to_thread(self._store.stats)

    async def _index(self) -> BankIndex:
        if self._open_embedder is None:
            raise SettingsError(
                "The bank was opened without an embedding model, so it cannot be searched.",
                "Look a question up by its own words.",
            )
        # Many runs search at once; an embedding model for each would fill the memory.
        async with self._opening:
            if self._opened is None:
                self._opened = BankIndex(self._store, await self._open_embedder())
        return self._opened
