"""Word, from the package's own XML (ECMA-376, WordprocessingML).

Content controls, tables, text boxes, footnotes and accepted insertions count as text, deleted text
does not. A heading is a paragraph whose style, or a style that it is based on, is called
"heading N" or has an outline level. (mammoth knows neither outline levels nor styles based on
others, and takes ten times as long.)
"""

import re
from collections.abc import Iterator
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Line, by_heading
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    core_title,
    package_reader,
    part_of,
    tag_of,
    value_of,
)
from rubricem.memory.errors import SourceError

_BODY_TEXT = 9
"""outline levels below this one are headings"""
_NUMBER = re.compile("[0-9]{1,3}")
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "footnote"})
_NO_TEXT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def _of_word(package: ZipFile, name: str) -> tuple[str, Sections]:
    document = part_of(package, "word/document.xml", name)
    if document is None:
        raise SourceError(f"{name} holds no document.", "Save it again as docx.")
    styles = _Styles(part_of(package, "word/styles.xml", name))
    blocks = list(_blocks(document, styles))
    title = next((line for level, line in blocks if level == _Styles.TITLE), "")
    lines = [(level, line) for level, line in blocks if level != _Styles.TITLE]
    notes = part_of(package, "word/footnotes.xml", name)
    told = [] if notes is None else [line for line in _blocks(notes, styles) if line[1].strip()]
    lines += [(1, "Footnotes"), *told] if told else []
    return title or core_title(package, name), by_heading(lines)


class _Styles:
    """The heading level of a paragraph style, or that it is the title's."""

    TITLE = -1

    def __init__(self, styles: etree._Element | None) -> None:
        found = [] if styles is None else [e for e in styles if tag_of(e) == "style"]
        self._by_id = {attribute(style, "styleId"): style for style in found}
        self._levels: dict[str, int] = {}

    def level(self, style_id: str) -> int:
        """1 and up for headings, 0 for text, `TITLE` for the document's title."""
        level: int | None = None
        chain: list[str] = []
        while level is None and style_id not in self._levels:
            style = self._by_id.get(style_id)
            level = 0 if style is None else self._own(style)
            # Known before it is found out: a style may be based on itself.
            self._levels[style_id] = 0
            chain.append(style_id)
            style_id = "" if style is None else value_of(style, "basedOn")
        found = self._levels[style_id] if level is None else level
        self._levels |= dict.fromkeys(chain, found)
        return found

    @classmethod
    def _own(cls, style: etree._Element) -> int | None:
        """The level set by the style itself; None if it leaves that to its base style."""
        name = value_of(style, "name").casefold()
        if name == "title":
            return cls.TITLE
        head, _, number = name.rpartition(" ")
        if head == "heading" and _NUMBER.fullmatch(number):
            return int(number)
        return _outline(style) or None


def _blocks(parent: etree._Element, styles: _Styles) -> Iterator[Line]:
    for element in parent:
        tag = tag_of(element)
        if tag == "p":
            yield from _paragraph(element, styles)
        elif tag == "tbl":
            own = (r for r in element.iter("{*}tr") if next(r.iterancestors("{*}tbl")) is element)
            rows = [[e for e in row if tag_of(e) in ("tc", "sdt")] for row in own]
            cells = [[" ".join(_text(cell).split()) for cell in row] for row in rows]
            yield from ((0, line) for line in ("", *map(" | ".join, filter(any, cells)), ""))
        elif tag in _INNER or tag == "body":
            yield from _blocks(element, styles)


def _paragraph(element: etree._Element, styles: _Styles) -> Iterator[Line]:
    text = _text(element).strip()
    layout = next((e for e in element if tag_of(e) == "pPr"), None)
    level = 0
    if layout is not None:
        level = _outline(element) or styles.level(value_of(layout, "pStyle"))
    if level and text:
        yield level, " ".join(text.split())
    elif text:
        listed = layout is not None and any(tag_of(e) == "numPr" for e in layout)
        yield from ((0, line) for line in (f"- {text}" if listed else text).splitlines())
        yield 0, ""


def _text(element: etree._Element) -> str:
    tag = tag_of(element)
    if tag == "t":
        return element.text or ""
    if tag in _NO_TEXT:
        return ""
    inner = "".join(_text(child) for child in element)
    return _MARKS.get(tag, f"{inner}\n" if tag == "p" else inner)


def _outline(element: etree._Element) -> int:
    """The heading level set by the element's own formatting, or 0."""
    for layout in element:
        if tag_of(layout) == "pPr" and _NUMBER.fullmatch(level := value_of(layout, "outlineLvl")):
            return int(level) + 1 if int(level) < _BODY_TEXT else 0
    return 0


READERS = {".docx": package_reader(_of_word)}
