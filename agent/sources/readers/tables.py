"""Tables: each cell is told with the name of its column, so that a row can be quoted by itself.

`grid_of` repeats merged cells over what they cover; `table_blocks` tells titles and header rows
from the rest and makes a line of each row: `part: rotor | hours: 900`. Both serve every kind of
file, and `table_blocks` takes rows as they come, since a csv may be larger than memory.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, zip_longest

from rubricem.agent.sources.readers.document import LINES_EACH, LONGEST_NAME, Block, BlockKind

MOST_OF_NAMES = 90_000
"""characters of the names of columns, together; cells of further ones are told without"""
_JUDGED = 200
"""columns from whose cells it is told which rows are the header"""
MOST_COLUMNS = 16_384
"""of a table; cells beyond are left out"""
MOST_ROWS = 1_200_000
"""of a sheet or a file; programs for sheets take fewer"""
MOST_REPEATED = 300_000
"""cells of a table that are repeated since they are merged; later ones are told once"""
_MOST_BESIDE = 20
"""tables beside each other"""
LOOKED_AT = 50
"""rows from which it is told which of them are the header"""
_LONGEST_NUMBER = 40
_NUMBER = re.compile(r"\W{0,3}\d[\d\W]*(?:[eE][-+]?\d+)?[^\W\d]{0,4}\W?")
"""with its unit, if that is short"""
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*")
_YEAR = re.compile("(?:1[5-9]|20)[0-9]{2}")
_LIKE = {"number": ("year",), "year": (), "date": ()}
"""kinds of cells that a column may hold below one of a kind"""
_BLANK = frozenset({"", "-", "\u2013", "\u2014", "[-]", "(-)"})
"""cells of a row of units where there is none"""

Row = Sequence[str]
"""Cells of a row. A row that is one `str` is a line over all columns, such as a title."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as its file has it, with how many rows and columns it covers from its own on."""

    text: str
    rows: int = 1
    columns: int = 1
    is_header: bool = False


def grid_of(rows: Iterable[Iterable[Cell]]) -> tuple[list[Row], int | None]:
    """(the rows, merged cells repeated; how many of the first that have text are header).

    Both are for `table_blocks`. The count is None where no row, or each, is of header cells alone.
    Where rows have names, and columns none, a row is as `Born: | 1815`.
    """
    grid: list[Row] = []
    headers: list[bool] = []
    led: list[list[str]] = []
    hanging: dict[int, Cell] = {}
    """by column, what earlier rows let down into the next one"""
    left = MOST_REPEATED
    for row in rows:
        cells: list[Cell] = []
        below: dict[int, Cell] = {}
        told, deepest, placed = iter(row), max(hanging, default=-1), 0
        while (column := len(cells)) < MOST_COLUMNS:
            cell = hanging[column] if column in hanging else next(told, None)
            if cell is None:
                if column > deepest:
                    break
                cell = Cell("")
            wide = max(min(cell.columns, MOST_COLUMNS - column, left), 1)
            cells += [cell] * wide
            placed += 1
            left -= wide - 1
            if cell.rows > 1 and left > 0:
                below[column] = Cell(cell.text, cell.rows - 1, wide, cell.is_header)
                left -= 1
        hanging = below
        texts = [cell.text for cell in cells]
        filled = [cell.is_header for cell in cells if cell.text.strip()]
        grid.append([] if not filled else texts[0] if placed == 1 and len(cells) > 1 else texts)
        if filled:
            headers.append(all(filled))
            if placed > 1 and texts[0] and cells[0].is_header and not headers[-1]:
                led.append(texts)
    count = next((at for at, header in enumerate(headers) if not header), 0)
    columns = next((row for row in grid if row and not isinstance(row, str)), None)
    if led and led[0] is columns:  # rows that are named, under no names of columns
        for each in led:
            each[0] = each[0].rstrip(" :") + ":"
        return grid, count
    # Titles alone name no column.
    named = any(not isinstance(row, str) for row in list(filter(None, grid))[:count])
    return grid, count if named else None


