"""Word, from the package's own XML (ECMA-376, WordprocessingML).

Content controls, tables, text boxes, notes, charts and accepted insertions count as text; what is
deleted, struck through or hidden does not. A heading is a paragraph whose style, or a style that it
is based on, is called "heading N" or has an outline level. (mammoth knows neither outline levels
nor styles based on others, and takes ten times as long; python-docx reads no notes, formulas or
text boxes.)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import is_not
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind
from rubricem.agent.sources.readers.formulas import linear_omml
from rubricem.agent.sources.readers.office.drawing import (
    LOWERED,
    NOTED,
    PLAIN,
    RAISED,
    Run,
    RunningOutline,
    cells_of,
    counted,
    drawn_parts,
    is_on,
    join_runs,
)
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    child_of,
    core_title,
    package_reader,
    part_of,
    tag_of,
    value_of,
)
from rubricem.agent.sources.readers.tables import Cell, grid_of, table_blocks
from rubricem.memory.errors import SourceError

_BODY_TEXT = 9
"""outline levels below this one are headings"""
_FAR = 10
"""styles that one is based on at most, as far as its layout goes"""
_NUMBER = re.compile("[0-9]{1,3}")
_DEEPER = re.compile("list (?:bullet|number) ([2-5])")
_PART = "word/document.xml"
_INNER = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag", "body"})
_NO_TEXT = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "sdtPr", "instrText", "rt"})
_SIGNS = {"tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_BOXES = ("drawing", "pict", "AlternateContent", "object")
"""what stands apart from the line that it is anchored in"""
_NO_LAYOUT = etree.Element("none")
_CODE_STYLES = ("source code", "html preformatted")
_GREEK = "αβχδεφγηιϕκλμνοπθρστυϖωξψζΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ"
_SYMBOLS = {0x61 + n if n < 26 else 0x41 + n - 26: letter for n, letter in enumerate(_GREEK)}
_SYMBOLS |= {
    0xA3: "≤", 0xA5: "∞", 0xAC: "←", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "\u00d7",
    0xB5: "∝", 0xB6: "∂", 0xB7: "•", 0xB8: "÷", 0xB9: "≠", 0xBA: "≡", 0xBB: "≈", 0xCE: "∈",
    0xD1: "∇", 0xD6: "√", 0xD7: "⋅", 0xDE: "⇒", 0xE5: "∑", 0xF2: "∫",
}  # fmt: skip
"""characters of the font Symbol, which text holds by number alone"""
_DINGBATS = {0xA8: "☐", 0x6F: "☐", 0xFE: "☑", 0xFD: "☒", 0xFC: "✓", 0xFB: "✗", 0xE0: "→"}


def _of_word(package: ZipFile, name: str) -> tuple[str, Sections]:
    document = part_of(package, _PART, name)
    if document is None:
        raise SourceError(f"{name} holds no document.", "Save it again as docx.")
    body = _Body(package, name)
    body.read(document)
    body.read_leftover_notes()
    return body.title or core_title(package, name), body.outline.sections()


class _Styles:
    """The heading level of a paragraph style, and what its own and the characters' styles set."""

    TITLE = -1

    def __init__(self, styles: etree._Element | None) -> None:
        found = [] if styles is None else [e for e in styles if tag_of(e) == "style"]
        self._by_id = {attribute(style, "styleId"): style for style in found}
        self._names = {key: value_of(e, "name").casefold() for key, e in self._by_id.items()}
        self._levels: dict[str, int] = {}
        self._layouts: dict[tuple[str, str], list[etree._Element]] = {}

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

    def name(self, style_id: str) -> str:
        return self._names.get(style_id, "")

    def layouts(self, style_id: str, kind: str) -> list[etree._Element]:
        """The properties (`kind`: rPr or pPr) of a style and of those that it is based on."""
        key = style_id, kind
        if key not in self._layouts:
            self._layouts[key] = []
            while (style := self._by_id.get(style_id)) is not None and len(
                self._layouts[key]
            ) < _FAR:
                layout = child_of(style, kind)
                self._layouts[key].append(_NO_LAYOUT if layout is None else layout)
                style_id = value_of(style, "basedOn")
        return self._layouts[key]


