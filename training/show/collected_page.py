"""A collected run as one self-contained page: no script, nothing loaded, every text escaped.

Charts are over the run's steps. What models wrote is shown as it stands, made printable.

The charts of a collected run's page: every stage's scores, what went wrong, work, rubrics.

What the pages of runs have in common: their style sheet, and a policy that allows no more.

A collected run on the terminal: a table of its steps, what went wrong, and the widest groups.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rubricem.agent.reports.report import duration, stage_texts
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Stage, StageScore, Status, Usage
from rubricem.memory.text import one_line, printable
from rubricem.training.rows.forms import JudgedTrajectory
from rubricem.training.show.collected import (
    SAME,
    Extremes,
    RunNumbers,
    StepNumbers,
    malformed_share,
    mean,
    share,
    total,
    unscored_share,
)
from rubricem.training.show.svg import Series, bars, histogram, lines, up_and_down


@dataclass(frozen=True, slots=True)
class StageCard:
    """One stage: its scores over the steps, and how they are spread."""

    name: str
    count: int
    mean: float | None
    deviation: float | None
    apart: float | None
    """share of the groups whose members differ in it"""
    over_steps: str
    distribution: str


def stage_card(run: RunNumbers, place: int, stage: Stage) -> StageCard:
    scores = run.scores(place)
    each = [step.scores(place) for step in run.steps]
    spreads = run.spreads(place)
    series = Series(
        f"mean score of {stage}",
        stage.value,
        [mean(found) for found in each],
        [min(found, default=None) for found in each],
        [max(found, default=None) for found in each],
    )
    return StageCard(
        name=stage.value.capitalize(),
        count=len(scores),
        mean=mean(scores),
        deviation=float(np.std(scores)) if scores else None,
        apart=share(sum(spread >= SAME for spread in spreads), len(spreads)),
        over_steps=lines([series]),
        distribution=histogram(scores, stage.value, f"scores of {stage}"),
    )


def health_charts(steps: Sequence[StepNumbers]) -> list[tuple[str, str]]:
    """Shares that should be small, in percent."""
    shares = {
        "Unscored stages": [unscored_share(step.rollouts) for step in steps],
        "Malformed rollouts": [malformed_share(step.rollouts) for step in steps],
        "Failed rollouts": [
            share(len(step.failures), len(step.rollouts) + len(step.failures)) for step in steps
        ],
    }
    return [
        (name, lines([Series(name, "bad", [_times(v, 100) for v in values])], 100, "%"))
        for name, values in shares.items()
    ]


def work_charts(steps: Sequence[StepNumbers]) -> list[tuple[str, str]]:
    """What a rollout takes, on average; and what each step cost, where prices are known."""
    means = {
        "Tool calls of a rollout": [mean([r.tool_calls for r in s.rollouts]) for s in steps],
        "Tokens written by a rollout": [
            mean([r.usage.completion_tokens for r in s.rollouts]) for s in steps
        ],
        "Tokens read by a rollout": [
            mean([r.usage.prompt_tokens for r in s.rollouts]) for s in steps
        ],
        "Seconds of a rollout": [mean([r.seconds for r in s.rollouts]) for s in steps],
    }
    charts = [(name, bars(values, "accent", name)) for name, values in means.items()]
    costs = [step.usage.cost for step in steps]
    if any(costs):
        charts.append(("Cost of a step", bars(costs, "accent", "cost of a step", " $")))
    return charts


def rubric_changes(steps: Sequence[StepNumbers]) -> dict[str, Any]:
    ups = [step.changed("added", "returned", "pinned") for step in steps]
    downs = [step.changed("retired") for step in steps]
    return {
        "added": sum(ups),
        "retired": sum(downs),
        "chart": up_and_down(ups, downs, ("criteria added", "criteria retired")),
        "changes": [
            (step.step + 1, question, change) for step in steps for question, change in step.changes
        ],
    }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


STYLE = "run_page_style.html"
_STYLE = re.compile(r"<style>(.*?)</style>", re.S)


def rendered(template: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> str:
    """A template of this room with its values, all of them escaped, as one page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"plain": printable, **filters}
    style = _read(STYLE).strip()
    return environment.from_string(_read(template)).render(
        style=style, style_hash=_hash(style), **values
    )


@cache
def _read(name: str) -> str:
    return (files("rubricem.training.show") / name).read_text(encoding="utf-8")


def _hash(style: str) -> str:
    """What the page's policy names its one style sheet by."""
    sheet = _STYLE.search(style)
    assert sheet, "there is a style sheet"
    return "sha256-" + base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()


MOST = 6000
"""characters shown of one stage's text"""


def write_page(path: Path, run: RunNumbers, title: str) -> None:
    """Write the page; `title` names the run, by its folder."""
    write_atomically(path, page(run, title))


def page(run: RunNumbers, title: str) -> str:
    return rendered(
        "run_page.html",
        {"duration": duration, "number": number, "percent": percent},
        title=title,
        run=run,
        rollouts=run.rollouts,
        finished=sum(r.status is Status.FINISHED for r in run.rollouts),
        unscored=unscored_share(run.rollouts),
        malformed=malformed_share(run.rollouts),
        cards=[stage_card(run, place, stage) for place, stage in enumerate(Stage)],
        health=health_charts(run.steps),
        work=work_charts(run.steps),
        rubrics=rubric_changes(run.steps),
        scaffold=scaffold_means(run),
        variety=run.variety.told(),
        extremes=[_side_by_side(found) for found in run.extremes],
        usage=run.usage(),
        notes=[(step.step + 1, note) for step in run.steps for note in step.notes],
    )


