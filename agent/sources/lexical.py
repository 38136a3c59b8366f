"""A BM25 index over passages, kept on disk and opened without reading it whole.

An index is one folder, `<name>-<key>`, where the key is a hash of what was indexed. It is
written beside its place and renamed into it, so that a half-written index is never opened.
bm25s scores every (word, passage) pair when indexing (Lù 2024, arXiv:2407.03618); a search
adds the columns of the question's words. Arrays and passages are memory-mapped.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.sources.passages import without_near_duplicates
from agent.sources.words import WORDS_VERSION, expand, raw_words, words
from memory.errors import StoreError
from memory.interfaces import Passage

INDEX_VERSION = 1
_CANDIDATES = 4
"""Passages ranked for each one asked for, as near-duplicates among them are dropped."""

Ranking = list[tuple[int, float]]
"""(row of a passage, its score), best first."""

Weight = Callable[[Passage], float]
"""What a passage's score is multiplied by, whatever the question."""


def equal(_passage: Passage) -> float:
    return 1.0


class LexicalIndex:
    """BM25 over the passages of one folder on disk. Safe to search from several threads."""

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`; OSError or ValueError when it is not a whole one."""
        import bm25s

        self.folder = folder
        self.passages = StoredPassages(folder)
        self._weights: NDArray[np.float32] = np.load(folder / "weights.npy", mmap_mode="r")
        self._bm25: Any = None
        if len(self.passages):
            self._bm25 = bm25s.BM25.load(folder, mmap=True, show_progress=False)

    def rank(self, query: str, limit: int) -> Ranking:
        """The rows that share a word with the query, at most `limit`."""
        if self._bm25 is None:
            return []
        ids = self._bm25.get_tokens_ids([*words(query), *_exact_names(raw_words(query))])
        if not ids:
            return []
        return best(self._bm25.get_scores_from_ids(ids, weight_mask=self._weights), limit)

    def search(self, query: str, limit: int) -> list[Passage]:
        rows = (self.passages[row] for row, _ in self.rank(query, limit * _CANDIDATES))
        return without_near_duplicates(rows, limit)


class StoredPassages(Sequence[Passage]):
    """Passages in a JSONL file, read one at a time through a memory map."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / "passages.ends.npy", mmap_mode="r")
        whole = int(self._ends[-1]) if len(self._ends) else 0
        if (folder / "passages.jsonl").stat().st_size != whole:
            raise ValueError("the passages are cut short")
        self._bytes: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        if whole:
            self._bytes = np.memmap(folder / "passages.jsonl", dtype=np.uint8, mode="r")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: Any) -> Any:
        start = int(self._ends[row - 1]) if row else 0
        return Passage(*json.loads(self._bytes[start : int(self._ends[row])].tobytes()))

    @staticmethod
    def write(passages: Iterable[Passage], folder: Path) -> None:
        ends: list[int] = []
        with open(folder / "passages.jsonl", "wb") as file:
            for passage in passages:
                fields = (passage.title, passage.location, passage.place, passage.text)
                file.write(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
                ends.append(file.tell())
        np.save(folder / "passages.ends.npy", np.array(ends, dtype=np.int64))


def best(scores: NDArray[np.float32], limit: int) -> Ranking:
    """The rows of the highest positive scores; equal scores in the order of rows."""
    if limit < len(scores):
        floor = np.partition(scores, -limit)[-limit]
        rows = np.flatnonzero(scores >= max(floor, np.finfo(np.float32).tiny))
    else:
        rows = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[rows], kind="stable")[:limit]
    return [(int(row), float(scores[row])) for row in rows[order]]


def matched_text(passage: Passage) -> str:
    """What a passage is found by: its text, and where it stands."""
    return f"{passage.title}\n{passage.place}\n{passage.text}"


def _exact_names(names: Iterable[str]) -> list[str]:
    """A word of its own for each dotted name written in full, to tell it from its endings."""
    return [f"={name.lower()}" for name in names if "." in name]


def write_index(passages: Sequence[Passage], folder: Path, weight: Weight) -> None:
    """Write the index of `passages` into an existing empty folder."""
    import bm25s

    StoredPassages.write(passages, folder)
    np.save(folder / "weights.npy", np.array([weight(p) for p in passages], dtype=np.float32))
    vocabulary: dict[str, int] = {}
    ids = _word_ids(passages, vocabulary)
    if not vocabulary:
        vocabulary[""] = 0
    if passages:
        bm25 = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        bm25.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        bm25.save(folder, show_progress=False)


def _word_ids(passages: Iterable[Passage], vocabulary: dict[str, int]) -> list[list[int]]:
    """The word ids of each passage; new words are given the next id in `vocabulary`."""
    known: dict[str, tuple[int, ...]] = {}
    rows: list[list[int]] = []
    for passage in passages:
        row: list[int] = []
        for raw in raw_words(matched_text(passage)):
            ids = known.get(raw)
            if ids is None:
                ids = tuple(vocabulary.setdefault(w, len(vocabulary)) for w in expand(raw))
                known[raw] = ids
            row += ids
        for name in _exact_names([passage.place]):
            row.append(vocabulary.setdefault(name, len(vocabulary)))
        rows.append(row)
    return rows


def index_folder(cache_dir: Path, name: str, key: str) -> Path:
    return cache_dir / f"{name}-{INDEX_VERSION}.{WORDS_VERSION}-{key[:24]}"


def open_index(cache_dir: Path, name: str, key: str) -> LexicalIndex | None:
    """The index of this name and key, or None where there is no whole one."""
    try:
        return LexicalIndex(index_folder(cache_dir, name, key))
    except (OSError, ValueError, KeyError):
        return None


def build_index(
    passages: Sequence[Passage], cache_dir: Path, name: str, key: str, weight: Weight = equal
) -> LexicalIndex:
    """Index the passages, put the folder in its place at once, drop older ones of the name."""
    place = index_folder(cache_dir, name, key)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir, prefix=".new-") as new:
            write_index(passages, Path(new), weight)
            shutil.rmtree(place, ignore_errors=True)
            os.rename(new, place)
        _drop_older(cache_dir, name, place)
    except OSError as cause:
        raise StoreError(
            f"The index of {name} could not be written to {cache_dir}: {cause.strerror}.",
            "Choose a data directory that you can write to, with room left on its disk.",
        ) from cause
    return LexicalIndex(place)


def _drop_older(cache_dir: Path, name: str, current: Path) -> None:
    for folder in cache_dir.glob(f"{name}-*"):
        if folder != current:
            shutil.rmtree(folder, ignore_errors=True)
