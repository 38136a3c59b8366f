"""What a page of a PDF is drawn of: words, the scripts at them, and the lines that they stand on.

PDFium gives characters with their boxes in the order of drawing. Lengths are in points, y goes
upwards, and text that is turned is placed as if the page were.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_double, create_string_buffer
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import pairwise
from statistics import median
from typing import Any

from pypdfium2 import raw

from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.formulas import lowered, raised
from rubricem.agent.sources.readers.tables import Row

MOST_CHARACTERS = 200_000
"""read of a page; a book has some 3,000 on one"""
_SPACE = 0.2
"""of the size of letters, from which a gap parts words"""
_NARROW = 0.1
"""from which one parts words that run leftwards, as each part of them is a word by itself"""
_APART = 0.9
"""from which it parts cells or columns; in justified lines gaps are smaller"""
_LETTERS, _WIDER = 8, 1.6
"""letters by themselves, from which a line may be letter-spaced; and times the gap between them,
from which a gap then parts words"""
_SMALLER = 0.85
"""of the size of what it belongs to, up to which a word may be a super- or subscript"""


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
    ends: tuple[float, float] = (0.0, 0.0)
    """where it begins and ends on the page, from left to right"""


Line = list[Glyphs]
"""What stands on one baseline, from left to right, in parts that are far from each other."""


_ACCENTS = str.maketrans(
    "\xa8\xb4\u02c6\u02dc\xaf\u02d8\u02d9\u02da\xb8\u02c7\u02dd",
    "\u0308\u0301\u0302\u0303\u0304\u0306\u0307\u030a\u0327\u030c\u030b",
)
"""as TeX draws them, each a character of its own, to what composes them with a letter"""
_SEVERAL_SIGNS = re.compile(
    r"[^\w\s]{2}|[\0-\x08\x0b-\x1f\x7f-\x9f\xa8\xad\xaf\xb4\xb8\u02c6\u02c7\u02d8-\u02dd\u0590-\u08ff\ud800-\U0010ffff]"
)
"""among which a space may be drawn as a gap alone, and what is not as one letter after another"""
_CORK = dict(zip("\x10\x11\x15\x16\x1b\x1c\x1d\x1e\x1f", "“”\u2013—ﬀﬁﬂﬃﬄ", strict=True))
"""signs by their places in TeX's fonts of dots, which have no name and know no others"""
_BY_FONT = re.compile(
    r"\x10(?=\w)|(?<=[\w.,!?])\x11|(?<=\w)[\x15\x16](?=\w)|(?<=\w\w)[\x1b-\x1f]|[\x1b-\x1f](?=\w\w)|[\uf020-\uf0ff]"
)
_SYMBOLS = names_of("symbols")
_LARGE = dict(zip("PXQYRZpqrs", "∑∑∏∏∫∫√√√√", strict=True))
"""signs of formulas, by the letters at whose places TeX's font of large signs has them"""
_WIDEST = 1.1
"""of the size of letters, for one of them"""
HYPHENS = "-\u00ad\u2010"
BROKEN = "\ufdd0"
"""where a word was broken at the end of a line, until all of the document's words are known"""


@lru_cache(1 << 14)
def _character(code: int) -> str:
    """What a code stands for; "" for control characters, and for what only its font knows."""
    if code == 2:  # PDFium's for a hyphen at the end of a line
        return "-"
    if code in (0xF0B7, 0xF0A7, 0xF076):  # bullets of Symbol and Wingdings
        return "\u2022"
    if code < 32 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xF900 or code > 0x3FFFF:
        return ""
    text = chr(code)
    # Ligatures, Arabic letters as drawn, letters of formulas.
    if 0xFB00 <= code < 0xFE00 or 0xFE70 <= code < 0xFEFF or 0x1D400 <= code < 0x1D800:
        return unicodedata.normalize("NFKC", text)
    return "" if unicodedata.category(text) in ("Cc", "Cn") else text


def _known(sign: str, font: str) -> str:
    if sign < " ":
        return sign if font else _CORK[sign]
    return _SYMBOLS.get(chr(ord(sign) & 0xFF), sign) if "symbol" in font else sign


