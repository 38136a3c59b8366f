"""What replicates of `learns --task hops` came to: guards of an arm, figures, intervals.

A replicate is one seed's imitation and all arms that go on from it; `benchmarks.learns.hops` makes
them. One is kept as a file with every answer, so that further ones are read together with it.
Differences are paired by replicate and question, with 95% intervals of the pigeonhole bootstrap,
which draws replicates and questions anew, each with replacement (Owen, arXiv:0712.1111).
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from benchmarks.hops import rows_of
from benchmarks.report import Value as Report
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.transcript.scaffold import find_violation
from rubricem.memory.schema import Status, Value
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.rounds.rollouts import NUMBERS
from rubricem.training.rounds.update import TOLD

IMITATION = "imitation"
ARMS = ("answer", "sum", "stages")
"""they differ by their credit alone"""
PAIRS = (
    *((arm, IMITATION) for arm in ARMS),
    ("stages", "answer"),
    ("stages", "sum"),
)
FIGURES = ("evidence", "f1", "valid", "refused", "searches")
REWARD, ANSWER = "reward/mean", "reward/answer/mean"
SHOWN = ("kl_reference", "surprise")
"""metrics of the rounds: nats a token from the imitation; one sample of the entropy"""
SPENT = ("seconds/wait", "seconds/train")


class HeldOutMeans(NamedTuple):
    """Mean rewards of the held-out questions after so many rounds; None: none was scored."""

    rounds: int
    reward: float | None
    answer: float | None


class ArmCourse(Value):
    """What an arm's rounds came to."""

    rollouts: int
    sampled_tokens: int
    """that were written for them"""
    held_out: tuple[HeldOutMeans, ...]
    """the first before any round"""
    metrics: dict[str, tuple[float | None, ...]]
    """those of `SHOWN`, by round; None: the round trained nothing, and has none"""
    seconds: float | None = None
    """that its rounds waited for rollouts and trained; None: not noted, as in older files"""

    @classmethod
    def of(cls, out: Path) -> Self:
        """Of an arm's folder, which need not be there."""
        runs = [RunDirectory(path) for path in sorted((out / "rounds").glob("[0-9]*"))]
        used = [t.usage for run in runs if run.exists for t in run.trajectories()]
        lines = lines_of(out)
        return cls(
            rollouts=len(used),
            sampled_tokens=sum(usage.completion_tokens for usage in used),
            held_out=askings_of(out),
            metrics={name: tuple(line.get(name) for line in lines) for name in SHOWN},
            seconds=sum(line[name] for line in lines for name in SPENT) or None,
        )

    @property
    def best(self) -> float | None:
        """The highest mean reward after any round."""
        return max((a.reward for a in self.held_out[1:] if a.reward is not None), default=None)


def askings_of(out: Path) -> tuple[HeldOutMeans, ...]:
    """Those of an arm that are finished, in order."""
    found = []
    for path in sorted((out / "held_out").glob(f"[0-9]*/{NUMBERS}")):
        told = json.loads(path.read_text(encoding="utf-8"))
        found.append(HeldOutMeans(int(path.parent.name), told.get(REWARD), told.get(ANSWER)))
    return tuple(found)


def lines_of(out: Path) -> list[dict[str, Any]]:
    """What an arm's rounds told, by round."""
    path = out / TOLD
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


class Answered(NamedTuple):
    """One question of the dev split; None: it does not say what the evidence is."""

    id: str
    evidence: float | None
    f1: float
    valid: float
    refused: float
    """says that it has not found the answer"""
    searches: float


def answered(run: RunDirectory, questions: Iterable[EvalQuestion]) -> list[Answered]:
    known = {question.question: question for question in questions}
    rows = []
    for trajectory in run.trajectories() if run.exists else ():
        question = known[trajectory.question]
        found = EvalGrade.of(question, trajectory)
        valid = trajectory.status is Status.FINISHED and find_violation(trajectory) is None
        recall = None if found.evidence is None else round(found.evidence, 4)
        f1 = round(found.f1 or 0.0, 4)
        of_run = (f1, float(valid), float(found.refused), float(trajectory.tool_calls))
        rows.append(Answered(question.id, recall, *of_run))
    return rows


