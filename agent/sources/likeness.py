"""Which texts of the web are near copies: copies are one source, however many sites have them.

A text is the set of its shingles, runs of four words without case and punctuation, or of four
characters in scripts without spaces. Each search engine cuts the excerpts of a page differently, so
texts are compared by containment, the share of one that is in another; documents first by the
smallest hashes of each. Source: Broder (1997), On the resemblance and containment of documents.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from itertools import chain, combinations, pairwise

from rubricem.agent.sources.fetch import normal
from rubricem.memory.language import apart
from rubricem.memory.schema import Passage

SHINGLE = 4
"""words"""
LEAST = 12
"""fewest shingles of a text that can be recognised as a copy: 15 words"""
CONTAINED, NEARLY = 0.8, 0.9
SKETCH = 128
"""hashes of a page; the standard deviation of the estimate is then 0.04"""

_WORD = re.compile(r"\w+")

Shingles = frozenset[int]
"""their hashes in this process"""
Sketch = Sequence[int]


@lru_cache(64)  # a text is compared with others, and then kept to be compared with
def shingles(text: str) -> Shingles:
    return frozenset(map(hash, _runs(text)))


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(apart(text.casefold()))
    return zip(*(words[i:] for i in range(SHINGLE)), strict=False)


class Excerpts:
    """The texts seen so far in a run, by the id of their source."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, Passage]] = []
        self._holders = defaultdict[int, list[int]](list)
        """of each shingle: which of those seen have it"""

    def original(self, passage: Passage, *, whole: bool = False) -> str:
        """The id of the source that already has this text, or "".

        Most of a text of the web is in the other (of a page that is read `whole`, nearly all), and
        all its figures are. A file has no word that the other one has not, nor has an excerpt of
        the page itself.
        """
        address, found = normal(passage.location), shingles(passage.text)
        held = map(self._holders.__getitem__, found & self._holders.keys())
        shared = Counter(chain.from_iterable(held))
        least = (NEARLY if whole else CONTAINED) * len(found)
        long = len(found) >= LEAST
        for number in sorted(n for n, count in shared.items() if long and count >= least):
            identifier, at, other = self._seen[number]
            here = (at or other.location) == (address or passage.location)
            if here and (whole or not address):
                continue
            if other.public == passage.public:
                own = figures if at and address and not here else _words
                if own(passage.text) <= _words(other.text):
                    return identifier
        return ""

    def add(self, identifier: str, passage: Passage) -> None:
        for each in shingles(passage.text):
            self._holders[each].append(len(self._seen))
        self._seen.append((identifier, normal(passage.location), passage))


# Copies of a document: one text in several formats


_PRINTED = 20_000
"""characters of a document that they are of"""
_SHARED = 0.5
"""of the hashes, from which on two documents are compared word by word"""
_RENDERED = 0.7
"""of the runs of words of a plain text, that a page made from it has: markup breaks some"""
_MOST_ALIKE = 50
"""documents with a hash in common: it is one of what all of them begin with"""


def print_of(text: str) -> Sketch:
    """What finds the copies of a document: the smallest hashes of its beginning, in order."""
    found = {*_runs(text[:_PRINTED])}
    hashes = (blake2b(" ".join(words).encode(), digest_size=6).digest() for words in found)
    return nsmallest(SKETCH, (int.from_bytes(digest) for digest in hashes))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(apart(text.casefold())))


def copies_among(prints: Mapping[str, Sketch], text_of: Callable[[str], str]) -> dict[str, str]:
    """Which documents say nothing that another one does not say: location -> that other one.

    Such are the html, docx and md of one text. A copy has no word and no number of its own, and
    most of its runs of words are in the other; a new version of a text, or a form filled in anew,
    is none. A plain text beside a page of its name is what the page was made from, and a PDF was
    printed of either: it may have words of its own, those of its markup, or that a line's end
    broke, but no number. `text_of`: the text of a document.
    """
    alike = defaultdict[int, list[str]](list)
    for location in sorted(prints):
        for each in prints[location]:
            alike[each].append(location)
    shared = Counter[tuple[str, str]]()
    for several in alike.values():
        if 1 < len(several) <= _MOST_ALIKE:
            shared.update(combinations(several, 2))
    copies = _made_from(prints, text_of)
    for (one, other), count in sorted(shared.items()):
        least = min(len(prints[one]), len(prints[other]))
        if least < LEAST or count < _SHARED * least or one in copies or other in copies:
            continue
        texts = {location: text_of(location) for location in (one, other)}
        words = {location: _words(text) for location, text in texts.items()}
        # The fuller one is kept; of equals the one that is less deep in folders.
        kept, copy = sorted(texts, key=lambda at: (-len(words[at]), at.count("/"), len(at), at))
        runs = {location: shingles(text) for location, text in texts.items()}
        inside = len(runs[copy] & runs[kept]) >= CONTAINED * len(runs[copy])
        if words[copy] <= words[kept] and inside:
            copies[copy] = kept
    return {copy: copies.get(kept, kept) for copy, kept in copies.items()}


_PLAIN, _MADE = (".txt", ".text", ".adoc", ".rst"), (".html", ".htm", ".xhtml")
"""endings of texts, and of the pages that are made from them"""


def figures(text: str) -> frozenset[str]:
    """Its words that have digits."""
    return frozenset(word for word in _words(text) if any(map(str.isdigit, word)))


def _made_from(locations: Iterable[str], text_of: Callable[[str], str]) -> dict[str, str]:
    """The texts and prints of which a page of the same name holds the most: location -> it."""
    ended = [(at, *_ending(at)) for at in locations]
    pages = {stem: at for kind in (_PLAIN, _MADE) for at, stem, end in ended if end in kind}
    found = dict[str, str]()
    for location, stem, end in ended:
        page = pages.get(stem, location)
        if end not in (*_PLAIN, ".pdf") or page == location:
            continue
        plain, made = text_of(location), text_of(page)
        runs = shingles(plain)
        inside = len(runs & shingles(made)) >= _RENDERED * len(runs)
        if len(runs) >= LEAST and inside and _has_numbers(plain, made):
            found[location] = page
    return found


def _has_numbers(plain: str, made: str) -> bool:
    """Whether each number of a text stands in the other beside a word that it has here, too."""
    words, others = (["", *_WORD.findall(apart(t.casefold())), ""] for t in (plain, made))
    held = frozenset(pairwise(others))
    beside = zip(words, words[1:], words[2:], strict=False)
    numbers = ((a, n, b) for a, n, b in beside if any(map(str.isdigit, n)))
    return all((a, n) in held or (n, b) in held for a, n, b in numbers)


def _ending(location: str) -> tuple[str, str]:
    stem, dot, end = location.rpartition(".")
    return stem, f"{dot}{end}".lower()
