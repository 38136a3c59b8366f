"""Shares as one figure: a bar each, with its 95% interval. Plain SVG, without a library."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from judge.evaluation.shares import Share

LABELS, WIDTH, LINE, TOP = 230, 400, 24, 50
"""pixels: the column of names, the bars' whole width, the height of a row, the room above"""
BAR, WHISKER, GRID, TEXT = "#7aa6c2", "#1f3b4d", "#d8d8d8", "#222222"


def figure(title: str, rows: Sequence[tuple[str, Share]]) -> str:
    """The text of an SVG file; the same rows give the same text."""
    height = TOP + LINE * len(rows) + 30
    bottom = TOP + LINE * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + WIDTH + 80}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="10" y="22" font-size="14">'
        f"{escape(title)}</text>",
    ]
    for tenths in range(0, 11, 2):
        x = LABELS + WIDTH * tenths / 10
        parts.append(f'<path d="M{x:g} {TOP - 6}V{bottom}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:g}" y="{bottom + 16}" text-anchor="middle">{tenths / 10}</text>')
    parts += [_row(TOP + LINE * place, name, share) for place, (name, share) in enumerate(rows)]
    return "\n".join([*parts, "</svg>\n"])


def _row(top: float, name: str, share: Share) -> str:
    value = share.value or 0.0
    middle = top + LINE / 2 - 3
    low, high = LABELS + WIDTH * share.low, LABELS + WIDTH * share.high
    return (
        f'<text x="{LABELS - 8}" y="{middle + 4:g}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LABELS}" y="{top:g}" width="{WIDTH * value:.1f}" height="{LINE - 7}" '
        f'fill="{BAR}"/><path d="M{low:.1f} {middle:g}H{high:.1f}" stroke="{WHISKER}" '
        f'stroke-width="2"/><text x="{LABELS + WIDTH + 8}" y="{middle + 4:g}">'
        f"{'' if share.value is None else f'{share.value:.3f}'}</text>"
    )
