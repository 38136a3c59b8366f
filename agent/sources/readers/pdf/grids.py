"""Tables of a page of a PDF: by rules that are drawn, or by columns that are clear without.

Each gives rows for `table_blocks`: merged cells repeat their text, and empty ones stay.
"""

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import byref, c_float
from itertools import pairwise
from typing import Any

from pypdfium2 import raw

from rubricem.agent.sources.readers.pdf.glyphs import Glyphs, Line, Table, lines_of, run_on
from rubricem.agent.sources.readers.tables import Row

MOST_RULES = 2000
"""drawn on a page; a drawing has more, a table does not"""
MOST_CELLS = 5000
"""between the rules of a table"""
LEAST_LINES = 3
"""of a column, or of a table without rules"""
_At = tuple[int, int]  # the row from below, and the column
_Cells = list[list[tuple[Glyphs, list[int]]]]
"""of each line, with the columns that each is in"""
_MOST_LINES, _MOST_TRIED = 200, 5
"""of a table without rules; places where one may end"""
_NARROWEST, _LIKE_SIZE = 3, 1.2
"""times the size of letters: of a column whose cells go over several lines, and of the next line"""
_NEAR = 2.0
"""points between rules that meet"""
_CLOSE = 0.9
"""times the size of letters, up to which lines of cells in a row may follow each other"""
_THIN = 4.0
"""points: of a rule, and less than the height of a line"""

Rule = tuple[float, float, float]
"""a drawn line: where it is across its direction, where it begins and where it ends along it"""


def rules_of(page: Any) -> tuple[list[Rule], list[Rule]]:
    """The horizontal and the vertical rules of a page, which may be edges of boxes."""
    level: list[Rule] = []
    upright: list[Rule] = []
    sides = [c_float() for _ in range(4)]
    for at in range(min(raw.FPDFPage_CountObjects(page), 10 * MOST_RULES)):
        drawn = raw.FPDFPage_GetObject(page, at)
        if raw.FPDFPageObj_GetType(drawn) != raw.FPDF_PAGEOBJ_PATH:
            continue
        raw.FPDFPageObj_GetBounds(drawn, *map(byref, sides))
        segments = raw.FPDFPath_CountSegments(drawn)
        x0, y0, x1, y1 = (side.value for side in sides)
        flat, narrow = y1 - y0 < _THIN, x1 - x0 < _THIN
        if flat and not narrow:
            level.append(((y0 + y1) / 2, x0, x1))
        elif narrow and not flat:
            upright.append(((x0 + x1) / 2, y0, y1))
        elif not flat and segments in (4, 5, 10):  # a box, or one with a border that has a width
            level += (y0, x0, x1), (y1, x0, x1)
            upright += (x0, y0, y1), (x1, y0, y1)
        if len(level) + len(upright) > MOST_RULES:
            return [], []
    return _merged(level), _merged(upright)


def _merged(rules: Iterable[Rule]) -> list[Rule]:
    """Rules that continue each other as one."""
    found: list[Rule] = []
    bundle: list[Rule] = []
    for rule in [*sorted(rules), (math.inf, 0.0, 0.0)]:
        if bundle and rule[0] - bundle[0][0] > _NEAR / 2:
            begun = len(found)
            for at, start, end in sorted(bundle, key=lambda each: each[1]):
                if len(found) > begun and start <= found[-1][2] + _NEAR:
                    found[-1] = (found[-1][0], found[-1][1], max(end, found[-1][2]))
                else:
                    found.append((at, start, end))
            bundle = []
        bundle.append(rule)
    return found


def grids_of(level: list[Rule], upright: list[Rule]) -> Iterator[tuple[list[Rule], list[Rule]]]:
    """The rules that meet, together: each may be those of a table."""
    if not upright or len(level) * len(upright) > 50 * MOST_RULES:
        return
    rest = list(upright)
    while rest:
        columns, rows, new = [], [], [rest.pop()]
        while new:
            columns += new
            met = [r for r in level if any(_meet(r, column) for column in new)]
            rows += met
            level = [r for r in level if r not in met]
            new = [column for column in rest if any(_meet(row, column) for row in met)]
            rest = [column for column in rest if column not in new]
        yield rows, columns


