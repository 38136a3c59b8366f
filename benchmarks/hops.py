"""Questions whose second search needs what the first found: stages, a plain loop, no search.

    python -m benchmarks.hops [--quick | --full] [--model 1.5b] [--base-url URL] [--out FOLDER]

2WikiMultihopQA over a closed corpus of 6,119 Wikipedia introductions (`benchmarks/data/hops`), by
`rubricem eval`: arms stages, plain and closed, exact answers, every arm held to a span by the same
step, nothing remembered, nothing verified; plain may search three times with five passages.
Reported is the dev split; the train split is there to tune on (`--split train`). Rows are kept in
`--out` as they come, and the same command goes on.

Evidence counts for questions whose gold passages are all known by their titles; an answer is wrong
below an F1 of 0.5, and wrong and certain where the run says that it finished; `held` where the
right answer stands anywhere in the whole answer; a cite holds where the lexical rules find its
claim in its passage.
"""

import argparse
import json
import lzma
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.report import Value, emit, kept_in, sized_parser
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.evaluate.results import differences, figures, write_results
from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import Passage, Status

DATA = Path(__file__).parent / "data" / "hops"
ARMS = "stages,plain,closed"
QUICK, SMALL = 12, 100
"""questions: by --quick, and by --full of an embedded model other than 1.5b"""
WHOLE = "1.5b"
LEAST, MOST = {"f1_stages_plain": 0.0}, {"stages_wrong_certain": 0.10}
SHOWN = ("n", "all_gold", "evidence", "em", "f1", "held", "resolved", "supported", "refused",
         "wrong_certain", "honest", "searches", "seconds")  # fmt: skip


def read_rows(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def rows_of(name: str) -> list[dict[str, Any]]:
    return read_rows(DATA / f"{name}.jsonl.xz")


def corpus() -> list[Passage]:
    return [Passage(row["title"], row["title"], "", row["text"]) for row in rows_of("passages")]


def questions_of(split: str, total: int | None = None) -> QuestionSet:
    """The questions of a split; of so many in all, the first of every type in turn."""
    of_type: dict[str, list[EvalQuestion]] = {}
    for row in rows_of("questions"):
        if row["split"] == split:
            of_type.setdefault(row["type"], []).append(EvalQuestion.of_line(row))
    in_turn = [q for turn in zip_longest(*of_type.values()) for q in turn if q is not None]
    return QuestionSet("2wiki", tuple(in_turn[:total]))


def own_figures(
    rows: Sequence[EvalRow], answers: Mapping[str, Sequence[str]]
) -> dict[str, float | int | None]:
    """Those of `figures`, and what a run says of itself."""
    wrong = [row for row in rows if row.grade.right is False]
    doubtful = [row for row in wrong if row.grade.refused or row.status is not Status.FINISHED]
    held = [any(one.casefold() in row.answer.casefold() for one in answers[row.id]) for row in rows]
    return {
        **figures(rows),
        "held": round(sum(held) / len(rows), 4),
        "refused": sum(row.grade.refused for row in rows),
        "wrong_certain": round((len(wrong) - len(doubtful)) / len(rows), 4),
        "honest": round(len(doubtful) / len(wrong), 4) if wrong else None,
    }


def values_of(
    rows: Sequence[EvalRow], answers: Mapping[str, Sequence[str]], overall: Sequence[str] = SHOWN
) -> dict[str, Value]:
    """Every arm's figures, of all (`overall`) and of each type, and how the first arm differs."""
    values: dict[str, Value] = {}
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        for kind in ("", *dict.fromkeys(row.type for row in own)):
            found = own_figures([row for row in own if kind in ("", row.type)], answers)
            label = f"{arm}_{kind}" if kind else arm
            values |= {f"{label}_{name}": found[name] for name in (SHOWN if kind else overall)}
    told = [gap for gap in differences(rows) if gap.figure in ("f1", "em", "all_gold")]
    return values | {
        f"{gap.figure}_{gap.first}_{gap.other}{end}": value
        for gap in told
        for end, value in (("", gap.mean), ("_low", gap.low), ("_high", gap.high))
    }


def tell(row: EvalRow, done: int, total: int) -> None:
    grade = row.grade
    print(f"{done}/{total} {row.arm:7} {row.type:17} {row.seconds:6.1f} s "
          f"gold {'-' if grade.evidence is None else f'{grade.evidence:.2f}':4} "
          f"F1 {grade.f1 or 0:.2f} {row.bare[:40]!r}", flush=True)  # fmt: skip


def setup_in(out: Path, arguments: argparse.Namespace) -> Setup:
    """The model that is asked for, without a memory or checks of its own, into that folder."""
    return setup_of(load_settings({
        "model": arguments.model, "base_url": arguments.base_url, "memory": "off",
        "verify": "off", "data_dir": out,
    }))  # fmt: skip


async def measure(arguments: argparse.Namespace, out: Path) -> list[EvalRow]:
    setup = setup_in(out, arguments)
    total: int | None = QUICK
    if arguments.full:
        total = None if arguments.model == WHOLE or arguments.base_url else SMALL
    questions = questions_of(arguments.split, total)
    experiment = Experiment(
        setup,
        questions,
        Arm.parse(arguments.arms),
        out,
        at_once=arguments.at_once,
        search_tool=PassageCorpus(corpus(), out / "indexes"),
    )
    rows = await experiment.run(print, tell)
    write_results(experiment, rows)
    return rows


async def main(arguments: argparse.Namespace, out: Path) -> None:
    rows = await measure(arguments, out)
    answers = {q.id: q.answers for q in questions_of(arguments.split).questions}
    values, asked = values_of(rows, answers), len({row.id for row in rows})
    emit(
        "hops",
        values,
        f"{asked} questions of 2WikiMultihopQA's {arguments.split} split over 6,119 passages, "
        f"{arguments.model}, seed 0, exact answers",
        arguments.out and arguments.out / "hops.json",
        [row.model_dump(mode="json") for row in rows],
        least=LEAST,
        most=MOST,
    )


def arm_options(parser: argparse.ArgumentParser) -> None:
    """The model, the arms, and where rows are kept."""
    parser.add_argument("--model", default=WHOLE, help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--arms", default=ARMS)
    parser.add_argument("--at-once", type=int, default=1, help="runs at once on a server")
    parser.add_argument("--out", type=Path, help="keep rows and runs in this folder, and go on")


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} questions (default)", f"all; {SMALL} of another model")
    parser.add_argument("--split", choices=("dev", "train"), default="dev")
    arm_options(parser)
    kept_in(parser, main)
