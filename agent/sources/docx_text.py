"""The lines of text of a Word document (docx, Office Open XML), and which are headings.

Read from the package's own XML (ECMA-376, WordprocessingML): content controls, tables, text
boxes, footnotes and accepted insertions count as text, deleted text does not. A heading is a
paragraph whose style, or a style that it is based on, is called "heading N" or has an outline
level. Names are matched without their namespace, of which the standard has two.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from lxml import etree

from agent.sources.html_text import Line
from memory.errors import SourceError

MOST_BYTES = 100_000_000
"""of one part, unpacked: a small file may unpack to more than memory holds"""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
"""how a file begins that Word keeps in its older container: .doc, and docx with a password"""
_BODY_TEXT = 9
"""outline levels below are headings"""
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "footnote"})
_NO_TEXT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "instrText", "delText"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def docx_lines(path: Path) -> tuple[str, list[Line]]:
    """(the document's title or "", its lines). Raises SourceError for what cannot be unpacked."""
    with path.open("rb") as file:
        if file.read(4) == _OLD_OR_ENCRYPTED:
            raise SourceError(
                f"{path.name} is encrypted, or an old doc file by another name.",
                "Save a copy of it as docx without a password.",
            )
    try:
        with ZipFile(path) as package:
            return _read(package, path.name)
    except BadZipFile as cause:
        raise SourceError(
            f"{path.name} is no docx file.", "Open it in a word processor and save it as docx."
        ) from cause


def _read(package: ZipFile, name: str) -> tuple[str, list[Line]]:
    document = _part(package, "word/document.xml", name)
    if document is None:
        raise SourceError(f"{name} holds no document.", "Save it anew as docx.")
    styles = _Styles(_part(package, "word/styles.xml", name))
    blocks = list(_blocks(document, styles))
    title = next((line for level, line in blocks if level == _Styles.TITLE), "")
    lines = [(level, line) for level, line in blocks if level != _Styles.TITLE]
    notes = _part(package, "word/footnotes.xml", name)
    told = [] if notes is None else [line for line in _blocks(notes, styles) if line[1].strip()]
    core = _part(package, "docProps/core.xml", name)
    named = "" if core is None else next((e.text or "" for e in core if _tag(e) == "title"), "")
    return title or named.strip(), [*lines, *([(1, "Footnotes"), *told] if told else [])]


def _part(package: ZipFile, part: str, name: str) -> etree._Element | None:
    """The root element of a part, or None where the package has no such part."""
    if part not in package.namelist():
        return None
    with package.open(part) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise SourceError(
            f"{name} unpacks to more than {MOST_BYTES // 1_000_000} MB.", "Split the document."
        )
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    return etree.fromstring(content, parser)


class _Styles:
    """Which heading level, or the title, a paragraph style stands for."""

    TITLE = -1

    def __init__(self, styles: etree._Element | None) -> None:
        found = [] if styles is None else [e for e in styles if _tag(e) == "style"]
        self._by_id = {_attribute(style, "styleId"): style for style in found}

    def level(self, style_id: str) -> int:
        """1 and on for headings, 0 for text, `TITLE` for the document's title."""
        seen: set[str] = set()
        while style_id not in seen and (style := self._by_id.get(style_id)) is not None:
            seen.add(style_id)
            name = _value(style, "name").casefold()
            if name == "title":
                return self.TITLE
            head, _, number = name.rpartition(" ")
            if head == "heading" and number.isdigit():
                return int(number)
            if outline := _outline(style):
                return outline
            style_id = _value(style, "basedOn")
        return 0


def _blocks(parent: etree._Element, styles: _Styles) -> Iterator[Line]:
    for element in parent:
        tag = _tag(element)
        if tag == "p":
            yield from _paragraph(element, styles)
        elif tag == "tbl":
            yield 0, ""
            yield from ((0, row) for row in _rows(element))
            yield 0, ""
        elif tag in _INNER or tag == "body":
            yield from _blocks(element, styles)


def _paragraph(element: etree._Element, styles: _Styles) -> Iterator[Line]:
    text = _text(element).strip()
    layout = next((e for e in element if _tag(e) == "pPr"), None)
    level = 0
    if layout is not None:
        level = _outline(element) or styles.level(_value(layout, "pStyle"))
    if level and text:
        yield level, " ".join(text.split())
    elif text:
        listed = layout is not None and any(_tag(e) == "numPr" for e in layout)
        yield from ((0, line) for line in (f"- {text}" if listed else text).splitlines())
        yield 0, ""


def _rows(table: etree._Element) -> Iterator[str]:
    for row in table.iter("{*}tr"):
        cells = [" ".join(_text(e).split()) for e in row if _tag(e) in ("tc", "sdt")]
        if any(cells):
            yield " | ".join(cells)


def _text(element: etree._Element) -> str:
    tag = _tag(element)
    if tag == "t":
        return element.text or ""
    if tag in _NO_TEXT:
        return ""
    inner = "".join(_text(child) for child in element)
    return _MARKS.get(tag, f"{inner}\n" if tag == "p" else inner)


def _outline(element: etree._Element) -> int:
    """The heading level that the element's own layout sets, or 0."""
    for layout in element:
        if _tag(layout) == "pPr" and (level := _value(layout, "outlineLvl")).isdigit():
            return int(level) + 1 if int(level) < _BODY_TEXT else 0
    return 0


def _tag(element: etree._Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _attribute(element: etree._Element, name: str) -> str:
    attributes: Mapping[str, str] = {etree.QName(k).localname: v for k, v in _items(element)}
    return attributes.get(name, "")


def _items(element: etree._Element) -> list[tuple[str, str]]:
    return [(str(key), str(value)) for key, value in element.attrib.items()]


def _value(parent: etree._Element, name: str) -> str:
    """The `val` of the child called `name`, or ""."""
    return next((_attribute(e, "val") for e in parent if _tag(e) == name), "")