def _meet(row: Rule, column: Rule) -> bool:
    across = row[1] - _NEAR <= column[0] <= row[2] + _NEAR
    return across and column[1] - _NEAR <= row[0] <= column[2] + _NEAR


def _positions(at: Iterable[float]) -> list[float]:
    """Distinct ones, ascending."""
    found: list[float] = []
    for each in sorted(at):
        if not found or each - found[-1] > _NEAR:
            found.append(each)
    return found


def ruled_table(
    words: Sequence[Glyphs], level: list[Rule], upright: list[Rule]
) -> tuple[Glyphs, set[int]] | None:
    """A table in the place of its words, and those by identity; None if the rules are no table."""
    xs = _positions([r[0] for r in upright] + [x for r in level for x in r[1:]])
    ys = _positions([r[0] for r in level] + [y for r in upright for y in r[1:]])
    if len(xs) < 3 or len(ys) < 3 or len(xs) * len(ys) > MOST_CELLS:
        return None
    cells: dict[_At, list[Glyphs]] = defaultdict(list)
    for word in words:
        x, y = (word.x0 + word.x1) / 2, word.y + 0.3 * word.size
        if xs[0] < x < xs[-1] and ys[0] < y < ys[-1]:
            cells[bisect_right(ys, y) - 1, bisect_right(xs, x) - 1].append(word)
    if min(len({at[n] for at in cells}) for n in (0, 1)) < 2:
        return None
    owner = _owners(xs, ys, level, upright)
    merged: dict[_At, list[Glyphs]] = defaultdict(list)
    for at, held in cells.items():
        merged[owner[at]] += held
    rows: list[Row] = []
    for row in range(len(ys) - 2, -1, -1):
        owners = [owner[row, column] for column in range(len(xs) - 1)]
        rows += _rows_between(owners, merged, xs, len(ys))
    inside = {id(word) for held in cells.values() for word in held}
    first = min((w for held in cells.values() for w in held), key=lambda w: w.order)
    own = Table(rows, ends=(xs[0], xs[-1]))
    table = Glyphs(xs[0], xs[-1], ys[-1], first.size, "", first.order, table=own)
    return table, inside


def _owners(
    xs: list[float], ys: list[float], level: list[Rule], upright: list[Rule]
) -> dict[_At, _At]:
    """The first cell of those that no rule parts, for each of them."""
    owner: dict[_At, _At] = {}
    beside = [[r for r in upright if abs(r[0] - x) <= _NEAR] for x in xs]
    above = [[r for r in level if abs(r[0] - y) <= _NEAR] for y in ys]
    for row in range(len(ys) - 2, -1, -1):
        for column in range(len(xs) - 1):
            own = row, column
            up, across = (ys[row] + ys[row + 1]) / 2, (xs[column] + xs[column + 1]) / 2
            if column and not any(r[1] <= up <= r[2] for r in beside[column]):
                own = owner[row, column - 1]
            elif row < len(ys) - 2 and not any(r[1] <= across <= r[2] for r in above[row + 1]):
                own = owner[row + 1, column]
            owner[row, column] = own
    return owner


def _rows_between(
    owners: list[_At], words: dict[_At, list[Glyphs]], xs: list[float], rules: int
) -> list[Row]:
    """The row, or the several, between two horizontal rules, of cells that end at some `xs`."""
    lines = [lines_of(words[each]) for each in owners]
    texts = [run_on(" ".join(part.text for part in line) for line in told) for told in lines]
    if len({*owners}) == 1:
        return [texts[0]]
    # Where only the header is set apart by rules, each line that begins in the first column is one.
    levels = _positions(line[0].y for told in lines for line in told)
    told_at = [{bisect_right(levels, line[0].y): line for line in told} for told in lines]
    several = [
        [" ".join(p.text for p in at.get(n, ())) for at in told_at]
        for n in range(len(levels), 0, -1)
    ]
    ends = [xs[bisect_right(owners, own)] for own in owners]
    wrapped = any(_are_wrapped(told, end) for told, end in zip(lines, ends, strict=True))
    if rules < 5 and not wrapped and all(row[0] and sum(map(bool, row)) > 1 for row in several):
        return list(several)
    return [texts]


