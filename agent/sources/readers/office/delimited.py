"""Tables as text (csv, tsv), read as they stream from the file.

The encoding is told from the first text that is not ASCII, the delimiter from how many columns it
gives the lines. (Python's own Sniffer looks at the first lines alone, which may be no rows.)
"""

import csv
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from io import StringIO, TextIOWrapper
from itertools import islice
from typing import Any, BinaryIO

from rubricem.agent.sources.readers.document import Block, Document, Input, Outline
from rubricem.agent.sources.readers.encoding import decode, encoding_of
from rubricem.agent.sources.readers.tables import MOST_ROWS, table_blocks

DELIMITERS = "\t;|,"
MOST_BYTES = 110_000_000
"""that are told of a file, with the names of columns: nearly what a reading process may tell"""
_SAMPLE = 100_000
"""bytes, or characters, from which the encoding and the delimiter are told"""
_SAMPLE_ROWS = 200
_MOST_BREAKS = 1000
"""lines of a cell; more are taken for a quotation mark that nothing closes"""
_STEP = 500
"""blocks after which the limit of time begins anew"""
_DECIMAL = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+")
_LIKE = 0.9
"""how nearly as constant as the best delimiter's columns another one's have to be"""


class _Unclosed(Exception):
    """A cell goes on over too many lines."""


def read_csv(given: Input) -> Document:
    csv.field_size_limit((1 << 31) - 1)
    encoding, note = _encoding(given.file, given.declared)
    given.file.seek(0)
    sample = given.file.read(_SAMPLE).decode(encoding, "ignore")
    outline, said = Outline(), ""
    for quoted in (True, False):
        given.file.seek(0)
        lines = TextIOWrapper(given.file, encoding=encoding, newline="")
        try:
            blocks, said = _told(given, _rows(lines, sample, quoted=quoted))
            break
        except (_Unclosed, csv.Error):
            note = note or "read with a quotation mark that nothing closes"
        except UnicodeDecodeError:
            # Not what its first special characters look like; what of it is, is told of the whole.
            text, note = given.text()
            blocks, said = _told(given, _rows(StringIO(text, newline=""), sample))
            break
        finally:
            lines.detach()
    outline.extend(blocks)
    return Document(given.stem, outline.sections(), "; ".join(filter(None, (note, said))))


def _encoding(file: BinaryIO, declared: str) -> tuple[str, str]:
    """(codec, note), from the beginning or the first lines that are not ASCII."""
    file.seek(0)
    sample = file.read(_SAMPLE)
    if b"\0" in sample:  # two bytes or four for a character
        return encoding_of(sample[: len(sample) // 4 * 4], declared), ""
    while sample.isascii() and (piece := file.read(_SAMPLE)):
        sample = piece
    if not sample.isascii():
        first = next(n for n, byte in enumerate(sample) if byte > 127)
        start, end = sample.rfind(b"\n", 0, first) + 1, sample.rfind(b"\n") + 1
        sample = sample[start : end if end > first else None]
    return encoding_of(sample, declared), decode(sample, declared)[1]


def _told(given: Input, rows: Iterable[list[str]]) -> tuple[list[Block], str]:
    """(the table, a note if only its beginning is told)."""
    blocks: list[Block] = []
    size, began = 0, time.process_time()
    for block in table_blocks(islice(rows, MOST_ROWS), placed=True):
        blocks.append(block)
        size += len(block.text.encode("utf-8", "surrogatepass"))
        if len(blocks) % _STEP == 0:
            given.get_on()
        if size > MOST_BYTES or time.process_time() - began > given.seconds:
            return blocks, f"read in part: as far as its row {block.place.rpartition('-')[2]}"
    more = next(iter(rows), None) is not None
    return blocks, f"read in part: its first {MOST_ROWS:,} rows" * more


def _rows(lines: Iterable[str], sample: str, *, quoted: bool = True) -> Iterator[list[str]]:
    """Raises _Unclosed where a cell has too many lines, csv.Error for a quotation mark in a tsv."""
    named = re.match(r"\ufeff?sep=(.)\r?\n", sample)
    lines = islice(lines, 1 if named else 0, None)
    delimiter = named[1] if named else _delimiter(sample)
    how: Any = {"strict": delimiter == "\t"}
    if not quoted:  # marks count within their line, where they are closed
        for line in lines:
            how = {} if line.count('"') % 2 == 0 else {"quoting": csv.QUOTE_NONE}
            yield from csv.reader([line], delimiter=delimiter, skipinitialspace=True, **how)
        return
    marks, last = 0, list[str]()

    def counted() -> Iterator[str]:
        nonlocal marks
        for line in lines:
            marks += line.count('"')
            yield line

    for last in csv.reader(counted(), delimiter=delimiter, skipinitialspace=True, **how):
        if max(map(len, last), default=0) > _MOST_BREAKS < max(c.count("\n") for c in last):
            raise _Unclosed
        yield last
    if marks % 2 and "\n" in "".join(last):
        raise _Unclosed


def _delimiter(sample: str) -> str:
    """What gives most lines the same number of columns, and leaves numbers with a comma whole."""
    lines = sample.splitlines(keepends=True)
    whole = lines[:-1] if len(sample) > _SAMPLE // 5 else lines
    found: dict[str, tuple[float, int]] = {}
    decimal = False
    for delimiter in DELIMITERS:
        parsed = csv.reader(whole, delimiter=delimiter, skipinitialspace=True)
        rows = [row for row in islice(parsed, _SAMPLE_ROWS) if any(row)]
        widths = Counter(len(row) for row in rows if len(row) > 1)
        width, count = max(widths.items(), key=lambda each: (each[1], each[0]), default=(1, 0))
        if delimiter != "," or not decimal:
            found[delimiter] = count / max(len(rows), 1), width
        if count >= _LIKE * len(rows) / 2:
            decimal = decimal or any(_DECIMAL.fullmatch(cell) for row in rows for cell in row)
    most = max(share for share, _ in found.values())
    near = [each for each, (share, _) in found.items() if most and share >= _LIKE * most]
    return max(near, key=lambda each: found[each][1], default=",")
