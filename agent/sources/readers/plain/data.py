"""Data with names: JSON, JSON Lines, YAML and XML.

A value is a line `pump.seal.hours: 900`, and objects of one kind, one after another, are the rows
of a table. XML becomes the same: an element is what its attributes, elements and text say.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from html import unescape
from typing import Any

from lxml import etree
from lxml.html import defs

from rubricem.agent.sources.readers.document import (
    Block,
    BlockKind,
    Document,
    Input,
    Outline,
    Section,
    title_of,
)
from rubricem.agent.sources.readers.packages import bare
from rubricem.agent.sources.readers.pages import markup
from rubricem.agent.sources.readers.plain.text import read_text
from rubricem.agent.sources.readers.plain.writing import plain, sections_of
from rubricem.agent.sources.readers.tables import table_blocks
from rubricem.memory.errors import SourceError

_DEEPEST = 60
_MOST_VALUES = 1_000_000
"""of a file whose references to itself could make it endless"""
_LONG = 300
"""characters from which on a value is a paragraph"""


def _told(value: Any, path: str, level: int, *, tables: bool) -> Iterator[str | list[Any]]:
    """A value as lines that each name their place in it; with `tables`, rows as a list of them."""
    inner = isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value)
    if isinstance(value, dict) and level < _DEEPEST:
        for name, each in value.items():
            within = f"{path}.{name}" if path else str(name)
            yield from _told(each, within, level + 1, tables=tables)
    elif inner and level < _DEEPEST:
        objects, lists = (all(isinstance(e, kind) for e in value) for kind in (dict, list))
        if tables and (lists or (objects and len(value) > 1)):
            yield from [f"{path}:"] if path else []
            yield value
            return
        for number, each in enumerate(value, 1):
            yield from _told(each, f"{path} {number}".strip(), level + 1, tables=tables)
    elif value is None and path:
        yield f"{path}: null"
    elif text := _scalar(value):
        joint = "\n\n" if "\n" in text or len(text) > _LONG else " "
        yield f"{path}:{joint}{text}" if path else text


def told_lines(value: Any) -> list[str]:
    """A value as lines that each name their place in it."""
    return [line for line in _told(value, "", 0, tables=False) if isinstance(line, str)]


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(filter(None, map(_scalar, value)))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).strip()


def _grid(rows: list[Any]) -> tuple[list[list[str]], int | None]:
    """Cells of objects, under their names, or of lists."""
    if not isinstance(rows[0], dict):
        return [[*map(_joined, row)] for row in rows], None
    told = [dict(_cells(row)) for row in rows]
    names = list(dict.fromkeys(name for row in told for name in row))
    return [names, *([row.get(name, "") for name in names] for row in told)], 1


def _cells(row: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        named = f"{path}.{name}" if path else str(name)
        if isinstance(value, dict) and path.count(".") < _DEEPEST:
            yield from _cells(value, named)
        else:
            yield named, _joined(value)


def _joined(value: Any) -> str:
    """A value within a cell."""
    return "; ".join(told_lines(value)) if isinstance(value, (dict, list)) else _scalar(value)


def _document(value: Any, given: Input, note: str) -> Document:
    outline, lines = Outline(), list[str]()
    for each in (*_told(value, "", 0, tables=True), []):
        if isinstance(each, str):
            lines.append(each)
            continue
        outline.add(BlockKind.PARAGRAPH, "\n".join(lines))
        lines.clear()
        if each:
            outline.extend(table_blocks(*_grid(each)))
    sections = outline.sections()
    title = value.get("title") or value.get("name") if isinstance(value, dict) else ""
    title = title if isinstance(title, str) else ""
    return Document.of(given, sections, title, note)


def _json(text: str) -> Any:
    """A value whose numbers are as they are written: 1.50 is no 1.5."""
    kept: Any = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), str)
    return json.loads(text, object_pairs_hook=_named, **kept)


def _named(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Values by their names; a list of those that have the same."""
    several = dict[str, list[Any]]()
    for name, value in pairs:
        several.setdefault(name, []).append(value)
    return {name: each if len(each) > 1 else each[0] for name, each in several.items()}


def read_json(given: Input) -> Document:
    """A value or, on lines, several; of JSON Lines those that are none are left out, and told.

    What is no JSON, such as one with comments, still says what it says as text.
    """
    text, note = given.text()
    try:
        value = _json(text)
    except ValueError:
        lines, values = [line for line in text.splitlines() if line.strip()], list[Any]()
        for line in lines:
            with suppress(ValueError):
                values.append(_json(line))
        left = len(lines) - len(values)
        if not values or (left and not given.suffix.endswith(("jsonl", "ndjson"))):
            return read_text(given)
        if left:
            told = f"read in part: {left} of its {len(lines)} lines are no JSON"
            note = "; ".join(filter(None, (note, told)))
        value = values if len(values) > 1 else values[0]
    return _document(value, given, note)


