"""From the runs of all arms to the figures of `bank_effect`."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bank_measures import Row, compared, means, other_item, row_of, use_of, use_values
from benchmarks.report import Value
from rubricem.memory.bank import BankItem
from rubricem.memory.schema import Judgement, Reflection, Trajectory

WITHOUT = {"first": "off", "second": "off", "similar": "similar_off"}
"""arms with memory, and the arm that asked the same without it"""
LessonsOf = Callable[[Reflection], str]


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of one question and what the judge made of them, by arm."""

    fact: str
    runs: Mapping[str, Trajectory]
    judged: Mapping[str, Judgement]


def figures(
    found: Sequence[Runs], items: Sequence[BankItem], lessons: LessonsOf
) -> tuple[dict[str, Value], dict[str, Any]]:
    """The values of the report, and the rows they are of, by arm; `items` are all of the bank's."""
    held = {item.reflection.id: item.reflection for item in items if not item.removed}
    rows = {
        arm: [row_of(one.runs[arm], one.fact, one.judged.get(arm)) for one in found
              if arm in one.runs]
        for arm in ("off", *WITHOUT, "similar_off")
    }  # fmt: skip
    values: dict[str, Value] = {"n": len(rows["off"])}
    for arm, listed in rows.items():
        values |= means(arm, listed)
    uses: dict[str, list[Row]] = {}
    for arm, without in WITHOUT.items():
        values |= compared(arm, rows[arm], rows[without])
        uses[arm] = [
            _use(one.runs[arm], one.runs[without], held, lessons)
            for one in found
            if arm in one.runs and one.runs[arm].recalled
        ]
        values |= use_values(arm, uses[arm], len(rows[arm]))
        values[f"same_without_recall_{arm}"] = _same([
            (one.runs[arm], one.runs[without]) for one in found if arm in one.runs
        ])  # fmt: skip
    values |= _kept(items)
    return values, {"runs": rows, "uses": uses, "answers": _answers(found)}


def _same(pairs: Sequence[tuple[Trajectory, Trajectory]]) -> float | None:
    """Of runs that recalled nothing, the share that wrote what was written without memory.

    Below 1 the model does not repeat itself, and differences hold that noise too.
    """
    same = [run.transcript() == other.transcript() for run, other in pairs if not run.recalled]
    return round(statistics.fmean(same), 4) if same else None


def _use(
    run: Trajectory, without: Trajectory, held: Mapping[str, Reflection], lessons: LessonsOf
) -> Row:
    own = [name for name, reflection in held.items() if reflection.question == run.question]
    recalled = [name for name in run.recalled if name in held]
    other = other_item(list(held), recalled, own)
    near = [item.similarity for item in run.recollections if item.similarity is not None]
    return use_of(
        run,
        without,
        "\n".join(lessons(held[name]) for name in recalled),
        lessons(held[other]) if other else "",
        statistics.fmean(near) if near else None,
    )


def _kept(items: Sequence[BankItem]) -> dict[str, Value]:
    """What the bank came to hold."""
    scores = [item.reflection.score for item in items if item.live]
    return {
        "learnt": len(scores),
        "quarantined": sum(item.quarantined for item in items),
        "reflection_score_mean": round(statistics.fmean(scores), 4) if scores else None,
    }


def _answers(found: Sequence[Runs]) -> list[dict[str, Any]]:
    """What was asked, recalled and written, to be read by a person."""
    return [
        {
            "question": run.question,
            "arm": arm,
            "recalled": run.recalled,
            "status": run.status,
            "transcript": run.transcript(),
        }
        for one in found
        for arm, run in one.runs.items()
    ]
