"""The rubric bank: what judged runs taught and what runs did, retrieved by question.

    bank/journal.jsonl    every event of the bank; authoritative
    bank/uses.jsonl       which runs were given which items, with what effect, and their scores
    bank/catalogue.db     where everything is in the journal (SQLite), derived from it
    bank/index/           the embeddings of the questions (Chroma), derived from it
    bank/id               the bank's own name

For one question the latest reflection counts; a new one replaces it, and the old one goes to the
history (RubricEM, arXiv:2605.10899, section 3.4 and appendix D). Across questions the nearest are
found by the inner product of embeddings. A generation is the number of events so far. Asked at a
generation, the bank answers as it was then, so that all groups of a step see the same; only removed
items are gone from every generation. If the bank is empty, or the question's own words already
find all that is wanted, neither Chroma nor an embedding model is loaded.

An item is a reflection, which a model wrote and a judge scored, or an episode, which code recorded.
For each question one item of either kind counts, by the same rules, except that an episode is not
replaced by one that found less. Episodes are also found by names and words shared with a text,
without vectors.

If items of another bank are merged in, the pinned item of a question wins, else the higher score,
else the later one; the loser goes to the history. An item in quarantine is compared with no other:
it stays there. Items that a person removed are not merged in again, unless this is asked for.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rubricem.memory.bank.catalogue import NOW, Standing, Version, standing
from rubricem.memory.bank.events import (
    NEVER,
    BankItem,
    BankStats,
    EpisodeMatch,
    Imported,
    Match,
    Put,
    RecalledEpisodes,
    RecalledReflections,
    Record,
    Released,
    kind_of,
    line_of,
    question_key,
)
from rubricem.memory.bank.store import BankStore, ItemUse
from rubricem.memory.bank.vectors import BankIndex, Chroma, FolderChroma, IndexMark, ServerChroma
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import Embedder, Episode, ItemKind, Judgement, Reflection
from rubricem.memory.text import digest_of

__all__ = [
    "FLOOR",
    "NEAREST",
    "NEVER",
    "BankItem",
    "BankStats",
    "EpisodeMatch",
    "Imported",
    "ItemUse",
    "Match",
    "RecalledReflections",
    "Record",
    "Released",
    "RubricBank",
]

_BATCH = 256
"""items that are merged in with one fsync"""


def bring_in(store: BankStore, records: Iterable[Record], removed: bool) -> Imported:
    """Merge each by the rules; blocking. `removed`: removed items as well, under new ids."""
    outcomes: Counter[str] = Counter()
    waiting = iter(records)
    while batch := list(islice(waiting, _BATCH)):
        for group in _on_different_questions(batch):
            outcomes.update(_put(store, group, removed))
    return Imported(**outcomes)


def _on_different_questions(batch: Iterable[Record]) -> Iterator[list[Record]]:
    """Consecutive parts of the batch in which no two items share a question and kind, or an id."""
    group: dict[tuple[str, str], Record] = {}
    for record in batch:
        key = kind_of(record), question_key(record.question)
        if key in group or any(record.id == other.id for other in group.values()):
            yield list(group.values())
            group = {}
        group[key] = record
    if group:
        yield list(group.values())


def _put(store: BankStore, group: Iterable[Record], removed: bool) -> list[str]:
    """The outcome of each record, as a field name of `Imported`."""
    block, outcomes = b"", []
    with store.lock, store.journal.hold() as descriptor:
        for record in group:
            outcome, put = _decide(store, record, removed)
            outcomes.append(outcome)
            block += line_of(put) if put else b""
        if block:
            store.journal.append(descriptor, block)
    return outcomes


def _decide(store: BankStore, record: Record, removed: bool) -> tuple[str, Put | None]:
    identifier = record.id
    while (known := store.catalogue.by_id(identifier)) is not None:
        if not known.removed:
            return "kept", None
        if not removed:
            return "removed", None
        identifier = digest_of(f"{identifier} again", 12)
    told = {"id": identifier, "origin": "import", "replaces": ""}
    new = record.model_copy(update=told)
    if new.flags:
        return "quarantined", Put.of(new)
    held = standing(store.catalogue.by_key(question_key(new.question), kind_of(new)))
    own = store.read(held) if held else None
    if held is None or own is None:
        return "added", Put.of(new)
    # An item that a person disabled always loses.
    if held.pinned or (not held.disabled and _rank(own) >= _rank(new)):
        return "kept", Put.of(new, history=True)
    return "replaced", Put.of(new)


def _rank(record: Record) -> tuple[float, float]:
    return record.score, record.written_at.timestamp()


NEAREST = 2
"""at most so many items are recalled"""
FLOOR = 0.4
"""similarity below which two questions count as unrelated

