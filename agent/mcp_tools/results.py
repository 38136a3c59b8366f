"""What a tool returned, as passages that can be cited.

A list of results (objects with a text, perhaps a title and an address) is one passage or more for
each; any other text is cut into passages. Images and sounds are left out, and said to be.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.pages.addresses import normal
from agent.reports.printable import one_line, printable
from agent.sources.passages import split_passages
from memory.interfaces import Passage

PASSAGE_WORDS = 160
MOST_CHARACTERS = 1_000_000
"""of what one call returned"""
MOST_ROWS = 1000
"""of a list of results"""
LONGEST_NAME = 200
_TEXTS = ("text", "content", "snippet", "body", "description", "summary")
_ADDRESSES = ("url", "link", "href", "uri")
_LISTS = ("results", "items", "documents", "result")


def passages_of(
    result: Any, name: str, arguments: Mapping[str, Any] | None = None
) -> tuple[list[Passage], str]:
    """Passages of a `CallToolResult` of the tool `name`, and a note on what was left out.

    What was asked is their place, so that equal results of two calls are two sources.
    """
    asked = ", ".join(f"{key}: {value}" for key, value in (arguments or {}).items())
    place = one_line(asked, LONGEST_NAME)
    texts, left = [], set()
    for block in result.content:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "resource" and hasattr(block.resource, "text"):
            texts.append(block.resource.text)
        elif block.type == "resource_link":
            texts.append(f"{block.title or block.name}: {block.uri}\n{block.description or ''}")
        else:
            left.add(block.type)
    # Servers mostly repeat the structured form as text.
    structured = result.structured_content
    if not texts and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    rows = _rows(structured) or [row for text in texts for row in _rows(_json(text))]
    found = list(_listed(rows, name)) if rows else list(_plain("\n\n".join(texts), name, place))
    note = f"What {name} returned as {', '.join(sorted(left))} is left out." if left else ""
    return found, note


def _json(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip()[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        return None


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """The results in it; none unless every one has a text."""
    if isinstance(value, Mapping):
        held = next((value[k] for k in _LISTS if isinstance(value.get(k), list | dict)), None)
        value = [value] if held is None else held
    if isinstance(value, Mapping):
        return _rows(value)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return []
    whole = all(isinstance(row, Mapping) and _first(row, _TEXTS) for row in value)
    return list(value) if whole else []


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((row[n] for n in names if isinstance(row.get(n), str) and row[n].strip()), "")


def _listed(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Passage]:
    left = MOST_CHARACTERS
    for row in rows[:MOST_ROWS]:
        text = _first(row, _TEXTS)[:left]
        left -= len(text)
        address = normal(_first(row, _ADDRESSES))
        title = one_line(_first(row, ("title", "name")) or address or name, LONGEST_NAME)
        for piece in _pieces(text):
            yield Passage(title, address or _address(name), "", piece)


def _plain(text: str, name: str, place: str) -> Iterator[Passage]:
    for piece in _pieces(text):
        yield Passage(name, _address(name), place, piece)


def _address(name: str) -> str:
    return f"mcp:{name}"


def _pieces(text: str) -> list[str]:
    return split_passages(printable(text[:MOST_CHARACTERS]), PASSAGE_WORDS)
