"""Whether lessons matter: questions asked again, questions near them, and others, with and without.

    python -m benchmarks.bank_effect [--quick | --full] [--model 0.5b] [--base-url URL]
        [--blocks N] [--out FOLDER]

Over the corpus of `hops`. The bank is filled in blocks by runs on `train` questions, which are made
without memory, judged and reflected on. After each block, without and with the bank as it then is:

    again     the block's own questions once more; `off` is the run that filled the bank
    near      `dev` questions that share a bridge entity with one of the block's
    other     `dev` questions that share no name with any of the filling

Nothing is learnt while questions are asked. Every row is on disk before the next run; the same
command goes on. Differences are paired, with 95% bootstrap intervals.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.hops import corpus, rows_of, setup_in
from benchmarks.report import RESULTS, Value, emit, number, sized_parser
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import (
    ROWS,
    EvalParts,
    EvalRow,
    Experiment,
    answer_one,
    claimed,
    open_parts,
)
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.learning.lessons import RunLearner, learn, open_learner
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.sources.index import PassageCorpus
from rubricem.memory.runs import RowFile
from rubricem.memory.schema import Status

ARMS, PARTS = ("off", "lessons"), ("again", "near", "other")
BLOCK, AWAY = 5, 2
"""questions of a block that fill the bank, and that have nothing to do with any of them"""
QUICK, FULL = 1, 30
"""blocks"""
FIGURES = ("evidence", "all_gold", "f1", "searches", "seconds", "tokens")
TARGETS = {
    "again_f1_gain": "its 95% interval above 0",
    "near_f1_gain": "its 95% interval above 0",
    "other_f1_gain": "its 95% interval not below 0",
}

Row = Mapping[str, Any]
"""of the questions of `hops`"""


class EffectRow(EvalRow):
    """`type` is the part of the benchmark."""

    block: int


@dataclass(frozen=True, slots=True)
class Block:
    """What is asked between one state of the bank and the next."""

    number: int
    again: tuple[EvalQuestion, ...]
    near: tuple[EvalQuestion, ...]
    other: tuple[EvalQuestion, ...]

    def parts(self) -> Iterator[tuple[str, EvalQuestion]]:
        """The questions, the parts by turns."""
        each = ([(part, q) for q in getattr(self, part)] for part in PARTS)
        for turn in zip_longest(*each):
            yield from filter(None, turn)


def entities(row: Row) -> set[str]:
    return {name for subject, _, thing in row["evidence"] for name in (subject, thing)}


def bridges(row: Row) -> set[str]:
    """What one of its triples leads to and another starts from."""
    return {thing for _, _, thing in row["evidence"]} & {s for s, _, _ in row["evidence"]}


def blocks(count: int, size: int = BLOCK) -> list[Block]:
    """So many blocks, or as many as the questions give; near questions stand with their filling.

    Questions without known gold are left out, since nothing could be said of their evidence.
    """
    known = [row for row in rows_of("questions") if row["gold"]]
    train, dev = ([row for row in known if row["split"] == split] for split in ("train", "dev"))
    partners: dict[str, list[Row]] = {}
    taken = set[str]()
    for row in train:
        partners[row["id"]] = [r for r in dev if bridges(r) & bridges(row) and r["id"] not in taken]
        taken |= {r["id"] for r in partners[row["id"]]}
    filling = sorted(train, key=lambda row: not partners[row["id"]])[: count * size]
    met = {name for row in filling for name in entities(row)}
    away = iter([r for r in dev if not entities(r) & met and r["id"] not in taken])

    def asked(rows: Sequence[Row]) -> tuple[EvalQuestion, ...]:
        return tuple(EvalQuestion.of_line(row) for row in rows)

    found = []
    for at in range(min(count, len(filling) // size)):
        own = filling[at * size : (at + 1) * size]
        near = [each for row in own for each in partners[row["id"]]]
        found.append(Block(at, asked(own), asked(near), asked([*islice(away, AWAY)])))
    return found


@dataclass
class Study:
    """What is opened once."""

    parts: EvalParts
    rows: RowFile[EffectRow]
    learner: RunLearner

    async def through(self, block: Block) -> None:
        """Fill the bank with the block's runs, then ask all of its questions with and without."""
        for question in block.again:
            row = await self.ask(block, "again", question, "off")
            if row.status is not Status.FAILED:
                print(row.thread, (await learn(self.learner, row.thread)).said, flush=True)
        context = self.parts.researcher.policy.context_tokens
        recaller = BankRecaller(self.learner.bank, context_tokens=context)
        for part, question in block.parts():
            await self.ask(block, part, question, "off")
            await self.ask(block, part, question, "lessons", recaller)

    async def ask(
        self, block: Block, part: str, question: EvalQuestion, arm: str,
        recaller: BankRecaller | None = None,
    ) -> EffectRow:  # fmt: skip
        """The row of a question in an arm, asked unless it is on disk."""
        held = self.rows.held.get((question.id, arm))
        if held is not None and held.status is not Status.FAILED:
            kept: EffectRow = held
            return kept
        named = question.model_copy(update={"id": f"{question.id}-{arm}"})
        able = replace(self.parts, recaller=recaller)
        row = await answer_one(able, named, Arm("stages", memory=arm != "off"))
        told = {"id": question.id, "arm": arm, "type": part, "block": block.number}
        found = EffectRow.model_validate(row.model_dump() | told)
        await asyncio.to_thread(self.rows.append, found)
        print(f"{block.number:2} {part:6} {arm:8} F1 {row.grade.f1 or 0:.2f} {row.bare[:30]!r}")
        return found


