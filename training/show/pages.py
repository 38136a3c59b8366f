"""The pages of collected runs and of trainings: charts in cards, without scripts or loaded files.

Both use the frame of reports, whose content policy allows its own style sheet and nothing else;
every text is escaped, and what models wrote is shown as written, made printable. Charts of a
collected run are over its steps; those of a training have a curve of everything that was measured,
a long one in buckets of neighbouring steps, by their mean.

A chart is inline SVG of WIDTH by HEIGHT units, so that its letters stay readable on a phone, and
includes its numbers as text for those who cannot see it. Its colours are classes of the style
sheet, the only one that the content policy allows.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rubricem.agent.reports.page import fill_template, page_of
from rubricem.agent.reports.report import decimal, percent, stage_texts
from rubricem.memory.schema import Stage, StageScore
from rubricem.training.rows.compile import JudgedTrajectory
from rubricem.training.show import collected, training
from rubricem.training.show.collected import (
    SAME,
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    share,
    unscored_share,
)
from rubricem.training.show.training import KeptNumbers, Numbered, number

MOST_TEXT = 6000
"""characters shown of one stage's text"""
MOST = 240
"""points of a line at most"""
FOLDER = "rubricem.training.show"
"""with the templates"""
_STAGES = tuple(stage.value for stage in Stage)
WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 12, 22
"""margins, for the numbers along the axes"""
WIDEST = 44
"""of a bar"""
_ACROSS, _UP = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
Values = Sequence[float | None]
Axis = Sequence[int]
_Bar = tuple[float, float, float, float, str, str]
"""its left edge and width, its lower and upper end as parts of the height, colour, title"""


@dataclass(frozen=True, slots=True)
class Span:
    """The values at the bottom and at the top of a chart."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """Where a value is between them, 0 to 1, clipped at the ends."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


