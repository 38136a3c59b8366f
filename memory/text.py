"""Text from outside, made safe to store, and cut into labelled pieces."""

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

Label = TypeVar("Label")

_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with lone surrogates replaced one for one, so that offsets into it still hold.

    Servers that cut an emoji in two, undecodable arguments and file names, and some PDFs bring
    them; no encoding can write them.
    """
    return _LONE.sub("\ufffd", text)


def storable_fields(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: storable(text) for name, text in fields.items()}


def spans(pieces: Sequence[tuple[Label, str]]) -> list[tuple[Label, int, int]]:
    """Start and end of each labelled piece in the text they make together; empty ones left out."""
    found, at = [], 0
    for label, text in pieces:
        found.append((label, at, at + len(text)))
        at += len(text)
    return [span for span in found if span[1] < span[2]]