class _Numbering:
    """The numbers and bullets of list items, counted in the order of the document."""

    def __init__(self, root: etree._Element | None) -> None:
        found = [] if root is None else list(root)
        kinds = {attribute(e, "abstractNumId"): e for e in found if tag_of(e) == "abstractNum"}
        numbers = [e for e in found if tag_of(e) == "num"]
        self._abstract = {attribute(e, "numId"): value_of(e, "abstractNumId") for e in numbers}
        self._levels = {key: self._of(kind) for key, kind in kinds.items()}
        self._starts = {
            (attribute(e, "numId"), attribute(o, "ilvl")): value_of(o, "startOverride")
            for e in numbers
            for o in e
            if tag_of(o) == "lvlOverride" and value_of(o, "startOverride").isdecimal()
        }
        self._counts: dict[str, dict[int, int]] = {}

    @staticmethod
    def _of(kind: etree._Element) -> dict[int, tuple[str, ...]]:
        levels = [e for e in kind if tag_of(e) == "lvl" and attribute(e, "ilvl").isdecimal()]
        told = [tuple(value_of(e, each) for each in ("numFmt", "lvlText", "start")) for e in levels]
        return {int(attribute(e, "ilvl")): each for e, each in zip(levels, told, strict=True)}

    def mark(self, number: str, level: int) -> str:
        """`-`, or the item's number as it is shown."""
        key = self._abstract.get(number, "")
        form, text, start = self._levels.get(key, {}).get(level, ("bullet", "", ""))
        if form in ("bullet", "none", "") or "%" not in text:
            return "-"
        counts = self._counts.setdefault(key, {})
        begin = self._starts.pop((number, str(level)), "")
        if begin:
            counts[level] = int(begin) - 1
        counts[level] = counts.get(level, int(start) - 1 if start.isdecimal() else 0) + 1
        for deeper in [each for each in counts if each > level]:
            del counts[deeper]
        shown = re.sub(r"%(\d)", lambda m: self._count(key, int(m[1]) - 1), text)
        return f"{shown}." if shown.isalnum() else shown

    def _count(self, key: str, level: int) -> str:
        count = self._counts[key].get(level, 1)
        form = self._levels[key].get(level, ("decimal", "", ""))[0]
        return counted(count, form)


@dataclass
class _Notes:
    """Footnotes or endnotes: their texts by id, and the marks of those that were met."""

    elements: dict[str, etree._Element]
    roman: bool = False
    marks: dict[str, str] = field(default_factory=dict)

    def mark(self, key: str, own: str = "") -> str:
        if key not in self.marks:
            number = len(self.marks) + 1
            self.marks[key] = own.strip() or counted(number, "lowerRoman" if self.roman else "")
        return self.marks[key]


