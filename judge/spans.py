"""What code finds in a stage's text for a judge: the sentence nearest to a criterion, its cites.

Both say where to look; they prove nothing.
"""

import re
from collections.abc import Collection

_PIECE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(<])|\n+")
_TAG = re.compile(r"</?[a-z_]+(?:\s[^<>]*)?>")
_CITE = re.compile(r"<cite\b[^<>]*\bids?\s*=\s*[\"']([^\"'<>]*)[\"']")
_WORD = re.compile(r"[^\W_]+")
_COMMON_WORDS = (
    "a an and are as at be by for from has have how in is it its not of on or that the their this "
    "to was were what when which with agent answer question says stage"
)
_COMMON = frozenset(_COMMON_WORDS.split())
MOST_CHARACTERS = 300


def words_of(text: str) -> frozenset[str]:
    """Words that carry content, without case and a plural's s."""
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(w.removesuffix("s") if len(w) > 3 else w for w in words if w not in _COMMON)


def closest_span(criterion: str, text: str) -> str:
    """The closest sentence, or cited claim; of equals the shortest; "" if none shares a word."""
    words = words_of(criterion)
    best, rank = "", (0, 0)
    for piece in _PIECE.split(_TAG.sub("\n", text)):
        plain = piece.strip()
        shared = len(words & words_of(plain))
        if shared and (shared, -len(plain)) > rank:
            best, rank = plain, (shared, -len(plain))
    return best[:MOST_CHARACTERS]


def cites_of(text: str, known: Collection[str]) -> str:
    """Which sources a text cites, in words; `known`: the ids of those that were really found."""
    named = dict.fromkeys(name for ids in _CITE.findall(text) for name in re.split(r"[\s,;]+", ids))
    real = [name for name in named if name in known]
    foreign = sum(bool(name) for name in named) - len(real)
    also = f", and {foreign} that were never found" if foreign else ""
    return f"{', '.join(real) or 'none'}{also}"
