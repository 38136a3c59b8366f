"""The blocks of a page of a PDF in the order of reading, from its words, lines and tables.

Columns are read one after the other, what spans them between; lines that run on are a paragraph.
Rules strike words out, or are the bar of a fraction: shares of that are of the size of letters.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from pypdfium2 import PdfPage

from rubricem.agent.sources.readers.document import BlockKind
from rubricem.agent.sources.readers.pdf.glyphs import (
    HYPHENS,
    Glyphs,
    Line,
    Table,
    glued,
    is_bold,
    lines_of,
    run_on,
    with_scripts,
    words_of,
)
from rubricem.agent.sources.readers.pdf.grids import (
    LABEL,
    LEAST_LINES,
    Rule,
    grids_of,
    ruled_table,
    rules_of,
    unruled_table,
)
from rubricem.agent.sources.readers.pdf.sight import seen_of

NARROWEST = 12
"""times its letters' size that running text is wide; each line of what is narrower is one"""
MOST_GUTTERS = 8
"""places that are tried as the gutter between columns"""
_LEAST_BESIDE = 2
"""lines of a column that is drawn before the next"""
_FILLED = 0.7
"""of a column's width that lines of running text take"""

_FAR = 40.0
"""points from a rule, from which on no word belongs to it"""
_MOST_PAIRS = 2_000_000
"""of rules and words on a page, of which more are a drawing"""
_LONGEST = 200.0
"""points of the bar of a fraction"""
_BESIDE = 0.2
"""that a word may stand out beside the rule that it belongs to"""
_HEIGHT = 1.25
"""of the parts of a fraction, with their scripts"""
_THROUGH = (0.15, 0.45)
"""above the baseline: where a rule goes through letters, and where formulas have their axis"""


@dataclass(slots=True)
class Part:
    """A block before it is known whether it is a heading."""

    kind: BlockKind
    text: str
    size: float = 0.0
    table: Table | None = None


_ITEM = re.compile(r"[\u2022\u25aa\u25cf\u25e6\u2023\u00b7\u2013*-] +(?=\S)")
_NUMBERED = re.compile(r"(?:\d{1,3}|[a-z])[.)] |\(\w{1,3}\) ")
_UNENDED = re.compile(r"[^.!?:;\u3002\s]\Z")


def _flows(lines: list[Line], deep: int = 4) -> Iterator[list[Line]]:
    """Lines in the order of reading: of columns one after the other, what spans them between."""
    over: list[Line] = []
    if (gutter := _gutter(lines) if deep and lines else None) is None:
        parts = _parted(lines)
        for part in parts if deep and len(parts) > 1 else [lines]:
            if part is not lines and _gutter(part) is not None:
                yield from [over] * bool(over)
                yield from _flows(part, deep - 1)
                over = []
            else:
                over = over + part
        yield from [over] * bool(over)
        return
    for free, band in _bands(lines, gutter):
        left, right, above, below = _sides(band, gutter)
        if not free or not _is_columnar(left, right, 1):
            over += band
            continue
        yield from _flows(over + above, deep - 1)
        over = below
        yield from _flows(left, deep - 1)
        yield from _flows(right, deep - 1)
    yield from _flows(over, deep - 1) if over is not lines else [over]


def _sides(lines: list[Line], gutter: float) -> tuple[list[Line], ...]:
    """What is left and what is right of it; what is above both, and what below and drawn after."""
    right = [*filter(None, ([part for part in line if part.x0 >= gutter] for line in lines))]
    left, above, below = list[Line](), list[Line](), list[Line]()
    last = max((part.order for line in right for part in line), default=0)
    for line in filter(None, ([part for part in line if part.x0 < gutter] for line in lines)):
        y, size = line[0].y, line[0].size
        if right and y > right[0][0].y + size:
            above.append(line)
        elif right and y < right[-1][0].y and line[0].order > last:
            below.append(line)
        else:
            left.append(line)
    return left, right, above, below


def _parted(lines: list[Line]) -> list[list[Line]]:
    """Lines in parts that are far from each other."""
    parts = [lines[:1]]
    for above, line in pairwise(lines):
        if above[0].y - line[0].y > 2.2 * line[0].size:
            parts.append([])
        parts[-1].append(line)
    return parts


def _bands(lines: list[Line], gutter: float) -> Iterator[tuple[bool, list[Line]]]:
    """(whether a gutter is free, consecutive lines).

    A line of both sides that is far from others is a heading or footing of the page.
    """
    wide = 2.2 * median(line[0].size for line in lines)
    gaps = [math.inf, *(above[0].y - line[0].y for above, line in pairwise(lines)), math.inf]
    free = [
        not any(part.x0 < gutter < part.x1 for part in line)
        and (len(line) < 2 or min(gaps[n], gaps[n + 1]) <= wide)
        for n, line in enumerate(lines)
    ]
    for is_free, band in groupby(zip(free, lines, strict=True), key=lambda each: each[0]):
        yield is_free, [line for _, line in band]


