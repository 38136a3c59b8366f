"""Whether memory matters: questions asked again, and others on what earlier runs came upon.

    python -m benchmarks.bank_effect [--quick | --full] [--model 0.5b] [--base-url URL]
        [--arms off,episodes,shuffled] [--blocks N] [--out FOLDER]

Over the corpus of `hops`. The bank is filled in blocks by runs on `train` questions, which are made
without memory. After each block, in every arm and with the bank as it stood then:

    again     the block's own questions once more; `off` is the run that filled the bank
    bridge    questions that share a bridge entity with one of the block's: those of `dev` that do,
              and others that code words out of the evidence triples, with answer and gold known
    other     `dev` questions that share no name with any of the filling

Arms: off; reflections; episodes; both; shuffled: episodes whose pointers are another episode's.
Nothing is learnt while arms are asked. For the arms with reflections each filling run is judged and
reflected on (by `reflect_model`), into a bank of their own, so that arms can be added later. Every
row is on disk before the next run; the same command goes on, also with more arms or blocks, and
one that is ended reports what there is.

Differences are paired with `off`, with 95% bootstrap intervals. CPU seconds are the process's and
stand beside wall-clock seconds, which other programs disturb. No run finds its question read: an
embedded model keeps no earlier prompts, and before each run it reads the beginning that all share.
"""

import argparse
import asyncio
import hashlib
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.hops import PASSAGES, corpus, rows_of, setup_in
from benchmarks.report import RESULTS, Value, emit
from rubricem.agent.evaluate.arms import Arm
from rubricem.agent.evaluate.experiment import (
    EvalFolder,
    EvalParts,
    EvalRow,
    Experiment,
    RowFile,
    answer_one,
    open_parts,
)
from rubricem.agent.evaluate.questions import EvalQuestion, OwnRow, QuestionSet
from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.learning.lessons import RunLearner, candidates_in, learn, open_learner
from rubricem.agent.models import llama
from rubricem.agent.research.episodes import episode_of
from rubricem.agent.research.recall import BankRecaller, Recall, own_lessons
from rubricem.agent.sources.index import PassageCorpus
from rubricem.agent.transcript.scaffold import template
from rubricem.memory.bank import EpisodeMatch, RubricBank
from rubricem.memory.schema import Author, Episode, Sampling, Segment, Status, Trajectory

ARMS = ("off", "reflections", "episodes", "both", "shuffled")
SOON = ("off", "episodes", "shuffled")
"""arms that need nobody to reflect, which takes minutes a run on a few cores"""
LED, LEARNT = ("episodes", "both", "shuffled"), ("reflections", "both")
"""arms that are given episodes; that are given reflections"""
BLOCK, AWAY = 5, 2
"""questions of a block that fill the bank, and that have nothing to do with any of them"""
QUICK, FULL = 1, 30
"""blocks"""
SAME, NEAR, HARM = 0.15, 0.08, -0.01
TARGETS = {
    "again_evidence": f">= +{SAME} over off",
    "bridge_evidence": f">= +{NEAR} over off, its 95% interval above 0; shuffled: without gain",
    "other_evidence": f">= {HARM} over off",
    "cpu_seconds": "not higher than off: no interval above 0",
}
ASKED_OF = {
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "place of birth": "Where was {} born?",
    "place of death": "Where did {} die?",
    "country of citizenship": "What is the nationality of {}?",
    "spouse": "Who is the spouse of {}?",
    "father": "Who is the father of {}?",
    "mother": "Who is the mother of {}?",
}
"""relation -> a question for its object"""
REACHED_BY = {
    "director": "the director of film {}",
    "composer": "the composer of {}",
    "performer": "the performer of {}",
    "father": "{}'s father",
    "mother": "{}'s mother",
    "spouse": "{}'s spouse",
}
"""relation -> words for its object by its subject"""
FIGURES = ("evidence", "all_gold", "f1", "searches", "cpu", "seconds", "tokens")

Row = Mapping[str, Any]
"""of the questions of `hops`"""


