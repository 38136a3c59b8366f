"""Whether memory matters: the same questions with it and without it, and similar ones.

    python -m benchmarks.bank_effect [--quick | --full] [--only FROM TO] [--variant NAME]
        [--model 1.5b] [--base-url URL] [--keep FOLDER] [--out FILE]

Twelve questions of `embedded`, and for each a similar one with a fact of its own
(`benchmarks/bank_questions.jsonl`). Five arms:

    off            the questions, no memory
    first          the questions in order; each run is learnt from before the next is asked
    second         the questions again, each with its own reflection (within-episode)
    similar_off    the similar questions, no memory
    similar        the similar questions with the bank that `first` filled (cross-episode)

Nothing is learnt in `second` and `similar`. The judge sees all runs of a question as one group,
in an order drawn by its number, under rubrics that it makes from the question, from what a
search for it brings, and by contrasting the group; what was recalled is not shown to it.
`--keep` keeps all that was run, learnt and judged, and a benchmark that was ended goes on there.
A variant changes one thing of how memory works, in a folder of its own; the arms without memory
are shared. There is no target: the figures are stated as they are.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from benchmarks.bank_figures import Runs, figures
from benchmarks.bank_variants import VARIANTS, Variant
from benchmarks.embedded import QUESTIONS as FACTS
from benchmarks.report import emit
from rubricem.agent.learning.lessons import RunLearner, learn
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.research.setup import Setup, open_researcher
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import setup_of, stores_of
from rubricem.judge.build import JudgeModel, stage_judge
from rubricem.judge.stage import first_rubrics
from rubricem.memory.errors import JudgeError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import RunStore, write_atomically
from rubricem.memory.schema import Judgement, RubricBuffer, Trajectory, TrajectoryGroup

ROOT = Path(__file__).parent
QUESTIONS = ROOT / "bank_questions.jsonl"
RESULTS = ROOT / "results"
QUICK = 1
_JUDGED = TypeAdapter(dict[str, Judgement])


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the pattern of its fact, and the arms that ask it."""

    number: int
    question: str
    fact: str
    arms: tuple[str, ...]


def questions() -> list[tuple[Asked, Asked]]:
    """Each question with the similar one."""
    lines = FACTS.read_text(encoding="utf-8").splitlines()
    facts = {row["question"]: row["fact"] for row in map(json.loads, lines)}
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [
        (
            Asked(number, row["question"], facts[row["question"]], ("off", "first", "second")),
            Asked(number, row["similar"], row["fact"], ("similar_off", "similar")),
        )
        for number, row in enumerate(rows)
    ]


@dataclass(frozen=True, slots=True)
class Study:
    """What is opened once; `settings` name the folder of the variant."""

    setup: Setup
    variant: Variant
    researcher: Researcher
    judge: JudgeModel
    without: Path
    """the folder of the arms without memory"""

    async def run(self, arm: str, asked: Asked) -> Trajectory:
        """The run of one arm, or what an earlier benchmark left of it brought to its end."""
        off = arm.endswith("off")
        store = RunStore(self.without if off else self.setup.stores.data_dir)
        thread = f"{arm}-{asked.number:02}"
        if store.ended(thread):
            return store.load(thread)
        researcher = self.researcher
        researcher.store, researcher.recaller = store, None
        if not off and self.setup.memory != "off":
            floor, context = self.setup.similarity_floor, researcher.policy.context_tokens
            found = self.setup.stores.open_recaller(floor, context)
            researcher.recaller = self.variant.shown(found)
        ask = replace(researcher.template, question=asked.question)
        run = await researcher.ask(ask, thread)
        print(f"{thread:14} {run.seconds:6.1f} s, {len(run.recalled)} recalled", flush=True)
        return run

    async def learn(self, run: Trajectory) -> None:
        """As `ask --memory on` does; a run that was learnt from is not again."""
        bank = self.setup.stores.open_bank()
        learner = RunLearner(self.setup, self.researcher.policy, self.judge, bank)
        print(f"{run.thread:14} {(await learn(learner, run.thread)).said}", flush=True)

    async def judged(self, asked: Asked, runs: Mapping[str, Trajectory]) -> dict[str, Judgement]:
        """Judgements by arm, of all runs of the question as one group."""
        kept = self.setup.stores.data_dir / "judged" / f"{asked.arms[0]}-{asked.number:02}.json"
        if kept.exists():
            return _JUDGED.validate_json(kept.read_bytes())
        arms = random.Random(asked.number).sample(asked.arms, len(asked.arms))
        group = TrajectoryGroup(
            question=asked.question, trajectories=tuple(runs[arm] for arm in arms)
        )
        judged = await stage_judge(self.judge).judge(group, await self.rubrics(asked))
        found = dict(zip(arms, judged.judgements, strict=True))
        write_atomically(kept, _JUDGED.dump_json(found).decode())
        print(f"{kept.stem:14} judged", *judged.notes, flush=True)
        return found

    async def rubrics(self, asked: Asked) -> RubricBuffer:
        """Criteria made from the question and its passages; every variant begins with the same."""
        store = BufferStore(self.without / "buffers")
        buffer = store.load(asked.question)
        if not any(buffer.persistent.values()):
            try:
                tool = self.researcher.search_tool
                buffer = (
                    await first_rubrics(buffer, stage_judge(self.judge).proposer, tool)
                ).buffer
            except JudgeError as error:
                print(f"{asked.question}: {error}", flush=True)
            store.save(buffer)
        return buffer


