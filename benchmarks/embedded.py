"""The embedded models on questions with checkable facts, against themselves without a search.

    python -m benchmarks.embedded [--quick | --full] [--model 1.5b --model 0.5b] [--out FOLDER]

Each question is asked by `rubricem eval` over the source `python` in the arms stages and closed. A
fact counts as found where a pattern written beforehand matches the cited answer; patterns are
crude, so `--out` keeps rows and runs to read, and the same command goes on.
"""

import argparse
import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hops import tell
from benchmarks.report import Value, emit, kept_in, sized_parser
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.evaluate.results import figures
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.runs import RunStore

QUESTIONS = Path(__file__).parent / "embedded_questions.jsonl"
QUICK = 4
MOST_SECONDS = 150


def found(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.I | re.S) is not None


async def measure(model: str, asked: QuestionSet, out: Path) -> list[EvalRow]:
    """One row for each question and arm."""
    setup = setup_of(load_settings({"model": model, "source": ("python",)}))
    experiment = Experiment(setup, asked, Arm.parse("stages,closed"), out)
    return await experiment.run(print, tell)


def values_of(rows: Sequence[EvalRow], asked: QuestionSet, out: Path) -> dict[str, Value]:
    own = [row for row in rows if row.arm == "stages"]
    told = figures(own)
    runs = [RunStore(out).load(row.thread) for row in own]
    overlaps = [cite.overlap for run in runs for cite in cited_answer(run).citations]
    pairs = zip(asked.questions, runs, strict=True)
    held = [any(found(q.patterns[0], s.text) for s in run.sources) for q, run in pairs]
    return {
        "seconds_median": told["seconds"],
        "seconds_max": max(row.seconds for row in own),
        "fact_share": told["pattern"],
        "closed_book_fact_share": figures([r for r in rows if r.arm == "closed"])["pattern"],
        "fact_retrieved_share": round(statistics.fmean(held), 3),
        "cites": sum(row.grade.cites for row in own),
        "cites_resolved_share": told["resolved"],
        "claims_overlapping_60_share": round(
            sum(overlap >= 0.6 for overlap in overlaps) / max(len(overlaps), 1), 3
        ),
        "completion_tokens_mean": told["tokens"],
    }


async def main(arguments: argparse.Namespace, out: Path) -> None:
    lines = map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines())
    questions = [EvalQuestion(id=q["symbol"], question=q["question"], patterns=(q["fact"],))
                 for q in lines]  # fmt: skip
    if not arguments.full:
        questions = questions[:: len(questions) // QUICK][:QUICK]
    asked, values = QuestionSet("rubricem", tuple(questions)), dict[str, Value](n=len(questions))
    models = arguments.model or ["1.5b", "0.5b"]
    for model in models:
        rows = await measure(model, asked, out / model)
        told = values_of(rows, asked, out / model)
        values |= {f"{name}_{model}": value for name, value in told.items()}
    emit(
        "embedded",
        values,
        f"{len(asked.questions)} questions over --source python, forced scaffold, seed 0; facts by "
        "pattern; closed book: the same weights, no search",
        least={f"cites_resolved_share_{model}": 1.0 for model in models},
        most={"seconds_median_1.5b": MOST_SECONDS} if "1.5b" in models else {},
    )


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} questions (the default)", "all 24 questions")
    parser.add_argument("--model", action="append", help="1.5b or 0.5b; both if none is named")
    parser.add_argument("--out", type=Path, help="keep every answer and run here, and go on")
    kept_in(parser, main)