def _gutter(lines: list[Line]) -> float | None:
    """Where the space between two columns of running text is; None if there are no such."""
    low, high = min(line[0].x0 for line in lines), max(line[-1].x1 for line in lines)
    width = max((high - low) / 400, 1.0)
    begun, ended, covered = Counter[int](), Counter[int](), Counter[int]()
    for line in lines:
        ended[math.ceil((line[0].x1 - low) / width)] += 1
        begun[math.ceil((line[-1].x0 - low) / width)] += 1
        for part in line:
            covered[math.ceil((part.x0 - low) / width)] += 1
            covered[math.ceil((part.x1 - low) / width)] -= 1
    left, right, over = 0, len(lines), 0
    ranks: list[tuple[int, int, int]] = []
    for n in range(round((high - low) / width) + 1):
        left, right, over = left + ended[n], right - begun[n], over + covered[n]
        if min(left, right) >= _LEAST_BESIDE:
            ranks.append((-over, min(left, right), n))
    best, left_to_try = (0.0, 0.0), MOST_GUTTERS
    while ranks and left_to_try:
        left_to_try -= 1
        *rank, at = max(ranks)
        like = [n for *other, n in ranks if other == rank and at - n < 40]
        gutter = low + width * like[len(like) // 2]
        parted = ((band, *_sides(band, gutter)) for free, band in _bands(lines, gutter) if free)
        held = (band for band, left, right, *_ in parted if _is_columnar(left, right))
        best = max(best, (sum(map(len, held)), gutter), key=lambda each: each[0])
        ranks = [rank for rank in ranks if not like[0] - 2 < rank[2] < like[-1] + 2]
    return best[1] if best[0] else None


def _is_columnar(left: list[Line], right: list[Line], least: int = _LEAST_BESIDE) -> bool:
    """Whether both are columns and not cells: drawn one after the other, or both filled."""
    few = min(len(left), len(right))
    if few < least:
        return False
    tops, bottoms = zip(*((side[0][0].y, side[-1][0].y) for side in (left, right)), strict=True)
    if min(tops) - max(bottoms) < 0.5 * min(a - b for a, b in zip(tops, bottoms, strict=True)):
        return False  # one is below the other
    drawn = sorted((p.order, side is left) for side in (left, right) for line in side for p in line)
    turns = sum(one[1] != other[1] for one, other in pairwise(drawn))
    return turns <= 1 + 0.2 * few or (few >= LEAST_LINES and _is_filled(left) and _is_filled(right))


def _is_filled(lines: list[Line]) -> bool:
    """Whether most lines take most of the width, as those of running text do."""
    widest = max(line[-1].x1 for line in lines) - min(line[0].x0 for line in lines)
    wide = sum(line[-1].x1 - line[0].x0 > _FILLED * widest for line in lines)
    words = sum(part.text.count(" ") + 1 for line in lines for part in line)
    return 2 * wide >= len(lines) and words >= 3 * len(lines)


def _paragraphs(lines: list[Line]) -> Iterator[Part]:
    """Lines as paragraphs, lists and notes."""
    gaps = [above[0].y - line[0].y for above, line in pairwise(lines)]
    usual = median(gaps) if gaps else 0.0
    large = 1.15 * median(map(_size, lines)) if lines else 0.0
    begin = 0
    for n in range(1, len(lines) + 1):
        new = n == len(lines) or gaps[n - 1] > 1.4 * usual
        if not new and (size := _size(lines[n])) > large:  # two headings
            moved = abs(lines[n][0].x0 - lines[n - 1][0].x0) > 2 * size
            new = moved and gaps[n - 1] > 1.45 * size
        if new or not 0.9 < _size(lines[n]) / _size(lines[n - 1]) < 1.1 or _notes(lines[n]):
            if lines[begin:n]:
                yield _paragraph(lines[begin:n])
            begin = n


def _size(line: Line) -> float:
    return max(line, key=lambda part: len(part.text)).size


def _notes(line: Line) -> bool:
    return line[0].mark[:1] == "["


def _paragraph(lines: list[Line]) -> Part:
    """Lines that run on; one that ends early, though more had room on it, ends with a new line."""
    right = max(line[-1].x1 for line in lines)
    if right - min(line[0].x0 for line in lines) < NARROWEST * _size(lines[0]):
        right = math.inf
    part = Part(BlockKind.NOTE if _notes(lines[0]) else BlockKind.PARAGRAPH, "", _size(lines[0]))
    for n, line in enumerate(lines):
        text = " ".join(each.text for each in line)
        item = _ITEM.match(text)
        text = f"- {text[item.end() :]}" if item else text
        if not n:
            part.kind = BlockKind.LIST if item else part.kind
            part.text = text
            continue
        first = (line[-1].x1 - line[0].x0) / len(text) * (len(text.partition(" ")[0]) + 1)
        full = lines[n - 1][-1].x1 + first > right or part.text[-1] in HYPHENS
        labelled = len(line) > 1 and LABEL.match(line[0].text)
        new = item or labelled or _NUMBERED.match(text) or not full
        part.text = f"{part.text}\n{text}" if new else glued(part.text, text)
    return part


def parts_of_page(page: PdfPage, text: Any) -> tuple[list[Part], int]:
    """(the blocks of a page in their order, those of turned text after what most of it is; the
    words that nobody sees).
    """
    level, upright = rules_of(page.raw)
    drawn = words_of(text, apart=bool(level or upright))
    turned = seen_of(page, drawn)
    found: list[Part] = []
    for angle in sorted(turned, key=lambda each: -len(turned[each])):
        rules = ([], []) if angle else (level, upright)
        parts = _laid_out(turned[angle], *rules, text)
        for part in parts if found else ():
            part.size = 0.0  # such as a stamp's is no heading's
        found += parts
    return found, sum(map(len, drawn.values())) - sum(map(len, turned.values()))


def _laid_out(words: list[Glyphs], level: list[Rule], upright: list[Rule], text: Any) -> list[Part]:
    words = with_scripts(_with_strokes(words, level))
    tables: list[Glyphs] = []
    for rows, columns in grids_of(level, upright):
        if made := ruled_table(words, rows, columns):
            tables.append(made[0])
            words = [word for word in words if id(word) not in made[1]]
    lines = sorted([*lines_of(words), *([table] for table in tables)], key=lambda line: -line[0].y)
    found: list[Part] = []
    for flow in _flows(lines):
        parts = _parts_of_flow(flow, level, text)
        above = next((part for part in reversed(found) if part.kind != BlockKind.NOTE), None)
        prose = above and above.kind == parts[0].kind == BlockKind.PARAGRAPH
        if above and prose and _UNENDED.search(above.text) and parts[0].text[0].islower():
            # A paragraph at the end of a column goes on in the next, behind its notes.
            above.text = glued(above.text, parts.pop(0).text)
        found += parts
    return found


def _with_strokes(words: list[Glyphs], level: list[Rule]) -> list[Glyphs]:
    """The words without those that are struck out, fractions as one word each: `(1)/(2)`."""
    order = sorted(words, key=lambda word: word.y)
    heights = [word.y for word in order]
    gone, made = set[int](), list[Glyphs]()
    for rule in level if len(level) * len(words) <= _MOST_PAIRS else ():
        y, x0, x1 = rule
        near = order[bisect_left(heights, y - _FAR) : bisect_right(heights, y + _FAR)]
        inside = [
            word
            for word in near
            if x0 - _BESIDE * word.size <= word.x0
            and word.x1 <= x1 + _BESIDE * word.size
            and id(word) not in gone
        ]
        above = [word for word in inside if _is_at(word, y, -0.7, 0.0)]
        below = [word for word in inside if _is_at(word, y, 0.5, 1.1)]
        if not (above or below):  # else it is a bar, and a large sign may hang down through it
            gone.update(id(word) for word in inside if _is_at(word, y, *_THROUGH))
        elif above and below:
            far = _HEIGHT * max(word.size for word in (*above, *below))
            parts = ([w for w in inside if 0 < way * (w.y - y) < far] for way in (1, -1))
            above, below = parts  # with the scripts at them
            if found := _fraction(above, below, near, rule):
                gone.update(map(id, (*above, *below)))
                made.append(found)
    return [*(word for word in words if id(word) not in gone), *made]


def _is_at(word: Glyphs, y: float, low: float, high: float) -> bool:
    """Whether a rule at such a height is so far above the baseline of a word."""
    return low < (y - word.y) / word.size < high


def _fraction(
    above: list[Glyphs], below: list[Glyphs], near: list[Glyphs], bar: Rule
) -> Glyphs | None:
    """One in a line of text, both of whose parts stand in the middle of its bar."""
    y, x0, x1 = bar
    beside = [
        word
        for word in near
        if _is_at(word, y, *_THROUGH)
        and (0 <= x0 - word.x1 < word.size or 0 <= word.x0 - x1 < word.size)
    ]
    ends = [(min(w.x0 for w in part), max(w.x1 for w in part)) for part in (above, below)]
    size = above[0].size
    shifted = abs(sum(ends[0]) - sum(ends[1])) / 2 > 0.3 * size
    wide = x1 - x0 - max(end - begin for begin, end in ends) > size
    if not beside or shifted or wide or x1 - x0 > _LONGEST:
        return None
    upper, lower = (
        run_on(" ".join(each.text for each in line) for line in lines_of(with_scripts(part)))
        for part in (above, below)
    )
    told = f"({upper})/({lower})"
    return Glyphs(x0, x1, beside[0].y, beside[0].size, told, above[0].order, spaced=True)


def _parts_of_flow(lines: list[Line], level: list[Rule], text: Any) -> list[Part]:
    found: list[Part] = []
    running: list[Line] = []
    at = 0
    while at < len(lines):
        end, table = at + 1, lines[at][0].table
        if not table and len(lines[at]) > 1:
            end, table = unruled_table(lines, at, level, lambda part: is_bold(text, part.order))
        if table:
            found += _paragraphs(running)
            running = []
            found.append(Part(BlockKind.TABLE, "", table=table))
        else:
            running += lines[at:end]
        at = end
    return [*found, *_paragraphs(running)]