class EffectRow(EvalRow):
    """`type` is the part of the benchmark."""

    block: int
    cpu: float
    """seconds of the process, its model's threads included"""
    led: int = 0
    """sources that a pointer led to, which the search alone would not have shown"""
    gone: int = 0
    """pointers whose passage was not found, or no longer bears what was cited"""


@dataclass(frozen=True, slots=True)
class Block:
    """What is asked between one state of the bank and the next."""

    number: int
    again: tuple[EvalQuestion, ...]
    bridge: tuple[EvalQuestion, ...]
    other: tuple[EvalQuestion, ...]

    def parts(self) -> Iterator[tuple[str, EvalQuestion]]:
        """The questions, the parts by turns."""
        named = {"again": self.again, "bridge": self.bridge, "other": self.other}
        for turn in zip_longest(*([(part, q) for q in qs] for part, qs in named.items())):
            yield from filter(None, turn)


def triples(row: Row) -> list[tuple[str, str, str]]:
    return [(subject, relation, thing) for subject, relation, thing in row["evidence"]]


def subjects(row: Row) -> set[str]:
    return {subject for subject, _, _ in triples(row)}


def entities(row: Row) -> set[str]:
    return subjects(row) | {thing for _, _, thing in triples(row)}


def bridges(row: Row) -> set[str]:
    """What one of its triples leads to and another starts from."""
    return {thing for _, _, thing in triples(row)} & subjects(row)


@dataclass(frozen=True, slots=True)
class Told:
    """What the evidence of all rows tells."""

    asked: frozenset[frozenset[tuple[str, str]]]
    """pairs of subject and relation that a row asks together"""
    facts: Mapping[str, Mapping[str, list[str]]]
    """subject -> relation -> objects"""
    titles: frozenset[str]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Told":
        facts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for subject, relation, thing in dict.fromkeys(t for row in rows for t in triples(row)):
            facts[subject][relation].append(thing)
        heads = [{(subject, relation) for subject, relation, _ in triples(row)} for row in rows]
        return cls(
            frozenset(frozenset({one, other}) for each in heads for one in each for other in each),
            {subject: facts[subject] for subject in sorted(facts)},
            frozenset(title for row in rows for title in row["gold"] or ()),
        )

    def make_questions(self, filling: Row) -> Iterator[EvalQuestion]:
        """Questions of two steps over a bridge of `filling`, of which no row asks both.

        The first step starts from another subject, or the second asks another relation.
        """
        facts = self.facts
        for bridge in sorted(bridges(filling) & self.titles):
            reached = [(s, r) for s in facts for r in REACHED_BY if bridge in facts[s].get(r, ())]
            for relation in (r for r in facts[bridge] if r in ASKED_OF):
                for subject, first in reached:
                    both = frozenset({(subject, first), (bridge, relation)})
                    if subject not in self.titles or both in self.asked:
                        continue
                    words = ASKED_OF[relation].format(REACHED_BY[first].format(subject))
                    yield EvalQuestion(
                        question=words,
                        id=hashlib.sha256(words.encode()).hexdigest()[:16],
                        answers=tuple(facts[bridge][relation]),
                        gold=(subject, bridge),
                    )


