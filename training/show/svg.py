"""Small charts as inline SVG: lines over steps, histograms, bars. Their colours are the page's.

Every chart is WIDTH by HEIGHT units, so that its letters stay readable on a phone, and carries
its numbers as a text for those who cannot see it. Classes, not styles: the page's content policy
allows no other style than its own sheet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 12, 22
"""margins, for the numbers along the axes"""
WIDEST = 44
"""of a bar"""
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


@dataclass(frozen=True, slots=True)
class Series:
    """A line, with the range around it where it has one; None: no value at that step."""

    name: str
    colour: str
    """a class of the page's style sheet"""
    values: Values
    low: Values = ()
    high: Values = ()


def lines(series: Sequence[Series], top: float = 1.0, unit: str = "", steps: Axis = ()) -> str:
    """Lines over the steps, from 0 to `top`; `steps` are their numbers where not 1, 2, 3 ..."""
    return curves(series, Span(0.0, top), unit, steps)


def curves(series: Sequence[Series], span: Span, unit: str = "", steps: Axis = ()) -> str:
    """Lines over the steps, within a span of values."""
    numbers = steps or range(1, max(len(one.values) for one in series) + 1)
    drawn = [*_grid(span, unit), *_steps(numbers)]
    for one in series:
        drawn += [*_range(one, len(numbers), span), *_line(one, numbers, span)]
    told = "; ".join(_told(one, unit) for one in series)
    return _svg(drawn, told)


def bars(values: Values, colour: str, name: str, unit: str = "") -> str:
    """A bar for each step."""
    top = _round_up(max((value for value in values if value is not None), default=0.0))
    drawn = [*_grid(Span(0.0, top), unit), *_steps(range(1, len(values) + 1))]
    for step, value in enumerate(values):
        if value is not None:
            title = f"step {step + 1}: {_short(value)}{unit}"
            drawn.append(_bar(*_column(step, len(values)), value / top, colour, title))
    return _svg(drawn, _told(Series(name, colour, values), unit))


def histogram(values: Sequence[float], colour: str, name: str, bins: int = 10) -> str:
    """How many values lie in each tenth of [0, 1]; what lies outside is in the outer ones."""
    counts = [0] * bins
    for value in values:
        counts[min(max(int(value * bins), 0), bins - 1)] += 1
    top = max(counts) + max(counts) % 2 or 2
    width = (WIDTH - LEFT - RIGHT) / bins
    drawn = list(_grid(Span(0.0, top), ""))
    for place, count in enumerate(counts):
        title = f"{place / bins:.1f} to {(place + 1) / bins:.1f}: {count}"
        drawn.append(_bar(LEFT + place * width + 1, width - 2, count / top, colour, title))
    drawn += [_text(LEFT + end * (WIDTH - LEFT - RIGHT), HEIGHT - 6, f"{end:g}", "middle")
              for end in (0.0, 0.5, 1.0)]  # fmt: skip
    return _svg(drawn, f"{name}, counts by tenths from 0 to 1: {', '.join(map(str, counts))}")


def up_and_down(ups: Sequence[int], downs: Sequence[int], names: tuple[str, str]) -> str:
    """Counts above and below a line, for each step."""
    top = max([*ups, *downs, 1])
    middle, reach = (TOP + HEIGHT - BOTTOM) / 2, (HEIGHT - TOP - BOTTOM) / 2
    drawn = [_rule(middle), *_steps(range(1, len(ups) + 1))]
    drawn.append(_text(LEFT - 5, TOP + 8, f"+{top}", "end"))
    drawn.append(_text(LEFT - 5, HEIGHT - BOTTOM, f"\u2212{top}", "end"))
    for step, (up, down) in enumerate(zip(ups, downs, strict=True)):
        x, width = _column(step, len(ups))
        for count, y, colour, name in (
            (up, middle - up / top * reach, "good", names[0]),
            (down, middle, "bad", names[1]),
        ):
            drawn.append(
                f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" '
                f'width="{width:.1f}" height="{count / top * reach:.1f}">'
                f"<title>step {step + 1}: {count} {escape(name)}</title></rect>"
            )
    told = (
        f"{names[0]} by step: {', '.join(map(str, ups))}; {names[1]}: {', '.join(map(str, downs))}"
    )
    return _svg(drawn, told)


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
    """Points joined where neighbours have values, and a dot for each while they are few."""
    steps = len(numbers)
    for run in _runs(one.values):
        points = " ".join(f"{_x(i, steps):.1f},{_y(span.part(v)):.1f}" for i, v in run)
        yield f'<polyline class="line {one.colour}" points="{points}"/>'
    for i, value in enumerate(one.values if steps <= 40 else ()):
        if value is not None:
            title = f"{escape(one.name)}, step {numbers[i]}: {_short(value)}"
            x, y = _x(i, steps), _y(span.part(value))
            yield (
                f'<circle class="{one.colour}" cx="{x:.1f}" cy="{y:.1f}" '
                f'r="2.6"><title>{title}</title></circle>'
            )


def _range(one: Series, steps: int, span: Span) -> Iterator[str]:
    high, low = list(_runs(one.high)), list(_runs(one.low))
    for above, below in zip(high, low, strict=True):
        edge = [*above, *reversed(below)]
        points = " ".join(f"{_x(i, steps):.1f},{_y(span.part(v)):.1f}" for i, v in edge)
        yield f'<polygon class="range {one.colour}" points="{points}"/>'


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
    return LEFT + (step + 0.5) * (WIDTH - LEFT - RIGHT) / max(steps, 1)


def _column(step: int, steps: int) -> tuple[float, float]:
    """Where the bar of a step begins, and how wide it is."""
    place = (WIDTH - LEFT - RIGHT) / max(steps, 1)
    width = min(place - min(place * 0.3, 6), WIDEST)
    return _x(step, steps) - width / 2, width


def _y(part: float) -> float:
    """The height of a part of the whole, which lies in [0, 1]."""
    return TOP + (1 - min(max(part, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)


def _bar(x: float, width: float, part: float, colour: str, title: str) -> str:
    y = _y(part)
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" '
        f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{escape(title)}</title></rect>'
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


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 ..., as an axis ends at."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value)
