"""The pages of collected runs and of trainings: charts in cards, nothing loaded, nothing that runs.

Both are one frame, page.html, whose content policy allows its own style sheet and no more; every
text is escaped, and what models wrote is shown as it stands, made printable. Charts of a collected
run are over its steps; those of a training have a curve of everything that was measured, a long
one in buckets of neighbouring steps, by their mean.
"""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from rubricem.agent.reports.report import duration, stage_texts
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Stage, StageScore, Status
from rubricem.memory.text import printable
from rubricem.training.rows.forms import JudgedTrajectory
from rubricem.training.show.collected import (
    SAME,
    Extremes,
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    share,
    unscored_share,
)
from rubricem.training.show.svg import (
    SHARE,
    Series,
    Span,
    Values,
    bars,
    curves,
    histogram,
    round_up,
    up_and_down,
)
from rubricem.training.show.training import (
    ASKED_HEADS,
    PAIR_HEADS,
    KeptNumbers,
    Numbered,
    about,
    asked_rows,
    facts,
    number,
    pair_rows,
    settings,
    shown,
    shown_numbers,
)

MOST_TEXT = 6000
"""characters shown of one stage's text"""
MOST = 240
"""points of a line at most"""
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)
_STAGES = tuple(stage.value for stage in Stage)


@dataclass(frozen=True, slots=True)
class Chart:
    """One or two pictures in a card."""

    title: str
    note: str
    svg: str
    last: str = ""
    """beside the title: of a single line its last value, of a stage its mean"""
    keys: tuple[tuple[str, str], ...] = ()
    """of several lines, the colour and the name of each"""


def _render(template: str, **values: Any) -> str:
    """A template of this folder with its values, all of them escaped, as one page."""
    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "plain": printable,
        "duration": duration,
        "number": partial(shown, form=".2f"),
        "percent": percent,
    }
    style = _read("page_style.html").strip()
    sheet = _STYLE.search(style)
    assert sheet, "there is a style sheet, which the page's policy names by its hash"
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(style=style, style_hash=f"sha256-{digest}", **values)


@cache
def _read(name: str) -> str:
    return (files("rubricem.training.show") / name).read_text(encoding="utf-8")


def percent(value: float | None) -> str:
    return shown(value, ".1%" if value is not None and 0 < value < 0.1 else ".0%")


def write_collected_page(path: Path, run: RunNumbers, title: str) -> None:
    """Write the page; `title` names the run, by its folder."""
    write_atomically(path, collected_page(run, title))


def collected_page(run: RunNumbers, title: str) -> str:
    answers = run.scores(len(_STAGES) - 1)
    return _render(
        "collected_page.html",
        title=title,
        run=run,
        rollouts=run.rollouts,
        finished=sum(r.status is Status.FINISHED for r in run.rollouts),
        answers=len(answers),
        answer_score=mean(answers),
        unscored=unscored_share(run.rollouts),
        malformed=malformed_share(run.rollouts),
        stages=[_stage_chart(run, place, stage) for place, stage in enumerate(Stage)],
        health=_health_charts(run.steps),
        work=_work_charts(run.steps),
        rubrics=_rubric_changes(run.steps),
        scaffold=scaffold_means(run),
        variety=run.variety.told(),
        extremes=[_side_by_side(found) for found in run.extremes],
        usage=run.usage(),
        notes=[(step.step + 1, note) for step in run.steps for note in step.notes],
    )


def _stage_chart(run: RunNumbers, place: int, stage: Stage) -> Chart:
    """Its scores over the steps with their range, and how they are spread."""
    scores, spreads = run.scores(place), run.spreads(place)
    title, told = stage.value.capitalize(), shown(mean(scores), ".2f")
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
    """What a rollout takes, on average; and what each step cost, where prices are known."""
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
    ups = [step.changed("added", "returned", "pinned") for step in steps]
    downs = [step.changed("retired") for step in steps]
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


def _side_by_side(found: Extremes) -> dict[str, Any]:
    """The two of a group, stage by stage."""
    pair = (found.best, found.worst)
    texts = [stage_texts(one) for one in pair]

    def told(one: JudgedTrajectory, text: str, stage: Stage) -> tuple[str, StageScore | None]:
        stages = one.judgement.stages if one.judgement else ()
        cut = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\u2026"
        return cut, next((score for score in stages if score.stage is stage), None)

    return {
        "step": found.step + 1,
        "question": found.question,
        "by": found.by,
        "values": found.values,
        "threads": [one.thread for one in pair],
        "endings": [(one.status.value, one.reason) for one in pair],
        "stages": [
            {
                "name": stage.value.capitalize(),
                "each": [
                    told(one, text.get(stage, ""), stage)
                    for one, text in zip(pair, texts, strict=True)
                ],
            }
            for stage in Stage
        ],
    }


COLOURS = ("accent", "good", "bad")
Drawn = tuple[tuple[str, str], ...]
"""metrics with what they are called in the chart, in the order of the colours"""


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


def write_training_page(path: Path, kept: KeptNumbers, title: str) -> None:
    """Write the page; `title` names the training, by its folder."""
    write_atomically(path, training_page(kept, title))


def training_page(kept: KeptNumbers, title: str) -> str:
    """Curves of everything that was measured; what was not has no chart."""
    return _render(
        "training_page.html",
        title=title,
        about=about(kept),
        facts=facts(kept),
        kept=kept,
        asked_heads=ASKED_HEADS,
        asked=asked_rows(kept),
        pair_heads=PAIR_HEADS,
        pairs=pair_rows(kept),
        held_out=held_out_charts(kept),
        rewards=charts(REWARDS, kept),
        updates=charts(UPDATES, kept),
        work=charts(WORK, kept),
        settings=settings(kept.record),
        numbers=shown_numbers(kept.last),
    )


def charts(plans: Sequence[Plan], kept: KeptNumbers) -> list[Chart]:
    """Those that have a value to show."""
    return [chart for plan in plans if (chart := _chart(plan, kept.steps))]


def held_out_charts(kept: KeptNumbers) -> list[Chart]:
    """Of each stage the mean score with its 95% interval, by the rounds before the asking."""
    return [chart for stage in _STAGES if (chart := _held_out(stage, kept.held_out))]


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
    series = [replace(one, values=_bucketed(one.values, size)) for one in found]
    numbers = [step for step, _ in steps[::size]]
    drawn = curves(series, _span(series, plan), unit, numbers)
    if len(found) > 1:
        keys = tuple((one.colour, one.name) for one in found)
        return Chart(plan.title, plan.note, drawn, keys=keys)
    last = next(value for value in reversed(found[0].values) if value is not None)
    told = f"{last:.3g}" if abs(last) < 1e4 else f"{last:,.0f}"
    return Chart(plan.title, plan.note, drawn, f"{told}{unit}")


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
    drawn = curves([series], steps=[updates for updates, _ in asked])
    note, ends = "by the rounds before the asking", (low[-1], high[-1])
    if ends[0] is not None and ends[1] is not None:
        note += f"; the last {ends[0]:.2f} to {ends[1]:.2f}"
    return Chart(stage.capitalize(), note, drawn, f"{last:.2f}")


def _bucketed(values: Values, size: int) -> list[float | None]:
    """The means of so many neighbours each."""
    buckets = (values[start : start + size] for start in range(0, len(values), size))
    return [mean([value for value in bucket if value is not None]) for bucket in buckets]


def _times(values: Values, factor: float) -> list[float | None]:
    return [None if value is None else value * factor for value in values]


def _span(series: Sequence[Series], plan: Plan) -> Span:
    """Two steps of a round size around all values, from 0 where that is near, or of work."""
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
