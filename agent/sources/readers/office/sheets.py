"""Workbooks (xlsx) from the package's own XML (ECMA-376, SpreadsheetML), row by row.

Values are told as the workbook shows them, merged cells in each row and column that they cover. A
formula whose value is not kept is told in the document's note. (openpyxl leaves numbers as they are
kept and takes three times as long; python-calamine knows no formats either.)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import repeat

from lxml import etree

from rubricem.agent.sources.readers import tables
from rubricem.agent.sources.readers.document import BlockKind, Outline
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.office.drawing import SCRIPTS, add_parts, drawn_runs, is_on
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.office.page import (
    Page,
    Run,
    count_of,
    line_of,
    seen,
    without_hidden,
)
from rubricem.agent.sources.readers.packages import Package, Sections, package_reader, value_of

_REGION = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})")
_ESCAPED = re.compile(r"_x005F(_x[0-9A-F]{4}_)|_x00[01][0-9A-F]_")
"""a control character, and an underscore before what only looks like one"""
_TAG = re.compile(rb"<(?:\w+:)?(col|mergeCell) ([^<>]*)>")
_LONGEST_TAG = 1000
_SET = re.compile(rb"(\w+)=[\"']([\w:]{1,40})[\"']")
Region = tuple[int, int, int, int]
"""merged cells: first column and row, last column and row, from 1 on"""


@package_reader
def read_sheets(package: Package) -> tuple[str, Sections, str]:
    """The rows of each sheet, with its name as heading; its comments and charts behind."""
    book = _Book(package)
    outline = Outline()
    for listed, part in package.listed("xl/workbook.xml", "sheet"):
        if listed.get("state", "visible") != "visible":
            book.hidden["sheet"] += 1
            continue
        outline.head(1, listed.get("name", ""))
        outline.extend(tables.table_blocks(_Sheet(package, part, book).rows(), placed=True))
        _add_beside(outline, package, part)
    return "", outline.sections(), without_hidden(book.hidden, book.uncomputed)


class _Book:
    """What the sheets of a workbook share: texts, and the format of each style of cells."""

    def __init__(self, package: Package) -> None:
        texts = package.elements("xl/sharedStrings.xml", "si")
        self.strings = [_rich(each) for each in texts]
        book = package.body("xl/workbook.xml")
        self.since_1904 = any(e.get("date1904") in ("1", "true") for e in book.iter("workbookPr"))
        self.hidden = Counter[str]()
        """sheets, columns and rows that nobody sees, which are left out"""
        self.uncomputed = 0
        """formulas without a kept value"""
        styles = package.part("xl/styles.xml")
        own = {e.get("numFmtId"): e.get("formatCode", "") for e in styles.iter("numFmt")}
        known = names_of("formats") | own
        struck = {str(n) for n, e in enumerate(styles.iterfind("fonts/font")) if is_on(e, "strike")}
        self.formats: list[str | None] = [
            None if e.get("fontId") in struck else known.get(e.get("numFmtId"), "")
            for e in styles.iterfind("cellXfs/xf")
        ]
        """None of a style that strikes its cells through"""


class _Sheet:
    """The rows of a sheet, empty ones where it skips some."""

    def __init__(self, package: Package, part: str, book: _Book) -> None:
        self._elements = package.elements(part, "row")
        self._book = book
        self._hidden = set[int]()
        """columns, from 1 on"""
        self._starting: dict[int, list[Region]] = defaultdict(list)
        for tag, told in _tags_of(package, part):
            if found := _REGION.fullmatch(told.get("ref", "")):
                left, right = _column(found[1]), _column(found[3])
                self._starting[int(found[2])].append((left, int(found[2]), right, int(found[4])))
            elif told.get("hidden") in ("1", "true") and tag == "col":
                first, last = (count_of(told.get(each, "")) for each in ("min", "max"))
                self._hidden.update(range(first, min(last, tables.MOST_COLUMNS) + 1))
        book.hidden["column"] += len(self._hidden)
        self._open: list[tuple[Region, str]] = []
        self._left = tables.MOST_REPEATED

    def rows(self) -> Iterator[tables.Row]:
        at = 0
        for element in self._elements:
            told = element.get("r", "")
            number = min(int(told), tables.MOST_ROWS) if told.isdecimal() else at + 1
            yield from repeat([], number - at - 1)
            at = max(at + 1, number)
            cells: list[str] = []
            for cell in element.iterchildren("c"):
                column = _column(cell.get("r", "").rstrip("0123456789"))
                cells += [""] * (min(column, tables.MOST_COLUMNS) - 1 - len(cells))
                cells.append(self._value(cell))
            row = self._merge(cells, at) if self._open or at in self._starting else cells
            is_hidden = element.get("hidden") in ("1", "true")
            self._book.hidden["row"] += is_hidden and bool(row)
            yield [] if is_hidden else seen(row, self._hidden)

    def _value(self, cell: etree._Element) -> str:
        kind, style, book = cell.get("t", "n"), cell.get("s", "0"), self._book
        styled = int(style) if style.isdecimal() else 0
        code = book.formats[styled] if styled < len(book.formats) else ""
        if code is None:
            return ""
        parts = {element.tag: element for element in cell}
        value = _rich(parts["is"]) if "is" in parts else ""
        value = parts["v"].text or "" if "v" in parts else value
        book.uncomputed += kind == "n" and "f" in parts and not value
        if kind == "n":
            return show(value, code, since_1904=book.since_1904) if value else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, value)
        known = kind == "s" and value.isdecimal() and int(value) < len(book.strings)
        book.hidden["lost text"] += kind == "s" and not known
        return book.strings[int(value)] if known else value * (kind != "s")

    def _merge(self, cells: list[str], at: int) -> tables.Row:
        """The row with the values of merged cells repeated; a line if one covers the whole row."""
        self._open = [each for each in self._open if each[0][3] >= at]
        filled = sum(map(bool, cells))
        for region in self._starting.pop(at, ()):
            left, _, right, _ = region
            value = cells[left - 1] if left <= len(cells) else ""
            if value and filled == 1 and right > left == 1:
                return value
            if value:
                self._open.append((region, value))
        if not filled:
            return []  # what covers all of it was told above
        for (left, _, last, _), value in self._open:
            right = min(last, tables.MOST_COLUMNS, left + self._left)
            cells += [""] * (right - len(cells))
            cells[left - 1 : right] = [value] * (right - left + 1)
            self._left -= right - left + 1
        if self._left <= 0:
            self._open = []
        return cells


def _tags_of(package: Package, part: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What a sheet says before and behind its rows of columns and merged cells, with attributes."""
    kept = b""
    for piece in package.pieces(part):
        kept += piece
        whole = kept.rfind(b">") + 1
        for found in _TAG.finditer(kept[:whole]):
            yield found[1].decode(), {k.decode(): v.decode() for k, v in _SET.findall(found[2])}
        kept = kept[whole:][-_LONGEST_TAG:]