def load_yaml(text: str) -> list[Any]:
    """The documents of a file in YAML, each scalar as it is written; raises ValueError.

    Tags that name objects are none.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def mapping(loader: Any, node: Any, deep: bool = False) -> Any:
        names = [name.value for name, _ in node.value if isinstance(name.value, str)]
        if len({*names}) < len(names):
            raise ValueError("a name is there twice")  # the last would hide the others
        return base.construct_mapping(loader, node, deep)

    merging = {"<": [("tag:yaml.org,2002:merge", re.compile("<<"))]}
    own = {"yaml_implicit_resolvers": merging, "construct_mapping": mapping}
    loader = type("AsWritten", (base,), own)
    depth = deepest = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth = max(depth + (1 if bracket[0] in "[{" else -1), 0)
        deepest = max(deepest, depth)
    if deepest > _DEEPEST or re.search(
        rf"(?:[-?] ){{{_DEEPEST}}}|^ {{{9 * _DEEPEST}}}", text, re.M
    ):
        raise ValueError("nested deeper than anybody writes")  # it would end its reader, in C
    try:
        return list(yaml.load_all(text, loader))
    except (yaml.YAMLError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause


def read_yaml(given: Input) -> Document:
    text, note = given.text()
    try:
        values = load_yaml(text)
    except ValueError:
        return read_text(given)  # templates, and tags of other programs
    _check_size(values)
    document = _document(values if len(values) != 1 else values[0], given, note)
    if comments := "\n".join(line.rstrip() for line in _COMMENTED.findall(text)):
        told = Section((), (Block(BlockKind.CODE, comments),))
        document = replace(document, sections=(*document.sections, told))
    return document


_COMMENTED = re.compile(r"^(?:[ \t]*#.*\n)+.*|^.*\S[ \t]+#[ \t].*", re.M)
"""comments of YAML, with the line that they tell of"""


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
    text, note = given.text()
    text = re.sub(r"\A\s*<\?xml[^>]{0,200}\?>", "", text)
    text = _ENTITY.sub(lambda found: unescape(found[0]), text)
    parser = etree.XMLParser(no_network=True, remove_comments=True, remove_pis=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as cause:
        raise SourceError(
            f"{given.name} is no XML: {cause}.", "Mend it, or save it as txt."
        ) from cause
    if bare(root).tag == "html":
        return markup.read_html(given)
    if root.tag in ("rss", "feed", "RDF") and (page := _feed(root)):
        title = _text(next(iter(root.xpath("title | .//channel/title")), None))
        return Document(title_of((), given.stem, title), sections_of(page), note)
    value = _value(root)
    return _document(value if isinstance(value, dict) else {root.tag: value}, given, note)


_SET = ("content", "encoded", "description", "summary")
"""elements that are written in HTML; of those of a feed one may repeat another that is shorter"""
_SCRIPTS = {"superscript": "sup", "subscript": "sub", "lb": "br"}
_WORDS = etree.XPath("boolean(text()[normalize-space()])")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)\w{1,40};", re.I)
"""of a kind of document that is not at hand, most of which are those of HTML"""


def _text(element: etree._Element | None) -> str:
    text = "" if element is None else "".join(map(str, element.itertext()))
    return unescape(" ".join(text.split()))


def _feed(root: etree._Element) -> str:
    """The entries of a feed (RSS, Atom) as a page, each under its title."""
    told: list[str] = []
    for entry in root.iter("item", "entry"):
        parts = {str(e.tag): e for e in entry}
        told.append(f"<h1>{plain(_text(parts.pop('title', None)))}</h1>")
        texts = [parts.pop(name) for name in _SET if name in parts]
        told += (f"<p>{name}: {plain(text)}</p>" for name, e in parts.items() if (text := _text(e)))
        for body in texts[:1]:
            page = "".join(
                (body.text or "", *(etree.tostring(e, encoding="unicode") for e in body))
            )
            told.append(f"<div>{plain(page) if body.get('type') == 'text' else page}</div>")
    return "".join(told)


def _value(element: etree._Element, level: int = 0) -> Any:
    """An element as a string or, if it has attributes or elements beside each other, by name."""
    if level >= _DEEPEST or (len(element) and _WORDS(element)):  # running text
        return _running(element)
    told = _folded(element.text or "")
    if element.tag in _SET and re.search(r"</[a-z][a-z0-9]{0,9}>|<(?:br|p|li)\b", told):
        told = "\n\n".join(section.text for section in sections_of(told))
    if not len(element) and not element.attrib:
        return told
    inner = [(each.tag, _value(each, level + 1)) for each in element]
    fields = _named([*element.attrib.items(), *inner, *[("text", told)][: len(told)]])
    return fields.popitem()[1] if len(fields) == 1 and len(element) > 1 else fields


def _running(element: etree._Element) -> str:
    """Words among elements as they would be on a page; a note stands in brackets."""
    for each in list(element.iterdescendants()):
        each.tag = _SCRIPTS.get(str(each.tag), each.tag)
        if each.tag in ("footnote", "endnote", "fn", "note"):
            each.tag, told = "span", _folded("".join(map(str, each.itertext())))
            each[:], each.text = [], f" [{told}]"
        elif each.tag == "sup" and next(each.iterancestors("xref", "ref"), None) is not None:
            each.set("class", "note")
        elif len(each) > 1 and not (_WORDS(each) or each.tag in defs.tags):  # a list
            for block in (each, *each):
                block.tag = "div"
    return "\n\n".join(section.text for section in markup.sections_of(element))


def _folded(text: str) -> str:
    """Its paragraphs, each on a line."""
    return "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\s*\n", text.strip()))
