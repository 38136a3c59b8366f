"""Questions whose second search needs what the first found: stages, a plain loop, no search.

    python -m benchmarks.hops [--quick | --full] [--model 1.5b] [--base-url URL] [--out FOLDER]

2WikiMultihopQA over a closed corpus of 6,119 Wikipedia introductions (`benchmarks/data/hops`), by
`rubricem eval`: arms stages, plain and closed, exact answers, two passages a search in both arms
that search, nothing remembered, nothing verified. Reported is the dev split; the train split is
there to tune on (`--split train`). Rows are kept in `--out` as they come, and the same command
goes on.

Evidence counts for questions whose gold passages are all known by their titles; an answer is wrong
below an F1 of 0.5; a cite holds where the lexical rules find its claim in its passage. `told_*` say
what code alone reads off the pages of the training questions' triples.
"""

import argparse
import asyncio
import json
import lzma
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.report import Value, emit
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import EvalRow, Experiment
from rubricem.agent.evaluate.grades import f1_score
from rubricem.agent.evaluate.questions import EvalQuestion, OwnRow, QuestionSet
from rubricem.agent.evaluate.results import differences, figures, write_results
from rubricem.agent.research.candidates import extract_answers, nation
from rubricem.agent.research.setup import Setup
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.schema import Passage

DATA = Path(__file__).parent / "data" / "hops"
ARMS = "stages,plain,closed"
PASSAGES = 2
"""shown of a search"""
QUICK, SMALL = 12, 100
"""questions: by --quick, and by --full of an embedded model other than 1.5b"""
WHOLE = "1.5b"
COMPOSITIONAL, BRIDGE, GAIN, RATIO = 0.55, 0.40, 0.08, 1.3
TARGETS = {
    "stages_compositional_all_gold": f">= {COMPOSITIONAL}",
    "stages_bridge_comparison_all_gold": f">= {BRIDGE}",
    "f1_stages_plain": f">= {GAIN}, its 95% interval above 0",
    "seconds_ratio": f"<= {RATIO}",
}
SHOWN = ("n", "all_gold", "evidence", "em", "f1", "resolved", "supported", "honest", "searches",
         "seconds")  # fmt: skip


