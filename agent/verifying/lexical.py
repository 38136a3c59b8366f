"""The checker that needs no model: what a claim's words, numbers and negations can tell.

It reads the claim against the stretch of the source that shares most with it. A number, name or
quotation that the source does not have, or a word turned round, makes a claim unsupported; then
its clauses count: all found, some, or none. It is blind to meaning that keeps the words (who
did what to whom), and a free paraphrase can look unsupported to it.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from agent.overlap import content_words, sentences
from agent.verifying.pairs import Finding, Findings, Pair
from agent.verifying.polarity import NEGATIONS, contradiction, shares
from agent.verifying.terms import missing_names, missing_numbers, missing_quotations
from memory.schema import Source

NAME = "lexical rules"
STRETCH = 3
"""sentences of a source that are read together"""
ENOUGH = 0.6
"""share of a clause's content words that the stretch must have"""
SAME = 0.6
"""share of a claim's words from which a sentence speaks of the same thing"""
READ = 20
"""stretches read at most"""
NEAR = 0.75
"""of the best stretch's share, from which another stretch is read as well"""

_CLAUSE = re.compile(r";|,?\s+(?:and|but|while|whereas)\s+|,\s+(?:which|who|so|or)\s+", re.I)


class LexicalChecker:
    """A `Checker` by rules alone."""

    name = NAME

    async def check(self, pairs: Sequence[Pair]) -> Findings:
        # A page of many thousand words takes a while.
        return Findings(tuple(await asyncio.to_thread(lambda: list(map(lexical_finding, pairs)))))


def lexical_finding(pair: Pair) -> Finding:
    """What the rules say of a pair."""
    if not content_words(pair.claim) or not _same_script(pair.claim, pair.source.text):
        return Finding("unchecked", "its words cannot be compared with the source's")
    if wrong := fault(pair):
        return Finding("unsupported", wrong)
    stretches = best_stretches(pair.claim, pair.source.text)
    if _missing(pair.claim, pair.source, stretches):
        return Finding("partial", "a part of it stands in another source it cites")
    return _by_clauses(pair.claim, [pair.source.title, *stretches[:1]])


def fault(pair: Pair) -> str:
    """Why a pair cannot be right, whatever a model thinks of it; "" if nothing says so."""
    return must_occur(pair) or _turned(pair.claim, best_stretches(pair.claim, pair.source.text))


def must_occur(pair: Pair) -> str:
    """The first number, name or quotation that no source of the claim has; "" if none.

    What another source of the same claim has is that source's part.
    """
    own = _missing(pair.claim, pair.source, best_stretches(pair.claim, pair.source.text))
    for kind, term in own:
        beside = (_missing(pair.claim, s, [s.text]) for s in pair.beside)
        if all((kind, term) in missing for missing in beside):
            return f'the {kind} "{term}" does not stand in the source'
    return ""


@lru_cache(maxsize=64)
def best_stretches(claim: str, text: str) -> tuple[str, ...]:
    """The stretches that share most with the claim, the best first; ("",) for an empty text."""
    parts = list(sentences(text)) or [""]
    wanted = content_words(claim) - NEGATIONS
    held = [wanted & content_words(part) for part in parts]
    starts = range(max(len(parts) - STRETCH, 0) + 1)
    shared = {i: len(frozenset().union(*held[i : i + STRETCH])) for i in starts}
    ranked = sorted(starts, key=lambda i: -shared[i])[:READ]
    near = (i for i in ranked if shared[i] >= NEAR * shared[ranked[0]])
    return tuple("\n".join(parts[i : i + STRETCH]) for i in near)


def _missing(claim: str, source: Source, stretches: Sequence[str]) -> list[tuple[str, str]]:
    """What the source lacks, by kind. Numbers must stand near the claim's other words."""
    everywhere = "\n".join((source.title, source.place, source.location, source.text))
    numbers = min(
        (missing_numbers(claim, f"{source.title}\n{stretch}") for stretch in stretches), key=len
    )
    return [
        *(("number", number) for number in numbers),
        *(("quotation", quoted) for quoted in missing_quotations(claim, source.text)),
        *(("name", name) for name in missing_names(claim, everywhere)),
    ]


def _turned(claim: str, stretches: Sequence[str]) -> str:
    """How the sentence that comes closest is turned round by the claim; "" if it is not."""
    close = max(
        (s for stretch in stretches for s in sentences(stretch)),
        key=lambda s: shares(claim, s),
        default="",
    )
    return contradiction(claim, close) if shares(claim, close) >= SAME else ""


def _by_clauses(claim: str, texts: Sequence[str]) -> Finding:
    text = "\n".join(texts)
    found = [shares(clause, text) >= ENOUGH for clause in clauses(claim)]
    if all(found):
        return Finding("supported")
    if any(found):
        return Finding("partial", "the source has the words of only a part of it")
    return Finding("unsupported", "the source has few of its words")


def clauses(claim: str) -> list[str]:
    """The parts of a claim that say something by themselves: each of two content words or more."""
    return list(_joined(_CLAUSE.split(claim))) or [claim]


def _joined(parts: Sequence[str]) -> Iterator[str]:
    held = ""
    for part in parts:
        held = f"{held} {part}".strip()
        if len(content_words(held)) > 1:
            yield held
            held = ""


def _same_script(claim: str, text: str) -> bool:
    return _latin(claim) == _latin(text) or not text


def _latin(text: str) -> bool:
    """Whether most letters are Latin ones."""
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter < "\u0250" for letter in letters) >= len(letters)
