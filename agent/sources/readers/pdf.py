"""PDF, page by page, laid out as a person sees it: words by their gaps, lines by their baselines.

Of the words are made superscripts, tables with and without rules, columns in their order, and
paragraphs whose broken words are joined. Lengths are in points, y goes upwards. Text that is turned
is laid out by itself, after what most of the page says.

pypdfium2 (Chrome's PDFium) is used since it gives characters with their boxes in less time than
pypdf takes for text without, mends broken references, knows fonts' odd codes, and stays below 40 MB
where pypdf takes 110. pdfminer.six, which pdfplumber builds on, takes twice the time of pypdf.
"""

import math
import re
import threading
import time
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_double, c_float, create_string_buffer
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from pypdfium2 import PdfDocument, PdfiumError, raw

from rubricem.agent.sources.readers.document import BlockKind, Document, Input, Outline, title_of
from rubricem.agent.sources.readers.formulas import lowered, raised
from rubricem.agent.sources.readers.tables import Row, table_blocks
from rubricem.memory.errors import SourceError

MOST_CHARACTERS = 200_000
"""read of a page; a book has some 3,000 on one"""
MOST_RULES = 3000
"""drawn on a page; a drawing has more, a table does not"""
MOST_CELLS = 20_000
"""between the rules of a table"""
LARGEST_SHARE = 0.2
"""of a document's letters that headings may have; above it larger letters mean no heading"""
MOST_OF_HEADING = 16
"""words"""
LEAST_LINES = 3
"""of a column, or of a table without rules"""

_SPACE = 0.2
"""of the size of letters, from which a gap parts words"""
_APART = 0.9
"""from which it parts cells or columns; in justified lines gaps are smaller"""
_SMALLER = 0.85
"""of the size of what it belongs to, up to which a word may be a super- or subscript"""
_LARGER = 1.15
"""times the size of most of the text, from which a short line is a heading"""
_FILLED = 0.7
"""of a column's width that lines of running text take"""
_NEAR = 2.0
"""points between rules that meet"""


@dataclass(slots=True, eq=False)
class Glyphs:
    """A word, several on one line, or a table in their place: what one box holds."""

    x0: float
    x1: float
    y: float
    """of the baseline"""
    size: float
    text: str
    order: int = 0
    """in which it is drawn"""
    spaced: bool = False
    """whether a space stands before it, however narrow"""
    scripts: list["Glyphs"] = field(default_factory=list)
    """super- and subscripts that follow it"""
    mark: str = ""
    """the superscript before it, such as "[1]" where a note begins"""
    table: "Table | None" = None


@dataclass(frozen=True, slots=True)
class Table:
    rows: list[Row]
    headers: int | None = None
    """as `table_blocks` takes it"""


Line = list[Glyphs]
"""What stands on one baseline, from left to right, in parts that are far from each other."""
Rule = tuple[float, float, float]
"""a drawn line: where it is across its direction, where it begins and where it ends along it"""


@dataclass(slots=True)
class Part:
    """A block before it is known whether it is a heading."""

    kind: BlockKind
    text: str
    size: float = 0.0
    table: Table | None = None


# The words of a page

_BLANKS = frozenset((9, 10, 13, 32, 160, *range(0x2000, 0x200B), 0x202F, 0x3000))
_HYPHENS = "-\u00ad\u2010"
_BROKEN = "\ufdd0"
"""where a word was broken at the end of a line, until all of the document's words are known"""


@lru_cache(1 << 14)
def _character(code: int) -> str:
    """What a code stands for; "" for control characters, and for what only its font knows."""
    if code == 2:  # PDFium's for a hyphen at the end of a line
        return "-"
    if code in (0xF0B7, 0xF0A7, 0xF076):  # bullets of Symbol and Wingdings
        return "\u2022"
    if code < 32 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xF900 or code > 0x1FFFF:
        return ""
    text = chr(code)
    if 0xFB00 <= code < 0xFE00 or 0xFE70 <= code < 0xFEFF:  # ligatures, and Arabic letters as drawn
        return unicodedata.normalize("NFKC", text)
    return "" if unicodedata.category(text) in ("Cc", "Cn") else text


