"""Workbooks (xlsx) and other tables (csv)."""

import csv
import re
from collections.abc import Collection
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from zipfile import ZipFile

from lxml import etree

from rubricem.agent.sources.readers.document import Document, Input, Outline
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.packages import (
    Sections,
    attribute,
    core_title,
    in_order,
    package_reader,
    part_of,
    tag_of,
)
from rubricem.agent.sources.readers.tables import table_blocks


def _of_sheets(package: ZipFile, name: str) -> tuple[str, Sections]:
    """The rows of each sheet, with its name as heading."""
    strings = part_of(package, "xl/sharedStrings.xml", name)
    shared = [] if strings is None else [_join_texts(e) for e in strings if tag_of(e) == "si"]
    dates = _date_styles(part_of(package, "xl/styles.xml", name))
    outline = Outline()
    for sheet, part in in_order(package, "xl/workbook.xml", "sheet", name):
        root = part_of(package, part, name)
        rows = () if root is None else root.iter("{*}row")
        outline.head(1, sheet)
        outline.extend(table_blocks((_cells(row, shared, dates) for row in rows), placed=True))
    return core_title(package, name), outline.sections()


MOST_COLUMNS = 16_384


def _cells(row: etree._Element, shared: list[str], dates: Collection[int]) -> list[str]:
    """The contents of a row's cells, each at the index of its column."""
    cells: list[str] = []
    for cell in row.iterchildren("{*}c"):
        column = 0
        for letter in attribute(cell, "r").rstrip("0123456789").upper()[:3]:
            column = column * 26 + ord(letter) - 64
        cells += [""] * (min(column, MOST_COLUMNS) - 1 - len(cells))
        text = _join_texts(cell) if attribute(cell, "t") == "inlineStr" else ""
        value = text or next((e.text or "" for e in cell if tag_of(e) == "v"), "")
        if attribute(cell, "t") == "s" and value.isdecimal() and int(value) < len(shared):
            value = shared[int(value)]
        elif attribute(cell, "t") in ("", "n") and int(attribute(cell, "s") or 0) in dates:
            value = _day(value)
        cells.append(value)
    return cells


def _join_texts(element: etree._Element) -> str:
    spoken = {t for sounds in element.iter("{*}rPh") for t in sounds.iter("{*}t")}
    texts = (t for t in element.iter("{*}t") if t not in spoken)
    return "".join(t.text or "" for t in texts)


_DATE_FORMATS = {*range(14, 23), *range(45, 48)}
"""ids of the built-in formats of dates and times"""
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')


def _date_styles(styles: etree._Element | None) -> set[int]:
    """The cell styles that show a number as a date."""
    if styles is None:
        return set()
    own = {
        int(attribute(e, "numFmtId"))
        for e in styles.iter("{*}numFmt")
        if re.search("[ymdh]", _QUOTED.sub("", attribute(e, "formatCode")), re.IGNORECASE)
    }
    formats = styles.find("{*}cellXfs")
    styled = [] if formats is None else [int(attribute(e, "numFmtId") or 0) for e in formats]
    return {place for place, number in enumerate(styled) if number in _DATE_FORMATS | own}


def _day(serial: str) -> str:
    """The date of days since 1899-12-30, with the time if there is one."""
    try:
        moment = datetime(1899, 12, 30) + timedelta(seconds=round(float(serial) * 86_400))
    except (ValueError, OverflowError):
        return serial
    return moment.isoformat(" ").removesuffix(" 00:00:00")


def read_csv(given: Input) -> Document:
    text, note = decode(given.content())
    try:
        dialect: Any = csv.Sniffer().sniff(text[:10_000], ",;\t|")
    except csv.Error:
        dialect = "excel"
    outline = Outline()
    outline.extend(table_blocks(csv.reader(StringIO(text), dialect), placed=True))
    return Document(given.stem, outline.sections(), note)


READERS = {".xlsx": package_reader(_of_sheets), ".csv": read_csv}