class Replicate(Value):
    """What is kept and committed of one."""

    replicate: int
    model: str
    sizes: dict[str, int | None]
    recipe: dict[str, Any]
    """the configuration of the imitation, and of the rounds"""
    done: bool
    """whether all that it is to do is done"""
    arms: dict[str, ArmCourse]
    dev: dict[str, tuple[Answered, ...]]
    """by arm"""


SAMPLED = ("slots", "sampler")
"""how a recipe's rollouts are sampled, which their policy does not go by"""


def kind_of(one: Replicate) -> str:
    """What replicates that are read together have alike."""
    rounds = one.recipe["rounds"]
    table = {name: value for name, value in rounds["rounds"].items() if name not in SAMPLED}
    recipe = {**one.recipe, "rounds": {**rounds, "rounds": table}}
    return json.dumps([one.model, one.sizes, recipe])


def kept_replicates(folder: Path) -> list[Replicate]:
    """Those whose files lie in a folder, by their numbers; unfinished ones among them."""
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.json"))
    return sorted(map(Replicate.model_validate_json, texts), key=lambda one: one.replicate)


def pooled(replicates: Sequence[Replicate]) -> dict[str, Report]:
    """What replicates of the same sizes came to: means and paired differences, each with the ends
    of its 95% interval; what nobody was asked is left out.
    """
    types = {row["id"]: row["type"] for row in rows_of("questions")}
    told: dict[str, Report] = {"replicates": len(replicates)}
    for name in ARMS:
        told |= _course(name, [one.arms[name] for one in replicates if name in one.arms])
    for name in (IMITATION, *ARMS):
        for figure in FIGURES:
            table = table_of(replicates, name, figure)
            for kind in ("", *sorted({types[q] for q in table})):
                label = "_".join(filter(None, (name, kind, figure)))
                told |= interval(label, {q: v for q, v in table.items() if kind in ("", types[q])})
    for first, other in PAIRS:
        for figure in FIGURES:
            ours, theirs = (table_of(replicates, arm, figure) for arm in (first, other))
            gaps = {
                question: {n: value - theirs[question][n] for n, value in row.items()
                           if n in theirs.get(question, {})}
                for question, row in ours.items()
            }  # fmt: skip
            told |= interval(f"{figure}_{first}_{other}", gaps)
    return told


def _course(name: str, courses: Sequence[ArmCourse]) -> dict[str, Report]:
    if not courses:
        return {}
    best = [course.best for course in courses if course.best is not None]
    last = [c.held_out[-1].rounds for c in courses if c.held_out]
    timed = [course for course in courses if course.seconds]
    hours = sum(course.seconds or 0.0 for course in timed) / 3600
    return {
        f"{name}_rounds": sum(last),
        f"{name}_rollouts": sum(course.rollouts for course in courses),
        f"{name}_sampled_tokens": sum(course.sampled_tokens for course in courses),
        f"{name}_rollouts_an_hour": (
            round(sum(course.rollouts for course in timed) / hours) if timed else None
        ),
        f"{name}_held_out_reward_best": round(statistics.fmean(best), 3) if best else None,
    }


Table = Mapping[str, Mapping[int, float]]
"""a figure by question and replicate"""


def table_of(replicates: Iterable[Replicate], name: str, figure: str) -> Table:
    found: dict[str, dict[int, float]] = {}
    for one in replicates:
        for row in one.dev.get(name, ()):
            if (value := getattr(row, figure)) is not None:
                found.setdefault(row.id, {})[one.replicate] = value
    return found


DRAWS = 2_000
"""of the bootstrap"""


def interval(name: str, table: Table) -> dict[str, Report]:
    """The mean of a table and the ends of its 95% interval; nothing where it is empty.

    With one replicate the interval is over questions alone.
    """
    numbers = sorted({number for row in table.values() for number in row})
    if not numbers:
        return {}
    values = np.array([[row.get(n, math.nan) for n in numbers] for row in table.values() if row])
    rng = np.random.default_rng(0)
    # How often each question and each replicate is drawn; a value counts as often as both together.
    questions, own = (rng.multinomial(n, [1 / n] * n, size=DRAWS) for n in values.shape)
    total, count = (
        ((questions @ of_each) * own).sum(axis=1)
        for of_each in (np.nan_to_num(values), ~np.isnan(values))
    )
    low, high = np.quantile(total[count > 0] / count[count > 0], (0.025, 0.975))
    told = {"": np.nanmean(values), "_low": low, "_high": high}
    return {f"{name}{end}": round(float(value), 3) for end, value in told.items()}