def _words(page: Any) -> dict[int, list[Glyphs]]:
    """The words of a page by the angle, in degrees, at which they run; placed as if level."""
    found: dict[int, list[Glyphs]] = defaultdict(list)
    x, y, box = c_double(), c_double(), raw.FS_RECTF()
    to_x, to_y, to_box = byref(x), byref(y), byref(box)
    code_of, origin_of, box_of = (
        raw.FPDFText_GetUnicode,
        raw.FPDFText_GetCharOrigin,
        raw.FPDFText_GetLooseCharBox,
    )
    angle, size, height, word, spaced = 0, 1.0, -1.0, None, False
    for at in range(min(raw.FPDFText_CountChars(page), MOST_CHARACTERS)):
        code = code_of(page, at)
        if code in _BLANKS:
            word, spaced = None, spaced or code not in (10, 13)
            continue
        if not (character := _character(code)):
            continue
        origin_of(page, at, to_x, to_y)
        box_of(page, at, to_box)
        u, v, end = x.value, y.value, box.right
        if angle:
            u, v, end = _turned(angle, u, v, box)
        if word is not None and abs(v - word.y) < 0.08 * size:
            if -0.4 * size < u - word.x1 < _SPACE * size:
                word.text += character
                word.x1 = end
                continue
            # Arabic and Hebrew: each letter is left of the one before.
            if "\u0590" <= character < "\u0900" and abs(word.x0 - end) < _SPACE * size:
                word.text += character
                word.x0 = u
                continue
        if angle or box.top - box.bottom != height:
            height = box.top - box.bottom
            angle, size = _posture(page, at, height)
            u, v, end = _turned(angle, x.value, y.value, box)
        word = Glyphs(u, end, v, size, character, at, spaced)
        spaced = False
        found[angle].append(word)
    return found


def _turned(angle: int, x: float, y: float, box: Any) -> tuple[float, float, float]:
    """(x, y, right end) of a character as if it ran level."""
    if not angle:
        return x, y, box.right
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    corners = ((a, b) for a in (box.left, box.right) for b in (box.bottom, box.top))
    return x * cos + y * sin, y * cos - x * sin, max(a * cos + b * sin for a, b in corners)


def _posture(page: Any, at: int, height: float) -> tuple[int, float]:
    """(angle in degrees, size in points) of a character."""
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(page, at, byref(matrix))
    angle = round(math.degrees(math.atan2(matrix.b, matrix.a)))
    size = raw.FPDFText_GetFontSize(page, at) * math.hypot(matrix.c, matrix.d)
    return (angle % 360 if abs(angle) > 2 else 0), abs(size) or height or 1.0


# Lines of words