def table_blocks(
    rows: Iterable[Row], headers: int | None = None, *, placed: bool = False
) -> Iterator[Block]:
    """A table as blocks of some rows each, titles above it as a paragraph first.

    `headers`: how many of the first rows that have text name the columns, None to tell from what
    the cells hold; another header behind an empty row then begins a table of its own. `placed`: it
    is no part of a text, where two columns may be terms, and tells its rows even in one block.
    """
    filled = _Rows(rows)
    beside = _beside(filled.peek(LOOKED_AT)) if headers is None else []
    for each in [*map(_Rows, beside)] or [filled]:
        yield from _blocks(each, headers, placed=placed)


def _blocks(filled: "_Rows", headers: int | None, *, placed: bool) -> Iterator[Block]:
    while known := [row for _, row in filled.peek(max(LOOKED_AT, (headers or 0) + 1))]:
        if headers is None:
            known = known[: filled.next_table(1) or len(known)]
        start, end = _header(known) if headers is None else (0, headers)
        terms = headers is None and not placed and _are_terms(known[start:])
        end = start if terms else end
        titles = [" ".join(dict.fromkeys(filter(None, _cells(row)))) for row in known[:start]]
        titles += [row for row in known[start:end] if isinstance(row, str)]
        names = _names([row for row in known[start:end] if not isinstance(row, str)])
        if end == len(known):  # a table of nothing else
            names, end = [], start
        for _ in islice(filled, end):
            pass
        rows = filled.of_table(split=headers is None)
        lines = (
            (n, _line(names, [row[0].rstrip(" :") + ":", *row[1:]] if terms else row))
            for n, row in rows
        )
        part = list(islice(lines, LINES_EACH))
        while part or titles:
            after = list(islice(lines, LINES_EACH))
            placed = placed or bool(after)
            place = f"rows {part[0][0]}-{part[-1][0]}" if placed and part else ""
            if titles:
                yield Block(BlockKind.PARAGRAPH, "\n".join(dict.fromkeys(titles)), place)
            if part:
                yield Block(BlockKind.TABLE, "\n".join(line for _, line in part), place)
            part, titles = after, []


def within_cell(rows: Iterable[Row], headers: int | None = None) -> str:
    """A table in a line, as a cell of another has it: `part: rotor, hours: 900; part: seal`."""
    lines = (line for block in table_blocks(rows, headers) for line in block.text.split("\n"))
    return "; ".join(lines).replace(" | ", ", ")


class _Rows:
    """The rows that have text, each with its number, of which some can be looked at beforehand."""

    def __init__(self, rows: Iterable[Row]) -> None:
        numbered = enumerate(map(_folded, rows), start=1)
        self._rows = ((number, row) for number, row in numbered if any(row))
        self._ahead: deque[tuple[int, Row]] = deque()
        self._last, self._wide = 0, False

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> tuple[int, Row]:
        number, row = self._ahead.popleft() if self._ahead else next(self._rows)
        if number > self._last + 1 and self._wide and sum(map(bool, row)) == 1:
            row = "".join(row)  # it stands apart: a note on the table, or what a part is called
        self._last, self._wide = number, self._wide or len(row) > 1
        return number, row

    def peek(self, count: int) -> list[tuple[int, Row]]:
        self._ahead.extend(islice(self._rows, max(count - len(self._ahead), 0)))
        return list(islice(self._ahead, count))

    def of_table(self, *, split: bool) -> Iterator[tuple[int, Row]]:
        while ahead := self.peek(LOOKED_AT):
            gaps = split and ahead[-1][0] > self._last + len(ahead)
            if gaps and ahead[0][0] > self._last + 1 and self.next_table(0) == 0:
                return
            yield from islice(self, 1 if gaps else len(ahead))

    def next_table(self, first: int) -> int | None:
        """How many rows of those ahead, at least `first`, come before the next table, if any."""
        ahead = self.peek(LOOKED_AT)
        gaps = [n for n, (one, other) in enumerate(pairwise(ahead), 1) if other[0] > one[0] + 1]
        if first == 0 and ahead and ahead[0][0] > self._last + 1:
            gaps.insert(0, 0)
        for at, until in pairwise([*gaps, len(ahead)]):
            # Before the first header stand titles, and no table of their own.
            begun = not at or has_header([row for _, row in ahead[:at]])
            if begun and has_header([row for _, row in ahead[at:until]]):
                return at
        return None


