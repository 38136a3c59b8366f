"""Small charts as inline SVG: lines over steps, histograms, bars. Their colours are the page's.

Every chart is WIDTH by HEIGHT units, so that its letters stay readable on a phone, and carries
its numbers as a text for those who cannot see it. Classes, not styles: the page's content policy
allows no other style than its own sheet.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 12, 22
"""margins, for the numbers along the axes"""
WIDEST = 44
"""of a bar"""
_ACROSS, _UP = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
Values = Sequence[float | None]
Axis = Sequence[int]


@dataclass(frozen=True, slots=True)
class Span:
    """The values at the bottom and at the top of a chart."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """Where a value lies between them, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


SHARE = Span(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Series:
    """A line, with the range around it where it has one; None: no value at that step."""

    name: str
    colour: str
    """a class of the page's style sheet"""
    values: Values
    low: Values = ()
    high: Values = ()


def curves(series: Sequence[Series], span: Span = SHARE, unit: str = "", steps: Axis = ()) -> str:
    """Lines within a span of values; `steps` are the steps' numbers where not 1, 2, 3 ..."""
    numbers = steps or range(1, max(len(one.values) for one in series) + 1)
    drawn = [*_grid(span, unit), *_steps(numbers)]
    for one in series:
        drawn += _line(one, numbers, span)
    return _svg(drawn, "; ".join(_told(one, unit) for one in series))


def bars(values: Values, colour: str, name: str, unit: str = "") -> str:
    """A bar for each step."""
    highest = max((value for value in values if value is not None), default=0.0)
    top = round_up(highest) if highest > 0 else 1.0
    drawn = [*_grid(Span(0.0, top), unit), *_steps(range(1, len(values) + 1))]
    for step, value in enumerate(values):
        if value is not None:
            title = f"step {step + 1}: {_short(value)}{unit}"
            drawn.append(_bar(*_column(step, len(values)), 0.0, value / top, colour, title))
    return _svg(drawn, _told(Series(name, colour, values), unit))


def histogram(values: Sequence[float], colour: str, name: str, bins: int = 10) -> str:
    """How many values lie in each tenth of [0, 1]; what lies outside is in the outer ones."""
    counts = [0] * bins
    for value in values:
        counts[min(max(int(value * bins), 0), bins - 1)] += 1
    top = max(counts) + max(counts) % 2 or 2
    width = _ACROSS / bins
    drawn = list(_grid(Span(0.0, top), ""))
    for place, count in enumerate(counts):
        title = f"{place / bins:.1f} to {(place + 1) / bins:.1f}: {count}"
        drawn.append(_bar(LEFT + place * width + 1, width - 2, 0.0, count / top, colour, title))
    drawn += [_text(LEFT + end * _ACROSS, HEIGHT - 6, f"{end:g}", "middle") for end in (0, 0.5, 1)]
    return _svg(drawn, f"{name}, counts by tenths from 0 to 1: {', '.join(map(str, counts))}")


def up_and_down(ups: Sequence[int], downs: Sequence[int], names: tuple[str, str]) -> str:
    """Counts above and below a line, for each step."""
    top = max([*ups, *downs, 1])
    drawn = [_rule(_y(0.5)), *_steps(range(1, len(ups) + 1))]
    drawn.append(_text(LEFT - 5, TOP + 8, f"+{top}", "end"))
    drawn.append(_text(LEFT - 5, HEIGHT - BOTTOM, f"\u2212{top}", "end"))
    for step, (up, down) in enumerate(zip(ups, downs, strict=True)):
        column, (gained, lost) = _column(step, len(ups)), names
        title = f"step {step + 1}: "
        drawn.append(_bar(*column, 0.5, 0.5 + up / top / 2, "good", f"{title}{up} {gained}"))
        drawn.append(_bar(*column, 0.5 - down / top / 2, 0.5, "bad", f"{title}{down} {lost}"))
    told = (f"{name}: {', '.join(map(str, counts))}" for name, counts in (
        (f"{names[0]} by step", ups), (names[1], downs)))  # fmt: skip
    return _svg(drawn, "; ".join(told))


def round_up(size: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten, for a size above 0."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= size * (1 - 1e-9))


def _svg(drawn: Sequence[str], told: str) -> str:
    # Every text in it was escaped where it was put in.
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">'
    return "\n".join([head, *drawn, "</svg>"])


def _grid(span: Span, unit: str) -> Iterator[str]:
    for part in (0.0, 0.5, 1.0):
        told = f"{_short(span.low + part * (span.high - span.low))}{unit}"
        yield _rule(_y(part))
        yield _text(LEFT - 5, _y(part) + 4, told, "end")


def _steps(numbers: Axis) -> Iterator[str]:
    """The first, the middle and the last step."""
    steps = len(numbers)
    for step in sorted({0, steps // 2, steps - 1}) if steps else ():
        yield _text(_x(step, steps), HEIGHT - 6, f"{numbers[step]}", "middle")


def _line(one: Series, numbers: Axis, span: Span) -> Iterator[str]:
    """Its range, points joined where neighbours have values, and a dot for each while few."""
    steps = len(numbers)

    def points(run: Sequence[tuple[int, float]]) -> str:
        return " ".join(f"{_x(i, steps):.1f},{_y(span.part(v)):.1f}" for i, v in run)

    for above, below in zip(_runs(one.high), _runs(one.low), strict=True):
        edge = points([*above, *reversed(below)])
        yield f'<polygon class="range {one.colour}" points="{edge}"/>'
    for run in _runs(one.values):
        yield f'<polyline class="line {one.colour}" points="{points(run)}"/>'
    for i, value in enumerate(one.values if steps <= 40 else ()):
        if value is not None:
            title = f"{escape(one.name)}, step {numbers[i]}: {_short(value)}"
            x, y = _x(i, steps), _y(span.part(value))
            yield (
                f'<circle class="{one.colour}" cx="{x:.1f}" cy="{y:.1f}" '
                f'r="2.6"><title>{title}</title></circle>'
            )


def _runs(values: Values) -> Iterator[list[tuple[int, float]]]:
    """Stretches of known values, with their places."""
    run: list[tuple[int, float]] = []
    for place, value in enumerate([*values, None]):
        if value is not None:
            run.append((place, value))
        elif run:
            yield run
            run = []


def _x(step: int, steps: int) -> float:
    return LEFT + (step + 0.5) * _ACROSS / max(steps, 1)


def _y(part: float) -> float:
    """The height of a part of the whole, which lies in [0, 1]."""
    return TOP + (1 - min(max(part, 0.0), 1.0)) * _UP


def _column(step: int, steps: int) -> tuple[float, float]:
    """Where the bar of a step begins, and how wide it is."""
    place = _ACROSS / max(steps, 1)
    width = min(place - min(place * 0.3, 6), WIDEST)
    return _x(step, steps) - width / 2, width


def _bar(x: float, width: float, low: float, high: float, colour: str, title: str) -> str:
    """From one part of the chart's height to another."""
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{_y(high):.1f}" width="{max(width, 0.5):.1f}" '
        f'height="{_y(low) - _y(high):.1f}"><title>{escape(title)}</title></rect>'
    )


def _rule(y: float) -> str:
    return f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _told(one: Series, unit: str) -> str:
    values = ("none" if v is None else f"{_short(v)}{unit}" for v in one.values)
    return f"{one.name} by step: {', '.join(values)}"


def _short(value: float) -> str:
    """A number in at most four digits."""
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    if 0 < abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"