def unruled_table(
    lines: list[Line], begin: int, level: list[Rule], is_bold: Callable[[Glyphs], bool]
) -> tuple[int, Table | None]:
    """The table that begins at a line, None if there is none; and where to go on."""
    end, beside, breaks = begin + 1, lines[begin][1].x0, list[int]()
    step = lines[begin][0].y - lines[end][0].y if end < len(lines) else 0.0
    while end < min(len(lines), begin + _MOST_LINES) and _goes_on(lines, end, beside):
        if len(lines[end]) > 1:
            beside = lines[end][1].x0
        if len(lines[end]) < 2 or lines[end - 1][0].y - lines[end][0].y > 1.3 * step:
            breaks.append(end)
        end += 1
    # What follows a table may look like more of it.
    for until in (end, *breaks[:-_MOST_TRIED:-1]):
        if found := _columns_of(lines[begin:until], strictly=until < end):
            end, (columns, cells), run = until, found, lines[begin:until]
            break
    else:
        return end, None
    rows: list[Row] = []
    halves = _halves(cells)
    for n, line in enumerate(cells):
        row = [""] * len(columns)
        for part, covered in line:
            for column in covered:
                row[column] = f"{row[column]} {part.text}".strip()
        above = rows[-1] if rows else ""
        on = n in halves or (
            not row[0] and n + 1 not in halves and _is_wrapped(line, cells[n - 1], columns)
        )
        if isinstance(above, list) and on:
            rows[-1] = [run_on(filter(None, pair)) for pair in zip(above, row, strict=True)]
        else:
            rows.append(row if len(line) > 1 or len(line[0][1]) < 2 else line[0][0].text)
    first, second = run[0], run[1]
    under = [r for r in level if second[0].y < r[0] < first[0].y + first[0].size]
    ruled = any(r[2] > columns[0][0] and r[1] < columns[-1][1] and r[0] < first[0].y for r in under)
    named = ruled or (all(map(is_bold, first)) and not all(map(is_bold, second)))
    below = [row for row in rows[1:] if isinstance(row, list)]
    counted = not any(map(_NUMERIC.match, rows[0])) and any(
        any(column) and all(_NUMERIC.match(cell or "0") for cell in column)
        for column in zip(*below, strict=True)
    )
    return end, Table(rows, None if named or counted else 0, (columns[0][0], columns[-1][1]))


def _columns_of(
    run: list[Line], *, strictly: bool
) -> tuple[list[tuple[float, float]], _Cells] | None:
    """(where the columns are, the cells of each line); None if they are no table.

    `strictly`: each line begins in the first one, the first line has all, and no part has several.
    """
    several = [line for line in run if len(line) > 1]
    if len(several) < LEAST_LINES:
        return None
    usual = Counter(map(len, several)).most_common(1)[0][0]
    columns = _columns(several)
    if len(columns) < usual:
        columns = _columns([line for line in several if len(line) == usual])
    cells = [[(part, _covered(part, columns)) for part in line] for line in run]
    if strictly and (len(run[0]) < len(columns) or any(line[0][1] != [0] for line in cells)):
        return None
    least = 1.0 if strictly else 0.8
    return (columns, cells) if len(columns) > 1 and _are_cells(cells, len(columns), least) else None


_NUMERIC = re.compile(r"\W{0,3}\d")
LABEL = re.compile(
    r"(?:[\u2022\u25aa\u25cf\u25e6\u2023\u00b7\u2013*-]|[(\[]?\w{1,3}[.)\]]|\d{1,4})\Z"
)
"""of an item of a list, drawn by itself"""


