"""Search by words: the index of every source on this machine.

Passages and questions are reduced to lower-cased stems, in the language of the passage. An
identifier counts as a whole and by its parts: `functools.lru_cache` gives itself, `functools`,
`lru_cache`, `lru` and `cache`.

An index consists of segments, a folder each, as in Lucene; how rare a word is, is counted over all
of them at search time (BM25, Robertson and Zaragoza 2009). A folder is renamed into its place, so
that a half-written one is never opened. A word is 64 bits of its hash, so that opening reads no
vocabulary; all arrays and passages are memory-mapped.
"""

import asyncio
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, reduce
from itertools import accumulate, chain, dropwhile, zip_longest
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricem.agent.transcript.words import read_query, stands_in
from rubricem.memory.language import (
    LATIN,
    PAIRED,
    PAIRED_RUN,
    STOP_WORDS,
    foreign,
    form,
    hyphenless,
    language_of,
    length,
    pairs,
    plain_letters,
    stem,
)
from rubricem.memory.runs import writable
from rubricem.memory.schema import BELOW, NOT_SHOWN, Passage, SearchTool, ShownTexts, Widening
from rubricem.memory.text import digest_of

OnProgress = Callable[[int, int, str], None]
"""Number done, total number, and what is being done. Called from any thread."""

_WORD = re.compile(r"\w+")


SAME = 0.85
"""overlap of the words of two passages (Jaccard) from which they are near duplicates"""


def without_near_duplicates(passages: Iterable[Passage], limit: int) -> list[Passage]:
    """The first `limit` passages, skipping near duplicates of earlier ones, with their numbers."""
    kept, seen = list[Passage](), defaultdict[frozenset[str], list[frozenset[str]]](list)
    for passage in passages:
        if len(kept) == limit:
            break
        found, numbers = _words_of(passage.text)
        if not any(_same(found, other) for other in seen[numbers]):
            kept.append(passage)
            seen[numbers].append(found)
    return kept


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two passages of these words, and of the same numbers, are near duplicates."""
    # Of n shared words both have len(one) + len(other) - n: a union is slower to make.
    least = SAME / (1 + SAME) * (len(one) + len(other))
    return min(len(one), len(other)) >= least and len(one & other) >= least


@lru_cache(4096)  # searches of one turn find much the same
def _words_of(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Its distinct words, and those of them that have digits."""
    text = plain_letters(text).lower()
    runs = () if text.isascii() else PAIRED_RUN.findall(text)
    found = frozenset(_WORD.findall(PAIRED_RUN.sub(" ", text) if runs else text))
    numbers = frozenset(word for word in found if any(map(str.isdigit, word)))
    return found.union(pair for run in runs for pair in pairs(run)), numbers


LEAST_SHOWN = 60
"""words of a heading that is shown by itself"""


def neighbours(
    passages: Sequence[Passage], at: int, words: int, shown: Sequence[str] = ()
) -> range:
    """The passages around one, of its page, that have at most `words` words together with it.

    The whole page if it is not longer; else those under its heading, first those that follow, and
    of a heading with hardly a word what stands beside it. None that stands in a text of the page
    that was `shown` before.
    """
    first, last, left = at, at, words - length(passages[at].text)

    def take(whole: bool) -> None:
        nonlocal first, last, left
        for step in (1, -1):
            while 0 <= (next_at := (last if step > 0 else first) + step) < len(passages):
                other, count = passages[next_at], length(passages[next_at].text)
                same = _page_of(other) == _page_of(passages[at])
                if not same or not (whole or other.place == passages[at].place) or count > left:
                    break
                if any(stands_in(other.text, text) for text in shown):
                    break
                left -= count
                first, last = min(first, next_at), max(last, next_at)

    take(whole=True)
    ends = [each for each in (first - 1, last + 1) if 0 <= each < len(passages)]
    if any(_page_of(passages[each]) == _page_of(passages[at]) for each in ends):
        first, last, left = at, at, words - length(passages[at].text)
        take(whole=False)
        if (held := words - left) < LEAST_SHOWN:  # "NAME" alone says nothing
            left = min(left, 2 * LEAST_SHOWN - held)
            take(whole=True)
    return range(first, last + 1)


