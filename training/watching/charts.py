"""The charts of a training's page: losses, rewards, divergences, lengths, work, held-out figures.

A long training is drawn in buckets of neighbouring steps, by their mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memory.schema import Stage
from training.run_page_plots import Series, Span, Values, curves
from training.watching.figures import number
from training.watching.kept import KeptNumbers, Numbered

MOST = 240
"""points of a line at most"""
COLOURS = ("accent", "good", "bad")
GIGABYTES = 1e-9
Drawn = tuple[tuple[str, str], ...]
"""metrics with what they are called in the chart, in the order of the colours"""
_STAGES = tuple(stage.value for stage in Stage)


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


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that has something to show."""

    title: str
    note: str
    last: str
    """of a single line, its last value"""
    keys: tuple[tuple[str, str], ...]
    """of several lines, the colour and the name of each"""
    svg: str


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
    Plan("Memory peak", "gigabytes", (("memory_peak", "GB"),), factor=GIGABYTES),
)  # fmt: skip


def charts(plans: Sequence[Plan], kept: KeptNumbers) -> list[Chart]:
    """Those that have a value to show."""
    return [chart for plan in plans if (chart := _chart(plan, kept.steps))]


def held_out_charts(kept: KeptNumbers) -> list[Chart]:
    """Of each stage the mean score with its 95% interval, by the rounds before the asking."""
    return [chart for stage in _STAGES if (chart := _held_out(stage, kept.held_out))]


def _chart(plan: Plan, steps: Numbered) -> Chart | None:
    factor = 100.0 if plan.share else plan.factor
    found = [
        (label, colour, [_times(number(metrics, name), factor) for _, metrics in steps])
        for (name, label), colour in zip(plan.drawn, plan.colours, strict=False)
    ]
    found = [one for one in found if any(value is not None for value in one[2])]
    if not found:
        return None
    numbers, unit = [step for step, _ in steps], "%" if plan.share else ""
    series = [Series(label, colour, _bucketed(values)) for label, colour, values in found]
    last = next((v for v in reversed(found[0][2]) if v is not None), None)
    return Chart(
        plan.title,
        plan.note,
        f"{_told(last)}{unit}" if len(found) == 1 else "",
        tuple((colour, label) for label, colour, _ in found) if len(found) > 1 else (),
        curves(series, _span(series, plan), unit, _first_of(numbers)),
    )


def _held_out(stage: str, asked: Numbered) -> Chart | None:
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
    drawn = curves([series], Span(0.0, 1.0), steps=[updates for updates, _ in asked])
    note, ends = "by the rounds before the asking", (low[-1], high[-1])
    if ends[0] is not None and ends[1] is not None:
        note += f"; the last {ends[0]:.2f} to {ends[1]:.2f}"
    return Chart(stage.capitalize(), note, f"{last:.2f}", (), drawn)


def _bucketed(values: Values) -> list[float | None]:
    """At most MOST values: the means of as many neighbours each."""
    size = math.ceil(len(values) / MOST)
    buckets = (values[start : start + size] for start in range(0, len(values), size))
    known = ([value for value in bucket if value is not None] for bucket in buckets)
    return [sum(bucket) / len(bucket) if bucket else None for bucket in known]


def _first_of(numbers: Sequence[int]) -> list[int]:
    """The number of the first step of each bucket."""
    return list(numbers[:: math.ceil(len(numbers) / MOST)])


def _span(series: Sequence[Series], plan: Plan) -> Span:
    """Two steps of a round size around all values, from 0 where that is near, or of work."""
    known = [value for one in series for value in one.values if value is not None]
    low, high = min(known), max(known)
    if plan.drawn[0][0].startswith("reward/"):
        return Span(0.0, 1.0)
    if low >= 0 and (plan in WORK or low == high or low <= 0.7 * high):
        low = 0.0
    elif high <= 0 and (low == high or high >= 0.7 * low):
        high = 0.0
    step = _round_step((high - low) / 2)
    while (bottom := math.floor(low / step + 1e-9) * step) + 2 * step < high - 1e-9 * step:
        step = _round_step(step * 1.1)
    return Span(bottom, bottom + 2 * step)


def _round_step(size: float) -> float:
    """The next of 1, 2, 5, 10 times a power of ten; 0.5 for none, as between 0 and 1."""
    if size <= 0:
        return 0.5
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= size * (1 - 1e-9))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _told(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1e4 else f"{value:,.0f}"
