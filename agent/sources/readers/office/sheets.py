"""Workbooks (xlsx) from the package's own XML (ECMA-376, SpreadsheetML), row by row.

Values are told as the workbook shows them, merged cells in each row and column that they cover. A
formula whose value is not kept is told in the document's note. (openpyxl leaves numbers as they are
kept and takes three times as long; python-calamine knows no formats either.)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, repeat
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind, Outline
from rubricem.agent.sources.readers.office.drawing import SCRIPTS, add_parts, drawn_runs, is_on
from rubricem.agent.sources.readers.office.formats import BUILT_IN, show
from rubricem.agent.sources.readers.office.page import Page, Run, line_of
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    body_of,
    child_of,
    children_of,
    elements_of,
    in_order,
    package_reader,
    part_of,
    pieces_of,
    relations_of,
    tag_of,
    value_of,
)
from rubricem.agent.sources.readers.tables import (
    MOST_COLUMNS,
    MOST_REPEATED,
    MOST_ROWS,
    Row,
    table_blocks,
)

_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\b[^<>]*?\bref=[\"']([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"
)
_COLUMNS, _NUMBERED = re.compile(rb"<(?:\w+:)?col [^<>]*>"), re.compile(rb"(\w+)=\"(\d{1,9})\"")
_MOST_LISTED = 200
"""columns, or several as one, whose looks are read"""
_LONGEST_PREFIX = 40
_NAMED = 3
"""formulas without a kept value that are told by their places"""
Region = tuple[int, int, int, int]
"""merged cells: first column and row, last column and row, from 1 on"""


@package_reader
def read_sheets(package: ZipFile, name: str) -> tuple[str, Sections, str]:
    """The rows of each sheet, with its name as heading; its comments and charts behind."""
    book = _Book(package, name)
    outline = Outline()
    for listed, part in in_order(package, "xl/workbook.xml", "sheet", name):
        if attribute(listed, "state") not in ("", "visible"):
            book.hidden["sheet"] += 1
            continue
        outline.head(1, sheet := attribute(listed, "name"))
        outline.extend(table_blocks(_Sheet(package, part, name, sheet, book).rows(), placed=True))
        _add_beside(outline, package, part, name)
    notes, more = list[str](), len(book.uncomputed) - _NAMED
    if book.uncomputed:
        places = ", ".join(book.uncomputed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        notes.append(f"read without the values of formulas that it does not keep: {places}")
    if +book.hidden:
        told = (f"{n} {what}{'s' * (n > 1)}" for what, n in sorted((+book.hidden).items()))
        notes.append(f"read without what is hidden in it: {', '.join(told)}")
    return "", outline.sections(), "; ".join(notes)


class _Book:
    """What the sheets of a workbook share: texts, and the format of each style of cells."""

    def __init__(self, package: ZipFile, name: str) -> None:
        texts = elements_of(package, "xl/sharedStrings.xml", "si", name)
        self.strings = [_rich(each) for each in texts]
        book = body_of(package, "xl/workbook.xml", name)
        self.since_1904 = attribute(child_of(book, "workbookPr"), "date1904") in ("1", "true")
        self.hidden = Counter[str]()
        """sheets, columns and rows that nobody sees, which are left out"""
        self.uncomputed: list[str] = []
        """places of formulas without a kept value"""
        styles = part_of(package, "xl/styles.xml", name)
        own = {} if styles is None else {
            attribute(e, "numFmtId"): attribute(e, "formatCode") for e in styles.iter("{*}numFmt")
        }  # fmt: skip
        known = {str(number): code for number, code in BUILT_IN.items()} | own
        fonts = children_of(child_of(styles, "fonts"), "font")
        self.formats = list[str | None]()
        """None of a style that strikes its cells through"""
        for style in children_of(child_of(styles, "cellXfs"), "xf"):
            font = attribute(style, "fontId")
            struck = (
                font.isdecimal() and int(font) < len(fonts) and is_on(fonts[int(font)], "strike")
            )
            self.formats.append(None if struck else known.get(attribute(style, "numFmtId"), ""))


class _Sheet:
    """The rows of a sheet, empty ones where it skips some."""

    def __init__(self, package: ZipFile, part: str, name: str, sheet: str, book: _Book) -> None:
        self._elements = elements_of(package, part, "row", name)
        self._sheet, self._book = sheet, book
        self._hidden = {*_hidden_columns(package, part, name)}
        book.hidden["column"] += len(self._hidden)
        self._starting: dict[int, list[Region]] = defaultdict(list)
        for region in _regions(package, part, name):
            self._starting[region[1]].append(region)
        self._open: list[tuple[Region, str]] = []
        self._left = MOST_REPEATED

    def rows(self) -> Iterator[Row]:
        at = 0
        for element in self._elements:
            told = attribute(element, "r")
            number = min(int(told), MOST_ROWS) if told.isdecimal() else at + 1
            yield from repeat([], number - at - 1)
            at = max(at + 1, number)
            cells: list[str] = []
            for cell in element.iterchildren("{*}c"):
                column = _column(str(cell.get("r", "")).rstrip("0123456789"))
                cells += [""] * (min(column, MOST_COLUMNS) - 1 - len(cells))
                cells.append(self._value(cell, f"row {at}, column {len(cells) + 1}"))
            row = self._merge(cells, at) if self._open or at in self._starting else cells
            is_hidden = element.get("hidden") in ("1", "true")
            self._book.hidden["row"] += is_hidden and bool(row)
            yield [] if is_hidden else self._seen(row)

    def _seen(self, row: Row) -> Row:
        if self._hidden and not isinstance(row, str):
            row = ["" if n in self._hidden else cell for n, cell in enumerate(row, 1)]
        return row

    def _value(self, cell: etree._Element, place: str) -> str:
        kind, style, book = cell.get("t", "n"), str(cell.get("s", "0")), self._book
        styled = int(style) if style.isdecimal() else 0
        code = book.formats[styled] if styled < len(book.formats) else ""
        parts = {tag_of(element): element for element in cell}
        value = (
            parts["v"].text or "" if "v" in parts else _rich(parts["is"]) if "is" in parts else ""
        )
        if code is None:
            return ""
        if kind == "n" and "f" in parts and not value:
            book.uncomputed.append(f"{self._sheet}!{cell.get('r') or place}")
        if kind == "n":
            return show(value, code, since_1904=book.since_1904) if value else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, value)
        known = kind == "s" and value.isdecimal() and int(value) < len(book.strings)
        return book.strings[int(value)] if known else value

    def _merge(self, cells: list[str], at: int) -> Row:
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
            right = min(last, MOST_COLUMNS, left + self._left)
            cells += [""] * (right - len(cells))
            cells[left - 1 : right] = [value] * (right - left + 1)
            self._left -= right - left + 1
        if self._left <= 0:
            self._open = []
        return cells


def _hidden_columns(package: ZipFile, part: str, name: str) -> Iterator[int]:
    """The columns of a sheet that nobody sees, from 1 on; they are listed before its rows."""
    pieces = pieces_of(package, part, name) if part in package.NameToInfo else iter(())
    head = next(pieces, b"").partition(b"<sheetData")[0]
    for listed in islice(_COLUMNS.finditer(head), _MOST_LISTED):
        told = dict(_NUMBERED.findall(listed[0]))
        if told.get(b"hidden") == b"1" and told.keys() >= {b"min", b"max"}:
            yield from range(int(told[b"min"]), min(int(told[b"max"]), MOST_COLUMNS) + 1)


def _regions(package: ZipFile, part: str, name: str) -> Iterator[Region]:
    """The merged cells of a sheet, which stand behind its rows and are needed before."""
    kept = b""
    for piece in pieces_of(package, part, name) if part in package.NameToInfo else ():
        kept += piece
        if (at := kept.find(b"mergeCell")) < 0:
            kept = kept[-len(b"mergeCell") :]
            continue
        kept = kept[max(at - _LONGEST_PREFIX, 0) :]
        whole = kept.rfind(b">") + 1
        for found in _MERGED.finditer(kept[:whole]):
            left, top, right, bottom = (each.decode() for each in found.groups())
            yield _column(left), int(top), _column(right), int(bottom)
        kept = kept[whole:]


def _column(letters: str) -> int:
    column = 0
    for letter in letters[:3].upper():
        column = column * 26 + ord(letter) - 64
    return column


def _rich(element: etree._Element) -> str:
    """A text whose parts may be raised, lowered or struck through; without readings aloud."""
    return line_of(_runs(element))


def _runs(element: etree._Element) -> Iterator[Run]:
    for child in element:
        tag = tag_of(child)
        if tag == "t":
            yield "", child.text or ""
        elif tag == "r":
            layout = child_of(child, "rPr")
            if not is_on(layout, "strike"):
                at = SCRIPTS.get(value_of(layout, "vertAlign"), "")
                yield at, "".join(e.text or "" for e in child if tag_of(e) == "t")


def _add_beside(outline: Outline, package: ZipFile, part: str, name: str) -> None:
    """Comments, and the texts and charts that are drawn over the cells."""
    for other in relations_of(package, part, name).values():
        root = part_of(package, other, name) if other.endswith(".xml") else None
        if root is not None and tag_of(root) == "comments":
            for comment in root.iter("{*}comment"):
                told = " ".join(_rich(e) for e in comment.iterchildren("{*}text"))
                if told:
                    outline.add(BlockKind.NOTE, f"comment on {attribute(comment, 'ref')}: {told}")
        elif root is not None and tag_of(root) == "wsDr":
            page = Page()
            for paragraph in (p for shape in root.iter("{*}sp") for p in shape.iter("{*}p")):
                page.add("p", drawn_runs(paragraph))
            add_parts(page, package, other, root, name)
            for section in page.sections():
                outline.extend(section.blocks)
