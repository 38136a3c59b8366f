"""The rubric of a question as a checklist: its items, and what the review says of each.

A review is free text. Its sentence about an item is the one that shares most words with it;
the state is read off that sentence, and is `unknown` where it says none.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from agent.overlap import content_words
from agent.reading import rubric_items
from agent.reports.page_stages import latest_rubric
from agent.reports.printable import one_line, printable
from agent.scaffold import Document, parse

State = Literal["open", "met", "partly", "unmet", "unknown"]

ABOUT = 0.3
"""share of an item's words that a sentence about it holds at least"""
LONGEST = 400
"""characters of an item or a note"""
MOST = 100
"""items that are shown; of a review twice as many sentences are looked through"""
Said = Sequence[tuple[str, frozenset[str]]]
"""the sentences of a review, with their words"""
_EVERY = re.compile(r"\b(?:all|both|each|every)\b", re.I)
_STATES: tuple[tuple[State, re.Pattern[str]], ...] = (
    ("partly", re.compile(r"\bpart(?:ly|ial|ially)?\b|\bincomplete", re.I)),
    (
        "unmet",
        re.compile(
            r"\b(?:missing|unmet|unanswered|unsettled|uncovered|lacking|open|absent)\b|"
            r"\bno (?:evidence|source|passage)|\b(?:not|never|nothing|cannot)\b",
            re.I,
        ),
    ),
    (
        "met",
        re.compile(
            r"\bS\d+\b|\b(?:met|covered|settled|satisfied|supported|confirmed|found|fulfilled)\b",
            re.I,
        ),
    ),
)


def checklist(transcript: str) -> list[dict[str, Any]]:
    """The items of the last rubric, as far as the last review has got to."""
    document = parse(printable(transcript))
    items = latest_rubric(document)[:MOST]
    review = _inner(document, "rubric_review")
    said = [(line, content_words(line)) for line in rubric_items(review)[: 2 * MOST]]
    return [_item(number, item, said) for number, item in enumerate(items, start=1)]


def _inner(document: Document, tag: str) -> str:
    blocks = document.find(tag)
    return document.inner(blocks[-1]).strip() if blocks else ""


def _item(number: int, item: str, said: Said) -> dict[str, Any]:
    note = _about(item, said)
    state = state_of(note) if note else "unknown" if said else "open"
    return {
        "n": number,
        "text": one_line(item, LONGEST),
        "state": state,
        "note": one_line(note, LONGEST),
    }


def _about(item: str, said: Said) -> str:
    """The sentence of the review about an item; "" where there is none."""
    words = content_words(item)
    line, shared = max(said, key=lambda each: len(words & each[1]), default=("", frozenset()))
    if words and len(words & shared) >= ABOUT * len(words):
        return line
    return next((line for line, _ in said if _EVERY.search(line)), "")


def state_of(note: str) -> State:
    """What a sentence of a review says of its item."""
    return next((state for state, words in _STATES if words.search(note)), "unknown")
