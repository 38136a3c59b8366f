"""`learns --task hops`: whether credit by stage beats credit by the answer, at equal rollouts.

Each arm goes on from the same imitated checkpoint of a small model, under the same seeds, questions
and number of rollouts; `training/recipes/hops` is what is asked, scored and configured:

imitation   of a teacher that is code and knows the facts (`facts.py`), and nothing after it
answer      GRPO on the answer's reward alone
sum         the sum of the stage rewards, the same for every token: dense, without credit
stages      SS-GRPO: each stage by its own reward and those of later ones (dependence matrix)
branches    the same of branches: one turn sampled from a shared prefix, scored by what it brings

Replicates. One is all of that under one seed: the imitation too, all arms, and what they answered.
It takes some hours of two cores, goes on where it was ended, and leaves a file of its own in
`benchmarks/results/learns_hops`, to be committed; its folder need not outlive it. Further ones add
seeds, and are read together. So the experiment grows from sitting to sitting.

Held-out questions of the train split are asked of each arm at every so many rounds; where their
mean reward has not risen at `patience` askings, the arm ends, and its best checkpoint counts. The
dev split is asked of the imitation and of each arm's best, the first `middle` of its questions, the
types in turn, also of each arm halfway: evidence recall (primary), F1, valid share, searches, by
type. Differences are paired by replicate and question, with 95% intervals of the pigeonhole
bootstrap, which draws replicates and questions anew, each with replacement (Owen, arXiv:0712.1111).
"""

import asyncio
import json
import math
import random
import shutil
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from benchmarks.hops import corpus, questions_of, rows_of
from benchmarks.learns.facts import FactsTeacher
from benchmarks.learns.phases import Phases
from benchmarks.learns.plan import Plan, Sizes
from benchmarks.loopback import MODEL, Loopback
from benchmarks.report import Value as Report
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.settings import load_settings
from rubricem.agent.transcript.scaffold import rejected
from rubricem.memory.schema import AnswerFormat, Status, Value
from rubricem.training.collect.directory import Question, RunDirectory
from rubricem.training.collect.questions import Selected
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.local.local_config import read_toml
from rubricem.training.rounds.rollouts import NUMBERS, Sampled
from rubricem.training.rounds.rounds import run_rounds
from rubricem.training.rounds.rounds_config import RoundsJob, build_job
from rubricem.training.rounds.update import RoundFolders

RECIPE = Path(__file__).parents[2] / "training" / "recipes" / "hops"
IMITATION, MIDDLE = "imitation", "-middle"
ARMS: Mapping[str, tuple[str, bool]] = {
    "answer": ("answer-only", False),
    "sum": ("sum", False),
    "stages": ("ss-grpo", False),
    "branches": ("ss-grpo", True),
}
"""name -> its credit, and whether it branches"""
PAIRS = (
    *((arm, IMITATION) for arm in ARMS),
    ("stages", "answer"),
    ("stages", "sum"),
    ("branches", "stages"),
)
FIGURES = ("evidence", "f1", "valid", "searches")
REWARD = "reward/mean"
SHOWN = {"kl_reference": "divergence from imitation (nats a token)",
         "surprise": "surprise, one sample of the entropy (nats a token)"}  # fmt: skip
"""metrics of the rounds that are drawn, and their titles"""


@dataclass(frozen=True, slots=True)
class HopsSizes(Sizes):
    """How much of everything; `held_out` and `questions` are of the train split."""

    traces: int = 64
    questions: int = 380
    rounds: int = 12
    """at most; with 4 x 8 rollouts each that is 384 an arm"""
    per_round: int = 4
    group: int = 8
    held_out: int = 24
    every: int = 6
    """rounds between two askings of the held-out questions"""
    patience: int = 3
    """askings without a better mean reward, after which an arm ends"""
    test: int | None = None
    """questions of the dev split; None: all"""
    middle: int = 60
    """of them, asked after half of the rounds, at the asking of the held-out ones then"""
    distractors: int | None = None
    """passages that hold no evidence; None: the whole corpus"""