def _beside(rows: Sequence[tuple[int, Row]]) -> list[list[Row]]:
    """The tables of a few rows that stand beside each other, if their headers are not in one row.

    Empty columns part them, and each has two columns or more.
    """
    if len(rows) == LOOKED_AT:  # there may be more, which are read as they come
        return []
    told = [(number, row) for number, row in rows if not isinstance(row, str)]
    used = {n for _, row in told for n, cell in enumerate(row) if cell}
    begins = sorted(n for n in used if n - 1 not in used)
    ends = sorted(n + 1 for n in used if n + 1 not in used)
    tables, heads = list[list[Row]](), set[int]()
    for begin, end in zip(begins, ends, strict=True) if 1 < len(begins) < _MOST_BESIDE else ():
        table: list[Row] = [[] for _ in range(told[-1][0])]
        for number, row in told:
            table[number - 1] = row[begin:end] if any(row[begin:end]) else []
        own = [(number, row) for number, row in enumerate(table) if row]
        start, stop = _header([row for _, row in own])
        if end - begin < 2 or start == stop:
            return []
        heads.add(own[start][0])
        tables.append(table)
    return tables if len(heads) > 1 else []


def _folded(row: Row) -> Row:
    if isinstance(row, str):
        return " ".join(row.split())
    return [" ".join(cell.split()) for cell in row[:MOST_COLUMNS]]


def _cells(row: Row) -> Row:
    return [row] if isinstance(row, str) else row


def _line(names: Sequence[str], row: Row) -> str:
    if isinstance(row, str):
        return row
    if not names:
        line = re.sub(r"\A(?: \| )+|(?: \| )+\Z", "", " | ".join(row))
        return line.replace(": | ", ": ")
    told = zip_longest(names, row, fillvalue="")
    return " | ".join([f"{name}: {cell}" if name else cell for name, cell in told if cell])


def _names(heads: Sequence[Row]) -> list[str]:
    """The columns' names, each joined of the header rows."""
    columns = zip_longest(*heads, fillvalue="")
    joined = (" ".join(dict.fromkeys(filter(None, column))) for column in columns)
    names = [name[:LONGEST_NAME].rstrip(": ") for name in joined]
    # Beside endless names, what a table says would be lost among them.
    sizes = accumulate(map(len, names))
    return [name for name, size in zip(names, sizes, strict=True) if size <= MOST_OF_NAMES]


def _header(rows: Sequence[Row]) -> tuple[int, int]:
    """Where the header rows begin, and where they end, as what the cells hold tells it."""
    counts = [_count(row) for row in rows]
    usual = Counter(count for count in counts if count > 1)
    if not usual:
        return 0, min(len(rows), 1) if not any(isinstance(row, str) for row in rows) else 0
    most = max(usual, key=lambda count: (usual[count], count))
    wide = (n for n, count in enumerate(counts) if count > max(most / 2, 1) or _is_corner(rows, n))
    start = next(wide, 0)
    full = next((n for n, count in enumerate(counts) if count >= most), start)
    # A header may have gaps, but what stands before a full one is not it.
    if rows[start][0] and not any(_kind(cell) in ("number", "date") for cell in rows[full]):
        columns = range(min(len(rows[full]), _JUDGED))
        if any(_kinds(rows[full + 1 :], n) - {"text", "year"} for n in columns):
            start = full
    end = start + 1
    above = rows[start - 1] if start else ""
    # It may name several columns at once, though not from the first one alone.
    merged = any(cell and cell == after for cell, after in pairwise(_cells(above)))
    if merged and (not above[0] or _count(above) > 1) and "number" not in map(_kind, above):
        start -= 1
    elif _is_data(rows[start], rows[end:]):
        return start, start
    while end + 1 < len(rows) and _continues(rows[end - 1], rows[end], rows[end + 1 :]):
        end += 1
    return start, end


def _is_corner(rows: Sequence[Row], at: int) -> bool:
    """Whether a row names the second of two columns alone, above its numbers."""
    row = rows[at]
    if isinstance(row, str) or len(row) != 2 or row[0] or _kind(row[1]) != "text":
        return False
    return bool(below := _kinds(rows[at + 1 :], 1)) and "text" not in below


def header_of(rows: Sequence[Row], headers: int | None = None) -> list[Row]:
    """The rows that name the columns; `headers` is as in `table_blocks`."""
    known = [row for _, row in _Rows(rows).peek(LOOKED_AT)]
    start, end = _header(known) if headers is None else (0, headers)
    return [] if headers is None and _are_terms(known[start:]) else known[start:end]


