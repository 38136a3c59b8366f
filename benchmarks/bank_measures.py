"""What is measured of runs with and without memory, and whether what was recalled was used.

A row holds the figures of one run; None is what was not there to be measured (no cite, a stage
without a score, nothing recalled). Differences are paired: the same question with memory less
without it, over the questions where both have the figure.

Whether lessons were used is told by words. Of the content words of a plan's rubric, or of an
answer, those of the question left out, a share stands in the lessons that were recalled. Set
beside it are the share that stands in the lessons of another item, and the share of the same
lessons' words in what was written for the question without memory, which no lesson can have led.
"""

import statistics
from collections import Counter
from collections.abc import Collection, Sequence

from benchmarks.embedded import found
from benchmarks.report import Value
from rubricem.agent.evaluate.grades import bootstrap_mean
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import latest_rubric
from rubricem.agent.reports.rules import lexical_finding
from rubricem.agent.reports.verifier import pairs_of
from rubricem.agent.transcript.scaffold import parse
from rubricem.agent.transcript.words import content_words
from rubricem.memory.schema import Judgement, Stage, Trajectory

Row = dict[str, float | None]

MEASURES = (
    "fact",
    "cites",
    "support",
    *(f"score_{stage}" for stage in Stage),
    "score_mean",
    "searches",
    "tokens",
    "prompt_tokens",
    "seconds",
)


def row_of(run: Trajectory, fact: str, judgement: Judgement | None) -> Row:
    """The figures of one run; `fact` is the pattern that its answer is to match."""
    answer = cited_answer(run)
    verdicts = Counter(lexical_finding(pair).verdict for pair in pairs_of(answer))
    cites = sum(verdicts.values())
    scores = {stage: judgement.score(stage) if judgement else None for stage in Stage}
    scored = [score for score in scores.values() if score is not None]
    return {
        "fact": float(found(fact, answer.text())),
        "cites": cites,
        "support": verdicts["supported"] / cites if cites else None,
        **{f"score_{stage}": score for stage, score in scores.items()},
        "score_mean": statistics.fmean(scored) if scored else None,
        "searches": run.tool_calls,
        "tokens": run.usage.completion_tokens,
        "prompt_tokens": run.usage.prompt_tokens,
        "seconds": run.seconds,
    }


def differences(rows: Sequence[Row], without: Sequence[Row], measure: str) -> list[float]:
    """Each question's figure with memory less that without, where both are known."""
    pairs = [(row[measure], other[measure]) for row, other in zip(rows, without, strict=True)]
    return [one - other for one, other in pairs if one is not None and other is not None]


def means(arm: str, rows: Sequence[Row], measures: Sequence[str] = MEASURES) -> dict[str, Value]:
    """The mean of each figure over the questions where it is known."""
    return {f"{measure}_{arm}": _mean([row[measure] for row in rows]) for measure in measures}


def compared(
    arm: str, rows: Sequence[Row], without: Sequence[Row], measures: Sequence[str] = MEASURES
) -> dict[str, Value]:
    """The mean paired difference of each figure, its bootstrap interval, and of how many pairs."""
    values: dict[str, Value] = {}
    for measure in measures:
        paired = differences(rows, without, measure)
        if paired:
            low, high = bootstrap_mean(paired)
            values[f"{measure}_{arm}_difference"] = round(statistics.fmean(paired), 4)
            values[f"{measure}_{arm}_interval"] = f"{low:.4f} to {high:.4f}"
            values[f"{measure}_{arm}_pairs"] = len(paired)
    return values


def shared(text: str, lessons: str, question: str) -> float | None:
    """Share of the text's content words, those of the question left out, that lessons have."""
    words = content_words(text) - content_words(question)
    return len(words & content_words(lessons)) / len(words) if words else None


def use_of(
    run: Trajectory, without: Trajectory, lessons: str, others: str, similarity: float | None
) -> Row:
    """How much of a run that recalled something stands in what it recalled, and the controls.

    `without` is the run of the question without memory; `others` are the lessons of an item that
    was not recalled, "" where there is none.
    """
    row: Row = {"similarity": similarity}
    for part, written in _written(run).items():
        row[f"{part}_overlap"] = shared(written, lessons, run.question)
        row[f"{part}_overlap_other"] = shared(written, others, run.question) if others else None
        row[f"{part}_overlap_without"] = shared(_written(without)[part], lessons, run.question)
    return row


def use_values(arm: str, uses: Sequence[Row], asked: int) -> dict[str, Value]:
    """What was recalled in an arm of so many questions, and how far it was used."""
    values: dict[str, Value] = {f"recalled_share_{arm}": round(len(uses) / asked, 4)}
    if not uses:
        return values
    values |= means(arm, uses, tuple(uses[0]))
    for part in ("plan", "answer"):
        for control in ("other", "without"):
            name = f"{part}_overlap"
            beside = [{name: row[f"{name}_{control}"]} for row in uses]
            found = compared(f"{control}_{arm}", uses, beside, (name,))
            values |= found
    return values


def other_item(order: Sequence[str], recalled: Sequence[str], barred: Collection[str]) -> str:
    """The item that a run's lessons are set beside: the next one after those it recalled.

    From the beginning again after the last; "" where no item is left that was neither recalled
    nor `barred`.
    """
    last = max((order.index(name) for name in recalled), default=-1)
    left = [*order[last + 1 :], *order[: last + 1]]
    return next((name for name in left if name not in recalled and name not in barred), "")


def _written(run: Trajectory) -> dict[str, str]:
    return {
        "plan": "\n".join(latest_rubric(parse(run.transcript()))),
        "answer": cited_answer(run).text(),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None
