"""Which texts of the web are near copies: copies are one source, however many sites have them.

A text is the set of its shingles, runs of four words without case and punctuation, or of four
characters in scripts without spaces. Each search engine cuts the excerpts of a page differently, so
excerpts are compared by containment, the share of the smaller one that is in the other. A whole
page that quotes another is no copy of it, so pages are compared by resemblance, the share of both;
it is estimated from the smallest hashes of each, which a journal can hold. Source: Broder (1997),
On the resemblance and containment of documents.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest

from rubricem.agent.sources.fetch import normal
from rubricem.memory.language import apart
from rubricem.memory.schema import Passage

SHINGLE = 4
"""words"""
LEAST = 12
"""fewest shingles of a text that can be recognised as a copy: 15 words"""
CONTAINED = 0.8
RESEMBLING = 0.7
SKETCH = 128
"""hashes of a page; the standard deviation of the estimate is then 0.04"""

_WORD = re.compile(r"\w+")

Shingles = frozenset[tuple[str, ...]]
Sketch = Sequence[int]


@lru_cache(64)  # a text is compared with others, and then kept to be compared with
def shingles(text: str) -> Shingles:
    words = _WORD.findall(apart(text.casefold()))
    return frozenset(zip(*(words[i:] for i in range(SHINGLE)), strict=False))


def is_contained(left: Shingles, right: Shingles) -> bool:
    """Whether most of the smaller text is in the larger one."""
    least = min(len(left), len(right))
    return least >= LEAST and len(left & right) >= CONTAINED * least


def sketch(texts: Iterable[str]) -> Sketch:
    """The smallest hashes of a page, in order; the same in every process."""
    found = shingles(" ".join(texts))
    hashes = (blake2b(" ".join(words).encode(), digest_size=6).digest() for words in found)
    return nsmallest(SKETCH, (int.from_bytes(digest) for digest in hashes))


def resembling(left: Sketch, right: Sketch) -> bool:
    """Whether two whole pages are mostly the same, as estimated from their sketches."""
    if min(len(left), len(right)) < LEAST:
        return False
    union = nsmallest(SKETCH, {*left, *right})
    return len({*left} & {*right} & {*union}) >= RESEMBLING * len(union)


class Excerpts:
    """The web texts seen so far in a run, by the id of their source."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, Shingles]] = []

    def original(self, passage: Passage) -> str:
        """The id of the source at another address that already has this text, or ""."""
        address = normal(passage.location)
        if not address:
            return ""
        found = shingles(passage.text)
        others = (entry for entry in self._seen if entry[1] != address)
        return next((i for i, _, seen in others if is_contained(seen, found)), "")

    def add(self, identifier: str, passage: Passage) -> None:
        if address := normal(passage.location):
            self._seen.append((identifier, address, shingles(passage.text)))
