"""Cutting texts into passages, and keeping one of several that say the same.

A passage is at most MAX_WORDS words, cut between paragraphs, else between lines, else
between sentences, so that what is quoted can be read by itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from memory.interfaces import Passage

MAX_WORDS = 110

OnProgress = Callable[[int, int, str], None]
"""How many are done, how many there are, and what is being done. Any thread calls it."""

_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z0-9`*])")
_LAID_OUT = re.compile(r"^\s*(?:[-*>|#]|\d+[.)]\s|\w+\s*:)|^\s{2,}", re.MULTILINE)
"""Lists, tables, code and fields, whose line breaks mean something."""
_WORD = re.compile(r"\w+")


def split_passages(text: str, max_words: int = MAX_WORDS) -> list[str]:
    """Pieces of the text in order, each of at most `max_words` words, none empty."""
    return list(_merge(_small_pieces(text, max_words), max_words))


def _small_pieces(text: str, max_words: int) -> Iterator[tuple[str, str]]:
    """(what joins it to the piece before, piece), no piece longer than `max_words`."""
    for paragraph in _PARAGRAPH_END.split(text):
        paragraph = paragraph.strip("\n").rstrip()
        if len(paragraph.split()) <= max_words:
            yield "\n\n", paragraph
        else:
            yield from _cut_paragraph(paragraph, max_words)


def _cut_paragraph(paragraph: str, max_words: int) -> Iterator[tuple[str, str]]:
    prose = not _LAID_OUT.search(paragraph)
    lines = [" ".join(paragraph.split())] if prose else paragraph.splitlines()
    joint = "\n\n"
    for line in lines:
        short = len(line.split()) <= max_words
        for sentence in [line] if short else _SENTENCE_END.split(line):
            for piece in _chunks(sentence, max_words):
                yield joint, piece
                joint = " "
        joint = "\n"


def _chunks(sentence: str, max_words: int) -> Iterator[str]:
    """A sentence without end (a table, a log, a list of names) is cut by words."""
    parts = sentence.split()
    if len(parts) <= max_words:
        yield sentence
        return
    for start in range(0, len(parts), max_words):
        yield " ".join(parts[start : start + max_words])


def _merge(pieces: Iterable[tuple[str, str]], max_words: int) -> Iterator[str]:
    passage, size = "", 0
    for joint, piece in pieces:
        count = len(piece.split())
        if passage and size + count > max_words:
            yield passage.strip("\n")
            passage, size = "", 0
        if count:
            passage = passage + joint + piece if passage else piece
            size += count
    if passage.strip():
        yield passage.strip("\n")


def without_near_duplicates(
    passages: Iterable[Passage], limit: int, same: float = 0.85
) -> list[Passage]:
    """The first `limit` passages whose words do not overlap (Jaccard) by `same` or more."""
    kept: list[Passage] = []
    seen: list[frozenset[str]] = []
    for passage in passages:
        if len(kept) == limit:
            break
        found = frozenset(_WORD.findall(passage.text.lower()))
        if not any(_overlap(found, other) >= same for other in seen):
            kept.append(passage)
            seen.append(found)
    return kept


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    either = len(left | right)
    return len(left & right) / either if either else 1.0


def shortened(text: str, most: int) -> str:
    """The text, cut at `most` characters with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