class _Body:
    """Reads the body into an outline; notes come at the end of the section that has their mark."""

    def __init__(self, package: ZipFile, name: str) -> None:
        self.outline = RunningOutline()
        self.title = ""
        self._package, self._name = package, name
        self._styles = _Styles(part_of(package, "word/styles.xml", name))
        self._numbering = _Numbering(part_of(package, "word/numbering.xml", name))
        self._notes = {kind: self._noted(kind) for kind in ("footnote", "endnote")}
        self._notes["endnote"].roman = bool(self._notes["footnote"].elements)
        self._boxes: list[etree._Element] = []

    def _noted(self, kind: str) -> _Notes:
        root = part_of(self._package, f"word/{kind}s.xml", self._name)
        found = () if root is None else (e for e in root if tag_of(e) == kind)
        # What draws the line above the notes is among them.
        own = [e for e in found if attribute(e, "type") in ("", "normal")]
        return _Notes({attribute(e, "id") or f"{n} unnamed": e for n, e in enumerate(own)})

    def read(self, parent: etree._Element) -> None:
        for element in parent:
            tag = tag_of(element)
            if tag == "p":
                self._paragraph(element)
            elif tag == "tbl":
                self._table(element)
            elif tag in _INNER:
                self.read(element)
            elif tag in ("oMathPara", "oMath"):
                self.outline.add(BlockKind.FORMULA, linear_omml(element))

    def _note(self, element: etree._Element) -> str:
        told = (" ".join(self._text(p).split()) for p in element.iter("{*}p"))
        return "\n".join(filter(None, told))

    def read_leftover_notes(self) -> None:
        """Notes to which nothing leads, unless that is because it was deleted."""
        left = [e for notes in self._notes.values() for e in notes.elements.values()]
        if left:
            self.outline.head(1, "Notes")
        for element in left:
            self.outline.add(BlockKind.NOTE, self._note(element))

    def _paragraph(self, element: etree._Element) -> None:
        layout = child_of(element, "pPr")
        style = value_of(layout, "pStyle")
        name, before = self._styles.name(style), len(self.outline.notes)
        text = self._text(element).strip()
        if name not in _CODE_STYLES:
            text = " ".join(text.split())
        level = _outline(element) or self._styles.level(style)
        if text and level == _Styles.TITLE:
            self.title = self.title or text
        elif text and level:
            self.outline.head(level, text, before)
        elif text and (mark := self._list_mark(layout, style)):
            self.outline.hold(BlockKind.LIST, f"{mark} {text}")
        elif text and name in ("definition term", "definition"):
            self.outline.hold(
                BlockKind.PARAGRAPH, text if name == "definition term" else f"    {text}"
            )
        else:
            kind = BlockKind.CODE if name in _CODE_STYLES else BlockKind.PARAGRAPH
            formulas = [e for e in element if tag_of(e) == "oMathPara"]
            alone = formulas and len(formulas) == sum(tag_of(e) != "pPr" for e in element)
            self.outline.add(BlockKind.FORMULA if alone else kind, text)
        self._read_boxes()

    def _read_boxes(self) -> None:
        boxes, self._boxes = self._boxes, []
        for box in boxes:
            for content in box.iter("{*}txbxContent"):
                above = takewhile(partial(is_not, box), content.iterancestors())
                if not any(tag_of(each) in ("Fallback", "txbxContent") for each in above):
                    self.read(content)
            self.outline.extend(drawn_parts(self._package, _PART, box, self._name))

    def _list_mark(self, layout: etree._Element | None, style: str) -> str:
        """What stands before a list item, indented by its level; "" if the paragraph is none."""
        own = [] if layout is None else [layout]
        for each in (*own, *self._styles.layouts(style, "pPr")):
            if (listed := child_of(each, "numPr")) is not None:
                number, level = value_of(listed, "numId"), value_of(listed, "ilvl")
                deep = int(level) if _NUMBER.fullmatch(level) else 0
                if number == "0":
                    return ""
                mark = self._numbering.mark(number, deep)
                # Word's own styles for deeper lists have numberings of one level.
                shown = _DEEPER.fullmatch(self._styles.name(style))
                deep = max(deep, int(shown[1]) - 1) if shown else deep
                return "  " * min(deep, _BODY_TEXT) + mark
        return ""

    def _table(self, table: etree._Element) -> None:
        own = ((row, child_of(row, "trPr")) for row in _own(table, "tr"))
        rows = [(row, layout) for row, layout in own if child_of(layout, "del") is None]
        cells = [list(_own(row, "tc")) for row, _ in rows]
        if len(cells) == 1 and len(cells[0]) == 1:
            self.read(cells[0][0])  # a box around text
            return
        heads = [is_on(layout, "tblHeader") for _, layout in rows]
        head = next((n for n, is_head in enumerate(heads) if not is_head), len(heads))
        told = [
            [self._own_cell(cell, is_header=n < head) for cell in row]
            for n, row in enumerate(cells)
        ]
        for (_, layout), before in zip(rows, told, strict=True):
            skipped = cells_of(value_of(layout, "gridBefore"), 0)
            before[:0] = [(Cell(""), "")] * skipped
        self.outline.extend(table_blocks(*grid_of(_merge_down(told))))
        self._read_boxes()

    def _own_cell(self, cell: etree._Element, *, is_header: bool) -> tuple[Cell, str]:
        """A cell, and whether it begins ("restart") or continues ("continue") one over rows."""
        layout = child_of(cell, "tcPr")
        wide = cells_of(value_of(layout, "gridSpan"))
        merged = child_of(layout, "vMerge")
        kind = "" if merged is None else attribute(merged, "val") or "continue"
        return Cell(self._cell(cell), 1, wide, is_header), kind

    def _cell(self, cell: etree._Element) -> str:
        parts: list[str] = []
        for element in _content(cell):
            if tag_of(element) == "p":
                parts.append(self._text(element))
            else:  # a table within
                rows = ([self._cell(e) for e in _own(row, "tc")] for row in _own(element, "tr"))
                parts.append("; ".join(", ".join(filter(None, row)) for row in rows))
        return " ".join(" ".join(parts).split())

    def _text(self, element: etree._Element) -> str:
        return join_runs(self._runs(element))

    def _runs(self, element: etree._Element, *, linked: bool = False) -> Iterator[Run]:
        tag = tag_of(element)
        if tag in _NO_TEXT:
            if tag in ("del", "moveFrom"):
                self._forget_notes(element)
        elif tag == "r":
            yield from self._run(element, linked=linked)
        elif tag in ("oMath", "oMathPara"):
            yield PLAIN, linear_omml(element)
        elif tag in _BOXES:
            self._boxes.append(element)
        else:
            linked = linked or (tag == "hyperlink" and bool(attribute(element, "anchor")))
            for child in element:
                yield from self._runs(child, linked=linked)

    def _run(self, run: etree._Element, *, linked: bool) -> Iterator[Run]:
        at = self._standing(run)
        if at is None:
            self._forget_notes(run)
            return
        if at == RAISED and linked:
            at = NOTED
        for element in run:
            tag = tag_of(element)
            if tag == "t":
                yield at, element.text or ""
            elif tag in _SIGNS:
                yield PLAIN if at == NOTED else at, _SIGNS[tag]
            elif tag == "sym":
                yield at, _symbol(element)
            elif tag in ("footnoteReference", "endnoteReference"):
                notes, key = self._notes[tag.removesuffix("Reference")], attribute(element, "id")
                own = attribute(element, "customMarkFollows") in ("1", "true", "on")
                texts = (e.text or "" for e in run if tag_of(e) == "t")
                yield PLAIN, f"[{notes.mark(key, ''.join(texts) if own else '')}]"
                if (noted := notes.elements.pop(key, None)) is not None:
                    self.outline.notes.append(f"[{notes.marks[key]}] {self._note(noted)}")
                if own:
                    return
            else:
                yield from self._runs(element, linked=linked)

    def _standing(self, run: etree._Element) -> int | None:
        """How a run stands on its line; None if it is struck through or hidden."""
        layout = child_of(run, "rPr")
        if layout is None or not len(layout):
            return PLAIN
        for each in (layout, *self._styles.layouts(value_of(layout, "rStyle"), "rPr")):
            for element in each:
                tag = tag_of(element)
                if tag in ("strike", "dstrike", "vanish") and is_on(each, tag):
                    return None
                if tag == "vertAlign":
                    upright = attribute(element, "val")
                    return {"superscript": RAISED, "subscript": LOWERED}.get(upright, PLAIN)
        return PLAIN

    def _forget_notes(self, element: etree._Element) -> None:
        """What is deleted leads to notes that are so too."""
        for kind, notes in self._notes.items():
            for reference in element.iter(f"{{*}}{kind}Reference"):
                notes.elements.pop(attribute(reference, "id"), None)


