"""What a text has copied from others, word for word, however it was laid out there.

Texts are compared as words without case, punctuation, markup and invisible characters. A
passage is copied where runs of `SHINGLE` words in a row stand in a source just so.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory.printable import printable

SHINGLE = 8
"""words"""
COPIED_WORDS, COPIED_LETTERS = 12, 36
"""of one copied passage from which it counts; a script without spaces makes words of letters"""
COPIED_SHARE = 0.3
"""of a text's shingles from which it counts as put together from sources"""
LEAST_SHINGLES = 8
"""of a text that a share is taken of: 15 words"""

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")


@dataclass(frozen=True, slots=True)
class Copied:
    """How much of a text stands in its sources."""

    passage: str
    """its longest copied passage, as words"""
    words: int
    letters: int
    share: float
    """of the text's shingles, 0 to 1; 0 for a text too short to say"""

    @property
    def counts(self) -> bool:
        """Whether it is more than naming the same things."""
        long = self.words >= COPIED_WORDS and self.letters >= COPIED_LETTERS
        return long or self.share >= COPIED_SHARE


def copied(text: str, sources: Sequence[str]) -> Copied:
    """What of the text stands in any of the sources."""
    words = words_of(text)
    shingles = list(_runs(words))
    wanted = frozenset(shingles)
    known: set[tuple[str, ...]] = set()
    for source in sources if wanted else ():
        known |= wanted.intersection(_runs(words_of(source)))
    start, end = _longest([shingle in known for shingle in shingles])
    passage = words[start : end + SHINGLE - 1] if end > start else []
    share = sum(s in known for s in shingles) / len(shingles) if shingles else 0.0
    return Copied(
        " ".join(passage),
        len(passage),
        sum(map(len, passage)),
        share if len(shingles) >= LEAST_SHINGLES else 0.0,
    )


def words_of(text: str) -> list[str]:
    """The words that are compared."""
    plain = unicodedata.normalize("NFKC", printable(_TAG.sub(" ", text)))
    return _WORD.findall(plain.casefold())


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(SHINGLE)), strict=False)


def _longest(hits: Sequence[bool]) -> tuple[int, int]:
    """Start and end of the longest row of hits; (0, 0) where there is none."""
    best, start = (0, 0), 0
    for at, hit in enumerate((*hits, False)):
        if not hit:
            best = max(best, (start, at), key=lambda span: span[1] - span[0])
            start = at + 1
    return best
