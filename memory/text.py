"""Text from outside, made safe to store and to show a model, and cut into labelled pieces."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

Label = TypeVar("Label")

MARKERS = (
    r"<(?=[|\uff5c][^<>|\uff5c\n]{1,64}[|\uff5c]>)"
    r"|<(?=/?(?:start_of_turn|end_of_turn|tool_call|tool_response|bos|eos|s)>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])"
)
"""pattern of the first character of what chat templates put between turns"""
_MARKERS = re.compile(MARKERS, re.I | re.A)
_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with lone surrogates replaced one for one, so that offsets into it still hold.

    Servers that cut an emoji in two, undecodable arguments and file names, and some PDFs bring
    them; no encoding can write them.
    """
    return _LONE.sub("\ufffd", text)


def without_markers(text: str) -> str:
    """Untrusted text that can end no chat turn; our own tags and all else stay as they are."""
    return _MARKERS.sub("\u2039", text)


def fenced(parts: Mapping[str, str]) -> str:
    """Named untrusted texts between lines that none of them holds."""
    return "\n".join(
        f"[{mark} {name}]\n{without_markers(text) or '(nothing)'}\n[end of {mark} {name}]"
        for name, text in storable_fields(parts).items()
        for mark in (_mark(text),)
    )


def storable_fields(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: storable(text) for name, text in fields.items()}


LEFT_OUT = " [...] "


def cut(text: str, characters: int | None) -> str:
    """The text's beginning and end in so many characters, with a mark for its middle."""
    if characters is None or len(text) <= characters:
        return text
    room = max(characters - len(LEFT_OUT), 2)
    tail = max(room // 3, 1)
    return f"{text[: room - tail]}{LEFT_OUT}{text[-tail:]}"


def spans(pieces: Sequence[tuple[Label, str]]) -> list[tuple[Label, int, int]]:
    """Start and end of each labelled piece in the text they make together; empty ones left out."""
    found, at = [], 0
    for label, text in pieces:
        found.append((label, at, at + len(text)))
        at += len(text)
    return [span for span in found if span[1] < span[2]]


def _mark(text: str) -> str:
    """Words that the text does not hold, though somebody may have guessed them for it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    marks = (f"text {digest[at : at + 6]}" for at in range(len(digest) - 6))
    return next((mark for mark in marks if mark not in text), f"text {digest}")