def words_of(page: Any, *, apart: bool) -> dict[int, list[Glyphs]]:
    """The words of a page by the angle, in degrees, at which they run; placed as if level.

    Words that are drawn at once, a space between, are one unless each is wanted `apart`.
    """
    words = _Words(page, 0.0 if apart else _APART)
    count = min(raw.FPDFText_CountChars(page), MOST_CHARACTERS)
    text = "".join(chr(raw.FPDFText_GetUnicode(page, at)) for at in range(count))
    text = _BY_FONT.sub(lambda sign: _known(sign[0], _font_of(page, sign.start())), text)
    # What PDFium tells as two halves; nothing stands for the second.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = re.sub("[\U00010000-\U0010ffff]", "\\g<0>\0", text)
    for line in re.finditer(r"[^\r\n]+", text):
        drawn = raw.FPDFText_CountRects(page, line.start(), len(line[0]))
        if drawn > 1 or not words.add_line(line[0], line.start()):
            words.add_each(line[0], line.start())
    for word in (word for each in words.found.values() for word in each if word.text in _LARGE):
        if "cmex" in _font_of(page, word.order):
            word.text = _LARGE[word.text]
    return words.found


class _Words:
    """Places characters, in the order of drawing."""

    def __init__(self, page: Any, joint: float) -> None:
        self.found: dict[int, list[Glyphs]] = defaultdict(list)
        self._page, self._joint = page, joint
        self._angle, self._size, self._height = 0, 1.0, -1.0
        self._x, self._y, self._box = c_double(), c_double(), raw.FS_RECTF()
        self._to = byref(self._x), byref(self._y)
        self._to_box = byref(self._box)

    def add_line(self, line: str, begin: int) -> bool:
        """What is drawn at once, of which the ends of words are enough; False if they are not."""
        found = list[Glyphs]()
        if _SEVERAL_SIGNS.search(line) or _are_letters(line.split()):
            return False
        for run in re.finditer(r"\S+", line):
            text = run[0] if run[0].isascii() else "".join(map(_character, map(ord, run[0])))
            x, y, _ = self._placed(begin + run.start(), anew=not found)
            raw.FPDFText_GetLooseCharBox(self._page, begin + run.end() - 1, self._to_box)
            end = self._box.right
            if self._angle or not 0 < end - x < _WIDEST * self._size * len(text):
                return False
            if found and x - found[-1].x1 < self._joint * self._size:
                found[-1].text, found[-1].x1 = f"{found[-1].text} {text}", end
            else:
                at = begin + run.start()
                found.append(Glyphs(x, end, y, self._size, text, at, run.start() > 0))
        self.found[0] += found
        return bool(found)

    def add_each(self, line: str, begin: int) -> None:
        """Characters of which each is looked at: whether it begins a word."""
        word, spaced = None, False
        for at, sign in enumerate(line, begin):
            if sign.isspace():
                word, spaced = None, True
                continue
            if not (character := _character(ord(sign))):
                continue
            u, v, end = self._placed(at)
            accent = _ACCENTS.get(ord(word.text[-1])) if word is not None else None
            if word is not None and accent and u < word.x1 - 0.1 * self._size:
                letter = character.replace("\u0131", "i") + chr(accent)
                if len(letter := unicodedata.normalize("NFC", letter)) == 1:
                    word.spaced = word.spaced and len(word.text) > 1
                    word.text, word.x1, word.y = word.text[:-1] + letter, max(end, word.x1), v
                    continue
            if word is not None and abs(v - word.y) < 0.08 * self._size:
                near = _SPACE * self._size
                follows = -2 * near < u - word.x1 < near
                # Arabic and Hebrew: a letter is left of the one before, whichever is drawn first.
                leftwards = "\u0590" <= character < "\u0900"
                if leftwards and follows and 2 * u > word.x0 + word.x1 and character.isalpha():
                    word.text, word.x1 = character + word.text, end
                    continue
                if follows or (leftwards and abs(word.x0 - end) < near):
                    word.text += character
                    word.x0, word.x1 = (word.x0, end) if follows else (u, word.x1)
                    continue
            u, v, end = self._placed(at, anew=True)
            word, spaced = Glyphs(u, end, v, self._size, character, at, spaced), False
            self.found[self._angle].append(word)

    def _placed(self, at: int, *, anew: bool = False) -> tuple[float, float, float]:
        """(x, y, right end) of a character as if it ran level; `anew`: it may run otherwise."""
        raw.FPDFText_GetCharOrigin(self._page, at, *self._to)
        raw.FPDFText_GetLooseCharBox(self._page, at, self._to_box)
        x, y, box = self._x.value, self._y.value, self._box
        if anew and (self._angle or box.top - box.bottom != self._height):
            self._height = box.top - box.bottom
            matrix = raw.FS_MATRIX()
            raw.FPDFText_GetMatrix(self._page, at, byref(matrix))
            angle = round(math.degrees(math.atan2(matrix.b, matrix.a)))
            self._angle = angle % 360 if abs(angle) > 2 else 0
            size = raw.FPDFText_GetFontSize(self._page, at) * math.hypot(matrix.c, matrix.d)
            self._size = abs(size) or self._height or 1.0
        if not self._angle:
            return x, y, box.right
        cos, sin = math.cos(math.radians(self._angle)), math.sin(math.radians(self._angle))
        u, v = x * cos + y * sin, y * cos - x * sin
        if self._angle % 90:  # the box is level, and says little of the width
            return u, v, u + 0.6 * self._size
        corners = ((a, b) for a in (box.left, box.right) for b in (box.bottom, box.top))
        return u, v, max(a * cos + b * sin for a, b in corners)