def _goes_on(lines: list[Line], at: int, second: float) -> bool:
    """Whether a line can belong to the table of the line above it.

    `second`: where the second cell begins; a line of one cell is part of it, or stands between.
    """
    line, above = lines[at], lines[at - 1]
    like = 1 / _LIKE_SIZE < line[0].size / above[0].size < _LIKE_SIZE
    if any(p.table for p in line) or not like or above[0].y - line[0].y > 3.2 * line[0].size:
        return False
    between = at + 1 < len(lines) and len(lines[at + 1]) > 1
    return len(line) > 1 or between or line[0].x0 > second - line[0].size / 2


def _columns(lines: Iterable[Line]) -> list[tuple[float, float]]:
    """Where the parts of the lines stand, those together that overlap."""
    found: list[tuple[float, float]] = []
    for x0, x1 in sorted((part.x0, part.x1) for line in lines for part in line):
        if found and x0 <= found[-1][1]:
            found[-1] = (found[-1][0], max(x1, found[-1][1]))
        else:
            found.append((x0, x1))
    return found


def _covered(part: Glyphs, columns: Sequence[tuple[float, float]]) -> list[int]:
    """The columns that a part stands in; the nearest if it is between them."""
    found = [n for n, (x0, x1) in enumerate(columns) if part.x0 < x1 and part.x1 > x0]
    middle = (part.x0 + part.x1) / 2
    near = min(range(len(columns)), key=lambda n: abs(sum(columns[n]) / 2 - middle))
    return found or [near]


def _are_cells(cells: _Cells, columns: int, least: float) -> bool:
    """Whether the parts stand in columns: each in one, and with edges or middles in line."""
    alone = [[part for line in cells for part, at in line if at == [n]] for n in range(columns)]
    if sum(map(len, alone)) < least * sum(map(len, cells)):
        return False
    if (columns == 2 or least == 1) and all(LABEL.match(part.text) for part in alone[0]):
        return False  # items of a list
    for parts in (each[len(each) > 2 :] for each in alone):  # a header may be set otherwise
        edges = ([(1 - n) * part.x0 + n * part.x1 for part in parts] for n in (0, 1, 0.5))
        if parts and max(_in_line(each, parts[0].size) for each in edges) < 0.7 * len(parts):
            return False
    return True


def _in_line(at: list[float], size: float) -> int:
    """The most that are within half a letter's size."""
    at = sorted(at)
    return max(bisect_right(at, x + size / 2) - n for n, x in enumerate(at))


def _halves(cells: _Cells) -> set[int]:
    """Lines of the row above: one beside the middle of a cell's two lines, and the second."""
    found: set[int] = set()
    for n, (upper, row, lower) in enumerate(zip(cells, cells[1:], cells[2:], strict=False), 1):
        ys, size = [line[0][0].y for line in (upper, row, lower)], row[0][0].size
        beside = upper[0][1] == lower[0][1] not in [at for _, at in row]
        near = max(ys[0] - ys[1], ys[1] - ys[2]) < _CLOSE * size
        if len(upper) == len(lower) == 1 and beside and near:
            found |= {n, n + 1}
    return found


def _first(part: Glyphs) -> float:
    """The width of its first word and a space."""
    return (len(part.text.partition(" ")[0]) + 1) * (part.x1 - part.x0) / len(part.text)


def _are_wrapped(lines: list[Line], end: float) -> bool:
    """Whether lines run on in a cell, each of several words but with no room for the next one."""
    return len(lines) > 1 and all(
        len(line) == 1 and line[0].text.count(" ") > 1 and line[0].x1 + _first(below[0]) > end
        for line, below in pairwise(lines)
    )


def _is_wrapped(
    line: list[tuple[Glyphs, list[int]]],
    above: list[tuple[Glyphs, list[int]]],
    columns: Sequence[tuple[float, float]],
) -> bool:
    """Whether the cells of a line continue those above, which have no room for its first words."""
    ends = {at[0]: part.x1 for part, at in above}
    numbers = {at[0] for part, at in above if _NUMERIC.match(part.text)}
    for part, at in line:
        if at[0] in numbers and _NUMERIC.match(part.text):
            return False
        if columns[at[0]][1] - columns[at[0]][0] < _NARROWEST * part.size:
            return False
        if ends.get(at[0], -math.inf) + _first(part) <= columns[at[0]][1]:
            return False
    return True