HOPS_QUICK = HopsSizes(
    traces=1, questions=2, rounds=1, per_round=1, group=2, held_out=1, every=1, patience=1, test=1,
    middle=1, distractors=50,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HopsPlan(Plan):
    """One replicate, in a folder that it goes on with; the folder above has the documents."""

    sizes: HopsSizes = HopsSizes()
    source: tuple[str, ...] = ()
    replicate: int = 0
    """its number, which is its seed"""

    @property
    def documents(self) -> Path:
        return self.keep.parent / "documents"

    def training(self) -> tuple[Question, ...]:
        return self._train_split()[self.sizes.held_out :][: self.sizes.questions]

    def held_out(self) -> tuple[Question, ...]:
        return self._train_split()[: self.sizes.held_out]

    def test(self) -> tuple[EvalQuestion, ...]:
        return questions_of("dev", self.sizes.test).questions

    def tracing(self) -> dict[str, Any]:
        shown = read_toml(RECIPE / "rounds.toml")["rounds"]
        names = ("system_prompt", "passages", "passage_words", "tool_calls")
        told = {name: shown[name] for name in names}
        told |= {"model": MODEL, "decoding": "free", "source": [str(self.documents)]}
        return Plan.tracing(self) | told

    def sft(self) -> dict[str, Any]:
        folders = {"out": str(self.keep / "sft"), "rows": [str(self.keep / "traces")]}
        own = {"model": self.model, "seed": self.replicate}
        return {**read_toml(RECIPE / "sft.toml"), **folders, **own}

    def arm(self, name: str, rounds: int) -> RoundsJob:
        """An arm's configuration up to so many rounds."""
        values, (credit, branch), sizes = read_toml(RECIPE / "rounds.toml"), ARMS[name], self.sizes
        table = {
            **values.pop("rounds"),
            "questions": str(self.keep / "questions.jsonl"),
            "held_out": str(self.keep / "held_out.jsonl"),
            "held_out_every": sizes.every,
            "rounds": rounds,
            "questions_per_round": sizes.per_round,
            "group_size": sizes.group,
            "source": [str(self.documents)],
            "branch": branch,
        }
        return build_job(
            {
                **values,
                "out": str(self.out(name)),
                "bank": str(self.keep / "data"),
                "model": self.model,
                "start_adapter": str(TrainingFolder(self.keep / "sft").newest),
                "credit": credit,
                "seed": self.replicate,
                "rounds": table,
            },
            self.keep,
            "ss-grpo",
        )

    def out(self, name: str) -> Path:
        return self.keep / "arms" / name

    def tested(self, name: str) -> RunDirectory:
        """What was asked of the dev split under such a name: an arm's, halfway with `MIDDLE`."""
        return RunDirectory(self.keep / "test" / name)

    def write(self) -> None:
        """The documents and the files of questions, once."""
        for name, asked in (("questions", self.training()), ("held_out", self.held_out())):
            self._written(f"{name}.jsonl", asked)
        if self.documents.exists():
            return
        gold = {title for q in (*self.training(), *self.held_out())
                for title in (q.facts or {})["gold"]}  # fmt: skip
        gold |= {title for question in self.test() for title in question.gold}
        others = [passage for passage in corpus() if passage.title not in gold]
        random.Random(0).shuffle(others)
        known = (
            {p.title for p in others[self.sizes.distractors :]} if self.sizes.distractors else ()
        )
        part = self.documents.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        for number, passage in enumerate(corpus()):
            if passage.title not in known:
                text = f"# {passage.title}\n\n{passage.text}\n"
                (part / f"{number:04d}.md").write_text(text, encoding="utf-8")
        part.rename(self.documents)

    def _train_split(self) -> tuple[Question, ...]:
        """Those whose evidence is all known by its titles, the types in turn."""
        rows = {row["id"]: row for row in rows_of("questions")}
        asked = (q for q in questions_of("train").questions if q.gold)
        return tuple(
            Question(
                id=q.id,
                question=q.question,
                answer_format=AnswerFormat.EXACT,
                facts={name: rows[q.id][name] for name in ("answer", "evidence", "gold")},
            )
            for q in asked
        )


@dataclass(frozen=True, slots=True)
class HopsPhases(Phases):
    """traces and sft as ever, then what `before`, `arms` and `test` ask and train."""

    plan: HopsPlan

    def all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        self.plan.write()
        names = ("traces", "sft", "before", "arms", "test")
        return {name: getattr(self, name) for name in names}

    async def traces(self, teacher: str | None = None) -> None:
        plan, searches = self.plan, self.plan.tracing()["tool_calls"]
        facts = FactsTeacher.of(plan.training(), searches)
        server = await asyncio.start_server(Loopback(0, 1, reply=facts).serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await Phases.traces(self, f"http://127.0.0.1:{port}/v1")

    async def before(self) -> None:
        """The dev questions, of the imitation."""
        await self._ask(IMITATION, TrainingFolder(self.plan.keep / "sft").newest)

    async def arms(self) -> None:
        while names := due(self.plan):
            await self._go_on(names[0])

    async def _go_on(self, name: str) -> None:
        """To the next asking of the held-out questions."""
        plan, sizes = self.plan, self.plan.sizes
        self._share_first_asking(name)
        asked = max(len(held_out_rewards(plan.out(name))) - 1, 0) * sizes.every
        await self._ask_midway(name, asked)  # what a sitting's end has left
        job = plan.arm(name, min(asked + sizes.every, sizes.rounds))
        assert job.rounds is not None
        self.tell(f"{name}: rounds {asked + 1} to {job.rounds.rounds}")
        weights = load_settings().weights_dir
        await run_rounds(job.config, job.rounds, job.rule, self.tell, weights, self.stop)
        await self._ask_midway(name, job.rounds.rounds)

    async def _ask_midway(self, name: str, rounds: int) -> None:
        sizes, newest = self.plan.sizes, TrainingFolder(self.plan.out(name)).newest
        if rounds - sizes.every < sizes.rounds / 2 <= rounds:
            await self._ask(name + MIDDLE, newest if newest.exists() else None, sizes.middle)

    def _share_first_asking(self, name: str) -> None:
        """All arms begin with one checkpoint, which answers alike under one seed."""
        own, *others = (self.plan.out(n) / "held_out" / "000" for n in (name, *ARMS))
        done = next((other for other in others if (other / NUMBERS).exists()), None)
        if done is not None and not own.exists():
            shutil.copytree(done, own)

    async def test(self) -> None:
        for name in ARMS:
            best = TrainingFolder(self.plan.out(name)).best
            await self._ask(name, best if best.exists() else None)

    async def _ask(self, name: str, checkpoint: Path | None, most: int | None = None) -> None:
        """The first so many dev questions; `checkpoint`: None is what all arms began with."""
        plan, run = self.plan, self.plan.tested(name)
        if run.exists and run.finished_steps():
            return
        asked = tuple(
            Question(id=q.id, question=q.question, answer_format=AnswerFormat.EXACT)
            for q in plan.test()[:most]
        )
        job = plan.arm("stages", plan.sizes.rounds)
        assert job.rounds is not None
        rounds = job.rounds.model_copy(update={"judge": "none"})
        folders = RoundFolders(plan.keep / "test", plan.keep / "data")
        sampled = Sampled(rounds, job.config, folders, self.tell)
        start = checkpoint or TrainingFolder(plan.keep / "sft").newest
        async with sampled.held_out(run, Selected(asked), start) as collector:
            await collector.collect(self.stop)


def due(plan: HopsPlan) -> list[str]:
    """The arms that have not ended, those with the fewest rounds first.

    So they can be held against one another at equal rollouts wherever the experiment is stopped.
    """
    rewards = {name: held_out_rewards(plan.out(name)) for name in ARMS}
    going = (name for name in ARMS if not ended(rewards[name], plan.sizes))
    return sorted(going, key=lambda name: len(rewards[name]))


def held_out_rewards(out: Path) -> list[float]:
    """The mean reward of the held-out questions at each asking, the first before any round."""
    askings = sorted((out / "held_out").glob(f"[0-9]*/{NUMBERS}"))
    return [json.loads(path.read_text(encoding="utf-8")).get(REWARD, 0.0) for path in askings]


def ended(rewards: Sequence[float], sizes: HopsSizes) -> bool:
    """Whether an arm has had all its rounds, or has not become better for `patience` askings."""
    if not rewards:
        return False
    behind = len(rewards) - 1 - max(range(len(rewards)), key=rewards.__getitem__)
    return behind >= sizes.patience or (len(rewards) - 1) * sizes.every >= sizes.rounds


class Answered(NamedTuple):
    """One question of the dev split; None: it does not say what the evidence is."""

    id: str
    evidence: float | None
    f1: float
    valid: float
    searches: float


def answered(run: RunDirectory, questions: Iterable[EvalQuestion]) -> list[Answered]:
    known = {question.question: question for question in questions}
    rows = []
    for trajectory in run.trajectories() if run.exists else ():
        question = known[trajectory.question]
        found = EvalGrade.of(question, trajectory)
        valid = trajectory.status is Status.FINISHED and rejected(trajectory) is None
        recall = None if found.evidence is None else round(found.evidence, 4)
        of_run = (round(found.f1 or 0.0, 4), float(valid), float(trajectory.tool_calls))
        rows.append(Answered(question.id, recall, *of_run))
    return rows


class ArmCourse(Value):
    """What an arm's rounds came to."""

    rollouts: int
    """or branches"""
    sampled_tokens: int
    """that were written for them"""
    held_out: tuple[float, ...]
    """mean reward of the held-out questions at each asking, the first before any round"""
    metrics: dict[str, tuple[float, ...]]
    """those of `SHOWN`, by round"""

    @classmethod
    def of(cls, out: Path) -> Self:
        rollouts, tokens = sampled_in(out)
        return cls(
            rollouts=rollouts,
            sampled_tokens=tokens,
            held_out=tuple(held_out_rewards(out)),
            metrics={name: tuple(_metric(out, name)) for name in SHOWN},
        )


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
    """by arm, and by arm and `MIDDLE`"""

    @classmethod
    def of(cls, plan: HopsPlan) -> Self:
        names = (IMITATION, *ARMS, *(name + MIDDLE for name in ARMS))
        asked = {name: tuple(answered(plan.tested(name), plan.test())) for name in names}
        recipe = {name: read_toml(RECIPE / f"{name}.toml") for name in ("sft", "rounds")}
        return cls(
            replicate=plan.replicate,
            model=plan.model,
            sizes=asdict(plan.sizes),
            recipe=recipe,
            done=not due(plan)
            and all(len(asked[name]) == len(plan.test()) for name in (IMITATION, *ARMS)),
            arms={name: ArmCourse.of(plan.out(name)) for name in ARMS},
            dev={name: rows for name, rows in asked.items() if rows},
        )


def kept_replicates(folder: Path) -> list[Replicate]:
    """Those whose files lie in a folder, by their numbers; unfinished ones among them."""
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.json"))
    return sorted(map(Replicate.model_validate_json, texts), key=lambda one: one.replicate)


def pooled(replicates: Sequence[Replicate]) -> dict[str, Report]:
    """What replicates of the same sizes came to: means and paired differences."""
    types = {row["id"]: row["type"] for row in rows_of("questions")}
    told: dict[str, Report] = {"replicates": len(replicates)}
    for name in ARMS:
        courses = [one.arms[name] for one in replicates if name in one.arms]
        told[f"{name}_rollouts"] = sum(course.rollouts for course in courses)
        told[f"{name}_sampled_tokens"] = sum(course.sampled_tokens for course in courses)
        best = [max(course.held_out) for course in courses if course.held_out]
        told[f"{name}_held_out_reward_best"] = round(statistics.fmean(best), 3) if best else None
    for name in (IMITATION, *ARMS, *(name + MIDDLE for name in ARMS)):
        for figure in FIGURES:
            table = table_of(replicates, name, figure)
            for kind in ("", *sorted({types[q] for q in table})):
                label = "_".join(filter(None, (name, kind, figure)))
                told |= interval(label, {q: v for q, v in table.items() if kind in ("", types[q])})
    halves = ((first + MIDDLE, other + MIDDLE) for first, other in PAIRS if other in ARMS)
    for first, other in (*PAIRS, *halves, *((arm + MIDDLE, IMITATION) for arm in ARMS)):
        for figure in FIGURES:
            ours, theirs = (table_of(replicates, arm, figure) for arm in (first, other))
            gaps = {
                question: {n: value - theirs[question][n] for n, value in row.items()
                           if n in theirs.get(question, {})}
                for question, row in ours.items()
            }  # fmt: skip
            told |= interval(f"{figure}_{first}_{other}", gaps)
    return told


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
    """The mean of a table and the ends of its 95% interval; None where it is empty.

    With one replicate the interval is over questions alone.
    """
    numbers = sorted({number for row in table.values() for number in row})
    if not numbers:
        return {name: None}
    values = np.array([[row.get(n, math.nan) for n in numbers] for row in table.values() if row])
    rng = np.random.default_rng(0)
    means = []
    for _ in range(DRAWS):
        questions, own = (rng.integers(size, size=size) for size in values.shape)
        drawn = values[np.ix_(questions, own)]
        if not np.isnan(drawn).all():
            means.append(np.nanmean(drawn))
    low, high = np.quantile(means, (0.025, 0.975))
    told = {"": np.nanmean(values), "_low": low, "_high": high}
    return {f"{name}{end}": round(float(value), 3) for end, value in told.items()}


def sampled_in(out: Path) -> tuple[int, int]:
    """Rollouts, or branches, of an arm's rounds and the tokens written for them."""
    runs = [RunDirectory(path) for path in sorted((out / "rounds").glob("[0-9]*"))]
    usage = [t.usage.completion_tokens for run in runs if run.exists for t in run.trajectories()]
    return len(usage), sum(usage)


def draw_arms(replicates: Sequence[Replicate], path: Path) -> None:
    """An SVG: the held-out reward of all arms by round, and what the rounds did to the policy."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "learns"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 1 + len(SHOWN), figsize=(13, 3.8))
    for name in ARMS:
        courses = [(one, one.arms[name]) for one in replicates if name in one.arms]
        every = min((one.sizes["every"] or 1 for one, _ in courses), default=1)
        rewards = mean_curve([course.held_out for _, course in courses])
        axes[0].plot([n * every for n in range(len(rewards))], rewards, marker="o", label=name)
        for axis, metric in zip(axes[1:], SHOWN, strict=True):
            curve = mean_curve([course.metrics[metric] for _, course in courses])
            axis.plot(range(1, len(curve) + 1), curve, label=name)
    titles = ("mean reward of the held-out questions", *SHOWN.values())
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="rounds")
        axis.title.set_fontsize(9)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def mean_curve(curves: Iterable[Sequence[float]]) -> list[float]:
    """The mean of the curves, as far as any goes."""
    known = [curve for curve in curves if curve]
    longest = max(map(len, known), default=0)
    return [statistics.fmean(c[n] for c in known if len(c) > n) for n in range(longest)]


def _metric(out: Path, name: str) -> list[float]:
    """A round that trained nothing has none, and keeps the one before."""
    path, found = out / "rounds.jsonl", list[float]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        found.append(json.loads(line).get(name, found[-1] if found else 0.0))
    return found
