"""Which words of a page of a PDF a person sees: those that leave a mark where they are drawn.

White, transparent or covered text, text beside the page or of a layer that is off: the page is
drawn, at 72 dots an inch in some 3 ms, and looked at. Text recognised in a scan lies over marks.
"""

import math
from ctypes import byref, c_int

import numpy as np
from pypdfium2 import PdfiumError, PdfPage, raw

from rubricem.agent.sources.readers.pdf.glyphs import Glyphs

_LARGEST, _SMALLEST = 2000.0, 1.0
"""points: of a page that is drawn, and of letters that can be read"""
_FAINT = 2
"""powers of two in the 255 steps of grey up to which a mark is too faint"""
_FOREIGN = "\u0590"
"""characters from which on a font that the file lacks may not be drawn here, though elsewhere"""
_FINE = 1000
"""parts of a dot in which places are asked for"""


def seen_of(page: PdfPage, words: dict[int, list[Glyphs]]) -> dict[int, list[Glyphs]]:
    """The words that are seen, by the angle at which they run; all where a page cannot be drawn."""
    try:
        if max(page.get_size()) > _LARGEST:
            return words
        drawn = page.render(grayscale=True).to_numpy() >> _FAINT
    except PdfiumError:
        return words
    marks = np.zeros(drawn.shape, dtype=bool)
    marks[1:] = drawn[1:] != drawn[:-1]
    marks[:, 1:] |= drawn[:, 1:] != drawn[:, :-1]
    size = [_FINE * side for side in drawn.shape[::-1]]
    places, to = list[tuple[int, int]](), (c_int(), c_int())
    for x, y in ((0, 0), (1, 0), (0, 1)):
        raw.FPDF_PageToDevice(page.raw, 0, 0, *size, 0, x, y, *map(byref, to))
        places.append((to[0].value, to[1].value))
    origin, right, up = np.array(places) / _FINE
    found: dict[int, list[Glyphs]] = {}
    for angle, each in words.items():
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        u = np.array([(word.x0, word.x1) for word in each])
        v = np.array([(word.y - 0.2 * word.size, word.y + 0.8 * word.size) for word in each])
        at = np.stack((u * cos - v * sin, u * sin + v * cos), axis=2) @ (
            right - origin,
            up - origin,
        )
        ends = np.sort(at + origin, axis=1) + np.array(((0, 0), (1, 1)))
        boxes = np.clip(ends, 0, drawn.shape[::-1]).astype(int).reshape(-1, 4).tolist()
        for word, (x0, y0, x1, y1) in zip(each, boxes, strict=True):
            marked = marks[y0:y1, x0:x1].any() or max(word.text) >= _FOREIGN
            if marked and word.size >= _SMALLEST:
                found.setdefault(angle, []).append(word)
    return found
