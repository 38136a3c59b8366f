"""What may be claimed in a forced answer: of ids that exist, what their sources really hold.

Checked by words alone, before anything is shown: a claim shares most of its content words with
the source it cites, every name and number in it stands there, it adds something to what was
said, and it touches the question or its rubric. What a claim means is not checked here.
"""

import json
import re

from agent.overlap import content_words, overlap
from memory.schema import Source

SUPPORT = 0.5
"""share of a claim's words that its source must hold; see agent/overlap.py"""

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
