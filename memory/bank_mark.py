"""The mark beside the bank's index: where its vectors are, and whose.

It changes with every writing, so that other processes see that they have to look again.
"""

import json
import uuid
from pathlib import Path

from memory.runs import unusable, write_atomically

_NAME = "current.json"


def read_mark(folder: Path) -> str:
    """The mark of an index; "" where there is none."""
    path = folder / _NAME
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise unusable(path, error) from error


def write_mark(folder: Path, place: str, embedder: str) -> str:
    """A new mark, which it returns."""
    mark = json.dumps({"place": place, "embedder": embedder, "mark": uuid.uuid4().hex})
    write_atomically(folder / _NAME, mark)
    return mark


def place_of(mark: str) -> str:
    """The folder or the server that a mark names; "" where it names none."""
    return _told(mark, "place")


def embedder_of(mark: str) -> str:
    """Whose vectors the index holds; "" where there are none."""
    return _told(mark, "embedder")


def _told(mark: str, name: str) -> str:
    try:
        told = json.loads(mark or "{}")
    except ValueError:
        return ""
    value = told.get(name) if isinstance(told, dict) else None
    return value if isinstance(value, str) else ""
