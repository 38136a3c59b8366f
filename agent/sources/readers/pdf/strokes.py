"""What rules do to the words of a PDF's page: they strike them out, or are the bar of a fraction.

Drawn words say neither. Shares are of the size of a word's letters.
"""

from bisect import bisect_left, bisect_right

from rubricem.agent.sources.readers.pdf.glyphs import Glyphs, lines_of, run_on, with_scripts
from rubricem.agent.sources.readers.pdf.grids import Rule

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


def read_strokes(words: list[Glyphs], level: list[Rule]) -> list[Glyphs]:
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
