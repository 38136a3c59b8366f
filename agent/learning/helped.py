"""Whether a lesson helps: judged runs with it beside those of the same question without it.

Each run with the lesson and each without, of one question, is a pair; what else the two differ in
is not known, so a few pairs say little.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rubricem.agent.learning.scoring import find_run, lines_in
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Judgement, Trajectory


@dataclass(frozen=True, slots=True)
class Helped:
    """The pairs of one lesson."""

    pairs: int
    won: int
    """in which the run with it scored higher"""
    difference: float
    """mean of the score with it minus that without; a run's score is its judgement's mean"""


def helped(judged: Iterable[tuple[Trajectory, Judgement]]) -> dict[str, Helped]:
    """Lesson's id -> its pairs; no lesson without a pair."""
    by_question = defaultdict[str, list[tuple[frozenset[str], float]]](list)
    for run, judgement in judged:
        if (score := judgement.mean) is not None:
            by_question[run.question].append((frozenset(run.recalled), score))
    apart = defaultdict[str, list[float]](list)
    for runs in by_question.values():
        for lesson in frozenset().union(*(recalled for recalled, _ in runs)):
            without = [score for recalled, score in runs if lesson not in recalled]
            apart[lesson] += [s - o for recalled, s in runs if lesson in recalled for o in without]
    return {
        lesson: Helped(len(each), sum(d > 0 for d in each), sum(each) / len(each))
        for lesson, each in apart.items()
        if each
    }


def judged_runs(data_dir: Path, folders: Sequence[Path]) -> Iterator[tuple[Trajectory, Judgement]]:
    """The judged runs of the data directory, and of folders of collected runs.

    Raises what `find_run` raises of a folder; an unreadable run of the directory is passed over.
    """
    for thread in RunStore(data_dir).threads():
        with suppress(RubricemError):
            found = find_run(thread, data_dir)
            if (judgement := found.judgement()) is not None:
                yield found.groups[0].trajectories[0], judgement
    for folder in folders:
        groups = find_run(str(folder), data_dir).groups
        runs = {run.id: run for group in groups for run in group.trajectories}
        for judgement in lines_in(folder / "judgements.jsonl", Judgement):
            if judgement.trajectory_id in runs:
                yield runs[judgement.trajectory_id], judgement