def rows_of(name: str) -> list[dict[str, Any]]:
    with lzma.open(DATA / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def corpus() -> list[Passage]:
    return [Passage(row["title"], row["title"], "", row["text"]) for row in rows_of("passages")]


def questions_of(split: str, total: int | None = None) -> QuestionSet:
    """The questions of a split; of so many in all, the first of every type in turn."""
    of_type: dict[str, list[EvalQuestion]] = {}
    for row in rows_of("questions"):
        if row["split"] == split:
            of_type.setdefault(row["type"], []).append(OwnRow.model_validate(row).to_question())
    in_turn = [q for turn in zip_longest(*of_type.values()) for q in turn if q is not None]
    return QuestionSet("2wiki", tuple(in_turn[:total]))


TOLD = {
    "director": "Who directed the film {}?", "composer": "Who composed the music of {}?",
    "performer": "Who performed the song {}?", "father": "Who is the father of {}?",
    "mother": "Who is the mother of {}?", "spouse": "Who is the spouse of {}?",
    "date of birth": "When was {} born?", "date of death": "When did {} die?",
    "place of birth": "Where was {} born?", "place of death": "Where did {} die?",
    "country of citizenship": "What is the nationality of {}?",
    "country": "In which country is {}?", "publication date": "When was {} released?",
}  # fmt: skip
"""relation of a triple -> a look-up for it"""


def told_values() -> dict[str, Value]:
    """How often code alone reads the object of a training triple off its subject's page.

    For each relation the triples whose page is at hand, those told rightly (F1 of at least 0.5, or
    the same nation) and wrongly; of the others code tells nothing, and the model is asked.
    """
    pages = {row["title"]: f"{row['title']}. {row['text']}" for row in rows_of("passages")}
    train = (row for row in rows_of("questions") if row["split"] == "train")
    triples = {tuple(triple) for row in train for triple in row["evidence"]}
    values: dict[str, Value] = {}
    for relation, question in TOLD.items():
        own = [(s, o) for s, r, o in triples if r == relation and s in pages]
        said = [(extract_answers(pages[s], question.format(s)), o) for s, o in own]
        right = [
            f1_score(names[0], [o]) >= 0.5 or nation(names[0]) == nation(o) != ""
            for names, o in said
            if names
        ]
        label = f"told_{relation.replace(' ', '_')}"
        values |= {
            f"{label}_n": len(own),
            f"{label}_right": sum(right),
            f"{label}_wrong": len(right) - sum(right),
        }
    return values


def values_of(rows: Sequence[EvalRow]) -> dict[str, Value]:
    """Every arm's figures, of all and of each type, and what the targets are about."""
    values: dict[str, Value] = {}
    seconds: dict[str, float] = {}
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        for kind in ("", *dict.fromkeys(row.type for row in own)):
            found = figures([row for row in own if kind in ("", row.type)])
            label = f"{arm}_{kind}" if kind else arm
            values |= {f"{label}_{name}": found[name] for name in SHOWN}
        seconds[arm] = sum(row.seconds for row in own)
    for gap in differences(rows):
        if gap.figure in ("f1", "em", "all_gold"):
            name = f"{gap.figure}_{gap.first}_{gap.other}"
            values |= {name: gap.mean, f"{name}_low": gap.low, f"{name}_high": gap.high}
    plain = seconds.get("plain")
    values["seconds_ratio"] = round(seconds["stages"] / plain, 3) if plain else None
    return values


def holds(values: dict[str, Value]) -> bool:
    """Whether every target is met."""

    def number(name: str) -> float:
        value = values.get(name)
        return float(value) if isinstance(value, int | float) else float("nan")

    return (
        number("stages_compositional_all_gold") >= COMPOSITIONAL
        and number("stages_bridge_comparison_all_gold") >= BRIDGE
        and number("f1_stages_plain") >= GAIN
        and number("f1_stages_plain_low") > 0
        and number("seconds_ratio") <= RATIO
    )


def tell(row: EvalRow, done: int, total: int) -> None:
    grade = row.grade
    print(f"{done}/{total} {row.arm:7} {row.type:17} {row.seconds:6.1f} s "
          f"gold {'-' if grade.evidence is None else f'{grade.evidence:.2f}':4} "
          f"F1 {grade.f1 or 0:.2f} {row.bare[:40]!r}", flush=True)  # fmt: skip


def setup_in(out: Path, arguments: argparse.Namespace) -> Setup:
    """The model that is asked for, without a memory or checks of its own, into that folder."""
    setup = setup_of(load_settings({
        "model": arguments.model, "base_url": arguments.base_url, "memory": "off",
        "verify": "off", "data_dir": out,
    }))  # fmt: skip
    return replace(setup, template=replace(setup.template, passages=PASSAGES))


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


async def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        rows = await measure(arguments, arguments.out or Path(temporary))
    values = values_of(rows) | told_values()
    asked = len({row.id for row in rows})
    emit(
        "hops",
        values,
        TARGETS,
        holds(values),
        f"{asked} questions of 2WikiMultihopQA's {arguments.split} split over 6,119 passages, "
        f"{arguments.model}, seed 0, {PASSAGES} passages a search, exact answers",
        arguments.out and arguments.out / "hops.json",
        [row.model_dump(mode="json") for row in rows],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} questions (the default)")
    size.add_argument("--full", action="store_true", help=f"all; {SMALL} of another embedded model")
    parser.add_argument("--model", default=WHOLE, help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--split", choices=("dev", "train"), default="dev")
    parser.add_argument("--arms", default=ARMS)
    parser.add_argument("--at-once", type=int, default=1, help="runs at once on a server")
    parser.add_argument("--out", type=Path, help="keep rows, runs and the page in this folder")
    asyncio.run(main(parser.parse_args()))
