"""How much of a claim stands in a passage, by words: cheap, and blind to meaning.

The overlap is the share of the claim's distinct content words that occur in the passage, from
0 to 1. Words are compared by their stem and without case, identifiers by their parts
(`lru_cache` is "lru" and "cache"); negations count as content, since they turn a claim round.
It says where to look, never that a claim holds.

A forced answer is held to them before anything is shown: a claim shares most of its content words
with the source it cites, every name and number in it stands there, it adds something to what was
said, and it touches the question or its rubric.
"""

import json
import re
from collections.abc import Iterator

from rubricem.agent.sources.index import STOP_WORDS, stem
from rubricem.memory.schema import Source

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""scripts that are written without spaces: each character is a word"""
_WORD = re.compile(
    rf"\d+(?:[.,]\d+)*+(?![^\W_])|[{_WIDE}]|[^\W_{_WIDE}]+(?:['\u2019][^\W_{_WIDE}]+)?+"
)
_STOP = STOP_WORDS - {"no", "nor", "not"}
_ADDRESS = re.compile(r"https?://\S+")
_SIGNATURE = re.compile(r"[\w.]+\([^\n]*\)(?:[ ]->[^\n]*)?|[\w.]+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_LINE_ITEM = re.compile(r"\n(?=\s*(?:[-*•]|\d+[.)])\s)|(?<=[):])\n(?=\s*[^\sa-z])")
_FULL_STOP = re.compile(r"[.!?]['\")\]\u201d\u2019`*]*+\s+(?=[^\sa-z])|[\u3002\uff01\uff1f]")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|dr|mr|mrs|ms|prof|fig|no|st)|\b[A-Z])\.$", re.I
)


def content_words(text: str) -> frozenset[str]:
    """The distinct words that carry the text's content, reduced to a common form."""
    words = (match[0].lower().replace("\u2019", "'") for match in _WORD.finditer(text))
    return frozenset(_form(word) for word in words if word not in _STOP)


def overlap(claim: str, passage: str) -> float:
    """Share of the claim's content words found in the passage; 0 if the claim has none."""
    words = content_words(claim)
    return len(words & content_words(passage)) / len(words) if words else 0.0


def closest_sentence(claim: str, passage: str) -> str:
    """The sentence of the passage that shares most words with the claim, as it stands there.

    Addresses do not count, and a signature counts half: it shares names with any claim about
    what it names. Of equals the shortest in words, then the first. "" if none shares a word.
    """
    words = content_words(claim)
    best, best_rank = "", (0.0, 0)
    for sentence in sentences(passage):
        found = content_words(_ADDRESS.sub(" ", sentence))
        weight = 0.5 if _SIGNATURE.fullmatch(sentence) else 1.0
        rank = (weight * len(words & found), -len(found))
        if rank[0] and rank > best_rank:
            best, best_rank = sentence, rank
    return best


def sentences(text: str) -> Iterator[str]:
    """The sentences, list items and paragraphs of a text, without the space around them."""
    for paragraph in _BLANK_LINE.split(text):
        for item in _LINE_ITEM.split(paragraph):
            start = 0
            for stop in _FULL_STOP.finditer(item):
                if not _ABBREVIATION.search(item[max(start, stop.start() - 6) : stop.start() + 1]):
                    yield item[start : stop.end()].strip()
                    start = stop.end()
            if rest := item[start:].strip():
                yield rest


def _form(word: str) -> str:
    if word.endswith("n't"):
        return "not"
    if word[0].isdigit():
        return word.replace(",", "")
    return stem(word.removesuffix("'s"))


SUPPORT = 0.5
"""share of a claim's words that its source must hold; see agent/research/words.py"""

WORD = re.compile(r"[\w.]+")
NAME = re.compile(r"\w[._]\w|[a-z][A-Z]")
"""inside a word: it is an identifier"""
_EXACT = re.compile(rf"{NAME.pattern}|\d")
"""in a word of a claim: it must stand in the source as it is"""


_CONSTANTS = frozenset({"none", "true", "false"})


def claim_grammar(identifiers: list[str], begin: str = "", *, may_end: bool) -> str:
    """A cite of an id that was really returned, so that none can be invented, or the end.

    `begin`: words that the claim opens with.
    """
    ids = " | ".join(f'"{identifier}"' for identifier in identifiers)
    opening = json.dumps(f'">{begin}', ensure_ascii=False)
    claim = rf'"\n<cite id=\"" id {opening} [^<\n]+ "</cite>"'
    root = f'{claim} | "\\n</answer>"' if may_end else claim
    return f"root ::= {root}\nid ::= {ids}\n"


def holds(source: Source, claim: str) -> bool:
    """Whether a source has most words of a claim, and every name and number in it."""
    text = f"{source.title}\n{source.text}"
    exact = [word.strip(".") for word in WORD.findall(claim) if _EXACT.search(word)]
    return overlap(claim, text) >= SUPPORT and all(_stands(word, text) for word in exact)


def _stands(word: str, text: str) -> bool:
    """Whether a name or number stands in a text whole: 12 is not in 128."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def adds(claim: str, said: list[str]) -> bool:
    """Whether a claim has a content word that was not said yet."""
    return bool(content_words(claim) - content_words(" ".join(said)))


def touches(claim: str, asked: str) -> bool:
    """Whether a claim shares a content word with what was asked; constants are no content."""
    return bool((content_words(claim) & content_words(asked)) - _CONSTANTS)