def number(value: float | None, form: str = ".2f") -> str:
    return "none" if value is None else format(value, form)


def percent(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def scaffold_means(run: RunNumbers) -> list[tuple[int, int, float | None]]:
    """For each number of criteria shown: rollouts, and their mean answer score; [] without any."""
    if run.manifest.scaffold is None:
        return []
    found = []
    for shown in sorted({r.shown for r in run.rollouts}, reverse=True):
        own = [r for r in run.rollouts if r.shown == shown]
        found.append((shown, len(own), mean([s for r in own if (s := r.scores[-1]) is not None])))
    return found


def _side_by_side(found: Extremes) -> dict[str, Any]:
    """The two of a group, stage by stage."""
    pair = (found.best, found.worst)
    texts = [stage_texts(one) for one in pair]
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
                    (_cut(text.get(stage, "")), _stage_score(one, stage))
                    for one, text in zip(pair, texts, strict=True)
                ],
            }
            for stage in Stage
        ],
    }


def _stage_score(one: JudgedTrajectory, stage: Stage) -> StageScore | None:
    stages = one.judgement.stages if one.judgement else ()
    return next((score for score in stages if score.stage is stage), None)


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]}\u2026"


LAST = 20
"""steps that are shown"""
PIPED_WIDTH = 160
"""columns of a table that goes into a file or a pipe"""
MOST_ROWS = 8
"""reasons of one kind that are shown"""


def print_run(run: RunNumbers, title: str, console: Console | None = None) -> None:
    """Facts, the last steps, reasons, and the best and worst of the groups farthest apart."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPED_WIDTH)
    console.print(Text(one_line(title), style="bold"))
    for line in _facts(run):
        console.print(Text(line, style="dim"))
    if run.rollouts:
        console.print(_steps(run.steps))
    for line in run.variety.told():
        console.print(Text(line))
    for head, reasons in (
        ("failed", run.failures),
        ("ended early", run.early),
        ("broke a rejection rule", run.faults),
        ("stages unscored", run.unscored),
    ):
        _print_reasons(console, head, reasons)
    for found in run.extremes[:MOST_ROWS]:
        console.print(Text(_extremes(found)))


def _facts(run: RunNumbers) -> list[str]:
    manifest, spent = run.manifest, total(run.usage().values())
    judge = f"judged by {manifest.judge} ({manifest.judge_kind})" if manifest.judge else "unjudged"
    return [
        one_line(f"{manifest.policy}, {manifest.decoding} decoding, {judge}"),
        f"{len(run.rollouts)} rollouts, {run.failures.total()} failed, in {run.groups} groups and "
        f"{len(run.steps)} steps of {run.asked} questions; {duration(run.seconds)}",
        f"{spent.completion_tokens:,} tokens written, {spent.prompt_tokens:,} read, "
        f"{_cost(spent) or 'nothing spent'}; {run.candidates} reflections, {run.accepted} accepted",
    ]


def _steps(steps: Sequence[StepNumbers]) -> Table:
    heads = ["step", "rollouts", "failed", *Stage, "unscored", "malformed", "searches", "tokens",
             "cost", "rubric"]  # fmt: skip
    table = Table()
    for head in heads:
        table.add_column(head, justify="right")
    for step in steps[-LAST:]:
        table.add_row(*_row(step))
    if len(steps) > LAST:
        table.caption = f"the last {LAST} of {len(steps)} steps"
    return table


def _row(step: StepNumbers) -> list[str]:
    rollouts = step.rollouts
    searches = mean([r.tool_calls for r in rollouts])
    written = mean([r.usage.completion_tokens for r in rollouts])
    return [
        str(step.step + 1),
        str(len(rollouts)),
        str(len(step.failures) or ""),
        *(_number(mean(step.scores(place)), ".2f") for place in range(len(Stage))),
        _number(unscored_share(rollouts), ".0%"),
        _number(malformed_share(rollouts), ".0%"),
        _number(searches, ".1f"),
        _number(written, ",.0f"),
        _cost(step.usage),
        f"+{step.changed('added', 'returned', 'pinned')} -{step.changed('retired')}",
    ]


def _print_reasons(console: Console, head: str, reasons: Counter[str]) -> None:
    for reason, count in reasons.most_common(MOST_ROWS):
        console.print(Text(f"{count} {head}: {one_line(reason, 200) or 'no reason given'}"))
    if (others := len(reasons) - MOST_ROWS) > 0:
        left = reasons.total() - sum(count for _, count in reasons.most_common(MOST_ROWS))
        told = "another reason" if others == 1 else f"{others} other reasons"
        console.print(Text(f"{left} {head} for {told}"))


def _extremes(found: Extremes) -> str:
    best, worst = found.values
    return (
        f"step {found.step + 1}, {found.by} {best:.2f} ({found.best.thread}) against {worst:.2f} "
        f"({found.worst.thread}): {one_line(found.question, 80)}"
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _cost(usage: Usage) -> str:
    if not usage.calls:
        return ""
    return "no price known" if usage.cost is None else f"${usage.cost:.4f}"
