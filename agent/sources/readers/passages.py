"""Cutting a section's text into passages that can be read by themselves.

A passage is at most MAX_WORDS words, cut between paragraphs, else between lines, else between
sentences.
"""

import re
import sys
from collections.abc import Iterator, Sequence

from rubricem.memory.language import beginning, length

_SPACE = re.compile(r"\s+")

MAX_WORDS = 110
MOST_CHARACTERS = 4000
"""of a passage"""
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
# Each begins with a mark, which a search finds sooner than white space behind one.
_SENTENCE_END = re.compile(
    r"[.!?]\s+(?=[\"'(A-Z0-9`*\u00c0-\u00de\u0391-\u03a9\u0401-\u042f])"
    r"|[\u061f\u06d4\u0964.!]\s+(?=[\u0590-\u1fff])|[\u3002\uff01\uff1f]"
)
_LAID_OUT = re.compile(
    r"^[^\S\n]*+(?:[-*>|#]|\d+[.)]\s|\w+\s*:)|^[^\S\n]{2}|\S {3,}\S| \| ", re.MULTILINE
)
"""Lists, tables, code, columns and fields, whose line breaks matter."""


_SHARE_OF_HEAD = 1 / 5
"""of a passage's words that what heads the next one may have"""
_SENTENCE = re.compile(r"[^\W\d].*[.!\u06d4\u0964\u3002\uff01][^\w\s]*\Z", re.DOTALL)
_NO_HEAD = re.compile(r"\s|[-*>|#+\u2022]\s|\w{1,3}[.)]\s")
"""how an item of a list or a part of an entry begins"""

MOST_TERM = 12
"""words of an entry's term that is repeated before later parts of the entry"""
_RULE = re.compile(r"[-=~^]{3,}\s*$")


def split_passages(text: str, max_words: int = MAX_WORDS, most: int = sys.maxsize) -> list[str]:
    """The first `most` pieces of the text in order, each of at most `max_words` words, none empty.

    None is longer than `MOST_CHARACTERS` either: a word can be as long as its page. A piece that
    begins within an entry (a term, and its meaning indented below) begins with the term, and none
    ends with a term alone: nowhere else does a page say what an option does. Nor does one end with
    a short paragraph that is no sentence, as a title in bold: it says what the next one is about.
    """
    passages: list[str] = []
    passage, size = "", 0
    for joint, piece, term in _short_pieces(text, max_words):
        count = length(piece)
        long = len(passage) + len(joint) + len(piece) > MOST_CHARACTERS
        if passage and (long or size + count > max_words):
            room = min(int(max_words * _SHARE_OF_HEAD), max_words - count)
            head = "" if long or joint != "\n\n" or piece[:1].isspace() else _head(passage, room)
            passages.append(passage.removesuffix(head).strip("\n"))
            passage, size = head, length(head)
            if len(passages) == most:
                return passages
        if not passage and term and count + length(term) <= max_words:
            piece, count = f"{term}\n{piece}", count + length(term)
        if count:
            passage = passage + joint + piece if passage else piece
            size += count
    return [*passages, passage.strip("\n")] if passage.strip() else passages


def _head(passage: str, room: int) -> str:
    """The short paragraphs at the end that head what follows; "" if they end what precedes."""
    parts = _PARAGRAPH_END.split(passage)
    at = len(parts)
    while at > 1 and not (_SENTENCE.search(parts[at - 1]) or _NO_HEAD.match(parts[at - 1])):
        if length("\n\n".join(parts[at - 1 :])) > room:
            break
        at -= 1
    announced = parts[at - 1].rstrip().endswith(":")
    return "" if at == len(parts) or announced else "\n\n".join(parts[at:])


Piece = tuple[str, str, str]
"""separator from the preceding piece, the piece, and the term of the entry that it continues"""


def _short_pieces(text: str, max_words: int) -> Iterator[Piece]:
    for joint, piece, term in _small_pieces(text, max_words):
        for at in range(0, len(piece) or 1, MOST_CHARACTERS):
            yield joint if not at else "", piece[at : at + MOST_CHARACTERS], term


_LONG_WORD = 32
"""characters; few texts have that many per word"""


def _is_longer(text: str, words: int) -> bool:
    """Whether a text has more than so many words, as counted by `length`.

    Of an endless text mostly only the beginning is looked at.
    """
    near = _LONG_WORD * words
    return length(text[:near]) > words or (len(text) > near and length(text) > words)


def _small_pieces(text: str, max_words: int) -> Iterator[Piece]:
    """The pieces of a text, none longer than `max_words`."""
    term = ""
    for paragraph in _PARAGRAPH_END.split(text):
        paragraph = paragraph.strip("\n").rstrip()
        if not _is_longer(paragraph, max_words):
            yield "\n\n", paragraph, term if paragraph[:1].isspace() else ""
            term = [(term, ""), *_by_term(paragraph.splitlines(), term)][-1][0]
            continue
        prose = not _LAID_OUT.search(paragraph)
        joint = "\n\n"
        lines = [paragraph.strip()] if prose else paragraph.splitlines()
        for own, line in [*_by_term(lines, term)]:
            if not (own or prose or _is_longer(line, max_words)):  # as most rows of a table
                yield joint, line, ""
                joint, term = "\n", ""
                continue
            lead = f"{own}\n" if own and line.startswith(f"{own}\n") else ""
            led, room = line[len(lead) :], max_words - length(own)
            for sentence in _sentences(led) if _is_longer(led, room) else [led]:
                for piece in _cut(sentence, room, folded=prose):
                    yield joint, lead + piece, "" if lead else own
                    joint, lead = "" if "\u2e80" <= piece[-1:] <= "\uffef" else " ", ""
            joint, term = "\n", own


def _by_term(lines: Sequence[str], before: str) -> Iterator[tuple[str, str]]:
    """Each line with the term of its entry; the first line of an entry follows its term.

    `before`: the term of the entry that the preceding lines end in. A term is the lines at the
    margin before an indented one; "" if it is long, and for a line in no entry.
    """
    term, held = before, list[str]()
    for line in lines:
        if not line[:1].isspace():
            held.append(line)
            continue
        if held:
            at = max((n for n, each in enumerate(held, 1) if _RULE.match(each)), default=0)
            yield from (("", each) for each in held[:at])
            term = "\n".join(held[at:])
            if length(term) > MOST_TERM:
                yield from (("", each) for each in held[at:])
                term = ""
            line, held = f"{term}\n{line}" if term else line, []
        yield term, line
    yield from (("", each) for each in held)


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start() + 1]
        start = end.end()
    yield text[start:]


def _cut(sentence: str, max_words: int, *, folded: bool) -> Iterator[str]:
    """The parts of a sentence; an endless one (a table, a log, a list of names) is cut by words."""
    if not _is_longer(sentence, max_words):
        yield _SPACE.sub(" ", sentence) if folded else sentence
        return
    at = 0  # what is left is not copied for each piece: that would take the square of its length
    while piece := beginning(sentence, max_words, at):
        yield " ".join(piece.split())
        at += len(piece)