def blocks(count: int, size: int = BLOCK) -> list[Block]:
    """So many blocks, or as many as the questions give; bridge questions stand with their filling.

    Questions without known gold are left out, since nothing could be said of their evidence.
    """
    every = rows_of("questions")
    known = [row for row in every if row["gold"]]
    train, dev = ([row for row in known if row["split"] == split] for split in ("train", "dev"))
    partners: dict[str, list[EvalQuestion]] = {}
    taken, told = set[str](), Told.of(every)
    for row in train:
        near = [OwnRow.model_validate(r).to_question() for r in dev if bridges(r) & bridges(row)]
        near += told.make_questions(row)
        if fresh := [question for question in near if question.id not in taken]:
            partners[row["id"]] = fresh
            taken |= {name for q in fresh for name in (q.id, *(set(q.gold) - bridges(row)))}
    # What a bridge question starts from is not to be known of a run that it has nothing to do with.
    lone = [row for row in train if row["id"] not in partners and not subjects(row) & taken]
    with_partner = [row for row in train if row["id"] in partners]
    filling = [
        row for turn in zip_longest(*_spread(with_partner, lone, size)) for row in turn if row
    ]
    met = {name for row in filling for name in entities(row)}
    away = iter([OwnRow.model_validate(r).to_question() for r in dev if not entities(r) & met])
    found = []
    for number in range(min(count, len(filling) // size)):
        own = filling[number * size : (number + 1) * size]
        near = [question for row in own for question in partners.get(row["id"], ())]
        asked = tuple(OwnRow.model_validate(row).to_question() for row in own)
        found.append(Block(number, asked, tuple(near), tuple(islice(away, AWAY))))
    return found


def _spread(first: Sequence[Row], rest: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """So many columns: the first rows in one of them, the others in those beside it."""
    return [first, *(rest[at :: size - 1] for at in range(size - 1))]


@dataclass(frozen=True, slots=True)
class BlockRecaller:
    """What an arm is given: the banks as they stood at the end of a block."""

    reflections: BankRecaller | None = None
    episodes: BankRecaller | None = None
    instead: Mapping[str, Episode] = field(default_factory=dict)
    """id of an episode -> the one whose pointers stand in the place of its own"""

    async def recall(self, question: str) -> Recall:
        taught = await self.reflections.recall(question) if self.reflections else Recall()
        led = await self.episodes.recall(question) if self.episodes else Recall()
        matches = tuple(map(self._swap, led.episodes))
        return Recall((*taught.items, *led.items), taught.block, matches)

    async def meet(self, query: str, question: str) -> Sequence[EpisodeMatch]:
        met = await self.episodes.meet(query, question) if self.episodes else ()
        return tuple(map(self._swap, met))

    async def note_use(self, trajectory: Trajectory) -> None:
        """The bank is left as it was."""

    async def keep(self, *told: object) -> None:
        """Nothing is kept."""

    def _swap(self, match: EpisodeMatch) -> EpisodeMatch:
        """The same episode; where it was led to something, it now leads elsewhere."""
        if (other := self.instead.get(match.episode.id)) is None:
            return match
        pointers = tuple(
            other.pointers[place % len(other.pointers)].model_copy(update={"source": own.source})
            for place, own in enumerate(match.episode.pointers)
        )
        return replace(match, episode=match.episode.model_copy(update={"pointers": pointers}))


@dataclass
class Study:
    """What is opened once, and how far the banks are filled."""

    parts: EvalParts
    arms: tuple[str, ...]
    rows: RowFile
    learner: RunLearner | None = None
    filled: list[Episode] = field(default_factory=list)
    """event n of the bank of episodes is the n-th of them"""
    lessons: int = 0
    """events of the bank of reflections"""

    @property
    def folder(self) -> Path:
        return self.parts.experiment.out

    def bank(self, name: str) -> RubricBank:
        stores = self.parts.experiment.setup.stores
        return replace(stores, data_dir=self.folder / name).open_bank()

    async def through(self, block: Block) -> None:
        """Fill the banks with the block's runs, then ask all of its questions in every arm."""
        for question in block.again:
            row = await self.ask(block, "again", question, "off")
            if row.status is not Status.FAILED:
                await self.fill(question, row.thread)
        recallers = {arm: self.recaller(arm) for arm in self.arms}
        for recaller in filter(None, recallers.values()):
            # An embedding model is loaded, and the block is indexed, at no question's cost.
            await recaller.recall(block.again[0].question)
        for part, question in block.parts():
            for arm in self.arms:
                await self.ask(block, part, question, arm, recallers[arm])

    async def ask(
        self, block: Block, part: str, question: EvalQuestion, arm: str,
        recaller: BlockRecaller | None = None,
    ) -> EffectRow:  # fmt: skip
        """The row of a question in an arm, asked unless it is on disk."""
        held = self.rows.held.get((question.id, arm))
        if held is not None and held.status is not Status.FAILED:
            found: EffectRow = held
            return found
        # Runs are known by their question's id and the arm, which the product knows fewer of.
        named = question.model_copy(update={"id": f"{question.id}-{arm}"})
        able = replace(self.parts, recaller=recaller)
        await self.level()
        began = time.process_time()
        row = await answer_one(able, named, Arm("stages", memory=arm != "off"))
        cpu = round(time.process_time() - began, 3)
        run = self.parts.setup.stores.runs.load(row.thread)
        outcomes = [told.outcome for told in run.contributions if told.use == "pointer"]
        told = {
            "id": question.id, "arm": arm, "type": part, "block": block.number, "cpu": cpu,
            "led": outcomes.count("offered"), "gone": len(outcomes) - outcomes.count("offered"),
        }  # fmt: skip
        found = EffectRow.model_validate(row.model_dump() | told)
        await self.rows.append(found)
        tell(found)
        return found

    async def level(self) -> None:
        """Have an embedded model hold what all runs begin with, and nothing of the next question.

        Of arms that ask the same, one after another, the first would read it for the others.
        """
        asking = self.parts.researcher
        if asking.policy.reader is None:
            return
        system, other = template("forced"), "Question: ?"
        ids = await asking.policy.render(system, other)
        begun = Segment(author=Author.PROMPT, text=other, token_ids=ids)
        sampling = Sampling(temperature=0.0, max_tokens=1)
        await asking.policy.write(system, [begun], sampling, None, None)

    async def fill(self, question: EvalQuestion, thread: str) -> None:
        """What a run leaves goes into the banks; what is there already changes nothing."""
        run = self.parts.setup.stores.runs.load(thread)
        tools = self.parts.researcher.search_tool.name.split("+")
        if (episode := episode_of(run, question.question, tools)) is not None:
            await self.bank("episodes").put(episode)
            self.filled.append(episode)
        if self.learner is not None:
            print(thread, (await learn(self.learner, thread)).said, flush=True)
            written = candidates_in(self.parts.setup.stores.runs.folder / thread)
            self.lessons += any(candidate.accepted for candidate in written)

    def recaller(self, arm: str) -> BlockRecaller | None:
        """What an arm recalls of the banks as they stand now."""
        if arm == "off":
            return None
        context = self.parts.researcher.policy.context_tokens
        floor = self.parts.experiment.setup.similarity_floor
        given: dict[str, Any] = {"floor": floor, "context_tokens": context}
        taught = led = None
        if arm in LEARNT:
            bank, at = self.bank("reflections"), self.lessons
            taught = BankRecaller(bank, generation=at, kinds="reflections", **given)
        if arm in LED:
            bank, at = self.bank("episodes"), len(self.filled)
            led = BankRecaller(bank, generation=at, kinds="episodes", **given)
        # Every episode's pointers are those of the next one.
        next_ones = zip(self.filled, [*self.filled[1:], *self.filled[:1]], strict=True)
        instead = {one.id: other for one, other in next_ones} if arm == "shuffled" else {}
        return BlockRecaller(taught, led, instead)

    async def lessons_of(self) -> dict[str, Value]:
        """What was written on the filling runs and kept, what of it was recalled, what held up.

        Lessons that rest on a stage are left out, since no run that was taught them is judged.
        """
        store, bank = self.parts.setup.stores.runs, self.bank("reflections")
        filled = [row for row in self.rows.held.values() if (row.type, row.arm) == ("again", "off")]
        written = [candidates_in(store.folder / row.thread) for row in filled]
        reflected = [candidates for candidates in written if candidates]
        every = [candidate for candidates in reflected for candidate in candidates]
        kept = [c for c in every if c.accepted]
        scores = [c.score.total for c in every if c.score and not c.fault]
        values: dict[str, Value] = {
            "reflected_on": len(reflected),
            "reflections_written": len(every),
            "reflections_of_valid_form": sum(not c.fault for c in every),
            "reflections_accepted": len(kept),
            "reflections_score": round(statistics.fmean(scores), 4) if scores else None,
            "reflections_quarantined": (await bank.stats()).quarantined,
            "lessons_accepted": sum(len(c.rests_on) for c in kept),
        }
        for arm in (arm for arm in self.arms if arm in LEARNT):
            own = [row for row in self.rows.held.values() if row.arm == arm]
            runs = [(row.type, store.load(row.thread)) for row in own]
            for part in dict.fromkeys(part for part, _ in runs):
                given = [
                    any(item.kind == "reflection" for item in run.recollections)
                    for kind, run in runs
                    if kind == part
                ]
                values[f"{part}_{arm}_taught"] = round(statistics.fmean(given), 4)
            told = [await own_lessons(bank, run, {}) for _, run in runs]
            uses = [use for found in told for use in found]
            values[f"{arm}_lessons_put_to_the_test"] = sum(use.shown for use in uses)
            values[f"{arm}_lessons_held_up"] = sum(use.used for use in uses)
        return values


def tell(row: EffectRow) -> None:
    gold = "-" if row.grade.evidence is None else f"{row.grade.evidence:.2f}"
    print(
        f"{row.block:2} {row.type:6} {row.arm:11} {row.seconds:6.1f} s, {row.cpu:5.1f} of CPU, "
        f"gold {gold:4} F1 {row.grade.f1 or 0:.2f} led {row.led} gone {row.gone} {row.bare[:30]!r}",
        flush=True,
    )


def figure_of(row: EffectRow, name: str) -> float | None:
    """None where a row cannot have it, as where its gold is not known."""
    plain = {"searches": row.searches, "seconds": row.seconds, "cpu": row.cpu,
             "tokens": row.completion_tokens}  # fmt: skip
    value = plain[name] if name in plain else getattr(row.grade, name)
    return None if value is None else float(value)


def gaps(rows: Sequence[EffectRow], part: str, arm: str, name: str) -> list[float]:
    """A figure with memory less that without, of each question that has both, as they filled."""
    off = {row.id: row for row in rows if row.arm == "off" and row.type == part}
    pairs = [
        (figure_of(row, name), figure_of(off[row.id], name))
        for row in sorted(rows, key=lambda row: row.block)
        if row.arm == arm and row.type == part and row.id in off
    ]
    return [one - other for one, other in pairs if one is not None and other is not None]


def values_of(rows: Sequence[EffectRow]) -> dict[str, Value]:
    """Every arm's means in every part, how they differ from `off`, and a curve of four points."""
    values: dict[str, Value] = {"blocks": len({row.block for row in rows})}
    for part in ("again", "bridge", "other"):
        for arm in ARMS:
            own = [row for row in rows if (row.type, row.arm) == (part, arm)]
            label = f"{part}_{arm}"
            if not own:
                continue
            values[f"{label}_n"] = len(own)
            values[f"{label}_led"] = round(statistics.fmean(bool(row.led) for row in own), 4)
            for name in FIGURES:
                found = [f for row in own if (f := figure_of(row, name)) is not None]
                values[f"{label}_{name}"] = round(statistics.fmean(found), 4) if found else None
                if arm != "off" and (differ := gaps(rows, part, arm, name)):
                    low, high = bootstrap_mean(differ)
                    values[f"{label}_{name}_gain"] = round(statistics.fmean(differ), 4)
                    values[f"{label}_{name}_low"] = round(low, 4)
                    values[f"{label}_{name}_high"] = round(high, 4)
            if arm != "off" and len(differ := gaps(rows, part, arm, "evidence")) >= 4:
                ends = [len(differ) * quarter // 4 for quarter in range(5)]
                curve = [statistics.fmean(differ[a:b]) for a, b in pairwise(ends)]
                values[f"{label}_curve"] = ", ".join(f"{point:+.3f}" for point in curve)
    return values


def holds(values: Mapping[str, Value]) -> bool:
    """Whether every target is met, by `both` where it was asked, else by `episodes`."""
    arm = "both" if "again_both_n" in values else "episodes"

    def number(name: str) -> float:
        value = values.get(name)
        return float(value) if isinstance(value, int | float) else float("nan")

    return (
        number(f"again_{arm}_evidence_gain") >= SAME
        and number(f"bridge_{arm}_evidence_gain") >= NEAR
        and number(f"bridge_{arm}_evidence_low") > 0
        and number("bridge_shuffled_evidence_low") <= 0
        and number(f"other_{arm}_evidence_gain") >= HARM
        and all(number(f"{part}_{arm}_cpu_low") <= 0 for part in ("again", "bridge", "other"))
    )


async def measure(
    arguments: argparse.Namespace, out: Path
) -> tuple[list[EffectRow], dict[str, Value]]:
    """Every row, and what came of the reflections."""
    arms = arguments.arms or (ARMS if arguments.full else SOON)
    setup = setup_in(out, arguments)
    asked = blocks(arguments.blocks or (FULL if arguments.full else QUICK))
    every = tuple(question for block in asked for _, question in block.parts())
    tool = PassageCorpus(corpus(), out / "indexes")
    experiment = Experiment(
        setup, QuestionSet("2wiki", every), (Arm("stages"),), out, search_tool=tool
    )
    folder = EvalFolder(out)
    with folder.alone(), folder.rows(EffectRow) as rows:
        folder.claim(experiment.row_inputs())
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(open_parts(experiment, print))
            study = Study(parts, arms, rows)
            if set(arms) & {*LEARNT}:
                opening = open_learner(parts.setup, print, parts.researcher.policy)
                learner = await stack.enter_async_context(opening)
                study.learner = replace(learner, bank=study.bank("reflections"))
            for block in asked:
                await study.through(block)
                told = values_of([*rows.held.values()])
                print({k: v for k, v in told.items() if "evidence_gain" in k}, flush=True)
            lessons = await study.lessons_of() if study.learner is not None else {}
        return [*rows.held.values()], lessons


async def main(arguments: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        patch.object(llama, "EARLIER_PROMPTS_MIB", 0),
    ):
        rows, lessons = await measure(arguments, arguments.out or Path(temporary))
    report(arguments, rows, lessons)


def report(
    arguments: argparse.Namespace, rows: Sequence[EffectRow], lessons: dict[str, Value]
) -> None:
    values = values_of(rows) | lessons
    filled = len({row.id for row in rows if row.type == "again"})
    emit(
        "bank_effect",
        values,
        TARGETS,
        holds(values),
        f"{filled} filling runs on 2WikiMultihopQA's train split over 6,119 passages, "
        f"{arguments.model}, seed 0, {PASSAGES} passages a search, exact answers",
        RESULTS / "bank_effect.json" if arguments.full else None,
        [row.model_dump(mode="json", exclude={"answer"}) for row in rows],
    )


def arms_of(named: str) -> tuple[str, ...]:
    wanted = [name.strip() for name in named.split(",")]
    if strange := [name for name in wanted if name not in ARMS]:
        raise argparse.ArgumentTypeError(
            f"there is no arm {strange[0]!r}; arms are {', '.join(ARMS)}"
        )
    return tuple(arm for arm in ARMS if arm in ("off", *wanted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK} block (the default)")
    size.add_argument("--full", action="store_true", help=f"{FULL} blocks; kept in results")
    parser.add_argument("--model", default="0.5b", help="1.5b, 0.5b, or a server's model")
    parser.add_argument("--base-url", help="a server to ask instead")
    parser.add_argument("--arms", type=arms_of, help=f"of {','.join(ARMS)}; all if --full")
    parser.add_argument("--blocks", type=int, help=f"of {BLOCK} filling questions each")
    parser.add_argument("--out", type=Path, help="keep rows, runs and banks here, and go on there")
    asyncio.run(main(parser.parse_args()))
