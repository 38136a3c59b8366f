"""A judge measured on labelled data: with a model, or from verdicts recorded before."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.choice import EmbeddedChoice, choose_policy
from agent.judging import open_judge_model
from agent.settings import Settings
from judge.evaluation.comparing import Orders, compare_all, sample, tasks_of
from judge.evaluation.judges import Kind, comparer_of
from judge.evaluation.kept import VerdictFile
from judge.evaluation.labelled import Comparison, LabelledCriterion, Pair
from judge.evaluation.reading import read_labelled
from judge.evaluation.recorded import read_comparisons, read_marks
from judge.evaluation.report import PairReport, Report, criteria_report, pair_report
from memory.errors import JudgeError, SettingsError

Told = Callable[[int, int], None]
"""how many verdicts there are, of how many"""


def recorded_report(data: Path, recorded: Path) -> Report:
    """What verdicts recorded on this data say."""
    pairs, criteria = _split(data)
    if criteria:
        marks = read_marks(recorded, criteria)
        judge = next(filter(None, (mark.judge for mark in marks)), recorded.stem)
        return criteria_report(data.name, judge, criteria, marks)
    comparisons = read_comparisons(recorded, pairs)
    judge = next(filter(None, (c.judge for c in comparisons)), recorded.stem)
    return pair_report(data.name, judge, pairs, comparisons)


async def judged_report(
    settings: Settings,
    data: Path,
    kind: Kind,
    orders: Orders = "both",
    limit: int | None = None,
    out: Path | None = None,
    told: Told = lambda done, total: None,
) -> PairReport:
    """What a judge says of this data now; verdicts kept in `out` are not asked for again.

    Raises JudgeError where not one verdict could be had.
    """
    pairs, criteria = await asyncio.to_thread(_split, data)
    if criteria:
        raise SettingsError(
            f"{data} labels single criteria, and the {kind} judge compares answers.",
            "Name data with pairs of answers, or --judge checklist.",
        )
    chosen = sample(pairs, limit, settings.seed)
    async with open_judge_model(settings) as model:
        comparer = comparer_of(kind, model)
        name = f"{kind}, {comparer.name}"
        kept = VerdictFile(out, name)
        done = [c for c in kept.comparisons(pairs) if c.pair in {pair.id for pair in chosen}]
        tasks = tasks_of(chosen, orders, settings.seed, done)
        count = len(done)

        def keep(comparison: Comparison) -> None:
            nonlocal count
            count += 1
            kept.add(comparison.model_copy(update={"judge": name}))
            told(count, len(done) + len(tasks))

        new = await compare_all(comparer, tasks, _at_once(settings), keep)
    comparisons = [*done, *new]
    if comparisons and all(c.winner is None for c in comparisons):
        raise JudgeError(f"No verdict could be had. {comparisons[-1].reason}")
    return pair_report(data.name, name, chosen, comparisons)


def _split(data: Path) -> tuple[Sequence[Pair], Sequence[LabelledCriterion]]:
    read = read_labelled(data)
    pairs = [one for one in read if isinstance(one, Pair)]
    return pairs, [one for one in read if isinstance(one, LabelledCriterion)]


def _at_once(settings: Settings) -> int:
    """A server takes as many as the settings allow, the embedded model one for each slot."""
    embedded = isinstance(choose_policy(settings), EmbeddedChoice)
    return settings.slots if embedded else settings.concurrency
