"""Words that speak to whoever judges a text, which is no part of the work that is judged."""

import re

PLEADING = (
    r"\b(?:dear|to the|note (?:to|for)(?: the)?|attention) (?:judge|grader|evaluator)s?\b"
    r"|\b(?:give|award|assign|deserves?|rate|score)\b[^.!?\n]{0,40}"
    r"\b(?:full|maximum|max|highest|top|all|\d+)\b[^.!?\n]{0,15}\b(?:points?|marks?|scores?)\b"
)
"""words to a judge or about one's own score, in lower case"""
_PLEADING = re.compile(
    rf"{PLEADING}|\b(?:ignore|disregard|forget)\b[^.!?\n]{{0,25}}"
    r"\b(?:instructions|criteria|rubrics?)\b"
)


def pleading(text: str) -> str:
    """The first words that speak to whoever judges, in lower case, or ""."""
    match = _PLEADING.search(text.casefold())
    return match.group(0) if match else ""