def with_scripts(words: Sequence[Glyphs]) -> list[Glyphs]:
    """The words without super- and subscripts, which are attached to what they belong to."""
    cell = max(word.size for word in words)
    # What is drawn after something on another line, and that.
    beside = ((a, b) for a, b in pairwise(words) if 0.12 < abs(a.y - b.y) / a.size < 0.8)
    moved = {id(word) for pair in beside for word in pair}
    small = [w for w in words if w.size <= _SMALLER * cell or w.text.isdigit() or id(w) in moved]
    near = _near(words if small else (), cell, lambda word: word.x1)
    attached: set[int] = set()
    for word in sorted(small, key=lambda each: each.x0):
        for base in near(word.x0, word.y):
            if id(base) not in attached and _is_script(word, base):
                base.scripts.append(word)
                attached.add(id(word))
                break
    kept = [word for word in words if id(word) not in attached]
    # What is left of small ones may stand before a word, such as the mark of a note.
    marks = [w for w in kept if len(w.text) <= 3 and (w.size < _SMALLER * cell or id(w) in moved)]
    near = _near(kept if marks else (), cell, lambda word: word.x0)
    attached.clear()
    for mark in marks:
        for word in near(mark.x1, mark.y):
            gap, up = (word.x0 - mark.x1) / word.size, (mark.y - word.y) / word.size
            smaller = mark.size < _SMALLER * word.size or _runs_on(mark, word, up)
            if -0.1 < gap < 1.2 and 0.1 < up < 0.8 and smaller:
                word.mark = raised(mark.text, "", word.text)
                attached.add(id(mark))
                break
    return [word for word in kept if id(word) not in attached]