async def through(study: Study, pairs: Sequence[tuple[Asked, Asked]]) -> list[Runs]:
    """Every arm of every question, in the order in which the bank is to grow, and judged."""
    runs: dict[str, dict[str, Trajectory]] = {one.question: {} for pair in pairs for one in pair}
    for arm in ("off", "first", "second", "similar_off", "similar"):
        for asked in (one for pair in pairs for one in pair if arm in one.arms):
            run = runs[asked.question][arm] = await study.run(arm, asked)
            if arm == "first":
                await study.learn(run)
    return [
        Runs(one.fact, runs[one.question], await study.judged(one, runs[one.question]))
        for pair in pairs
        for one in pair
    ]


def settings_of(arguments: argparse.Namespace, folder: Path, variant: Variant) -> Settings:
    """`folder` holds the source's index and the arms without memory, and a folder each variant."""
    model = arguments.model or ("1.5b" if arguments.full else "0.5b")
    flags: dict[str, Any] = {
        "model": model, "base_url": arguments.base_url, "source": ("python",), "verify": "off",
        "memory": "on", "data_dir": folder, **variant.flags,
    }  # fmt: skip
    return load_settings(flags)


async def main(arguments: argparse.Namespace) -> None:
    variant = VARIANTS[arguments.variant]
    chosen = slice(*arguments.only) if arguments.only else slice(None if arguments.full else QUICK)
    pairs = questions()[chosen]
    async with AsyncExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = settings_of(arguments, folder.absolute(), variant)
        researcher = await stack.enter_async_context(open_researcher(setup_of(settings)))
        opening = setup_of(settings).model.open_judge(shared=researcher.policy.reader)
        judge = await stack.enter_async_context(opening)
        own = settings.model_copy(update={"data_dir": settings.data_dir / arguments.variant})
        study = Study(setup_of(own), variant, researcher, judge, settings.data_dir / "off")
        found = await through(study, pairs)
        values, rows = figures(
            found, await stores_of(own).open_bank().items(every=True), variant.lessons
        )
    out = arguments.out or (RESULTS / "bank_effect.json" if arguments.full else None)
    if out:
        out.write_text(json.dumps({"values": values, "rows": rows}, indent=1) + "\n")
    emit(
        "bank_effect",
        values,
        {"none": "stated as it is"},
        True,
        f"{len(pairs)} questions and as many similar ones over --source python, {settings.model}, "
        f"variant {arguments.variant}, seed {settings.seed}; facts by pattern, cites by the "
        "verifier's lexical rules; 95% intervals of paired differences by bootstrap",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one question (the default)")
    size.add_argument("--full", action="store_true", help="all 12 questions, kept in results")
    parser.add_argument("--only", nargs=2, type=int, metavar=("FROM", "TO"), help="a slice")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default="product")
    parser.add_argument("--model", help="0.5b if quick, 1.5b if full, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--keep", type=Path, help="keep all that was done here, and go on there")
    parser.add_argument("--out", type=Path, help="where to write values and rows (JSON)")
    asyncio.run(main(parser.parse_args()))
