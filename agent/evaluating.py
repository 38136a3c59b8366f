"""A judge measured on labelled data: with a model, or from verdicts recorded before."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.choice import EmbeddedChoice, choose_policy
from agent.judging import chain_of, open_judge_model
from agent.settings import Settings
from judge.building import item_checker
from judge.checklist import Checker
from judge.evaluation.checking import items_of, mark_all
from judge.evaluation.comparing import Orders, compare_all, sample, tasks_of
from judge.evaluation.judges import Kind, comparer_of
from judge.evaluation.kept import VerdictFile
from judge.evaluation.labelled import Comparison, Mark
from judge.evaluation.reading import LabelledData, read_labelled
from judge.evaluation.recorded import read_comparisons, read_marks
from judge.evaluation.report import (
    CriteriaReport,
    ListedReport,
    Report,
    criteria_report,
    listed_report,
    pair_report,
)
from memory.errors import JudgeError, SettingsError

Told = Callable[[int, int], None]
"""how many verdicts there are, of how many"""


def recorded_report(data: Path, recorded: Path) -> Report:
    """What verdicts recorded on this data say."""
    held = read_labelled(data)
    if held.pairs:
        comparisons = read_comparisons(recorded, held.pairs)
        judge = next(filter(None, (c.judge for c in comparisons)), recorded.stem)
        return pair_report(data.name, judge, held.pairs, comparisons)
    marks = read_marks(recorded, _mark_names(held))
    judge = next(filter(None, (mark.judge for mark in marks)), recorded.stem)
    return _marked_report(data, judge, held, marks)


async def judged_report(
    settings: Settings,
    data: Path,
    kind: Kind,
    orders: Orders = "both",
    limit: int | None = None,
    out: Path | None = None,
    told: Told = lambda done, total: None,
) -> Report:
    """What a judge says of this data now; verdicts kept in `out` are not asked for again.

    Raises JudgeError where not one verdict could be had.
    """
    held = await asyncio.to_thread(read_labelled, data)
    if not held.pairs and kind != "checklist":
        raise SettingsError(
            f"{data} holds single answers with criteria, and the {kind} judge compares answers.",
            "Name data with pairs of answers, or use --judge checklist.",
        )
    async with open_judge_model(settings) as model:
        if not held.pairs:
            return await _check(settings, data, held, item_checker(model), limit, out, told)
        comparer = comparer_of(kind, model, chain_of(settings))
        kept = VerdictFile(out, f"{kind}, {comparer.name}")
        chosen = sample(held.pairs, limit, settings.seed)
        done = [c for c in kept.comparisons(held.pairs) if c.pair in {p.id for p in chosen}]
        tasks = tasks_of(chosen, orders, settings.seed, done)
        count = _Counting(kept, told, len(done), len(done) + len(tasks))
        new = await compare_all(comparer, tasks, _at_once(settings), lambda c: count.add([c]))
    comparisons = [*done, *new]
    _check_any([c.winner is not None for c in comparisons], [c.reason for c in comparisons])
    return pair_report(data.name, kept.judge, chosen, comparisons)


async def _check(
    settings: Settings,
    data: Path,
    held: LabelledData,
    checker: Checker,
    limit: int | None,
    out: Path | None,
    told: Told,
) -> Report:
    """Likewise for answers whose criteria are marked one by one."""
    kept = VerdictFile(out, f"checklist, {checker.name}")
    chosen = sample(held.checkable, limit, settings.seed)
    names = {name for one in chosen for name, _ in items_of(one)}
    done = [mark for mark in kept.marks(_mark_names(held)) if mark.item in names]
    known = {mark.item for mark in done}
    tasks = [one for one in chosen if any(name not in known for name, _ in items_of(one))]
    total = sum(len(list(items_of(one))) for one in tasks)
    count = _Counting(kept, told, len(done), len(done) + total)
    marks = [*done, *await mark_all(checker, tasks, _at_once(settings), count.add)]
    _check_any([mark.met is not None for mark in marks], [mark.reason for mark in marks])
    return _marked_report(data, kept.judge, held, list({m.item: m for m in marks}.values()))


@dataclass(slots=True)
class _Counting:
    """Keeps verdicts as they come, and tells how many there are."""

    kept: VerdictFile
    told: Told
    count: int
    total: int

    def add(self, verdicts: Sequence[Comparison] | Sequence[Mark]) -> None:
        for verdict in verdicts:
            self.kept.add(verdict)
        self.count += len(verdicts)
        self.told(self.count, self.total)


def _marked_report(
    data: Path, judge: str, held: LabelledData, marks: Sequence[Mark]
) -> CriteriaReport | ListedReport:
    if held.criteria:
        return criteria_report(data.name, judge, held.criteria, marks)
    return listed_report(data.name, judge, held.answers, marks)


def _mark_names(held: LabelledData) -> list[str]:
    return [name for one in held.checkable for name, _ in items_of(one)]


def _check_any(had: Sequence[bool], reasons: Sequence[str]) -> None:
    if had and not any(had):
        raise JudgeError(f"No verdict could be had. {reasons[-1]}")


def _at_once(settings: Settings) -> int:
    """A server takes as many as the settings allow, the embedded model one for each slot."""
    embedded = isinstance(choose_policy(settings), EmbeddedChoice)
    return settings.slots if embedded else settings.concurrency