SHARE = Span(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Series:
    """A line, with a range around it if there is one; None: no value at that step."""

    name: str
    colour: str
    """a class of the page's style sheet"""
    values: Values
    low: Values = ()
    high: Values = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One or two pictures in a card."""

    title: str
    note: str
    svg: str
    last: str = ""
    """beside the title: of a single line its last value, of a stage its mean"""
    keys: tuple[tuple[str, str], ...] = ()
    """for several lines, the colour and the name of each"""


def collected_page(run: RunNumbers, title: str) -> str:
    return page_of(
        FOLDER,
        "collected_page.html",
        title=title,
        run=run,
        told=collected,
        stages=[_stage_chart(run, place, stage) for place, stage in enumerate(Stage)],
        health=_health_charts(run.steps),
        work=_work_charts(run.steps),
        rubrics=_rubric_changes(run.steps),
        scaffold=scaffold_means(run),
        names=_STAGES,
        judged_text=_stage_text,
        notes=[(step.step + 1, note) for step in run.steps for note in step.notes],
    )


def _stage_chart(run: RunNumbers, place: int, stage: Stage) -> Chart:
    """A stage's scores over the steps with their range, and their distribution."""
    scores, spreads = run.scores(place), run.spreads(place)
    title, told = stage.value.capitalize(), decimal(mean(scores))
    if not scores:
        return Chart(title, "No score was given.", "", told)
    each = [step.scores(place) for step in run.steps]
    series = Series(
        f"mean score of {stage}",
        stage.value,
        [mean(found) for found in each],
        [min(found, default=None) for found in each],
        [max(found, default=None) for found in each],
    )
    apart = share(sum(spread >= SAME for spread in spreads), len(spreads))
    note = (
        f"{len(scores)} scored, deviation {float(np.std(scores)):.2f}; "
        f"differs within {percent(apart)} of groups"
    )
    below = histogram(scores, stage.value, f"scores of {stage}")
    return Chart(title, note, f"{curves([series])}\n{below}", told)


def _health_charts(steps: Sequence[StepNumbers]) -> list[Chart]:
    """Shares that should be small, in percent."""
    shares = {
        "Unscored stages": [unscored_share(step.rollouts) for step in steps],
        "Malformed rollouts": [malformed_share(step.rollouts) for step in steps],
        "Failed rollouts": [
            share(len(step.failures), len(step.rollouts) + len(step.failures)) for step in steps
        ],
    }
    span = Span(0.0, 100.0)
    return [
        Chart(name, "share of each step", curves([Series(name, "bad", _times(v, 100))], span, "%"))
        for name, v in shares.items()
    ]


def _work_charts(steps: Sequence[StepNumbers]) -> list[Chart]:
    """The average work of a rollout; and the cost of each step, if prices are known."""
    of_rollout: dict[str, Callable[[Any], float]] = {
        "Tool calls of a rollout": lambda r: r.tool_calls,
        "Tokens written by a rollout": lambda r: r.usage.completion_tokens,
        "Tokens read by a rollout": lambda r: r.usage.prompt_tokens,
        "Seconds of a rollout": lambda r: r.seconds,
    }
    found = []
    for name, measure in of_rollout.items():
        means = [mean([measure(r) for r in step.rollouts]) for step in steps]
        found.append(Chart(name, "mean of each step", bars(means, "accent", name)))
    costs = [step.usage.cost for step in steps]
    if any(costs):
        drawn = bars(costs, "accent", "cost of a step", " $")
        found.append(Chart("Cost of a step", "each step", drawn))
    return found


def _rubric_changes(steps: Sequence[StepNumbers]) -> dict[str, Any]:
    ups = [step.count_changes("added", "returned", "pinned") for step in steps]
    downs = [step.count_changes("retired") for step in steps]
    drawn = up_and_down(ups, downs, ("criteria added", "criteria retired"))
    note = "added above the line, retired below it, by step"
    return {
        "added": sum(ups),
        "retired": sum(downs),
        "charts": [Chart("Changes", note, drawn)],
        "changes": [
            (step.step + 1, question, change) for step in steps for question, change in step.changes
        ],
    }


def scaffold_means(run: RunNumbers) -> list[tuple[int, int, float | None]]:
    """For each number of criteria shown: rollouts, and their mean answer score; [] without any."""
    if run.manifest.scaffold is None:
        return []
    found = []
    for count in sorted({r.shown for r in run.rollouts}, reverse=True):
        own = [r for r in run.rollouts if r.shown == count]
        found.append((count, len(own), mean([s for r in own if (s := r.scores[-1]) is not None])))
    return found


def _stage_text(one: JudgedTrajectory, name: str) -> tuple[str, StageScore | None]:
    """The text of the stage of this name, and how it was judged."""
    stage = Stage(name)
    text = stage_texts(one).get(stage, "")
    cut = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\u2026"
    return cut, one.judgement.at(stage) if one.judgement else None


COLOURS = ("accent", "good", "bad")
Drawn = tuple[tuple[str, str], ...]
"""metrics with their names in the chart, in the order of the colours"""


@dataclass(frozen=True, slots=True)
class Plan:
    """One chart: its lines, and how their values are shown."""

    title: str
    note: str
    drawn: Drawn
    share: bool = False
    """drawn from 0 to 100%"""
    factor: float = 1.0
    colours: tuple[str, ...] = COLOURS


def _by_stage(name: str) -> Drawn:
    return tuple((name.format(stage), stage) for stage in _STAGES)


REWARDS = (
    Plan("Reward by stage", "mean score, 0 to 1", _by_stage("reward/{}/mean"), colours=_STAGES),
    Plan("Unscored and failed", "share of stages, of rollouts", (
        ("unscored_share", "unscored"), ("malformed_share", "malformed"),
        ("failed_share", "failed")), share=True),
    Plan("Groups without spread", "share that teaches a stage nothing",
         _by_stage("groups_without_spread/{}"), share=True, colours=_STAGES),
    Plan("Largest advantage", "by stage", _by_stage("advantage/{}/size/max"), colours=_STAGES),
    Plan("Reflections", "score of the candidates", (
        ("reflection/score/mean", "mean"), ("reflection/score/max", "best"))),
)  # fmt: skip
UPDATES = (
    Plan("Loss", "of each update", (("loss", "loss"),)),
    Plan("Loss by objective", "what each adds", (
        ("policy_loss", "policy"), ("reflect_loss", "reflection"), ("judge_loss", "judge"))),
    Plan("Negative log-likelihood", "nats a token", (("negative_log_likelihood", "nats"),)),
    Plan("Gradient norm", "before it is clipped", (("grad_norm", "norm"),)),
    Plan("Divergence", "k3 in nats a token", (
        ("kl_old", "old policy"), ("kl_reference", "reference"), ("kl_behaviour", "sampler"))),
    Plan("Clipped tokens", "share without a gradient", (
        ("clipped_low", "low"), ("clipped_high", "high"), ("clipped_dual", "dual")), share=True),
    Plan("Surprise", "nats a token, one sample of the entropy", (("surprise", "nats"),)),
    Plan("Ratio", "to the old policy", (("ratio", "mean"), ("ratio_max", "largest"))),
    Plan("Sampler and trainer", "gap in nats a token", (
        ("sampler_gap", "mean"), ("scaffold_gap", "scaffold"))),
    Plan("Effective sample size", "share of the trained tokens", (("ess", "share"),), share=True),
    Plan("Learning rate", "", (("rate", "rate"),)),
)  # fmt: skip
WORK = (
    Plan("Length of a rollout", "mean tokens", (
        ("tokens/policy/mean", "policy"), ("tokens/tool/mean", "tools"))),
    Plan("Tool calls", "of a rollout, mean", (("tool_calls/mean", "calls"),)),
    Plan("Broken off", "share of rollouts, of tool output", (
        ("cut_off_share", "cut off"), ("tool_error_share", "tool errors")), share=True),
    Plan("Staleness", "updates behind the trained policy", (
        ("staleness/mean", "mean"), ("staleness/max", "most"))),
    Plan("Rows", "trained in a round", (("rows/policy", "policy"), ("rows/reflect", "reflection"),
                                        ("dropped", "dropped"))),
    Plan("Time of a round", "seconds", (
        ("seconds/rollout", "rollouts"), ("seconds/judge", "judge"), ("seconds/train", "update"))),
    Plan("Length of a row", "tokens", (("row_tokens/mean", "mean"), ("row_tokens/max", "longest"))),
    Plan("Speed", "tokens a second", (
        ("tokens_per_second", "read"), ("trained_per_second", "trained"))),
    Plan("Padding", "share of what is read", (("padding_share", "padding"),), share=True),
    Plan("Memory peak", "gigabytes", (("memory_peak", "GB"),), factor=1e-9),
)  # fmt: skip


def training_page(kept: KeptNumbers, title: str) -> str:
    """Curves of everything that was measured; a missing metric has no chart."""
    return page_of(
        FOLDER,
        "training_page.html",
        title=title,
        kept=kept,
        told=training,
        held_out=held_out_charts(kept),
        rewards=charts(REWARDS, kept),
        updates=charts(UPDATES, kept),
        work=charts(WORK, kept),
    )


def charts(plans: Sequence[Plan], kept: KeptNumbers) -> list[Chart]:
    """The charts with at least one value."""
    return [chart for plan in plans if (chart := _chart(plan, kept.steps))]


def held_out_charts(kept: KeptNumbers) -> list[Chart]:
    """For each stage the mean score with its 95% interval, by the number of rounds before."""
    return [chart for stage in _STAGES if (chart := _held_out_chart(stage, kept.held_out))]


def _chart(plan: Plan, steps: Numbered) -> Chart | None:
    factor, unit = (100.0, "%") if plan.share else (plan.factor, "")
    found = [
        Series(label, colour, _times([number(metrics, name) for _, metrics in steps], factor))
        for (name, label), colour in zip(plan.drawn, plan.colours, strict=False)
    ]
    found = [one for one in found if any(value is not None for value in one.values)]
    if not found:
        return None
    size = math.ceil(len(steps) / MOST)
    series = [
        replace(one, values=[
            mean([value for value in one.values[start : start + size] if value is not None])
            for start in range(0, len(steps), size)
        ])
        for one in found
    ]  # fmt: skip
    numbers = [step for step, _ in steps[::size]]
    drawn = curves(series, _span(series, plan), unit, numbers)
    if len(found) > 1:
        keys = tuple((one.colour, one.name) for one in found)
        return Chart(plan.title, plan.note, drawn, keys=keys)
    last = next(value for value in reversed(found[0].values) if value is not None)
    told = f"{last:.3g}" if abs(last) < 1e4 else f"{last:,.0f}"
    return Chart(plan.title, plan.note, drawn, f"{told}{unit}")


def _held_out_chart(stage: str, asked: Numbered) -> Chart | None:
    name = f"reward/{stage}"
    mean, low, high = (
        [number(found, f"{name}/{part}") for _, found in asked] for part in ("mean", "low", "high")
    )
    last = next((value for value in reversed(mean) if value is not None), None)
    if last is None:
        return None
    known = [None not in ends for ends in zip(mean, low, high, strict=True)]
    low, high = ([v if on else None for v, on in zip(part, known, strict=True)]
                 for part in (low, high))  # fmt: skip
    series = Series(f"{stage} after so many rounds", stage, mean, low, high)
    drawn = curves([series], steps=[updates for updates, _ in asked])
    note, ends = "by the rounds before the asking", (low[-1], high[-1])
    if ends[0] is not None and ends[1] is not None:
        note += f"; the last {ends[0]:.2f} to {ends[1]:.2f}"
    return Chart(stage.capitalize(), note, drawn, f"{last:.2f}")


def _times(values: Values, factor: float) -> list[float | None]:
    return [None if value is None else value * factor for value in values]


def _span(series: Sequence[Series], plan: Plan) -> Span:
    """Round limits, two steps apart, around all values; from 0 if that is near, or for work."""
    known = [value for one in series for value in one.values if value is not None]
    low, high = min(known), max(known)
    if plan.drawn[0][0].startswith("reward/"):
        return SHARE
    if low >= 0 and (plan in WORK or low == high or low <= 0.7 * high):
        low = 0.0
    elif high <= 0 and (low == high or high >= 0.7 * low):
        high = 0.0
    step = round_up((high - low) / 2) if high > low else 0.5
    while (bottom := math.floor(low / step + 1e-9) * step) + 2 * step < high - 1e-9 * step:
        step = round_up(step * 1.1)
    return Span(bottom, bottom + 2 * step)


def curves(series: Sequence[Series], span: Span = SHARE, unit: str = "", steps: Axis = ()) -> str:
    """Lines within a span of values; `steps` are the steps' numbers if not 1, 2, 3 ..."""
    numbers = steps or range(1, max(len(one.values) for one in series) + 1)
    told = "; ".join(_describe_series(one, unit) for one in series)
    return _svg(told, _grid(span, unit), _along(numbers), series=series, span=span, numbers=numbers)


def bars(values: Values, colour: str, name: str, unit: str = "") -> str:
    highest = max((value for value in values if value is not None), default=0.0)
    top = round_up(highest) if highest > 0 else 1.0
    drawn = [
        (*_column(i, len(values)), 0.0, v / top, colour, f"step {i + 1}: {_short(v)}{unit}")
        for i, v in enumerate(values)
        if v is not None
    ]
    told = _describe_series(Series(name, colour, values), unit)
    return _svg(told, _grid(Span(0.0, top), unit), _along(range(1, len(values) + 1)), drawn)


def histogram(values: Sequence[float], colour: str, name: str, bins: int = 10) -> str:
    """How many values are in each tenth of [0, 1]; those outside count in the first or last."""
    counts = [0] * bins
    for value in values:
        counts[min(max(int(value * bins), 0), bins - 1)] += 1
    top = max(counts) + max(counts) % 2 or 2
    width = _ACROSS / bins
    drawn = []
    for i, count in enumerate(counts):
        title = f"{i / bins:.1f} to {(i + 1) / bins:.1f}: {count}"
        drawn.append((LEFT + i * width + 1, width - 2, 0.0, count / top, colour, title))
    ends = [(LEFT + end * _ACROSS, f"{end:g}") for end in (0, 0.5, 1)]
    told = f"{name}, counts by tenths from 0 to 1: {', '.join(map(str, counts))}"
    return _svg(told, _grid(Span(0.0, top), ""), ends, drawn)


def up_and_down(ups: Sequence[int], downs: Sequence[int], names: tuple[str, str]) -> str:
    """Counts above and below a line, for each step."""
    top, drawn = max([*ups, *downs, 1]), list[_Bar]()
    for step, (up, down) in enumerate(zip(ups, downs, strict=True)):
        column, title = _column(step, len(ups)), f"step {step + 1}: "
        drawn.append((*column, 0.5, 0.5 + up / top / 2, "good", f"{title}{up} {names[0]}"))
        drawn.append((*column, 0.5 - down / top / 2, 0.5, "bad", f"{title}{down} {names[1]}"))
    told = (f"{name}: {', '.join(map(str, counts))}" for name, counts in (
        (f"{names[0]} by step", ups), (names[1], downs)))  # fmt: skip
    ticks = ((TOP + 8, f"+{top}"), (HEIGHT - BOTTOM, f"\u2212{top}"))
    return _svg("; ".join(told), ticks, _along(range(1, len(ups) + 1)), drawn, rules=(0.5,))


def round_up(size: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten, for a size above 0."""
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= size * (1 - 1e-9))


def _svg(
    told: str,
    ticks: Iterable[tuple[float, str]],
    along: Iterable[tuple[float, str]],
    bars: Sequence[_Bar] = (),
    rules: Sequence[float] = (0.0, 0.5, 1.0),
    **lines: Any,
) -> str:
    """A picture: its description, labels at heights and along its foot, then bars or lines."""
    size = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT}
    drawn = {"told": told, "ticks": ticks, "along": along, "rules": rules, "bars": bars}
    shown = {"x": _x, "y": _y, "runs": _runs, "short": _short}
    values = {"series": (), **size, **drawn, **shown, **lines}
    return fill_template(FOLDER, "chart.svg", **values).strip()


def _grid(span: Span, unit: str) -> Iterator[tuple[float, str]]:
    for part in (0.0, 0.5, 1.0):
        yield _y(part) + 4, f"{_short(span.low + part * (span.high - span.low))}{unit}"


def _along(numbers: Axis) -> Iterator[tuple[float, str]]:
    """The first, the middle and the last step."""
    steps = len(numbers)
    for step in sorted({0, steps // 2, steps - 1}) if steps else ():
        yield _x(step, steps), f"{numbers[step]}"


def _runs(values: Values) -> Iterator[list[tuple[int, float]]]:
    """Stretches of known values, with their indices."""
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
    """The height of a part of the whole, which is in [0, 1]."""
    return TOP + (1 - min(max(part, 0.0), 1.0)) * _UP


def _column(step: int, steps: int) -> tuple[float, float]:
    """The left edge and the width of a step's bar."""
    place = _ACROSS / max(steps, 1)
    width = min(place - min(place * 0.3, 6), WIDEST)
    return _x(step, steps) - width / 2, width


def _describe_series(one: Series, unit: str) -> str:
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
