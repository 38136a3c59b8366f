"""Workbooks (xlsx) from the package's own XML (ECMA-376, SpreadsheetML), row by row.

Values are told as the workbook shows them, merged cells in each row and column that they cover. A
formula whose value is not kept is told in the document's note. (openpyxl leaves numbers as they are
kept and takes three times as long; python-calamine knows no formats either.)
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import BlockKind, Outline
from rubricem.agent.sources.readers.office.drawing import SCRIPTS, add_parts, drawn_runs, is_on
from rubricem.agent.sources.readers.office.formats import BUILT_IN, show
from rubricem.agent.sources.readers.office.page import Page, Run, line_of
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    child_of,
    elements_of,
    in_order,
    package_reader,
    part_of,
    pieces_of,
    relations_of,
    tag_of,
    value_of,
)
from rubricem.agent.sources.readers.tables import MOST_COLUMNS, MOST_REPEATED, Row, table_blocks

_MOST_ROWS = 1_048_576
_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\b[^<>]*?\bref=[\"']([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"
)
_LONGEST_PREFIX = 40
_NAMED = 3
"""formulas without a kept value that are told by their places"""


class _Region(NamedTuple):
    """Merged cells: first and last column and row, from 1 on."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, slots=True)
class _Book:
    """What the sheets of a workbook share."""

    strings: list[str]
    codes: list[str]
    """the format of each style of cells"""
    struck: frozenset[int]
    """the styles that strike a cell through"""
    since_1904: bool
    uncomputed: list[str] = field(default_factory=list)
    """places of formulas without a kept value"""


def _of_sheets(package: ZipFile, name: str) -> tuple[str, Sections, str]:
    """The rows of each sheet, with its name as heading; its comments and charts behind."""
    book = _book(package, name)
    outline = Outline()
    for sheet, part in in_order(package, "xl/workbook.xml", "sheet", name):
        outline.head(1, sheet)
        outline.extend(table_blocks(_Sheet(package, part, name, sheet, book).rows(), placed=True))
        _add_beside(outline, package, part, name)
    note, more = "", len(book.uncomputed) - _NAMED
    if book.uncomputed:
        places = ", ".join(book.uncomputed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        note = f"read without the values of formulas that it does not keep: {places}"
    return "", outline.sections(), note


def _book(package: ZipFile, name: str) -> _Book:
    strings = [_rich(each) for each in elements_of(package, "xl/sharedStrings.xml", "si", name)]
    book = part_of(package, "xl/workbook.xml", name)
    old = book is not None and any(
        attribute(e, "date1904") in ("1", "true") for e in book if tag_of(e) == "workbookPr"
    )
    styles = part_of(package, "xl/styles.xml", name)
    if styles is None:
        return _Book(strings, [], frozenset(), old)
    own = {attribute(e, "numFmtId"): attribute(e, "formatCode") for e in styles.iter("{*}numFmt")}
    known = {str(number): code for number, code in BUILT_IN.items()} | own
    formats, fonts = styles.find("{*}cellXfs"), styles.find("{*}fonts")
    styled = [] if formats is None else list(formats)
    out = {str(n) for n, font in enumerate([] if fonts is None else fonts) if is_on(font, "strike")}
    struck = frozenset(n for n, each in enumerate(styled) if attribute(each, "fontId") in out)
    codes = [known.get(attribute(each, "numFmtId"), "") for each in styled]
    return _Book(strings, codes, struck, old)


class _Sheet:
    """The rows of a sheet, empty ones where it skips some."""

    def __init__(self, package: ZipFile, part: str, name: str, sheet: str, book: _Book) -> None:
        self._elements = elements_of(package, part, "row", name)
        self._sheet, self._book = sheet, book
        self._starting: dict[int, list[_Region]] = defaultdict(list)
        for region in _regions(package, part, name):
            self._starting[region.top].append(region)
        self._open: list[tuple[_Region, str]] = []
        self._left = MOST_REPEATED

    def rows(self) -> Iterator[Row]:
        at = 0
        for element in self._elements:
            told = attribute(element, "r")
            number = min(int(told), _MOST_ROWS) if told.isdecimal() else at + 1
            for _ in range(at + 1, number):
                yield []
            at = max(at + 1, number)
            cells = self._cells(element, at)
            yield self._merge(cells, at) if self._open or at in self._starting else cells

    def _cells(self, row: etree._Element, at: int) -> list[str]:
        """The contents of a row's cells, each at the index of its column."""
        cells: list[str] = []
        for cell in row.iterchildren("{*}c"):
            column = _column(str(cell.get("r", "")).rstrip("0123456789"))
            cells += [""] * (min(column, MOST_COLUMNS) - 1 - len(cells))
            cells.append(self._value(cell, at, len(cells)))
        return cells

    def _value(self, cell: etree._Element, at: int, column: int) -> str:
        kind, style = cell.get("t", "n"), str(cell.get("s", "0"))
        styled = int(style) if style.isdecimal() else 0
        value, has_formula = "", False
        for element in cell:
            tag = tag_of(element)
            if tag == "v":
                value = element.text or ""
            elif tag == "is":
                value = _rich(element)
            elif tag == "f":
                has_formula = True
        if styled in self._book.struck:
            return ""
        if kind == "s":
            known = value.isdecimal() and int(value) < len(self._book.strings)
            return self._book.strings[int(value)] if known else value
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, value)
        if kind == "n":
            if has_formula and not value:
                place = f"{cell.get('r') or f'row {at}, column {column + 1}'}"
                self._book.uncomputed.append(f"{self._sheet}!{place}")
            code = self._book.codes[styled] if styled < len(self._book.codes) else ""
            return show(value, code, since_1904=self._book.since_1904) if value else ""
        return value

    def _merge(self, cells: list[str], at: int) -> Row:
        """The row with the values of merged cells repeated; a line if one covers the whole row."""
        self._open = [each for each in self._open if each[0].bottom >= at]
        filled = sum(map(bool, cells))
        for region in self._starting.pop(at, ()):
            value = cells[region.left - 1] if region.left <= len(cells) else ""
            if value and filled == 1 and region.right > region.left == 1:
                return value
            if value:
                self._open.append((region, value))
        if not filled:
            return []  # what covers all of it was told above
        for region, value in self._open:
            right = min(region.right, MOST_COLUMNS, region.left + self._left)
            cells += [""] * (right - len(cells))
            cells[region.left - 1 : right] = [value] * (right - region.left + 1)
            self._left -= right - region.left + 1
        if self._left <= 0:
            self._open = []
        return cells


def _regions(package: ZipFile, part: str, name: str) -> Iterator[_Region]:
    """The merged cells of a sheet, which stand behind its rows and are needed before."""
    kept = b""
    for piece in pieces_of(package, part, name) if part in package.NameToInfo else ():
        kept += piece
        if (at := kept.find(b"mergeCell")) < 0:
            kept = kept[-len(b"mergeCell") :]
        else:
            kept = kept[max(at - _LONGEST_PREFIX, 0) :]
            whole = kept.rfind(b">") + 1
            for found in _MERGED.finditer(kept[:whole]):
                left, top, right, bottom = (each.decode() for each in found.groups())
                yield _Region(_column(left), int(top), _column(right), int(bottom))
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


READERS = dict.fromkeys((".xlsx", ".xlsm"), package_reader(_of_sheets))
