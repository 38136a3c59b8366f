"""Whether lessons matter: questions asked again, questions near them, and others, with and without.

    python -m benchmarks.bank_effect [--quick | --full] [--model 0.5b] [--base-url URL]
        [--filling N] [--out FOLDER]

Over the corpus of `hops`. The bank is filled by runs on `train` questions, which are made without
memory, judged and reflected on. Then, by the arms stages and memory of `rubricem eval`:

    again     the filling questions once more; without lessons it is the run that filled the bank
    near      `dev` questions that share a bridge entity with one of them
    other     `dev` questions that share no name with any of them

Nothing is learnt while questions are asked. Every row is on disk before the next run; the same
command goes on. Differences are paired, with 95% bootstrap intervals.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.hops import corpus, rows_of, setup_in, tell
from benchmarks.report import RESULTS, Value, emit, kept_in, sized_parser
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.evaluate.results import differences, figures
from rubricem.agent.learning.lessons import learn, open_learner
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import Status

PARTS = ("again", "near", "other")
ARMS = "memory,stages"
QUICK, FULL = 5, 150
"""questions that fill the bank"""
AWAY = 0.4
"""of their number those that have nothing to do with any of them"""
SHOWN = ("n", "evidence", "all_gold", "f1", "searches", "seconds", "tokens")
LEAST = {"again_f1_low": 0.0, "near_f1_low": 0.0, "other_f1_high": 0.0}

Row = Mapping[str, Any]
"""of the questions of `hops`"""


def entities(row: Row) -> set[str]:
    return {name for subject, _, thing in row["evidence"] for name in (subject, thing)}


def bridges(row: Row) -> set[str]:
    """What one of its triples leads to and another starts from."""
    return {thing for _, _, thing in row["evidence"]} & {s for s, _, _ in row["evidence"]}


def questions(count: int) -> Iterator[EvalQuestion]:
    """So many that fill the bank, those with near ones first, and the others; the part is the type.

    Questions without known gold are left out, since nothing could be said of their evidence.
    """
    known = [row for row in rows_of("questions") if row["gold"]]
    train, dev = ([row for row in known if row["split"] == split] for split in ("train", "dev"))
    partners: dict[str, list[Row]] = {}
    taken = set[str]()
    for row in train:
        partners[row["id"]] = [r for r in dev if bridges(r) & bridges(row) and r["id"] not in taken]
        taken |= {r["id"] for r in partners[row["id"]]}
    filling = sorted(train, key=lambda row: not partners[row["id"]])[:count]
    met = {name for row in filling for name in entities(row)}
    away = [r for r in dev if not entities(r) & met and r["id"] not in taken]
    near = [other for row in filling for other in partners[row["id"]]]
    each: tuple[Sequence[Row], ...] = (filling, near, away[: round(AWAY * count)])
    for part, rows in zip(PARTS, each, strict=True):
        yield from (EvalQuestion.of_line({**row, "type": part}) for row in rows)


def values_of(rows: Sequence[EvalRow]) -> dict[str, Value]:
    """Each arm's figures in every part, and how lessons differ from none."""
    values: dict[str, Value] = {}
    for part in PARTS:
        own = [row for row in rows if row.type == part]
        for arm in dict.fromkeys(row.arm for row in own):
            found = figures([row for row in own if row.arm == arm])
            values |= {f"{part}_{arm}_{name}": found[name] for name in SHOWN}
        for gap in differences(own):
            told = {"gain": gap.mean, "low": gap.low, "high": gap.high}
            values |= {f"{part}_{gap.figure}_{end}": value for end, value in told.items()}
    return values


async def measure(arguments: Namespace, out: Path) -> list[EvalRow]:
    asked = (*questions(arguments.filling or (FULL if arguments.full else QUICK)),)
    filling = QuestionSet("2wiki", tuple(q for q in asked if q.type == PARTS[0]))
    setup, tool = setup_in(out, arguments), PassageCorpus(corpus(), out / "indexes")
    experiment = Experiment(setup, filling, Arm.parse("stages"), out, search_tool=tool)
    rows = await experiment.run(print, tell)
    async with open_learner(setup, print) as learner:
        for row in rows:
            if row.status is not Status.FAILED:
                print(row.thread, (await learn(learner, row.thread)).said, flush=True)
    whole = replace(experiment, questions=QuestionSet("2wiki", asked), arms=Arm.parse(ARMS))
    return await whole.run(print, tell)


async def main(arguments: Namespace, out: Path) -> None:
    rows = await measure(arguments, out)
    emit(
        "bank_effect",
        values_of(rows),
        f"{len({row.id for row in rows if row.type == PARTS[0]})} filling runs on "
        f"2WikiMultihopQA's train split over 6,119 passages, {arguments.model}, seed 0, "
        "exact answers",
        RESULTS / "bank_effect.json" if arguments.full else None,
        [row.model_dump(mode="json", exclude={"answer"}) for row in rows],
        least=LEAST,
    )


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} filling runs (default)", f"{FULL}; kept in results")
    parser.add_argument("--model", default="0.5b", help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--filling", type=int, help="runs that fill the bank")
    parser.add_argument("--out", type=Path, help="keep rows, runs and the bank here, and go on")
    kept_in(parser, main)