def _near(
    words: Iterable[Glyphs], cell: float, at: Callable[[Glyphs], float]
) -> Callable[[float, float], list[Glyphs]]:
    """What finds the words at a place; `cell`: about how far from it, in points."""
    found: dict[tuple[int, int], list[Glyphs]] = defaultdict(list)
    for word in words:
        found[int(at(word) // cell), int(word.y // cell)].append(word)

    def near(x: float, y: float) -> list[Glyphs]:
        column, row = int(x // cell), int(y // cell)
        around = ((column + n, row + m) for n in (0, -1, 1) for m in (0, -1, 1))
        return [word for place in around for word in found.get(place, ())]

    return near


def _is_script(word: Glyphs, base: Glyphs) -> bool:
    gap, up = (word.x0 - base.x1) / base.size, (word.y - base.y) / base.size
    # Letters of a logo, as that of TeX, are pushed into each other.
    if word is base or not -0.2 < gap < 0.35 or len(word.text) > 20:
        return False
    # The initial of a chapter is larger than twice the text beside it.
    # A raised digit is one in any size: glued to a number it would make another.
    large = (word.text.isdigit() and up > 0.2) or _runs_on(base, word, up)
    most = base.size if large else _SMALLER * base.size
    return 0.4 * base.size < word.size <= most and (0.12 < up < 0.8 or -0.55 < up < -0.08)


def _runs_on(word: Glyphs, after: Glyphs, up: float) -> bool:
    """Whether one is drawn right after the other, though clearly not on its line."""
    return abs(up) > 0.3 and 0 <= after.order - word.order - len(word.text) <= 2


def lines_of(words: Iterable[Glyphs]) -> list[Line]:
    """The lines from the top, each in parts that are far from each other."""
    rows: list[list[Glyphs]] = []
    for word in sorted(words, key=lambda each: -each.y):
        above = rows[-1][-1] if rows else None
        if above and above.y - word.y <= 0.3 * min(above.size, word.size):
            rows[-1].append(word)
        else:
            rows.append([word])
    return [_parts_of_line(_spelled(sorted(row, key=lambda each: each.x0))) for row in rows]


def _are_letters(words: Sequence[str]) -> bool:
    """Whether hardly a word has a second letter."""
    single = [word for word in words if len(word) == 1]
    return len(single) >= max(_LETTERS, 0.9 * len(words)) and 2 * sum(
        map(str.isalpha, single)
    ) > len(words)


def _spelled(words: Sequence[Glyphs]) -> Sequence[Glyphs]:
    """The words of a line whose letters are spaced, by the gaps that are wider than most."""
    gaps = [after.x0 - word.x1 for word, after in pairwise(words)]
    usual = median(gaps) if gaps else 0.0
    wide = sum(gap > _WIDER * usual for gap in gaps)
    # Without a wider gap they may as well be letters, and with many of them cells.
    if not (
        0 < wide <= len(gaps) / 3
        and 0 < usual < _APART * words[0].size
        and _are_letters([word.text for word in words])
        and not any(word.scripts for word in words)
    ):
        return words
    told = [replace(words[0])]
    for word, gap in zip(words[1:], gaps, strict=True):
        if gap > _WIDER * usual:
            # Nearer by the gap that each letter has: it is no cell for that.
            told.append(replace(word, x0=max(word.x0 - usual, told[-1].x1), spaced=True))
        else:
            told[-1].text, told[-1].x1 = told[-1].text + word.text, word.x1
    return told


def _parts_of_line(words: Sequence[Glyphs]) -> Line:
    parts: list[list[Glyphs]] = []
    end = 0.0
    for word in words:
        if parts and word.x0 - end <= _APART * min(word.size, parts[-1][-1].size):
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
        text = words[-1].text
        for word, left in pairwise(reversed(words)):
            text += " " * (word.x0 - left.x1 > _NARROW * left.size) + left.text
    end = max(word.x1 for word in words) if text else words[0].x0
    for word, after in zip(words, [*words[1:], None], strict=True) if not text else ():
        text += " " * (bool(text) and (word.spaced or word.x0 - end > _SPACE * word.size))
        text += f"{word.mark} " if word.mark[:1] == "[" else word.mark
        text += word.text
        end = word.x1
        for script in word.scripts:
            end = max(end, script.x1)
            apart = after is not None and after.x0 - end > _SPACE * word.size
            follows = " " * apart + (after.text if after else "")
            if after is not None and after.scripts and after.scripts[0].y < after.y:
                follows += f"_{after.scripts[0].text}"
            told = raised if script.y > word.y else lowered
            text += told(script.text, text, follows)
    first = words[0]
    size = sorted(word.size for word in words)[len(words) // 2]
    return Glyphs(first.x0, end, first.y, size, text, first.order, mark=first.mark)


def glued(above: str, below: str) -> str:
    """A line with the one that it runs on to; a word that was broken is marked with `BROKEN`."""
    if not above or not below:
        return above or below
    if above[-1] in HYPHENS and above[-2:-1].isalnum() and below[0].isalnum():
        broken = above[-2].isalpha() and below[0].islower()
        return f"{above[:-1]}{BROKEN if broken else '-'}{below}"
    unspaced = "\u2e80" <= above[-1] < "\uac00" and below[0] >= "\u2e80"
    return f"{above}{'' if unspaced else ' '}{below}"


def run_on(lines: Iterable[str]) -> str:
    return reduce(glued, lines, "")


def _font_of(text: Any, at: int) -> str:
    name = create_string_buffer(80)
    raw.FPDFText_GetFontInfo(text, at, name, len(name), None)
    return name.value.decode("latin-1").lower()


def is_bold(text: Any, at: int) -> bool:
    bold = re.search("bold|black|heavy|-bd|cmbx", _font_of(text, at))
    return bold is not None or raw.FPDFText_GetFontWeight(text, at) >= 600