def _page_of(passage: Passage) -> tuple[str, bool]:
    """What tells its page from others: a private file may have the name of a public one."""
    return passage.location, passage.public


def joined(passages: Sequence[Passage], rows: Sequence[int], chosen: int) -> Passage:
    """Rows of a page in their order as one passage, under the headings that they stand under.

    Its place is from the first of them to the last. It is told as cut where the first or the last
    heading has more text than these rows.
    """
    text, place = "", passages[rows[0]].place
    for row in rows:
        passage = passages[row]
        new = passage.place != place
        head = (_differing(place, passage.place) or passage.place.rpartition(BELOW)[2]) * new
        place = passage.place
        text += f"\n\n{head}\n{passage.text}" if head else f"\n\n{_going_on(text, passage.text)}"
    return replace(
        passages[chosen],
        place=_from_to(passages[rows[0]].place, place),
        text=text.strip("\n"),
        begun_before=_together(passages, rows[0] - 1, rows[0]),
        goes_on=_together(passages, rows[-1], rows[-1] + 1),
    )


def _going_on(before: str, text: str) -> str:
    """A passage without the term that it begins with, where it goes on with that term's entry."""
    (term, _, rest), lines = text.partition("\n"), before.split("\n")
    indent = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
    if not (rest and indent) or term != next((x for x in lines[::-1] if x[:1].strip()), ""):
        return text
    return rest if rest[:1].isspace() else indent + rest


def _from_to(first: str, last: str) -> str:
    """Two places of a page as one: "1. Use > 1.1. Syntax - 1.2. Speed"."""
    apart = _differing(first, last)
    return f"{first} - {apart}" if first and apart else first


def _differing(before: str, place: str) -> str:
    """What of a place is not of the one before it: its levels from the first that differs."""
    pairs = zip_longest(place.split(BELOW), before.split(BELOW))
    levels = (level for level, _ in dropwhile(lambda pair: pair[0] == pair[1], pairs))
    return BELOW.join(filter(None, levels))


def _together(passages: Sequence[Passage], row: int, other: int) -> bool:
    """Whether two rows, if there are both, stand under one heading of a page."""
    if min(row, other) < 0 or max(row, other) >= len(passages):
        return False
    one, next_one = passages[row], passages[other]
    return (one.location, one.place) == (next_one.location, next_one.place)


def widened(
    found: Sequence[Passage],
    stands: Callable[[Passage], tuple[Sequence[Passage], int] | None],
    words: int,
    shown: ShownTexts,
) -> list[Passage]:
    """As `Widening.around`; `stands`: where a passage stands, if that is known."""
    wide, taken = list[Passage](), set[Passage]()
    for passage in found:
        if passage in taken:
            continue
        if known := stands(passage):
            page, at = known
            held = [each.text for each in wide if _page_of(each) == _page_of(passage)]
            rows = neighbours(page, at, words, [*shown.get(passage.location, ()), *held])
            taken.update(page[row] for row in rows)
            passage = joined(page, rows, at)
        wide.append(passage)
    return wide


async def around(
    tool: SearchTool, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
) -> list[Passage]:
    """The passages with what stands around them, if the tool knows that."""
    if isinstance(tool, Widening):
        return await tool.around(passages, words, shown)
    return list(passages)


def sources_in(tool: SearchTool) -> Iterator[SearchTool]:
    """The sources of which a tool is made, in their order; itself if it is one."""
    for each in getattr(tool, "searched", ()):
        yield from sources_in(each)
    if not hasattr(tool, "searched"):
        yield tool


def services(tool: SearchTool) -> tuple[str, ...]:
    """The names of the public services that a search of it asks."""
    return tuple(chain.from_iterable(getattr(t, "services", ()) for t in sources_in(tool)))


def of_kind(tool: SearchTool, kind: str) -> SearchTool:
    """The part of it that is of this kind; all of it for "", or if it has no parts."""
    part: SearchTool = tool.of_kind(kind) if kind and hasattr(tool, "of_kind") else tool
    return part


async def page(tool: SearchTool, location: str) -> list[Passage]:
    """All passages of one file or page, if the tool knows it."""
    return await tool.page(location) if isinstance(tool, Widening) else []


