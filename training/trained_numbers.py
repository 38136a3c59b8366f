"""A training run in numbers, read from its folder without loading torch."""

import json
from pathlib import Path, PurePath
from typing import Any

from memory.errors import StoreError
from memory.runs import unusable


def training_record(folder: Path) -> dict[str, Any]:
    """What the run was told, without its machine's paths; {} where it has not begun."""
    found: dict[str, Any] = _shown(object_of(folder / "run.json"))
    return found


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of each finished step, in order."""
    return objects_of(folder / "metrics.jsonl")


def object_of(path: Path) -> dict[str, Any]:
    """A file's one JSON object; {} where there is no file, StoreError where it is damaged."""
    text = _text(path)
    return _parsed(text, path) if text else {}


def objects_of(path: Path) -> list[dict[str, Any]]:
    """The same of a file with an object in each line; [] where there is no file."""
    return [_parsed(line, path) for line in _text(path).splitlines() if line.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise unusable(path, error) from error
    except UnicodeDecodeError as error:
        raise _damaged(path) from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(value, dict):
        raise _damaged(path)
    return value


def _shown(value: Any) -> Any:
    """Paths, wherever they stand, by their last part."""
    if isinstance(value, dict):
        return {name: _shown(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_shown(held) for held in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value


def _damaged(path: Path) -> StoreError:
    return StoreError(
        f"{path.parent.name}/{path.name} cannot be read.",
        "It was altered after it was written; take it from a copy.",
    )