def _column(letters: str) -> int:
    column = 0
    for letter in letters[:3].upper():
        column = column * 26 + ord(letter) - 64
    return column


def _rich(element: etree._Element) -> str:
    """A text whose parts may be raised, lowered or struck through; without readings aloud."""
    return _ESCAPED.sub(lambda found: found[1] or " ", line_of(_runs(element))).strip()


def _runs(element: etree._Element) -> Iterator[Run]:
    for child in element:
        if child.tag == "t":
            yield "", child.text or ""
        elif child.tag == "r" and not is_on(child.find("rPr"), "strike"):
            at = SCRIPTS.get(value_of(child, "rPr/vertAlign"), "")
            yield at, "".join(e.text or "" for e in child.iterchildren("t"))


def _add_beside(outline: Outline, package: Package, part: str) -> None:
    """Comments, and the texts and charts that are drawn over the cells."""
    for other in package.relations(part).values():
        root = package.part(other if other.endswith(".xml") else "")
        if root.tag == "comments":
            for comment in root.iter("comment"):
                if told := " ".join(_rich(e) for e in comment.iterchildren("text")):
                    outline.add(BlockKind.NOTE, f"comment on {comment.get('ref')}: {told}")
        elif root.tag == "wsDr":
            page = Page()
            for paragraph in (p for shape in root.iter("sp") for p in shape.iter("p")):
                page.add("p", drawn_runs(paragraph))
            add_parts(page, package, other, root)
            for section in page.sections():
                outline.extend(section.blocks)