WORDS_VERSION = 4
"""part of every index's key: raise it when the words of a text change"""
_RAW = re.compile(r"[^\W\d]\w*+(?:\.[^\W\d]\w*+)*+|\d++(?:[.,]\d++)*+")
_FAR_RAW = re.compile(
    rf"[{PAIRED}]+|[^\W\d{PAIRED}][^\W{PAIRED}]*(?:\.[^\W\d{PAIRED}][^\W{PAIRED}]*)*|\d+(?:[.,]\d+)*"
)
_CASE_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_NOT_FOUND_BY = frozenset(("", "no", "nor", "not"))


def _raw(plain: str) -> list[str]:
    """The raw words of a text in plain letters."""
    if plain.isascii():
        return _RAW.findall(plain)
    return (_FAR_RAW if PAIRED_RUN.search(plain) else _RAW).findall(plain)


def _raw_and_joined(text: str) -> list[str]:
    """The raw words, and words with hyphens once more without them."""
    plain = plain_letters(text)
    raws = _raw(plain)
    raws += hyphenless(plain)
    return raws


@lru_cache(2**15)  # a search of the web indexes its pages, which share most of their words
def expand(raw: str, language: str = "") -> tuple[str, ...]:
    """The words that match one raw word of a text in a language; empty for a stop word."""
    if raw.isalpha() and (raw.islower() or raw.istitle()):
        word = form(raw, language)
        return () if word in _NOT_FOUND_BY else (word,)
    if PAIRED_RUN.match(raw):
        return tuple(pairs(raw))
    names = raw.split(".")
    found = [".".join(names[i:]).lower() for i in range(max(0, len(names) - 4), len(names) - 1)]
    for name in names:
        found += _name_parts(name)
    return tuple(found)


def _name_parts(name: str) -> list[str]:
    whole = name.strip("_").lower()
    if not whole or whole in STOP_WORDS:
        return []
    parts = [part.lower() for part in _CASE_PARTS.findall(name)]
    if len(parts) < 2:
        return [stem(whole)]
    return [whole, *(stem(part) for part in parts if part not in STOP_WORDS)]


def _latin(raws: Sequence[str]) -> str:
    """The language whose stems a passage of these raw words gets; "": English."""
    return foreign({*raws}, raws[0] if raws else "", "")


def words(text: str, language: str = "") -> list[str]:
    """The words of a text in a language in order, without stop words."""
    return [word for raw in _raw_and_joined(text) for word in expand(raw, language)]


INDEX_VERSION = 7
NEW = ".new-"
"""prefix of a folder's name while it is being written"""
_CANDIDATES = 4
"""Passages ranked per requested one, since near-duplicates among them are dropped."""