def has_header(rows: Sequence[Row]) -> bool:
    """Whether rows surely begin with a header: names of two columns or more above numbers."""
    start, end = _header(rows)
    if start == end or isinstance(rows[start], str) or _count(rows[start]) < 2:
        return False
    named = [n for n, cell in enumerate(rows[start][:_JUDGED]) if cell]
    if any(_kind(rows[start][n]) in ("number", "date") for n in named):
        return False
    return any(_kinds(rows[end:], n) & {"number", "date"} for n in named)


def _count(row: Row) -> int:
    """Filled cells, where the same text in all of them counts as one that is merged."""
    told = [cell for cell in _cells(row) if cell]
    return len(told) if len(set(told)) > 1 else min(len(told), 1)


def _kind(cell: str) -> str:
    if len(cell) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cell):
        return "text" if cell else ""
    return "year" if _YEAR.fullmatch(cell) else "date" if _DATE.match(cell) else "number"


def _kinds(rows: Sequence[Row], column: int) -> set[str]:
    """What the cells of a column are."""
    cells = (row[column] for row in rows if not isinstance(row, str) and column < len(row))
    return {_kind(cell) for cell in cells if cell}


LEAST_OF_A_SENTENCE, LONGEST_OF_A_NAME = 3, 120
"""words of a sentence; characters of a cell that may name a column"""


def _is_prose(cell: str) -> bool:
    """Whether a cell is a sentence, or as long as one."""
    ends = cell.endswith((".", "!", "\u3002"))
    return len(cell) > LONGEST_OF_A_NAME or (ends and len(cell.split()) >= LEAST_OF_A_SENTENCE)


def _is_data(row: Row, below: Sequence[Row]) -> bool:
    """Whether the first full row is no header: its numbers stand above their like.

    Three that ascend are names of columns, and so are years above other numbers. `Name:` beside its
    value names no column, nor does a sentence above sentences, nor a number beside one text.
    """
    if row[0].endswith(":") and below and below[0][0].endswith(":"):
        return True
    for n in (n for n, cell in enumerate(row[:_JUDGED]) if _is_prose(cell)):
        like = [each[n] for each in below if not isinstance(each, str) and each[n : n + 1]]
        if like and 2 * sum(map(_is_prose, like)) >= len(like):
            return True
    kinds = {n: kind for n, cell in enumerate(row[:_JUDGED]) if (kind := _kind(cell))}
    if len(row) == 2 and kinds == {0: "text", 1: "number"}:  # a term with its value
        return True
    told = {n: kind for n, kind in kinds.items() if kind != "text"}
    if not told or any(_kinds(below, n) - {kind, *_LIKE[kind]} for n, kind in told.items()):
        return False
    digits = [int("".join(filter(str.isdecimal, row[n]))) for n in told]
    ascend = len(digits) > 2 and all(one < other for one, other in pairwise(digits))
    return not ascend or "date" in told.values()


def _are_terms(rows: Sequence[Row]) -> bool:
    """Whether each row is a name beside something, and no likeness makes the first a header."""
    if not all(
        isinstance(r, list) and len(r) == 2 and r[1] and _kind(r[0]) == "text" for r in rows
    ):
        return False
    kinds = Counter("long" if row[1].count(" ") > 4 else _kind(row[1]) for row in rows[1:])
    told, short = kinds.pop("text", 0), len(rows) > 1 and rows[0][1].count(" ") < 5
    return short and (len(kinds) != 1 or told > kinds.total())


def _continues(above: Row, row: Row, below: Sequence[Row]) -> bool:
    """Whether a row belongs to the header above it: parts of its columns, or their units."""
    if isinstance(row, str) or isinstance(above, str) or "number" in map(_kind, row):
        return False
    pairs = list(zip(above, row, strict=False))
    if any(cell and cell == upper for upper, cell in pairs):  # merged downwards
        return any(cell and cell != upper for upper, cell in pairs)
    if any(a and a == b and c != d for (a, c), (b, d) in pairwise(pairs)):
        return True
    columns = range(min(len(row), _JUDGED))
    measured = {n for n in columns if _kinds(below, n) in ({"number"}, {"number", "year"})}
    units = [row[n] for n in measured if row[n] not in _BLANK]
    return bool(units) and all(row[n] in _BLANK for n in columns if n not in measured)
