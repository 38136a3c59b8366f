"""What a reflection must be before it may enter the bank: short, plain, and nobody's mouthpiece.

A model wrote it after reading pages that anybody may have written, and it will stand before the
questions of later runs. So its text is stripped to what it says and capped; what looks like
somebody else's words is flagged, and a flagged reflection waits for a person. Screening can only
lessen the danger: whoever reads the bank still takes what it holds for untrusted text.

A text has copied from what the run read where `SHINGLE` words in a row stand there just so, however
they were laid out: both are compared as words without case, punctuation, markup and invisible
characters. Naming the same facts copies short runs; what is longer counts. A whole sentence
counts when it is shorter, too, if it speaks of answering, citing or readers: pages of the world
speak of the world, and one that speaks of its reader's work is talking to an agent.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rubricem.memory.screening.orders import QUOTED, orders
from rubricem.memory.screening.stripping import Stripped, stripped, visible

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


RUBRICS_CHARACTERS, TAKEAWAYS_CHARACTERS = 1500, 1000
"""the 700 tokens that a policy may write make some 2,500 characters of English in all"""
LONGEST = 20_000
"""characters that are looked at; whatever is behind them is dropped unread"""

_SENTENCE_END = re.compile(r"[.!?](?=\s)|[\u3002\uff01\uff1f]|(?=\n)")
_ENCODED = re.compile(
    r"\b(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}\d)"
    r"[A-Za-z0-9+/]{24,400}={0,2}|\b[A-Za-z0-9+/]{20,400}={1,2}(?![\w=])"
    r"|\b(?=\d*[A-Fa-f])(?=[A-Fa-f]*\d)[0-9A-Fa-f]{32,}\b"
    r"|(?:\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}){6,}"
    r"|\b(?:(?:0x)?[0-9A-Fa-f]{2}[ ,:]+){11,}[0-9A-Fa-f]{2}\b|\b[01]{8}(?: [01]{8}){5,}"
)
_BROKEN = re.compile(r"(?:[()\[\]{},.;:\\/] ?){40,}")
"""what a small model that has lost its thread goes on writing"""
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[opsur]_\w{20,}|\bgithub_pat_\w{20,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{30,}|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|-----BEGIN [A-Z ]+KEY"
    r"|\b(?i:password|passwd|passphrase|api[ _-]?key|secret|token)\s*(?:is|=|:)\s*"
    r"(?=(?:[^\s\d]*\d){3})(?=[^\s]*[A-Za-z])[^\s\"']{8,}"
    r"|/etc/(?:passwd|shadow)\b|\.ssh/|\bid_(?:rsa|ed25519)\b|\.aws/|(?<!\w)\.env\b"
)


@dataclass(frozen=True, slots=True)
class Screened:
    """The two texts as they may be kept; each flag is a sentence that says what is wrong."""

    rubrics: str
    takeaways: str
    flags: tuple[str, ...]


def screened(rubrics: str, takeaways: str, source_texts: Sequence[str]) -> Screened:
    """Both texts stripped and capped; with any flag they are to be kept in quarantine.

    `source_texts` are what the run read, as it was fetched: copying from them is flagged. What
    was screened before passes unchanged. Raises nothing, whatever the texts hold.
    """
    written = [rubrics[:LONGEST], takeaways[:LONGEST]]
    parts = [stripped(text) for text in written]
    whole = "\n\n".join(written)
    kept = "\n\n".join(part.text for part in parts)
    flags = (
        # What was taken out speaks as well as what is left, and taking it out may join words.
        *dict.fromkeys([*orders(kept), *orders(whole)]),
        *_flags_of_parts(parts),
        *_found(_ENCODED, whole, "It holds text in some code"),
        *_found(_BROKEN, kept, "It runs into signs that say nothing"),
        *_found(_SECRET, whole, "It holds what looks like a password, a key or the way to one"),
        *_copying(kept, source_texts),
    )
    return Screened(
        capped(parts[0].text, RUBRICS_CHARACTERS),
        capped(parts[1].text, TAKEAWAYS_CHARACTERS),
        flags,
    )


def capped(text: str, characters: int) -> str:
    """The text in so many characters, up to a sentence's end where half of it can be kept."""
    if len(text) <= characters:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[: characters + 1])]
    at = next((end for end in reversed(ends) if characters // 2 < end <= characters), 0)
    space = text.rfind(" ", 0, characters + 1)
    return text[: at or (space if space > 0 else characters)].rstrip()


def _flags_of_parts(parts: Sequence[Stripped]) -> Iterator[str]:
    if addresses := [_quoted(address) for part in parts for address in part.addresses]:
        yield f"It names an address: {', '.join(dict.fromkeys(addresses))}."
    if markers := [_quoted(marker) for part in parts for marker in part.markers]:
        yield f"It holds marks that part the turns of a chat: {', '.join(dict.fromkeys(markers))}."
    if any(part.hidden for part in parts):
        yield "It held a part that no page would have shown."
    if unseen := sum(part.unseen for part in parts):
        yield f"It held {unseen} characters that cannot be seen."


def _found(pattern: re.Pattern[str], text: str, what: str) -> Iterator[str]:
    if match := pattern.search(text):
        yield f"{what}: {_quoted(match.group())}."


def _copying(text: str, source_texts: Sequence[str]) -> Iterator[str]:
    found = copied(text, source_texts)
    if found.counts:
        yield f"It is copied from what the run read: {_quoted(found.order or found.passage)}."


def _quoted(words: str) -> str:
    return f'"{words}"' if len(words) <= QUOTED else f'"{words[:QUOTED].rstrip()}..."'
