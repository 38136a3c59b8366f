"""Summaries of an evaluation's rows: figures, paired differences, JSON and text.

Every figure is over the rows that can have it: recall if gold passages are known, exact match if an
answer is. When arms are compared, shares have no interval of their own: the first arm is compared
with each other one on the same questions, and the mean difference has the 95% interval of the
paired bootstrap.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.questions import QuestionSet, ungraded
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Status

JSON = "evaluation.json"
Figures = dict[str, float | int | None]
LABELS = {
    "n": "questions",
    "score": "score",
    "em": "exact match",
    "f1": "F1",
    "pattern": "facts by pattern",
    "rubric": "rubric, by the judge",
    "all_gold": "all gold passages found",
    "evidence": "evidence recall",
    "unanswerable": "unanswerable ones refused",
    "honest": "honest refusals among failures",
    "resolved": "cites that resolve",
    "supported": "cites that hold, by rules",
    "failed": "failed runs",
    "searches": "searches, mean",
    "seconds": "seconds, median",
    "seconds_sum": "seconds, all",
    "tokens": "tokens written, mean",
    "cost": "dollars, all",
}
COUNTS = ("n", "failed")
PLAIN = (*COUNTS, "searches", "seconds", "seconds_sum", "tokens", "cost")
"""figures that are no shares"""
COMPARED = ("score", "em", "f1", "pattern", "rubric", "evidence", "all_gold", "seconds")


class EvalDifference(NamedTuple):
    """The difference of the first arm to another on the same questions, with its interval."""

    first: str
    other: str
    figure: str
    n: int
    mean: float
    low: float
    high: float


def figure_of(row: EvalRow, name: str) -> float | None:
    """One figure of one row; None if it does not apply."""
    if name == "seconds":
        return row.seconds
    value = getattr(row.grade, name)
    return None if value is None else float(value)


def figures(rows: Sequence[EvalRow], unanswerable: frozenset[str] = frozenset()) -> Figures:
    """The figures of one arm over some questions; `unanswerable` are ids.

    None if a figure applies to no row.
    """
    grades = [row.grade for row in rows]
    wrong = [g for row, g in zip(rows, grades, strict=True)
             if g.right is False and row.id not in unanswerable]  # fmt: skip
    cites = sum(g.cites for g in grades)
    marks = cites + sum(g.dropped for g in grades)
    costs = [row.cost for row in rows if row.cost is not None]
    found: Figures = {"n": len(rows)}
    found |= {name: _mean(figure_of(row, name) for row in rows) for name in COMPARED[:-1]}
    found |= {
        "unanswerable": _mean(float(r.grade.refused) for r in rows if r.id in unanswerable),
        "honest": _mean(float(g.refused) for g in wrong),
        "resolved": round(cites / marks, 4) if marks else None,
        "supported": round(sum(g.supported for g in grades) / cites, 4) if cites else None,
        "failed": sum(row.status is Status.FAILED for row in rows),
        "searches": _mean(float(row.searches) for row in rows),
        "seconds": round(statistics.median(r.seconds for r in rows), 2) if rows else None,
        "seconds_sum": round(sum(row.seconds for row in rows), 1),
        "tokens": _mean(float(row.completion_tokens) for row in rows),
        "cost": round(sum(costs), 4) if costs else None,
    }
    return {name: found[name] for name in LABELS}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None


def differences(rows: Sequence[EvalRow]) -> list[EvalDifference]:
    """The first arm against each other one, by every figure that both have on two questions."""
    by_arm: dict[str, dict[str, EvalRow]] = {}
    for row in rows:
        by_arm.setdefault(row.arm, {})[row.id] = row
    first, *others = by_arm or [""]
    found = []
    for other in others:
        shared = [(by_arm[first][i], by_arm[other][i]) for i in by_arm[first] if i in by_arm[other]]
        for name in COMPARED:
            pairs = [(figure_of(a, name), figure_of(b, name)) for a, b in shared]
            gaps = [a - b for a, b in pairs if a is not None and b is not None]
            if len(gaps) > 1:
                low, high = (round(end, 4) for end in bootstrap_mean(gaps))
                mean = round(statistics.fmean(gaps), 4)
                found.append(EvalDifference(first, other, name, len(gaps), mean, low, high))
    return found


DRAWS = 10_000


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float]:
    """The 95% percentile interval of the mean, over samples drawn with replacement.

    For paired differences this is the paired bootstrap. Raises ValueError for no values. Source:
    Efron and Tibshirani (1993), chapter 13.
    """
    if not values:
        raise ValueError("no values to draw from")
    rng, values_N = np.random.default_rng(0), np.asarray(values, dtype=np.float64)
    means_D = [rng.choice(values_N, (100, len(values_N))).mean(1) for _ in range(DRAWS // 100)]
    low, high = np.percentile(means_D, (2.5, 97.5))
    return float(low), float(high)


def summary(questions: QuestionSet, rows: Sequence[EvalRow], told: Mapping[str, Any]) -> Any:
    """Everything as one JSON object; `told` are the settings."""
    unanswerable = frozenset(q.id for q in questions.questions if q.unanswerable)
    arms: dict[str, Any] = {}
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        types = {
            kind: figures([r for r in own if r.type == kind], unanswerable)
            for kind in questions.types
        }
        arms[arm] = {"all": figures(own, unanswerable), "types": types}
    warnings = filter(None, (questions.incomparable, ungraded(questions.questions)))
    comparable = f"not comparable with published figures: {questions.incomparable}"
    return {
        "format": questions.format,
        "questions": len(questions.questions),
        "comparable": comparable if questions.incomparable else "",
        "warnings": list(warnings),
        "settings": dict(told),
        "arms": arms,
        "differences": [one._asdict() for one in differences(rows)],
    }


def text_table(told: Mapping[str, Any]) -> list[str]:
    """The figures as lines for a terminal: a row per figure, a column per arm."""
    arms = told["arms"]
    width = max(map(len, LABELS.values()))
    cells = [[f"{'':{width}}", *arms]]
    for name, label in LABELS.items():
        values = [arm["all"][name] for arm in arms.values()]
        if any(value is not None for value in values):
            cells.append([f"{label:{width}}", *(format_figure(name, value) for value in values)])
    sizes = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = [
        "  ".join([row[0], *(f"{c:>{s}}" for c, s in zip(row[1:], sizes[1:], strict=True))])
        for row in cells
    ]
    scores = (one for one in told["differences"] if one["figure"] == "score")
    return [*lines, *map(_difference_text, scores)]


def _difference_text(one: Mapping[str, Any]) -> str:
    return (
        f"{one['first']} - {one['other']}, {one['figure']}: {one['mean']:+.3f} "
        f"(95%: {one['low']:+.3f} to {one['high']:+.3f}, {one['n']} questions)"
    )


def format_figure(name: str, value: float | int | None) -> str:
    """A figure as a reader sees it."""
    if value is None:
        return "-"
    if name in COUNTS:
        return f"{value:,}"
    if name == "cost":
        return f"{value:.4f}"
    return f"{value:.1f}" if name in PLAIN else f"{value:.3f}"


def write_results(experiment: Experiment, rows: Sequence[EvalRow]) -> dict[str, Any]:
    """The summary, after writing it as JSON into the evaluation's folder."""
    told: dict[str, Any] = summary(experiment.questions, rows, experiment.row_inputs())
    write_atomically(experiment.out / JSON, json.dumps(told, ensure_ascii=False, indent=1) + "\n")
    return told
