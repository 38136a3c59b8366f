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
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rubricem.memory.bank.index import BankIndex, Match
from rubricem.memory.bank.store import BankItem, BankStore
from rubricem.memory.bank.tables import NOW, question_key
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Embedder, Judgement, Reflection

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
    """of others, the nearest first"""
    fault: RubricemError | None = None
    """why nothing similar could be looked for; what is here is good all the same"""


Given = ParamSpec("Given")
Result = TypeVar("Result")


def _in_thread(
    work: Callable[Concatenate[BankStore, Given], Result],
) -> Callable[Concatenate["RubricBank", Given], Coroutine[Any, Any, Result]]:
    """The method of the store, as one of the bank that runs in a thread."""

    @wraps(work)
    async def waited(bank: "RubricBank", /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await asyncio.to_thread(work, bank._store, *args, **named)

    return waited


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

    put = _in_thread(BankStore.put)
    bring_in = _in_thread(BankStore.bring_in)
    generation = _in_thread(BankStore.generation)
    page = _in_thread(BankStore.page)
    find = _in_thread(BankStore.find)
    history = _in_thread(BankStore.history)
    within = _in_thread(BankStore.within)
    has_others = _in_thread(BankStore.has_others)
    edit = _in_thread(BankStore.edit)
    release = _in_thread(BankStore.release)
    publish = _in_thread(BankStore.publish)
    remove = _in_thread(BankStore.remove)
    note_use = _in_thread(BankStore.note_use)
    stats = _in_thread(BankStore.stats)

    async def items(self, generation: int = NOW, *, every: bool = False) -> list[BankItem]:
        """The items that count, one per question, in the order in which they were added.

        `every`: also replaced and quarantined ones.
        """
        if every:
            return await asyncio.to_thread(self._store.everything)
        return await asyncio.to_thread(self._store.items_at, generation)

    async def item(self, identifier: str) -> BankItem | None:
        """The item with exactly this id; None if there is none."""
        found = await self.find(identifier)
        return next((item for item in found if item.reflection.id == identifier), None)

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

        The question's own comes first, if `own`. Of the others no two are about the same question.
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

    async def note_judgements(self, judgements: Iterable[Judgement]) -> None:
        """Record how well runs were judged, each by its mean."""
        for judgement in judgements:
            if (mean := judgement.mean) is not None:
                await asyncio.to_thread(self._store.note_score, judgement.trajectory_id, mean)

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