Measured with MiniLM on 27 questions about 9 subjects, 7 of them from Python: of 324 pairs about
different subjects none reached 0.35; of 27 pairs about the same subject 81% reached 0.4, 67% 0.5.
"""

_CONSIDERED = 8
"""episodes found by names, and by meaning, of which the best are recalled"""

OpenEmbedder = Callable[[], Awaitable[Embedder]]


class RubricBank:
    """The bank of one data directory. Many processes may use it at once.

    Raises StoreError if its files cannot be used, SettingsError for an unknown id and for an
    embedder other than its own.
    """

    def __init__(
        self, data_dir: Path, open_embedder: OpenEmbedder | None = None, server: str | None = None
    ) -> None:
        """`open_embedder` is called at the first search by meaning; None: there is no such search.

        `server`: the address of a Chroma server for the vectors; None: they are kept in a folder.
        """
        self.folder = data_dir / "bank"
        self.server = server
        self._store = BankStore(self.folder)
        self._open_embedder = open_embedder
        self._opened: BankIndex | None = None
        self._opening = asyncio.Lock()

    async def put(self, record: Record) -> bool:
        """Add an item; returns once it is on disk. False if this very item was added before.

        False, too, if a person removed the same text on its question, and nobody has merged in,
        written or released it since. The item replaces the one that counts for its question,
        unless it has flags, the other is pinned, or it is an episode that found less.
        """
        return await asyncio.to_thread(self._store.put, record)

    async def bring_in(self, records: Iterable[Record], *, removed: bool = False) -> Imported:
        """Merge in items of another bank, which the caller has screened.

        For one question the pinned one wins, else the higher score, else the later one; the
        loser goes to the history. Items that were removed here are skipped; with `removed` they
        are added under a new id.
        """
        return await asyncio.to_thread(bring_in, self._store, records, removed)

    async def generation(self) -> int:
        """The number of events so far."""
        return await asyncio.to_thread(self._store.catalogue.generation)

    async def items(
        self,
        generation: int | None = None,
        *,
        every: bool = False,
        kind: ItemKind | None = "reflection",
    ) -> list[BankItem]:
        """The items that count, one per question, in the order in which they were added.

        `every`: also replaced, disabled and quarantined ones. `kind`: None: both kinds.
        """
        shown = self._store.live_items
        return await asyncio.to_thread(lambda: list(shown(_at(generation), every, kind)))

    async def page(
        self,
        standing: Standing = "current",
        limit: int = 50,
        before: int = NEVER,
        kind: ItemKind | None = "reflection",
    ) -> list[BankItem]:
        """Items of this standing that were added before a generation, the latest first."""
        versions = self._store.catalogue.page
        return await self._list_items(lambda: versions(standing, limit, before, kind))

    async def export(self) -> Iterator[BankItem]:
        """Every item that is not removed, read lazily from disk."""
        return await asyncio.to_thread(self._store.live_items, NOW, True)

    async def find(self, prefix: str) -> list[BankItem]:
        """Every item whose id has this prefix; none for ""."""
        by_prefix = self._store.catalogue.by_prefix
        return await self._list_items(lambda: by_prefix(prefix) if prefix else [])

    async def item(self, identifier: str) -> BankItem | None:
        """The item with exactly this id; None if there is none."""
        found = await self.find(identifier)
        return next((item for item in found if item.record.id == identifier), None)

    async def history(self, question: str, kind: ItemKind = "reflection") -> list[BankItem]:
        """Every item of this kind on the question, in the order in which they were added."""
        by_key = self._store.catalogue.by_key
        return await self._list_items(lambda: by_key(question_key(question), kind))

    async def _list_items(self, versions: Callable[[], list[Version]]) -> list[BankItem]:
        return await asyncio.to_thread(lambda: list(self._store.items(versions())))

    async def within(self, question: str, generation: int | None = None) -> Reflection | None:
        """The reflection on this very question; None if there is none."""
        found = await asyncio.to_thread(self._store.within, question, _at(generation))
        return found if isinstance(found, Reflection) else None

    async def episodes(
        self,
        question: str,
        k: int = NEAREST,
        floor: float = FLOOR,
        generation: int | None = None,
        *,
        own: bool = True,
        by_meaning: bool = True,
    ) -> RecalledEpisodes:
        """At most k episodes that may help: first the question's own, if `own`, then others.

        Others are found by names shared with the question and, if `by_meaning`, by similarity of
        the questions. Episodes whose passages were of little use come later.
        """
        at, key = _at(generation), question_key(question)
        itself = await asyncio.to_thread(self._store.within, question, at, "episode")
        found = [EpisodeMatch(itself, own=True)] if own and isinstance(itself, Episode) else []
        found += await asyncio.to_thread(self._store.sharing, question, at, key, _CONSIDERED)
        fault: RubricemError | None = None
        try:
            wanted = by_meaning and self._open_embedder is not None
            if wanted and await self._has_others(k, key, at, "episode"):
                search = await self._search()
                near = await asyncio.to_thread(
                    search.nearest, question, _CONSIDERED, floor, at, key, "episode"
                )
                found = _join_matches(found, near)
        except RubricemError as error:
            fault = error
        return RecalledEpisodes(await asyncio.to_thread(self._by_use, found, k), fault)

    async def sharing(
        self, text: str, k: int = NEAREST, generation: int | None = None, *, besides: str = ""
    ) -> tuple[EpisodeMatch, ...]:
        """At most k episodes that share a name with the text; none on the question `besides`."""
        at, key = _at(generation), question_key(besides)
        found = await asyncio.to_thread(self._store.sharing, text, at, key, max(k, _CONSIDERED))
        return await asyncio.to_thread(self._by_use, found, k)

    async def episodes_of_form(
        self, question: str, generation: int | None = None
    ) -> tuple[EpisodeMatch, ...]:
        """Episodes on other questions that may differ from this one only in the names."""
        at, key = _at(generation), question_key(question)
        found = await asyncio.to_thread(
            self._store.episodes_of_form, question, at, key, _CONSIDERED
        )
        return tuple(found)

    def _by_use(self, found: Sequence[EpisodeMatch], k: int) -> tuple[EpisodeMatch, ...]:
        """The best k, by the product of usefulness so far and reciprocal rank; own ones first."""
        worth = {
            match.episode.id: self._store.sinks(match.episode.id) / (1 + place)
            for place, match in enumerate(found)
        }
        return tuple(sorted(found, key=lambda m: (not m.own, -worth[m.episode.id]))[:k])

    async def across(
        self,
        question: str,
        k: int = NEAREST,
        floor: float = FLOOR,
        generation: int | None = None,
    ) -> list[Match]:
        """The reflections on the k nearest other questions, the nearest first."""
        at, key = _at(generation), question_key(question)
        if not await self._has_others(k, key, at):
            return []
        search = await self._search()
        return await asyncio.to_thread(search.nearest, question, k, floor, at, key)

    async def search(self, text: str, k: int = 10, kind: ItemKind = "reflection") -> list[Match]:
        """The k items whose questions are nearest to a text, without a similarity floor."""
        if not await self._has_others(k, "", NOW, kind):
            return []
        search = await self._search()
        return await asyncio.to_thread(search.nearest, text, k, -1.0, NOW, "", kind)

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
        at = _at(generation)
        itself = await self.within(question, generation) if own and k > 0 else None
        left = k - (itself is not None)
        try:
            if not await self._has_others(left, question_key(question), at):
                return RecalledReflections(itself)
            search = await self._search()
            similar = await asyncio.to_thread(
                search.diverse, question, left, floor, at, itself is not None
            )
        except RubricemError as error:
            return RecalledReflections(itself, fault=error)
        return RecalledReflections(itself, tuple(similar))

    async def edit(self, identifier: str, rubrics: str, takeaways: str, by: str = "") -> BankItem:
        """Add a version that a person wrote, at the place `by`; the old one goes to the history."""
        return await asyncio.to_thread(self._store.edit, identifier, rubrics, takeaways, by)

    async def pin(self, identifier: str, on: bool = True) -> None:
        """Keep runs from replacing it; `on=False` allows that again."""
        await asyncio.to_thread(self._store.decide, "pin", identifier, on)

    async def disable(self, identifier: str, on: bool = True) -> None:
        """Stop recalling it; `on=False`: recall it again."""
        await asyncio.to_thread(self._store.decide, "disable", identifier, on)

    async def release(self, identifier: str, by: str = "") -> Released:
        """Release it from quarantine: it counts, unless a newer or a pinned one does."""
        return await asyncio.to_thread(self._store.release, identifier, by)

    async def remove(self, identifier: str) -> None:
        """Remove it from every view, and its text from the journal."""
        await asyncio.to_thread(self._store.remove, identifier)

    async def note_use(self, trajectory_id: str, ids: Sequence[str], question: str) -> None:
        """Record that a run was given these items; repeating it for the run changes nothing."""
        await asyncio.to_thread(self._store.uses.note_use, trajectory_id, ids, question)

    async def note_contributions(self, uses: Sequence[ItemUse]) -> None:
        """Record what episodes did in a run; one that keeps failing is disabled, with a note.

        If repeated for the same run, the last record counts.
        """
        await asyncio.to_thread(self._store.note_uses, uses)

    async def note_judgements(self, judgements: Iterable[Judgement]) -> None:
        """Record how well runs were judged: for each, the mean over its scored stages."""
        for judgement in judgements:
            known = [
                stage.score
                for stage in judgement.stages
                if stage.score is not None and not stage.unscored_reason
            ]
            if known:
                await self.note_score(judgement.trajectory_id, sum(known) / len(known))

    async def note_score(self, trajectory_id: str, mean: float) -> None:
        """Record a run's mean score over its scored stages, in [0, 1]; the last one counts."""
        await asyncio.to_thread(self._store.uses.note_score, trajectory_id, mean)

    async def stats(self) -> BankStats:
        return await asyncio.to_thread(self._stats)

    def _stats(self) -> BankStats:
        store, folder, size = self._store, self.folder / "index", 0
        for parent, _, names in os.walk(folder):
            for name in names:
                # Another process may be removing it.
                with suppress(FileNotFoundError):
                    size += os.stat(os.path.join(parent, name)).st_size
        lessons, lessons_held = store.uses.of_use("lesson")
        with store.lock:
            generation, journal_bytes = store.catalogue.position()
            return BankStats(
                generation=generation,
                **store.catalogue.counts(),
                uses=store.uses.count(),
                lessons=lessons,
                lessons_held=lessons_held,
                embedder=IndexMark.read(folder).embedder,
                journal_bytes=journal_bytes,
                index_bytes=size,
            )

    async def rebuild(self) -> None:
        """Rebuild the catalogue and the embeddings, with the embedder of this bank."""
        search = await self._search()
        await asyncio.to_thread(self._store.catalogue.drop)
        await asyncio.to_thread(search.rebuild)

    async def snapshot(self, folder: Path) -> int:
        """Copy what cannot be derived to a folder; returns the generation."""
        return await asyncio.to_thread(self._store.snapshot, folder)

    @property
    def embedder(self) -> Embedder | None:
        """The embedding model; None until the first search by meaning."""
        return self._opened.embedder if self._opened else None

    async def restore(self, folder: Path, *, foreign: bool = False) -> int:
        """Return to a snapshot; gives the generation. Removed items stay removed.

        Raises SettingsError for another bank's snapshot, unless `foreign` or this one is empty.
        """
        return await asyncio.to_thread(self._store.restore, folder, foreign)

    async def _has_others(
        self, k: int, key: str, generation: int, kind: ItemKind = "reflection"
    ) -> bool:
        """Whether there is anything to find by meaning."""
        besides = self._store.catalogue.has_live_besides
        return k > 0 and await asyncio.to_thread(besides, key, generation, kind)

    async def _search(self) -> BankIndex:
        if self._open_embedder is None:
            raise SettingsError(
                "The bank was opened without an embedding model, so it cannot be searched.",
                "Look a question up by its own words.",
            )
        # Many runs search at once; an embedding model for each would fill the memory.
        async with self._opening:
            if self._opened is None:
                embedder = await self._open_embedder()
                folder = self.folder / "index"
                chroma: Chroma = FolderChroma.of(folder)
                if self.server is not None:
                    name = f"rubricem-{await asyncio.to_thread(self._store.identity)}"
                    chroma = ServerChroma(self.server, name, folder)
                self._opened = BankIndex(self._store, embedder, chroma)
        return self._opened


def _join_matches(found: Sequence[EpisodeMatch], near: Sequence[Match]) -> list[EpisodeMatch]:
    """Own episodes first, then the rest by the sum of their reciprocal ranks in both lists."""
    similarity = {match.record.id: match.similarity for match in near}
    ranks: dict[str, float] = {}
    matches: dict[str, EpisodeMatch] = {}
    for place, match in enumerate(found):
        matches[match.episode.id] = replace(match, similarity=similarity.get(match.episode.id))
        ranks[match.episode.id] = 1 / (1 + place)
    for place, other in enumerate(near):
        assert isinstance(other.record, Episode), "only episodes were looked for"
        matches.setdefault(other.record.id, EpisodeMatch(other.record, False, other.similarity))
        ranks[other.record.id] = ranks.get(other.record.id, 0.0) + 1 / (1 + place)
    return sorted(matches.values(), key=lambda m: (not m.own, -ranks[m.episode.id]))


def _at(generation: int | None) -> int:
    return NOW if generation is None else generation
