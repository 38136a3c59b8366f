"""Data with names: JSON, JSON Lines, YAML and XML.

A value is a line `pump.seal.hours: 900`, and objects of one kind, one after another, are the rows
of a table. XML becomes the same: an element is what its attributes, elements and text say.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from rubricem.agent.sources.readers.document import (
    BlockKind,
    Document,
    Input,
    Outline,
    title_of,
)
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.tables import table_blocks
from rubricem.memory.errors import SourceError

_DEEPEST = 60
_MOST_VALUES = 1_000_000
"""of a file whose references to itself could make it endless"""
_LONG = 300
"""characters from which on a value is a paragraph"""


def told_lines(value: Any, path: str = "", level: int = 0) -> Iterator[str]:
    """A value as lines that each name their place in it."""
    if isinstance(value, dict) and level < _DEEPEST:
        for name, each in value.items():
            yield from told_lines(each, f"{path}.{name}" if path else str(name), level + 1)
    elif isinstance(value, list) and level < _DEEPEST:
        if any(isinstance(each, (dict, list)) for each in value):
            for number, each in enumerate(value, 1):
                yield from told_lines(each, f"{path} {number}".strip(), level + 1)
        elif value:
            yield from told_lines(", ".join(filter(None, map(_scalar, value))), path, level)
    elif text := _scalar(value):
        joint = "\n\n" if "\n" in text or len(text) > _LONG else " "
        yield f"{path}:{joint}{text}" if path else text


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(e, dict) for e in value)


class _Telling:
    """Values on their way into an outline, lines and tables in their order."""

    def __init__(self) -> None:
        self.outline = Outline()
        self._lines: list[str] = []

    def tell(self, value: Any, path: str = "", level: int = 0) -> None:
        if _is_rows(value) and level < _DEEPEST:
            self._table(value, path)
        elif isinstance(value, dict) and level < _DEEPEST:
            for name, each in value.items():
                self.tell(each, f"{path}.{name}" if path else str(name), level + 1)
        elif isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
            if all(isinstance(each, list) for each in value):
                self._table(value, path)
            else:
                for number, each in enumerate(value, 1):
                    self.tell(each, f"{path} {number}".strip(), level + 1)
        else:
            for line in told_lines(value, path, level):
                self._lines.append(line)

    def sections(self) -> Any:
        self._close()
        return self.outline.sections()

    def _close(self) -> None:
        self.outline.add(BlockKind.PARAGRAPH, "\n".join(self._lines))
        self._lines = []

    def _table(self, rows: list[Any], path: str) -> None:
        self._lines += [f"{path}:"] if path else []
        self._close()
        if rows and isinstance(rows[0], dict):
            told = [dict(self._cells(row)) for row in rows]
            names = list(dict.fromkeys(name for row in told for name in row))
            grid = [names, *([row.get(name, "") for name in names] for row in told)]
            self.outline.extend(table_blocks(grid, 1))
        else:
            self.outline.extend(table_blocks([[_joined(each) for each in row] for row in rows]))

    def _cells(self, row: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
        for name, value in row.items():
            named = f"{path}.{name}" if path else str(name)
            if isinstance(value, dict) and path.count(".") < _DEEPEST:
                yield from self._cells(value, named)
            else:
                yield named, _joined(value)


def _joined(value: Any) -> str:
    """A value within a cell."""
    return "; ".join(told_lines(value)) if isinstance(value, (dict, list)) else _scalar(value)


def _document(value: Any, given: Input, note: str) -> Document:
    telling = _Telling()
    telling.tell(value)
    title = value.get("title") or value.get("name") if isinstance(value, dict) else ""
    title = title if isinstance(title, str) else ""
    sections = telling.sections()
    return Document(title_of(sections, given.stem, title), sections, note)


def read_json(given: Input) -> Document:
    text, note = decode(given.content())
    try:
        value = json.loads(text)
    except json.JSONDecodeError as cause:
        try:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError:
            raise SourceError(
                f"{given.name} is no JSON: {cause}.", "Mend it, or save it as txt."
            ) from cause
    return _document(value, given, note)


def read_json_lines(given: Input) -> Document:
    """Each line a value; lines that are none are left out, and told."""
    text, note = decode(given.content())
    values, left = [], 0
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        try:
            values.append(json.loads(line))
        except ValueError:
            left += 1
    if not values:
        raise SourceError(f"{given.name} has no line of JSON.", "Save it as txt.")
    if left:
        note = (
            f"{note}; " * bool(note) + f"read in part: {left} of its {len(lines)} lines are no JSON"
        )
    return _document(values if len(values) > 1 else values[0], given, note)


def load_yaml(text: str) -> list[Any]:
    """The documents of a file in YAML; raises ValueError. Tags that name objects are none."""
    import yaml

    depth = deepest = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth = max(depth + (1 if bracket[0] in "[{" else -1), 0)
        deepest = max(deepest, depth)
    if deepest > _DEEPEST or re.search(
        rf"(?:[-?] ){{{_DEEPEST}}}|^ {{{9 * _DEEPEST}}}", text, re.M
    ):
        raise ValueError("nested deeper than anybody writes")  # it would end its reader, in C
    try:
        return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause


def read_yaml(given: Input) -> Document:
    text, note = decode(given.content())
    try:
        values = load_yaml(text)
    except ValueError:
        # Templates, and tags of other programs: as text it still says what it says.
        from rubricem.agent.sources.readers.plain.text import read_text

        return read_text(given)
    _check_size(values)
    return _document(values if len(values) != 1 else values[0], given, note)


def _check_size(value: Any) -> None:
    """Raises SourceError if there are too many values, those counted anew that are referred to."""
    waiting, left = [value], _MOST_VALUES
    while waiting:
        each = waiting.pop()
        within = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        left -= 1 + len(within)
        if left < 0:
            raise SourceError(f"It holds more than {_MOST_VALUES:,} values.", "Split it.")
        waiting.extend(within)


def read_xml(given: Input) -> Document:
    text, note = decode(given.content())
    text = re.sub(r"\A\s*<\?xml[^>]{0,200}\?>", "", text)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as cause:
        raise SourceError(
            f"{given.name} is no XML: {cause}.", "Mend it, or save it as txt."
        ) from cause
    if etree.QName(root).localname == "html":
        from rubricem.agent.sources.readers.pages.markup import read_html

        return read_html(given)
    value = _value(root)
    value = value if isinstance(value, dict) else {etree.QName(root).localname: value}
    return _document(value, given, note)


def _value(element: etree._Element, level: int = 0) -> Any:
    """An element as a string or, if it has attributes or elements beside each other, by name."""
    children = [each for each in element if isinstance(each.tag, str)]
    within = [element.text, *(each.tail for each in element)]
    own = " ".join(" ".join((each or "").split()) for each in within).strip()
    if not children and not element.attrib:
        return _folded(element.text or "")
    if level >= _DEEPEST or (own and children):  # words among its elements are running text
        return _folded("".join(map(str, element.itertext())))
    fields: dict[str, Any] = {etree.QName(k).localname: str(v) for k, v in element.attrib.items()}
    for each in children:
        name, value = etree.QName(each).localname, _value(each, level + 1)
        known = fields.get(name, _Several())
        several = isinstance(known, _Several)
        fields[name] = (
            value if name not in fields else _Several([*(known if several else [known]), value])
        )
    if own:
        fields["text"] = own
    alone = len(fields) == 1 and isinstance(next(iter(fields.values())), _Several)
    return next(iter(fields.values())) if alone else fields


class _Several(list[Any]):
    """Elements of one name beside each other."""


def _folded(text: str) -> str:
    """Its paragraphs, each on a line."""
    return "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\s*\n", text.strip()))


READERS = {
    ".json": read_json, ".geojson": read_json, ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".yaml": read_yaml, ".yml": read_yaml, ".xml": read_xml, ".rss": read_xml, ".atom": read_xml,
}  # fmt: skip