def _attach_scripts(words: Sequence[Glyphs]) -> list[Glyphs]:
    """The words without super- and subscripts, which are attached to what they belong to."""
    cell = max(word.size for word in words)
    by_end: dict[tuple[int, int], list[Glyphs]] = defaultdict(list)
    for word in words:
        by_end[int(word.x1 // cell), int(word.y // cell)].append(word)
    attached: set[int] = set()
    for word in sorted(words, key=lambda each: each.x0):
        column, row = int(word.x0 // cell), int(word.y // cell)
        near = [b for k in _AROUND for b in by_end.get((column + k[0], row + k[1]), ())]
        for base in near:
            if id(base) in attached:  # the superscript goes on
                gap = word.x0 - base.x1
                level = abs(word.y - base.y) < 0.08 * base.size and word.size == base.size
                if level and -0.2 * base.size < gap < 0.4 * base.size:
                    base.text += " " * (gap > _SPACE * base.size) + word.text
                    base.x1 = word.x1
                    by_end[int(base.x1 // cell), row].append(base)
                    attached.add(id(word))
                    break
            elif _is_script(word, base):
                base.scripts.append(word)
                attached.add(id(word))
                break
    kept = [word for word in words if id(word) not in attached]
    return _attach_marks(kept, cell) if any(w.size < _SMALLER * cell for w in kept) else kept


_AROUND = [(across, up) for across in (0, -1, 1) for up in (0, -1, 1)]


def _is_script(word: Glyphs, base: Glyphs) -> bool:
    gap, up = (word.x0 - base.x1) / base.size, (word.y - base.y) / base.size
    if word is base or not -0.35 < gap < 0.35 or len(word.text) > 20:
        return False
    # The initial of a chapter is larger than twice the text beside it.
    if 0.4 * base.size < word.size <= _SMALLER * base.size:
        return 0.12 < up < 0.8 or -0.55 < up < -0.08
    same = len(word.text) < 5 and gap < 0.15 and word.size <= base.size
    return same and (0.2 < up < 0.6 or -0.5 < up < -0.15)


def _attach_marks(words: Sequence[Glyphs], cell: float) -> list[Glyphs]:
    """The words without superscripts before them, such as the mark at the beginning of a note."""
    small = [w for w in words if len(w.text) <= 3 and w.size < _SMALLER * cell]
    by_start: dict[tuple[int, int], list[Glyphs]] = defaultdict(list)
    for word in words if small else ():
        by_start[int(word.x0 // cell), int(word.y // cell)].append(word)
    attached: set[int] = set()
    for mark in small:
        column, row = int(mark.x1 // cell), int(mark.y // cell)
        near = [b for k in _AROUND for b in by_start.get((column + k[0], row + k[1]), ())]
        for word in near:
            gap, up = (word.x0 - mark.x1) / word.size, (mark.y - word.y) / word.size
            if -0.1 < gap < 1.2 and 0.1 < up < 0.8 and mark.size < _SMALLER * word.size:
                word.mark = raised(mark.text, "", word.text)
                attached.add(id(mark))
                break
    return [word for word in words if id(word) not in attached]


def _lines(words: Iterable[Glyphs]) -> list[Line]:
    """The lines from the top, each in parts that are far from each other."""
    rows: list[list[Glyphs]] = []
    for word in sorted(words, key=lambda each: -each.y):
        first = rows[-1][0] if rows else None
        if first and first.y - word.y <= 0.3 * min(first.size, word.size):
            rows[-1].append(word)
        else:
            rows.append([word])
    return [_parts_of_line(sorted(row, key=lambda each: each.x0)) for row in rows]


def _parts_of_line(words: Sequence[Glyphs]) -> Line:
    parts: list[list[Glyphs]] = []
    end = 0.0
    for word in words:
        if parts and word.x0 - end <= _APART * max(word.size, parts[-1][-1].size):
            parts[-1].append(word)
        else:
            parts.append([word])
        end = max([word.x1, *(script.x1 for script in word.scripts)])
    return [_joined(part) for part in parts]


def _joined(words: list[Glyphs]) -> Glyphs:
    """Words beside each other as one."""
    text = ""
    leftwards = sum(word.text[0] >= "\u0590" and word.text[0] < "\u0900" for word in words)
    if 2 * leftwards > len(words):
        text = " ".join(word.text for word in reversed(words))
    end = words[0].x0
    for word, after in zip(words, [*words[1:], None], strict=True) if not text else ():
        text += " " * (bool(text) and (word.spaced or word.x0 - end > _SPACE * word.size))
        text += f"{word.mark} " if word.mark[:1] == "[" else word.mark
        text += word.text
        end = word.x1
        for script in word.scripts:
            end = max(end, script.x1)
            apart = after is not None and after.x0 - end > _SPACE * word.size
            follows = " " * apart + (after.text if after else "")
            told = raised if script.y > word.y else lowered
            text += told(script.text, text, follows)
    first = words[0]
    size = sorted(word.size for word in words)[len(words) // 2]
    return Glyphs(first.x0, end, first.y, size, text, first.order, mark=first.mark)


# Tables between drawn rules


def _rules(page: Any) -> tuple[list[Rule], list[Rule]]:
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
        left, bottom, right, top = (side.value for side in sides)
        for x0, y0, x1, y1 in (
            [(left, bottom, right, top)] if segments < 6 else _edges(drawn, segments)
        ):
            flat, narrow = y1 - y0 < _THIN, x1 - x0 < _THIN
            if flat and not narrow:
                level.append(((y0 + y1) / 2, x0, x1))
            elif narrow and not flat:
                upright.append(((x0 + x1) / 2, y0, y1))
            elif not flat and 3 < segments < 6:
                level += (y0, x0, x1), (y1, x0, x1)
                upright += (x0, y0, y1), (x1, y0, y1)
        if len(level) + len(upright) > MOST_RULES:
            return [], []
    return _merged(level), _merged(upright)


_THIN = 4.0
"""points: of a rule, and less than the height of a line"""


def _edges(drawn: Any, segments: int) -> Iterator[tuple[float, float, float, float]]:
    """The straight edges of one drawing: left, bottom, right and top of each."""
    matrix, x, y = raw.FS_MATRIX(), c_float(), c_float()
    raw.FPDFPageObj_GetMatrix(drawn, byref(matrix))
    before = begun = (0.0, 0.0)
    for at in range(min(segments, MOST_RULES)):
        segment = raw.FPDFPath_GetPathSegment(drawn, at)
        raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        here = (
            matrix.a * x.value + matrix.c * y.value + matrix.e,
            matrix.b * x.value + matrix.d * y.value + matrix.f,
        )
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO:
            begun = here
        ends = [(before, here)] if kind == raw.FPDF_SEGMENT_LINETO else []
        ends += [(here, begun)] if raw.FPDFPathSegment_GetClose(segment) else []
        for (x0, y0), (x1, y1) in ends:
            if abs(x0 - x1) < 1 or abs(y0 - y1) < 1:
                yield min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
        before = here


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


def _grids(level: list[Rule], upright: list[Rule]) -> Iterator[tuple[list[Rule], list[Rule]]]:
    """The rules that meet, together: each may be those of a table."""
    if not upright or len(level) * len(upright) > 30 * MOST_RULES:
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


def _ruled_table(
    words: Sequence[Glyphs], level: list[Rule], upright: list[Rule]
) -> tuple[Glyphs, set[int]] | None:
    """A table in the place of its words, and those by identity; None if the rules are no table."""
    xs = _positions([r[0] for r in upright] + [x for r in level for x in r[1:]])
    ys = _positions([r[0] for r in level] + [y for r in upright for y in r[1:]])
    if len(xs) < 3 or len(ys) < 3 or len(xs) * len(ys) > MOST_CELLS:
        return None
    cells: dict[tuple[int, int], list[Glyphs]] = defaultdict(list)
    for word in words:
        x, y = (word.x0 + word.x1) / 2, word.y + 0.3 * word.size
        if xs[0] < x < xs[-1] and ys[0] < y < ys[-1]:
            cells[bisect_right(ys, y) - 1, bisect_right(xs, x) - 1].append(word)
    if min(len({at[n] for at in cells}) for n in (0, 1)) < 2:
        return None
    owner: dict[tuple[int, int], tuple[int, int]] = {}
    for row in range(len(ys) - 2, -1, -1):
        for column in range(len(xs) - 1):
            middle = (ys[row] + ys[row + 1]) / 2
            own = row, column
            if column and not _crosses(upright, xs[column], middle):
                own = owner[row, column - 1]
            elif row < len(ys) - 2 and not _crosses(
                level, ys[row + 1], (xs[column] + xs[column + 1]) / 2
            ):
                own = owner[row + 1, column]
            owner[row, column] = own
    merged: dict[tuple[int, int], list[Glyphs]] = defaultdict(list)
    for at, held in cells.items():
        merged[owner[at]] += held
    rows: list[Row] = []
    for row in range(len(ys) - 2, -1, -1):
        owners = [owner[row, column] for column in range(len(xs) - 1)]
        rows += _rows_between(owners, merged, len(ys))
    inside = {id(word) for held in cells.values() for word in held}
    first = min((w for held in cells.values() for w in held), key=lambda w: w.order)
    table = Glyphs(xs[0], xs[-1], ys[-1], first.size, "", first.order, table=Table(rows))
    return table, inside


def _crosses(rules: Iterable[Rule], at: float, along: float) -> bool:
    return any(abs(r[0] - at) <= _NEAR and r[1] <= along <= r[2] for r in rules)


def _rows_between(
    owners: list[tuple[int, int]], words: dict[tuple[int, int], list[Glyphs]], rules: int
) -> list[Row]:
    """The row, or the several, between two horizontal rules."""
    lines = [_lines(words[each]) for each in owners]
    texts = [_run_on(" ".join(part.text for part in line) for line in told) for told in lines]
    if len({*owners}) == 1:
        return [texts[0]]
    # Where only the header is set apart by rules, each line that begins in the first column is one.
    levels = _positions(line[0].y for told in lines for line in told)
    told_at = [{bisect_right(levels, line[0].y): line for line in told} for told in lines]
    several = [
        [" ".join(p.text for p in at.get(n, ())) for at in told_at]
        for n in range(len(levels), 0, -1)
    ]
    if rules < 5 and all(row[0] and sum(map(bool, row)) > 1 for row in several):
        return list(several)
    return [texts]


# Columns, and tables without rules


def _flows(lines: list[Line], deep: int = 4) -> Iterator[list[Line]]:
    """Lines in the order of reading: of columns one after the other, what spans them between."""
    gutter = _gutter(lines) if deep else None
    if gutter is None:
        yield lines
        return
    over: list[Line] = []
    for spanning, band in _bands(lines, gutter):
        sides = [
            [[p for p in line if (p.x0 < gutter) == left] for line in band]
            for left in (True, False)
        ]
        left, right = ([line for line in side if line] for side in sides)
        if spanning or not left or not right:
            over += band
            continue
        if over:
            yield over
            over = []
        yield from _flows(left, deep - 1)
        yield from _flows(right, deep - 1)
    if over:
        yield over


def _spans(line: Line, gutter: float) -> bool:
    return any(part.x0 < gutter < part.x1 for part in line)


def _bands(lines: list[Line], gutter: float) -> Iterator[tuple[bool, list[Line]]]:
    """Consecutive lines of columns, and those between them that span both or stand alone."""
    wide = 2.2 * median(line[0].size for line in lines)
    gaps = [math.inf, *(abs(a[0].y - b[0].y) for a, b in pairwise(lines)), math.inf]
    alone = [
        _spans(line, gutter) or (len(line) > 1 and min(gaps[n], gaps[n + 1]) > wide)
        for n, line in enumerate(lines)
    ]
    for spanning, band in groupby(zip(alone, lines, strict=True), key=lambda each: each[0]):
        yield spanning, [line for _, line in band]


def _gutter(lines: list[Line]) -> float | None:
    """Where the space between two columns of running text is; None if there are no such."""
    parts = [part for line in lines for part in line]
    low, high = min(p.x0 for p in parts), max(p.x1 for p in parts)
    width = max((high - low) / 400, 1.0)
    begun, ended = Counter[int](), Counter[int]()
    for part in parts:
        begun[math.ceil((part.x0 - low) / width)] += 1
        ended[math.ceil((part.x1 - low) / width)] += 1
    left, right, best, at = 0, len(parts), (LEAST_LINES - 1, 0), list[int]()
    for n in range(round((high - low) / width) + 1):
        left += ended[n]
        right -= begun[n]
        rank = min(left, right), left + right
        if rank >= best:
            at = [*at, n] if rank == best else [n]
            best = rank
    gutter = low + width * at[len(at) // 2] if at else 0.0
    return gutter if at and _is_columnar(lines, gutter) else None


def _is_columnar(lines: list[Line], gutter: float) -> bool:
    """Whether the sides are columns, and not cells: drawn one after the other, or both filled."""
    sides: tuple[list[Line], list[Line]] = ([], [])
    drawn: list[tuple[int, bool]] = []
    for line in lines:
        if not _spans(line, gutter):
            for right in (False, True):
                if told := [part for part in line if (part.x0 > gutter) == right]:
                    sides[right].append(told)
                    drawn += ((part.order, right) for part in told)
    least = min(map(len, sides))
    if least < LEAST_LINES:
        return False
    top = min(side[0][0].y for side in sides)
    bottom = max(side[-1][0].y for side in sides)
    if top - bottom < 0.5 * min(side[0][0].y - side[-1][0].y for side in sides):
        return False  # one is below the other
    turns = sum(one[1] != other[1] for one, other in pairwise(sorted(drawn)))
    return turns <= 1 + 0.2 * least or all(map(_is_filled, sides))


def _is_filled(lines: list[Line]) -> bool:
    """Whether most lines take most of the width, as those of running text do."""
    widest = max(line[-1].x1 for line in lines) - min(line[0].x0 for line in lines)
    wide = sum(line[-1].x1 - line[0].x0 > _FILLED * widest for line in lines)
    words = sum(part.text.count(" ") + 1 for line in lines for part in line)
    return 2 * wide >= len(lines) and words >= 3 * len(lines)


def _unruled_table(
    lines: list[Line], begin: int, level: list[Rule], is_bold: Callable[[Glyphs], bool]
) -> tuple[int, Table | None]:
    """The table that begins at a line, None if there is none; and where to go on."""
    end = begin + 1
    while end < len(lines) and _goes_on(lines, end):
        end += 1
    while len(lines[end - 1]) < 2 and end > begin + 1:
        end -= 1
    run = lines[begin:end]
    several = [line for line in run if len(line) > 1]
    if len(several) < LEAST_LINES:
        return end, None
    usual = Counter(map(len, several)).most_common(1)[0][0]
    columns = _columns(several)
    if len(columns) < usual:
        columns = _columns([line for line in several if len(line) == usual])
    cells = [[(part, _covered(part, columns)) for part in line] for line in run]
    if len(columns) < 2 or not _are_cells(cells, len(columns)):
        return end, None
    rows: list[Row] = []
    for n, line in enumerate(cells):
        row = [""] * len(columns)
        for part, covered in line:
            for column in covered:
                row[column] = f"{row[column]} {part.text}".strip()
        above = rows[-1] if rows else ""
        if isinstance(above, list) and not row[0] and _is_wrapped(line, cells[n - 1], columns):
            rows[-1] = [_run_on(filter(None, pair)) for pair in zip(above, row, strict=True)]
        else:
            rows.append(row if len(line) > 1 or len(line[0][1]) < 2 else line[0][0].text)
    first, second = run[0], run[1]
    under = [r for r in level if second[0].y < r[0] < first[0].y + first[0].size]
    ruled = any(r[2] > columns[0][0] and r[1] < columns[-1][1] and r[0] < first[0].y for r in under)
    named = ruled or (all(map(is_bold, first)) and not all(map(is_bold, second)))
    counted = not any(map(_NUMERIC.match, rows[0])) and any(
        all(not isinstance(row, list) or _NUMERIC.match(row[n] or "0") for row in rows[1:])
        for n in range(len(columns))
    )
    return end, Table(rows, None if named or counted else 0)


_NUMERIC = re.compile(r"\W{0,3}\d")
_LABEL = re.compile(r"(?:[\u2022\u25aa\u25cf\u25e6\u2023\u00b7\u2013*-]|[(\[]?\w{1,3}[.)\]])\Z")


def _goes_on(lines: list[Line], at: int) -> bool:
    """Whether a line can belong to the table of the line above it."""
    line, above = lines[at], lines[at - 1]
    if any(part.table for part in line) or above[0].y - line[0].y > 3.2 * line[0].size:
        return False
    return len(line) > 1 or (at + 1 < len(lines) and len(lines[at + 1]) > 1)


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


def _are_cells(cells: list[list[tuple[Glyphs, list[int]]]], columns: int) -> bool:
    """Whether the parts stand in columns: each in one, and with edges or middles in line."""
    alone = [[part for line in cells for part, at in line if at == [n]] for n in range(columns)]
    if sum(map(len, alone)) < 0.8 * sum(map(len, cells)):
        return False
    if all(_LABEL.match(part.text) for part in alone[0]):
        return False  # items of a list
    for parts in alone:
        edges = (
            [part.x0 for part in parts],
            [part.x1 for part in parts],
            [(part.x0 + part.x1) / 2 for part in parts],
        )
        in_line = max((_in_line(each, parts[0].size) for each in edges), default=0) if parts else 0
        if in_line < 0.7 * len(parts):
            return False
    return True


def _in_line(at: list[float], size: float) -> int:
    """The most that are within half a letter's size."""
    at = sorted(at)
    return max(bisect_right(at, x + size / 2) - n for n, x in enumerate(at))


def _is_wrapped(
    line: list[tuple[Glyphs, list[int]]],
    above: list[tuple[Glyphs, list[int]]],
    columns: Sequence[tuple[float, float]],
) -> bool:
    """Whether the cells of a line continue those above, which have no room for its first words."""
    ends = {at[0]: part.x1 for part, at in above}
    for part, at in line:
        letters = len(part.text.partition(" ")[0]) + 1
        first = letters * (part.x1 - part.x0) / len(part.text)
        if ends.get(at[0], -math.inf) + first <= columns[at[0]][1]:
            return False
    return True


# Paragraphs

_ITEM = re.compile(r"[\u2022\u25aa\u25cf\u25e6\u2023\u00b7\u2013*-] +(?=\S)")
_NUMBERED = re.compile(r"(?:\d{1,3}|[a-z])[.)] |\(\w{1,3}\) ")
_UNENDED = re.compile(r"[^.!?:;\u3002\s]\Z")


def _glued(above: str, below: str) -> str:
    """A line with the one that it runs on to; a word that was broken is marked with `_BROKEN`."""
    if not above or not below:
        return above or below
    if above[-1] in _HYPHENS and above[-2:-1].isalnum() and below[0].isalnum():
        broken = above[-2].isalpha() and below[0].islower()
        return f"{above[:-1]}{_BROKEN if broken else '-'}{below}"
    unspaced = "\u2e80" <= above[-1] < "\uac00" and below[0] >= "\u2e80"
    return f"{above}{'' if unspaced else ' '}{below}"


def _run_on(lines: Iterable[str]) -> str:
    return reduce(_glued, lines, "")


def _paragraphs(lines: list[Line]) -> Iterator[Part]:
    """Lines as paragraphs and lists; a line that ends early for its column ends with a new line."""
    right = max((line[-1].x1 for line in lines), default=0.0)
    gaps = [above[0].y - line[0].y for above, line in pairwise(lines)]
    usual = median(gaps) if gaps else 0.0
    part: Part | None = None
    for n, line in enumerate(lines):
        first, text = line[0], " ".join(each.text for each in line)
        item = _ITEM.match(text)
        text = f"- {text[item.end() :]}" if item else text
        new = item or _NUMBERED.match(text) or first.mark[:1] == "["
        if part and gaps[n - 1] < 1.4 * usual and 0.9 < first.size / part.size < 1.1:
            width = (line[-1].x1 - first.x0) / len(text) * (len(text.partition(" ")[0]) + 1)
            full = lines[n - 1][-1].x1 + width > right or part.text[-1] in _HYPHENS
            if first.mark[:1] != "[":
                part.text = f"{part.text}\n{text}" if new or not full else _glued(part.text, text)
                continue
        if part:
            yield part
        kind = BlockKind.LIST if item else BlockKind.PARAGRAPH
        part = Part(BlockKind.NOTE if first.mark[:1] == "[" else kind, text, first.size)
    if part:
        yield part


def _parts_of_page(page: Any, text: Any) -> list[Part]:
    """The blocks of a page in their order."""
    turned = _words(text)
    level, upright = _rules(page) if turned.get(0) else ([], [])
    found: list[Part] = []
    for angle in sorted(turned, key=lambda each: -len(turned[each])):
        words = _attach_scripts(turned[angle])
        tables: list[Glyphs] = []
        for rows, columns in _grids(level, upright) if not angle else ():
            if made := _ruled_table(words, rows, columns):
                tables.append(made[0])
                words = [word for word in words if id(word) not in made[1]]
        lines = sorted(
            [*_lines(words), *([table] for table in tables)], key=lambda line: -line[0].y
        )
        for flow in _flows(lines) if lines else ():
            parts = _parts_of_flow(flow, level, text)
            if found and parts and _carries_on(found[-1], parts[0]):
                found[-1].text = _glued(found[-1].text, parts.pop(0).text)
            found += parts
    return found


def _carries_on(above: Part, below: Part) -> bool:
    """Whether a paragraph at the end of a column goes on in the next."""
    prose = above.kind == below.kind == BlockKind.PARAGRAPH
    return prose and bool(_UNENDED.search(above.text)) and below.text[0].islower()


def _parts_of_flow(lines: list[Line], level: list[Rule], text: Any) -> list[Part]:
    found: list[Part] = []
    running: list[Line] = []
    at = 0
    while at < len(lines):
        end, table = at + 1, lines[at][0].table
        if not table and len(lines[at]) > 1:
            end, table = _unruled_table(lines, at, level, lambda part: _is_bold(text, part.order))
        if table:
            found += _paragraphs(running)
            running = []
            found.append(Part(BlockKind.TABLE, "", table=table))
        else:
            running += lines[at:end]
        at = end
    return [*found, *_paragraphs(running)]


def _is_bold(text: Any, at: int) -> bool:
    name = create_string_buffer(80)
    raw.FPDFText_GetFontInfo(text, at, name, len(name), None)
    bold = re.search(rb"bold|black|heavy|-bd|cmbx", name.value.lower())
    return bold is not None or raw.FPDFText_GetFontWeight(text, at) >= 600


# The document

_using = threading.Lock()
"""PDFium is used from one thread at a time"""


def read_pdf(given: Input, clock: Any = time.process_time) -> Document:
    """The pages; at the time limit those read so far, with a note that says so.

    Raises SourceError if it is encrypted or has no text.
    """
    with _using:
        try:
            file = PdfDocument(given.file)
        except PdfiumError as cause:
            if cause.err_code != raw.FPDF_ERR_PASSWORD:
                raise
            raise SourceError(
                f"{given.name} is encrypted.", "Save a copy of it that opens without a password."
            ) from cause
        try:
            title, whole = file.get_metadata_value("Title"), len(file)
            until = clock() + given.seconds
            pages: list[list[Part]] = []
            for number in range(whole):
                if clock() >= until:
                    break
                given.get_on()
                pages.append(_read_page(file, number))
        finally:
            file.close()
    outline = _outlined(pages)
    sections = outline.sections()
    if not sections and len(pages) < whole:
        raise SourceError(f"{given.name} takes too long to read.", "Name a shorter document.")
    if not sections:
        raise SourceError(
            f"{given.name} has no text in its {whole} pages.",
            "It was probably scanned: run text recognition on it first.",
        )
    empty = sum(not page for page in pages)
    cut = f"{len(pages)} of {whole} pages" if len(pages) < whole else ""
    told = f"{empty} of {len(pages)} pages have no text" if empty else ""
    note = "; ".join(filter(None, (cut, told)))
    return Document(title_of((), given.stem, title), sections, f"read in part: {note}" * bool(note))


def _read_page(file: Any, number: int) -> list[Part]:
    """The blocks of a page; none of one that is damaged."""
    page = raw.FPDF_LoadPage(file.raw, number)
    text = raw.FPDFText_LoadPage(page) if page else None
    try:
        return _parts_of_page(page, text) if text else []
    finally:
        if text:
            raw.FPDFText_ClosePage(text)
        if page:
            raw.FPDF_ClosePage(page)


def _outlined(pages: list[list[Part]]) -> Outline:
    """The blocks under headings, which are short and in larger letters than most of the text."""
    parts = [part for page in pages for part in page if part.text]
    whole = "\n".join(part.text for part in parts)
    known = Counter(_COMPOUND.findall(whole.lower())) if _BROKEN in whole else Counter[str]()
    sizes = Counter[float]()
    for part in parts:
        sizes[_rounded(part.size)] += len(part.text)
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    repeated = Counter(part.text for part in parts)
    heads = [
        part
        for part in parts
        if part.kind == BlockKind.PARAGRAPH
        and part.size > _LARGER * usual
        and len(part.text.split()) <= MOST_OF_HEADING
        and re.search(r"[^\W\d_]{2}", part.text)
        and repeated[part.text] < 3
    ]
    if sum(len(part.text) for part in heads) > LARGEST_SHARE * len(whole):
        heads = []
    levels = sorted({_rounded(part.size) for part in heads}, reverse=True)
    headings = {id(part): levels.index(_rounded(part.size)) + 1 for part in heads}
    outline = Outline()
    for number, page in enumerate(pages, 1):
        for part in page:
            place = f"page {number}"
            if part.table:
                for block in table_blocks(part.table.rows, part.table.headers):
                    outline.add(block.kind, _mended(block.text, known), place)
            elif heading := headings.get(id(part)):
                outline.head(heading, _mended(part.text, known))
            else:
                outline.add(part.kind, _mended(part.text, known), place)
    return outline


def _rounded(size: float) -> float:
    return round(2 * size) / 2


_COMPOUND = re.compile(rf"[^\W\d_]+(?:[-{_BROKEN}][^\W\d_]+)*")


def _mended(text: str, known: Mapping[str, int]) -> str:
    """The text with broken words joined; with a hyphen, where only so they occur elsewhere."""
    if _BROKEN not in text:
        return text.replace("\u00ad", "")

    def mend(found: re.Match[str]) -> str:
        joined, parted = (found[0].replace(_BROKEN, each) for each in ("", "-"))
        return parted if known[parted.lower()] > known[joined.lower()] else joined

    return _COMPOUND.sub(mend, text).replace(_BROKEN, "").replace("\u00ad", "")


READERS = {".pdf": read_pdf}