_NAMED = 3
"""The weight, in words, of an object's name that the query gives in full."""
_MANY = 0.1
"""share of the passages from which their language is tried for a query of unknown language"""
_WORDS = np.dtype("<u8")
_COUNT_BITS = 8
"""of a posting; the rest is the row, so that a folder has at most 2 ** 24 passages"""
_MOST_COUNTED = (1 << _COUNT_BITS) - 1
_ROWS = np.dtype([("end", "<i8"), ("length", "<i4")])
"""of a passage: its end in the file of all, and its words, negative if it only names others"""
_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""k1 and b of BM25"""
_LISTS_WEIGHT, _NUMBERING = 0.5, " -*.0123456789"
"""of what only names others; what stands around a heading in a list"""


@lru_cache(2**15)  # as `expand`
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


class _Arrays(NamedTuple):
    """What is known of the words of passages, each in a file of its name."""

    rows: NDArray[np.void]
    words: NDArray[np.uint64]
    """their hashes, in order"""
    starts: NDArray[np.int64]
    """where the postings of each word begin, and the end of all"""
    postings: NDArray[np.uint32]


class IndexSegment:
    """The passages of one folder on disk, and the postings of their words.

    Raises OSError, ValueError or KeyError if the folder is incomplete.
    """

    def __init__(self, folder: Path, *, public: bool = False) -> None:
        self.folder, self._public = folder, public
        # Plain arrays over the maps: numpy's class for these makes small steps three times as long.
        files = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _Arrays._fields)
        self._arrays = _Arrays(*map(np.asarray, files))
        self.rows = self._arrays.rows
        whole = int(self.rows["end"][-1]) if len(self.rows) else 0
        if (folder / "passages.jsonl").stat().st_size != whole:
            raise ValueError("the passages are cut short")
        self._bytes: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        if whole:
            self._bytes = np.memmap(folder / "passages.jsonl", dtype=np.uint8, mode="r")
        told = json.loads((folder / "notes.json").read_text("utf-8"))
        self.notes: tuple[str, ...] = tuple(told)
        """what the maker of the index reports about it"""

    def passage(self, row: int) -> Passage:
        start = int(self.rows["end"][row - 1]) if row else 0
        end = int(self.rows["end"][row])
        title, location, place, text = json.loads(self._bytes[start:end].tobytes())
        return Passage(title, location, place, text, public=self._public)

    def postings(self, word: int) -> NDArray[np.uint32]:
        """Row and count, packed in one number, of each passage with the word of this hash."""
        _, words, starts, postings = self._arrays
        at = int(words.searchsorted(np.uint64(word)))
        if at == len(words) or int(words[at]) != word:
            return postings[:0]
        return postings[starts[at] : starts[at + 1]]

    def rows_of(self, passage: Passage) -> Iterator[int]:
        """Where a passage stands, if it does."""
        rows = (self.postings(_hash(_page_word(passage.location))) >> _COUNT_BITS).astype(np.int64)
        # Of a page of many passages, few are as long.
        sizes = np.diff(self.rows["end"], prepend=0)[rows]
        for row in rows[sizes == len(_line_of(passage))]:
            if self.passage(row) == passage:
                yield int(row)


def _line_of(passage: Passage) -> bytes:
    """A passage as it is stored."""
    fields = (passage.title, passage.location, passage.place, passage.text)
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _page_word(location: str) -> str:
    """A word of its own for each page, by which its passages are known."""
    return f"#{location}"


class LexicalIndex:
    """BM25 over the passages of several segments. Safe to search from several threads."""

    def __init__(self, *segments: IndexSegment) -> None:
        self.segments = segments
        self.passages = StoredPassages(segments)
        self.notes = tuple(note for segment in segments for note in segment.notes)
        lengths = np.concatenate([[], *(segment.rows["length"] for segment in segments)])
        self._kind_weights = np.where(lengths < 0, _LISTS_WEIGHT, 1).astype(np.float32)
        lengths = np.abs(lengths)
        relative = lengths / max(1.0, float(lengths.mean()) if len(lengths) else 1.0)
        longer = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * relative)
        self._norms: NDArray[np.float32] = longer.astype(np.float32)

    def rank(self, query: str, limit: int) -> list[tuple[int, float]]:
        """At most `limit` rows that share a word with the query, and their scores, best first."""
        # A passage has a word in one of its forms.
        asked = reduce(or_, (Counter(words(query, code)) for code in self._languages(query)))
        names = Counter(_exact_names(_raw(plain_letters(query))) * _NAMED)
        scores = np.zeros(len(self._norms), dtype=np.float32)
        for word, times in (asked + names).items():
            self._score(word, times, scores)
        scores *= self._kind_weights * self.weights(query)
        rows = np.flatnonzero(scores > 0)
        order = np.argsort(-scores[rows], kind="stable")[:limit]
        return [(int(row), float(scores[row])) for row in rows[order]]

    def weights(self, query: str) -> NDArray[np.float32]:
        """The weight by which each passage's score is multiplied, (n,)."""
        return np.ones(len(self._norms), dtype=np.float32)

    def _languages(self, query: str) -> list[str]:
        """Languages, with English (""), in which the words of a query are stemmed."""
        code = language_of(query)
        if code:
            return ["", code] if code in LATIN and self._count(f"@{code}") else [""]
        return ["", *(c for c in LATIN if self._count(f"@{c}") >= _MANY * len(self.passages))]

    def _count(self, word: str) -> int:
        return sum(len(postings) for _, postings in self._postings(word))

    def search(self, query: str, limit: int) -> list[Passage]:
        ranked = self.rank(query, limit * _CANDIDATES)
        return without_near_duplicates((self.passages[row] for row, _ in ranked), limit)

    def around(
        self, found: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        """As `Widening.around`, of passages of this index; others as they are."""
        return widened(found, self._stands, words, shown)

    def _stands(self, passage: Passage) -> tuple[Sequence[Passage], int] | None:
        each = zip(self.passages.firsts, self.segments, strict=True)
        rows = (first + row for first, segment in each for row in segment.rows_of(passage))
        at = next(rows, None)
        return None if at is None else (self.passages, at)

    def page(self, location: str) -> list[Passage]:
        """As `Widening.page`."""
        parts = [(f, p >> _COUNT_BITS) for f, p in self._postings(_page_word(location))]
        found = [self.passages[first + int(row)] for first, rows in parts for row in rows]
        return [passage for passage in found if passage.public == found[0].public]

    def _score(self, word: str, times: int, scores: NDArray[np.float32]) -> None:
        """Add the score of a word, which occurs `times` in the query, to each row that has it."""
        found = self._postings(word)
        count = sum(len(postings) for _, postings in found)
        # The form of Lucene, which is never negative (Kamphuis et al., ECIR 2020).
        rarity = math.log(1 + (len(scores) - count + 0.5) / (count + 0.5))
        for first, postings in found:
            rows = (postings >> _COUNT_BITS).astype(np.int64) + first
            counts = (postings & _MOST_COUNTED).astype(np.float32)
            scores[rows] += np.float32(times * rarity) * counts / (counts + self._norms[rows])

    def _postings(self, word: str) -> list[tuple[int, NDArray[np.uint32]]]:
        """(number of the first row, postings) for each segment that has the word."""
        key = _hash(word)
        each = zip(self.passages.firsts, self.segments, strict=True)
        return [(first, p) for first, segment in each if len(p := segment.postings(key))]


_NAMING = 10.0
"""how many times as often as in any other source a word stands in the source that it names"""
_UNNAMED_WEIGHT = 0.5
"""of passages of the other sources, where a query names some"""


class JointIndex(LexicalIndex):
    """The indexes of several sources ranked as one: how rare a word is, is counted over all.

    A product's manual names the product in some passages alone, so that a query that names it would
    find as much in a manual of another. What a word of the query names, it names for all passages.
    """

    def __init__(self, indexes: Sequence[LexicalIndex]) -> None:
        super().__init__(*(segment for index in indexes for segment in index.segments))
        self.indexes = tuple(indexes)

    def weights(self, query: str) -> NDArray[np.float32]:
        own = np.concatenate([index.weights(query) for index in self.indexes])
        sizes = [len(index.passages) for index in self.indexes]
        return own * np.repeat(self._shares({*words(query)}), sizes)

    def _shares(self, asked: Iterable[str]) -> NDArray[np.float32]:
        """The weight of each source, (n,): less where a word names others."""
        asked = [word for word in asked if len(self.indexes) > 1 and self._count(word)]
        counts = np.array([[index._count(word) for word in asked] for index in self.indexes])
        sizes = np.array([[len(index.passages)] for index in self.indexes])
        rates = (counts + 0.5) / (sizes + 1)
        named = np.zeros(len(self.indexes), dtype=bool)
        if asked:
            named = (rates >= _NAMING * np.sort(rates, axis=0)[-2]).any(axis=1)
        return np.where(named | ~named.any(), 1.0, _UNNAMED_WEIGHT).astype(np.float32)


class StoredPassages(Sequence[Passage]):
    """The passages of segments, read one at a time through memory maps."""

    def __init__(self, segments: Sequence[IndexSegment]) -> None:
        self._segments = segments
        self.firsts = [0, *accumulate(len(segment.rows) for segment in segments)]
        self._count = self.firsts.pop()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._count:
            raise IndexError(row)
        # Of segments without a row the last one begins with the next row, too.
        at = bisect_right(self.firsts, row) - 1
        return self._segments[at].passage(row - self.firsts[at])


def matched_text(passage: Passage) -> str:
    """The text that is indexed for a passage: its text, with title and place."""
    return f"{passage.title}\n{passage.place}\n{passage.text}"


def _exact_names(names: Iterable[str]) -> list[str]:
    """A separate word for each full dotted name, to tell it from its endings."""
    return [f"={name.lower()}" for name in names if "." in name]


class SegmentInMemory(IndexSegment):
    """The passages of one page, and the postings of their words."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self._arrays, self.notes = _arrays_of(passages)
        self.rows = self._arrays.rows

    def passage(self, row: int) -> Passage:
        return self.passages[row]


def nearest(passages: Sequence[Passage], sought: str, question: str) -> list[int]:
    """The rows of a page: first what matches the words sought best, then what does the question."""
    index = LexicalIndex(SegmentInMemory(passages))
    asked = (sought, question)
    ranked = (row for text in asked for row, _ in index.rank(text, len(passages)))
    return list(dict.fromkeys([*ranked, *range(len(passages))]))


def _write_segment(passages: Sequence[Passage], folder: Path, notes: Sequence[str]) -> None:
    """Write what an `IndexSegment` reads into an existing empty folder."""
    arrays, more = _arrays_of(passages)
    (folder / "notes.json").write_text(json.dumps([*notes, *more]), "utf-8")
    with open(folder / "passages.jsonl", "wb") as file:
        for row, passage in enumerate(passages):
            file.write(_line_of(passage))
            arrays.rows["end"][row] = file.tell()
    for name, values in arrays._asdict().items():
        np.save(folder / f"{name}.npy", values)


def _arrays_of(passages: Sequence[Passage]) -> tuple[_Arrays, tuple[str, ...]]:
    """The arrays of a segment, of which `rows` lack the ends, and notes on what is left out."""
    vocabulary: dict[str, int] = {}
    ids, sizes, notes = _word_ids(passages, vocabulary)
    rows = np.zeros(len(passages), dtype=_ROWS)
    rows["length"] = np.asarray(sizes, dtype=np.int64) - 1  # but for the word of its page
    named = chain.from_iterable((p.title, *p.place.split(BELOW)) for p in passages)
    heads = {head.strip(_NUMBERING) for head in named}
    signs = [-1 if _lists(p.text, heads) else 1 for p in passages]
    rows["length"] *= np.asarray(signs, dtype=np.int32)
    hashes = np.fromiter(map(_hash, vocabulary), dtype=_WORDS, count=len(vocabulary))
    order = np.argsort(hashes)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    # One number for each word of each row, so that sorting brings its counts together.
    each = place[np.frombuffer(ids, dtype=np.uint32)]
    each *= max(1, len(rows))
    each += np.repeat(np.arange(len(rows)), sizes)
    del ids, sizes  # of a large file, what is held here is the most that is held at all
    each.sort()
    is_new = np.ones(len(each), dtype=bool)
    np.not_equal(each[1:], each[:-1], out=is_new[1:])
    begins = np.flatnonzero(is_new)
    times = np.minimum(np.diff(begins, append=len(each)), _MOST_COUNTED)
    pairs = each[begins]
    firsts_of_words = np.arange(len(order) + 1) * max(1, len(rows))
    starts = np.searchsorted(pairs, firsts_of_words)
    pairs %= max(1, len(rows))
    postings = ((pairs << _COUNT_BITS) | times).astype(np.uint32)
    return _Arrays(rows, hashes[order], starts, postings), tuple(notes.values())


def _lists(text: str, heads: Collection[str]) -> bool:
    """Whether half of a passage is titles and headings, as of a table of contents."""
    lines = [line.strip(_NUMBERING) for line in text.splitlines()]
    return 2 * sum(len(line) for line in lines if line in heads) > sum(map(len, lines))


MOST_WORDS = 200_000
"""most different words by which a document is found: no book has so many, a log of hashes has"""


def _word_ids(
    passages: Iterable[Passage], vocabulary: dict[str, int]
) -> tuple["array[int]", list[int], dict[str, str]]:
    """For each passage in turn the ids of its words, how many they are, and notes by location.

    New words get the next ids of the vocabulary. A note tells of later words that are left out.
    """
    ids, sizes, notes = array("I"), list[int](), dict[str, str]()
    known_in: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    location, first = "", 0

    def id_of(word: str) -> int:
        return vocabulary.setdefault(word, len(vocabulary))

    for passage in passages:
        if passage.location != location:
            location, first = passage.location, len(vocabulary)
        before = len(ids)
        raws = _raw_and_joined(matched_text(passage))
        known = known_in[code := _latin(raws)]
        new = {*raws}.difference(known)
        if new and len(vocabulary) - first >= MOST_WORDS:
            notes[location] = (
                f"{location} has more than {MOST_WORDS:,} different words: it is not found by "
                "those that it has after them."
            )
            raws, new = [raw for raw in raws if raw in known], set()
        for raw in new:
            known[raw] = tuple(map(id_of, expand(raw, code)))
        # No loop of ours over each word: of ten million it would take as long as all the rest.
        ids.extend(chain.from_iterable(map(known.__getitem__, raws)))
        marks = [_page_word(passage.location), *([f"@{code}"] if code else [])]
        ids.extend(map(id_of, (*_exact_names([passage.place]), *marks)))
        sizes.append(len(ids) - before)
    return ids, sizes, notes


def segment_folder(directory: Path, name: str, key: str) -> Path:
    """Where the segment of this name and key is; each version of the index has its own."""
    return directory / f"{name}-{INDEX_VERSION}.{WORDS_VERSION}-{key[:24]}"


def clear_segments(directory: Path, name: str, used: Sequence[Path]) -> None:
    """Remove the unused ones of a name."""
    for folder in {*directory.glob(f"{name}-*")}.difference(used):
        shutil.rmtree(folder, ignore_errors=True)


def open_segment(folder: Path, *, public: bool = False) -> IndexSegment | None:
    """The segment in the folder; None if it is missing or incomplete."""
    try:
        return IndexSegment(folder, public=public)
    except (OSError, ValueError, KeyError):
        return None


def write_segment(
    passages: Sequence[Passage], place: Path, notes: Sequence[str] = ()
) -> IndexSegment:
    """Index the passages, and put the folder in place atomically, unless a complete one exists."""
    with writable(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=place.parent, prefix=NEW, ignore_cleanup_errors=True
        ) as new:
            _write_segment(passages, Path(new), notes)
            try:
                os.rename(new, place)
            except OSError:
                # Whoever wrote the same meanwhile may have it open: what is whole stays.
                if open_segment(place) is None:
                    shutil.rmtree(place, ignore_errors=True)
                    os.rename(new, place)
    return IndexSegment(place)


def stored_index(
    directory: Path, name: str, key: str, make: Callable[[], Sequence[Passage]]
) -> LexicalIndex:
    """An index of what `make` gives, written unless it is there; others of the name are removed."""
    place = segment_folder(directory, name, key)
    segment = open_segment(place) or write_segment(make(), place)
    clear_segments(directory, name, [place])
    return LexicalIndex(segment)


class Indexed:
    """A source that indexes its passages before it is searched; a `SearchTool` without a name."""

    def __init__(self, cache_dir: Path, on_progress: OnProgress | None = None) -> None:
        self._cache_dir = cache_dir
        self._on_progress = on_progress
        self._index: LexicalIndex | None = None
        self._opening = asyncio.Lock()
        self.problems: tuple[str, ...] = ()
        """what could not be read, or was guessed, as of the last search"""
        self.reading: tuple[str, ...] = ()
        """of these the line that a report repeats: what was read, and what was not"""

    async def search(self, query: str, limit: int) -> list[Passage]:
        index = await self.index_for(query)
        return await asyncio.to_thread(index.search, read_query(query).text, limit)

    async def index_for(self, query: str) -> LexicalIndex:
        """The current index, with what this query needs of it."""
        return await self._ready()

    async def around(
        self, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        index = await self._ready()
        return await asyncio.to_thread(index.around, passages, words, shown)

    async def page(self, location: str) -> list[Passage]:
        index = await self._ready()
        return await asyncio.to_thread(index.page, location)

    async def prepare(self) -> tuple[str, ...]:
        """Bring the index up to date; returns `problems`."""
        await self._ready()
        return self.problems

    async def _ready(self) -> LexicalIndex:
        async with self._opening:
            if self._index is None or self._is_stale():
                self._index = await asyncio.to_thread(self._open)
            return self._index

    def _is_stale(self) -> bool:
        return False

    def _open(self) -> LexicalIndex:
        """The current index, built if there is none."""
        raise NotImplementedError


class PassageCorpus(Indexed):
    """A closed corpus: the given passages, unchanged."""

    name = "passages"

    def __init__(self, passages: Sequence[Passage], cache_dir: Path) -> None:
        super().__init__(cache_dir)
        self._passages = passages
        told = "\n".join(json.dumps(asdict(passage)) for passage in passages)
        self.digest = digest_of(told)

    def _open(self) -> LexicalIndex:
        return stored_index(self._cache_dir, self.name, self.digest, lambda: self._passages)