def figure_of(row: EffectRow, name: str) -> float | None:
    """None where a row cannot have it, as where its gold is not known."""
    plain = {"searches": row.searches, "seconds": row.seconds, "tokens": row.completion_tokens}
    value = plain[name] if name in plain else getattr(row.grade, name)
    return None if value is None else float(value)


def gaps(rows: Sequence[EffectRow], part: str, name: str) -> list[float]:
    """A figure with lessons less that without, of each question that has both."""
    off = {row.id: row for row in rows if row.arm == "off" and row.type == part}
    pairs = [
        (figure_of(row, name), figure_of(off[row.id], name))
        for row in rows
        if row.arm == "lessons" and row.type == part and row.id in off
    ]
    return [one - other for one, other in pairs if one is not None and other is not None]


def values_of(rows: Sequence[EffectRow]) -> dict[str, Value]:
    """Each arm's means in every part, and how lessons differ from none."""
    values: dict[str, Value] = {"blocks": len({row.block for row in rows})}
    for part in PARTS:
        for arm in ARMS:
            own = [row for row in rows if (row.type, row.arm) == (part, arm)]
            values[f"{part}_{arm}_n"] = len(own)
            for name in FIGURES:
                found = [f for row in own if (f := figure_of(row, name)) is not None]
                values[f"{part}_{arm}_{name}"] = (
                    round(statistics.fmean(found), 4) if found else None
                )
        for name in FIGURES:
            if differ := gaps(rows, part, name):
                low, high = bootstrap_mean(differ)
                values[f"{part}_{name}_gain"] = round(statistics.fmean(differ), 4)
                values[f"{part}_{name}_low"] = round(low, 4)
                values[f"{part}_{name}_high"] = round(high, 4)
    return values


def holds(values: Mapping[str, Value]) -> bool:
    gained = number(values, "again_f1_low") > 0 and number(values, "near_f1_low") > 0
    return gained and number(values, "other_f1_high") >= 0


async def measure(arguments: argparse.Namespace, out: Path) -> list[EffectRow]:
    setup = setup_in(out, arguments)
    asked = blocks(arguments.blocks or (FULL if arguments.full else QUICK))
    every = tuple(question for block in asked for _, question in block.parts())
    tool = PassageCorpus(corpus(), out / "indexes")
    experiment = Experiment(
        setup, QuestionSet("2wiki", every), (Arm("stages"),), out, search_tool=tool
    )
    with claimed(out, experiment.row_inputs()):
        rows = RowFile(out / ROWS, EffectRow, "Name another folder.")
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(open_parts(experiment, print))
            opening = open_learner(parts.setup, print, parts.researcher.policy)
            learner = await stack.enter_async_context(opening)
            for block in asked:
                await Study(parts, rows, learner).through(block)
        return [*rows.held.values()]


def main() -> None:
    parser = sized_parser(__doc__, f"{QUICK} block (default)", f"{FULL} blocks; kept in results")
    parser.add_argument("--model", default="0.5b", help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--blocks", type=int, help=f"of {BLOCK} filling questions each")
    parser.add_argument("--out", type=Path, help="keep rows, runs and the bank here, and go on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows = asyncio.run(measure(arguments, arguments.out or Path(temporary)))
    values = values_of(rows)
    emit(
        "bank_effect", values, TARGETS, holds(values),
        f"{len({row.id for row in rows if row.type == 'again'})} filling runs on "
        f"2WikiMultihopQA's train split over 6,119 passages, {arguments.model}, seed 0, "
        f"exact answers",
        RESULTS / "bank_effect.json" if arguments.full else None,
        [row.model_dump(mode="json", exclude={"answer"}) for row in rows],
    )  # fmt: skip


if __name__ == "__main__":
    main()