def _merge_down(rows: list[list[tuple[Cell, str]]]) -> list[list[Cell]]:
    """The cells that others do not continue, each with the rows that it covers."""
    told: list[list[Cell]] = []
    begun: dict[int, tuple[list[Cell], int]] = {}
    """by column, the row and the place in it of the cell that may go on below"""
    for row in rows:
        told.append([])
        column = 0
        for cell, merged in row:
            if merged == "continue" and column in begun:
                above, at = begun[column]
                above[at] = replace(above[at], rows=above[at].rows + 1)
            else:
                begun.pop(column, None)
                if merged:
                    begun[column] = told[-1], len(told[-1])
                told[-1].append(cell)
            column += cell.columns
    return told


def _content(parent: etree._Element) -> Iterator[etree._Element]:
    """The paragraphs and tables of a cell, those within content controls too."""
    for element in parent:
        if tag_of(element) in ("p", "tbl"):
            yield element
        elif tag_of(element) in _INNER:
            yield from _content(element)


def _own(parent: etree._Element, tag: str) -> Iterator[etree._Element]:
    """The rows of a table or the cells of a row, those within content controls too."""
    for element in parent:
        if tag_of(element) == tag:
            yield element
        elif tag_of(element) in _INNER:
            yield from _own(element, tag)


def _symbol(element: etree._Element) -> str:
    code = attribute(element, "char")
    number = int(code, 16) & 0xFF if re.fullmatch("[0-9A-Fa-f]{1,4}", code) else 0
    font = attribute(element, "font").casefold()
    table = _DINGBATS if "dings" in font else _SYMBOLS
    return table.get(number) or (chr(number) if 32 <= number < 127 and font == "symbol" else "")


def _outline(element: etree._Element) -> int:
    """The heading level set by the element's own formatting, or 0."""
    level = value_of(child_of(element, "pPr"), "outlineLvl")
    return int(level) + 1 if _NUMBER.fullmatch(level) and int(level) < _BODY_TEXT else 0


READERS = dict.fromkeys((".docx", ".docm", ".dotx"), package_reader(_of_word))
