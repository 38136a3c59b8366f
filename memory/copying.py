"""What a text has copied from others, word for word, however it was laid out there.

Texts are compared as words without case, punctuation, markup and invisible characters. A
passage is copied where runs of `SHINGLE` words in a row stand in a source just so. Naming the
same facts copies short runs; what is longer counts. A whole sentence counts when it is shorter,
too, if it speaks of answering, citing or readers: pages of the world speak of the world, and
one that speaks of its reader's work is talking to an agent.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory.stripping import visible

SHINGLE = 8
"""words"""
COPIED_WORDS, COPIED_LETTERS = 12, 36
"""of one copied passage from which it counts; a script without spaces makes words of letters"""
COPIED_SHARE = 0.3
"""of a text's shingles from which it counts as put together from sources"""
LEAST_SHINGLES = 8
"""of a text that a share is taken of: 15 words"""
SENTENCE_WORDS = 6
"""of a whole copied sentence about the reader's work"""

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=[\u3002\uff01\uff1f])")
_WORK_WORDS = (
    "agent answer answers assistant citation citations cite cited cites citing instructions note"
    " query queries question questions reader recommend recommends reflection report reports"
    " rubric rubrics search source sources user"
)
_WORK = frozenset(_WORK_WORDS.split())
"""words for what a research agent does and for whom"""


@dataclass(frozen=True, slots=True)
class Copied:
    """How much of a text stands in its sources."""

    passage: str
    """its longest copied passage, as words"""
    words: int
    letters: int
    share: float
    """of the text's shingles, 0 to 1; 0 for a text too short to say"""
    order: str
    """a whole copied sentence about the reader's work, as words, or "" """

    @property
    def counts(self) -> bool:
        """Whether it is more than naming the same things."""
        long = self.words >= COPIED_WORDS and self.letters >= COPIED_LETTERS
        return long or self.share >= COPIED_SHARE or bool(self.order)


def copied(text: str, sources: Sequence[str]) -> Copied:
    """What of the text stands in any of the sources."""
    words, orders = words_of(text), list(_about_work(text))
    shingles = list(_runs(words))
    wanted, known, order = frozenset(shingles), set[tuple[str, ...]](), ""
    for source in sources if words else ():
        read = words_of(source)
        known |= wanted.intersection(_runs(read))
        whole = f" {' '.join(read)} "
        order = order or next((said for said in orders if f" {said} " in whole), "")
    start, end = _longest([shingle in known for shingle in shingles])
    passage = words[start : end + SHINGLE - 1] if end > start else []
    share = sum(s in known for s in shingles) / len(shingles) if shingles else 0.0
    return Copied(
        " ".join(passage),
        len(passage),
        sum(map(len, passage)),
        share if len(shingles) >= LEAST_SHINGLES else 0.0,
        order,
    )


def words_of(text: str) -> list[str]:
    """The words that are compared."""
    plain = unicodedata.normalize("NFKC", visible(_TAG.sub(" ", text)))
    return _WORD.findall(plain.casefold())


def _about_work(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(text):
        words = words_of(sentence)
        if len(words) >= SENTENCE_WORDS and not _WORK.isdisjoint(words):
            yield " ".join(words)


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
