"""Questions of several hops that people worded: stages, a plain loop, no search.

    python -m benchmarks.natural [--quick | --full] [--model 1.5b] [--base-url URL] [--out FOLDER]

MuSiQue (47) and HotpotQA (53) over their whole corpora (`benchmarks/data/natural`), by
`rubricem eval`: arms stages, plain and closed, nothing remembered, nothing verified. Every arm is
held to the bare answer by the same span step; plain may search three times with five passages.
Rows are kept in `--out` as they come, the two sets in turn, and the same command goes on.

Evidence is known by the first characters of a passage for MuSiQue, whose titles repeat, and by
titles for HotpotQA. Wrong and certain is an answer with an F1 below 0.5 of a run that says it
finished; a refusal is honest where the run says that it has not found the answer, or is not
certain of it. The two sets are never one F1: what is compared over both is the paired difference.
"""

import argparse
from pathlib import Path

from benchmarks.hops import arm_options, read_rows, setup_in, tell, values_of
from benchmarks.report import emit, kept_in, sized_parser
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import Passage

DATA = Path(__file__).parent / "data" / "natural"
SETS = ("musique", "hotpotqa")
STARTS = 60
"""characters of a passage by which MuSiQue's gold ones are named"""
QUICK, BATCH = 2, 5
"""questions of each set: by --quick, and asked before it is the other set's turn"""
LEAST = {"f1_stages_plain_low": 0.0, "stages_honest": 0.5}
MOST = {"stages_wrong_certain": 0.25}
OVERALL = ("n", "refused", "wrong_certain", "honest")
"""of both sets together: never one F1"""


def questions_of(name: str) -> list[EvalQuestion]:
    questions = []
    for row in read_rows(DATA / f"{name}.jsonl.xz"):
        answers = (row["answer"], *row.get("answer_aliases", ()))
        gold = tuple(row.get("gold_starts") or row["gold"])
        kind = "comparison" if row["type"] == "comparison" else name
        questions.append(
            EvalQuestion(
                id=row["id"], question=row["question"], answers=answers, gold=gold, type=kind
            )
        )
    return questions


def corpus_of(name: str) -> list[Passage]:
    rows = read_rows(DATA / f"{name}_passages.jsonl.xz")
    return [Passage(row["title"], row["text"][:STARTS], "", row["text"]) for row in rows]


async def measure(arguments: argparse.Namespace, out: Path) -> list[EvalRow]:
    """The rows of both sets, whose questions take turns, so that a part of them is balanced."""
    setup = setup_in(out, arguments)
    asked = {name: questions_of(name) for name in SETS}
    tools = {name: PassageCorpus(corpus_of(name), out / f"index-{name}") for name in SETS}
    most = max(map(len, asked.values())) if arguments.full else QUICK
    most = min(most, arguments.most or most)
    rows: list[EvalRow] = []
    for size in [*range(BATCH, most, BATCH), most]:
        rows = []
        for name in SETS:
            experiment = Experiment(
                setup,
                QuestionSet(name, tuple(asked[name][:size])),
                Arm.parse(arguments.arms),
                out / name,
                at_once=arguments.at_once,
                search_tool=tools[name],
            )
            rows += await experiment.run(print, tell)
    return rows


async def main(arguments: argparse.Namespace, out: Path) -> None:
    rows = await measure(arguments, out)
    answers = {q.id: q.answers for name in SETS for q in questions_of(name)}
    emit(
        "natural",
        values_of(rows, answers, OVERALL),
        f"{len({row.id for row in rows})} questions of MuSiQue and HotpotQA, {arguments.model}, "
        "seed 0, exact answers",
        arguments.out and arguments.out / "natural.json",
        [row.model_dump(mode="json") for row in rows],
        least=LEAST,
        most=MOST,
    )


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} of each set (the default)", "all")
    parser.add_argument("--most", type=int, help="at most so many of each set")
    arm_options(parser)
    kept_in(parser, main)
