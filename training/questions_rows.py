"""A row of a table of questions, and what goes wrong with the file that it stands in."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.errors import SettingsError

COLUMN = "question"
HUB = "hf:"
SHOWN = 8
"""column names told of a table that lacks one"""


@dataclass(frozen=True, slots=True)
class Row:
    """What one row says."""

    number: int
    """from 0, over the rows that are not blank"""
    place: str
    """for a person: `line 3 of q.jsonl`"""
    fields: Mapping[str, Any]


def utf8_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file with their places; a byte order mark is no part of them.

    Raises SettingsError that names the first line which is no UTF-8.
    """
    for number, line in enumerate(content(path).split(b"\n"), start=1):
        place = f"line {number} of {path}"
        yield place, decoded(line, place)


def decoded(written: bytes, place: str) -> str:
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise SettingsError(
            f"{place} is no UTF-8: byte {written[cause.start]:#04x} at {cause.start}.",
            "Save the file as UTF-8.",
        ) from cause


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as cause:
        raise SettingsError(
            f"{path} cannot be read: {cause.strerror or cause}.", "Name a file of questions."
        ) from cause


def lacking(place: str, column: str, has: Iterable[str]) -> SettingsError:
    """The error for a row or table without the column of questions."""
    names = [str(name) for name in has]
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return SettingsError(
        f"{place} has no {column!r}; it has {listed or 'nothing'}.",
        "Name what holds the question with --column.",
    )
