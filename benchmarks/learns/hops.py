"""`learns --task hops`: whether credit by stage beats credit by the answer, at equal rollouts.

Each arm goes on from the same imitated checkpoint of a small model, under the same seeds, questions
and number of rollouts; `training/recipes/hops` is what is asked, scored and configured:

imitation   of a teacher that is code and knows the facts (`facts.py`), and nothing after it
answer      GRPO on the answer's reward alone
sum         the sum of the stage rewards, the same for every token: dense, without credit
stages      SS-GRPO: each stage by its own reward and those of later ones (dependence matrix)
branches    the same of branches: one turn sampled from a shared prefix, scored by what it brings

Held-out questions of the train split are asked of each arm at every so many rounds; where their
mean reward has not risen at `patience` askings, the arm ends, and its best checkpoint counts. Of
that the questions of the dev split are asked, once a seed: evidence recall (primary), F1, valid
share, searches, by type; differences are paired by question, each the mean over the seeds, with the
95% interval of the bootstrap.
"""

import asyncio
import json
import random
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hops import corpus, questions_of, rows_of
from benchmarks.learns.facts import FactsTeacher
from benchmarks.learns.phases import Phases
from benchmarks.learns.plan import Plan, Sizes
from benchmarks.loopback import MODEL, Loopback
from benchmarks.report import Value
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.evaluate.results import bootstrap_mean
from rubricem.agent.settings import load_settings
from rubricem.agent.transcript.scaffold import rejected
from rubricem.memory.schema import AnswerFormat, Status
from rubricem.training.collect.directory import Question, RunDirectory
from rubricem.training.collect.questions import Selected
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.local.local_config import read_toml
from rubricem.training.rounds.rollouts import NUMBERS, Sampled
from rubricem.training.rounds.rounds import run_rounds
from rubricem.training.rounds.rounds_config import RoundsJob, build_job
from rubricem.training.rounds.update import RoundFolders

RECIPE = Path(__file__).parents[2] / "training" / "recipes" / "hops"
IMITATION = "imitation"
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
    rounds: int = 94
    """at most; with 4 x 8 rollouts each that is 3,008 an arm"""
    per_round: int = 4
    group: int = 8
    held_out: int = 40
    every: int = 10
    """rounds between two askings of the held-out questions"""
    patience: int = 3
    """askings without a better mean reward, after which an arm ends"""
    seeds: int = 2
    test: int | None = None
    """questions of the dev split; None: all"""
    distractors: int | None = None
    """passages that hold no evidence; None: the whole corpus"""


HOPS_QUICK = HopsSizes(
    traces=1, questions=2, rounds=1, per_round=1, group=2, held_out=1, every=1, patience=1, seeds=1,
    test=1, distractors=50,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HopsPlan(Plan):
    """One run of the experiment, in a folder that it goes on with."""

    sizes: HopsSizes = HopsSizes()
    source: tuple[str, ...] = ()

    @property
    def documents(self) -> Path:
        return self.keep / "documents"

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
        return {**read_toml(RECIPE / "sft.toml"), **folders, "model": self.model}

    def arm(self, name: str, seed: int, rounds: int) -> RoundsJob:
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
                "out": str(self.out(name, seed)),
                "bank": str(self.keep / "data"),
                "model": self.model,
                "start_adapter": str(TrainingFolder(self.keep / "sft").newest),
                "credit": credit,
                "seed": seed,
                "rounds": table,
            },
            self.keep,
            "ss-grpo",
        )

    def out(self, name: str, seed: int) -> Path:
        return self.keep / "arms" / f"{name}-{seed}"

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
    """traces and sft as ever, then `arms`, and `test`: the dev questions of each arm's best."""

    plan: HopsPlan

    def all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        self.plan.write()
        return {"traces": self.traces, "sft": self.sft, "arms": self.arms, "test": self.test}

    async def traces(self, teacher: str | None = None) -> None:
        plan, searches = self.plan, self.plan.tracing()["tool_calls"]
        facts = FactsTeacher.of(plan.training(), searches)
        server = await asyncio.start_server(Loopback(0, 1, reply=facts).serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await Phases.traces(self, f"http://127.0.0.1:{port}/v1")

    async def arms(self) -> None:
        for seed in range(self.plan.sizes.seeds):
            while names := due(self.plan, seed):
                await self._go_on(names[0], seed)

    async def _go_on(self, name: str, seed: int) -> None:
        """To the next asking of the held-out questions."""
        plan, sizes = self.plan, self.plan.sizes
        asked = max(len(held_out_rewards(plan.out(name, seed))) - 1, 0) * sizes.every
        job = plan.arm(name, seed, min(asked + sizes.every, sizes.rounds))
        assert job.rounds is not None
        self.tell(f"{name}, seed {seed}: rounds {asked + 1} to {job.rounds.rounds}")
        weights = load_settings().weights_dir
        await run_rounds(job.config, job.rounds, job.rule, self.tell, weights, self.stop)

    async def test(self) -> None:
        plan, folder = self.plan, self.plan.keep / "test"
        asked = tuple(
            Question(id=q.id, question=q.question, answer_format=AnswerFormat.EXACT)
            for q in plan.test()
        )
        start = TrainingFolder(plan.keep / "sft").newest
        for seed in range(plan.sizes.seeds):
            for name in (IMITATION, *ARMS):
                job = plan.arm(name if name in ARMS else "stages", seed, plan.sizes.rounds)
                assert job.rounds is not None
                rounds = job.rounds.model_copy(update={"judge": "none"})
                best = TrainingFolder(plan.out(name, seed)).best
                folders = RoundFolders(folder, plan.keep / "data")
                sampled = Sampled(rounds, job.config, folders, self.tell)
                run = RunDirectory(folder / f"{name}-{seed}")
                checkpoint = best if best.exists() else start
                async with sampled.held_out(run, Selected(asked), checkpoint) as collector:
                    await collector.collect(self.stop)


def due(plan: HopsPlan, seed: int) -> list[str]:
    """The arms that have not ended, those with the fewest rounds first.

    So they can be held against one another at equal rollouts wherever the experiment is stopped.
    """
    rewards = {name: held_out_rewards(plan.out(name, seed)) for name in ARMS}
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


@dataclass(frozen=True, slots=True)
class Answered:
    """One question of the dev split in one arm; None: it does not say what the evidence is."""

    id: str
    type: str
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
        rows.append(
            Answered(
                question.id, question.type, found.evidence, found.f1 or 0.0,
                float(valid), float(trajectory.tool_calls),
            )
        )  # fmt: skip
    return rows


Arms = Mapping[str, Sequence[Sequence[Answered]]]
"""of each arm its seeds' answers"""


def hops_values(plan: HopsPlan) -> dict[str, Value]:
    """What the dev split came to, and what each arm took."""
    arms: dict[str, list[list[Answered]]] = {}
    for name in (IMITATION, *ARMS):
        runs = (RunDirectory(plan.keep / "test" / f"{name}-{n}") for n in range(plan.sizes.seeds))
        arms[name] = [rows for run in runs if (rows := answered(run, plan.test()))]
    told: dict[str, Value] = {"questions": len(plan.test()), "seeds": plan.sizes.seeds}
    for name in ARMS:
        outs = [plan.out(name, seed) for seed in range(plan.sizes.seeds)]
        rewards = [found for out in outs if (found := held_out_rewards(out))]
        told[f"{name}_rollouts"], told[f"{name}_sampled_tokens"] = sampled_in(outs)
        told[f"{name}_held_out_reward_best"] = (
            round(statistics.fmean(map(max, rewards)), 3) if rewards else None
        )
    return told | dev_values(arms)


def dev_values(arms: Arms) -> dict[str, Value]:
    told: dict[str, Value] = {}
    for name, seeds in arms.items():
        for figure in FIGURES:
            for kind in ("", *sorted({row.type for rows in seeds for row in rows})):
                label = "_".join(filter(None, (name, kind, figure)))
                told |= _interval(label, by_question(seeds, figure, kind).values())
    for first, other in PAIRS:
        for figure in FIGURES:
            ours, theirs = (by_question(arms.get(arm, ()), figure) for arm in (first, other))
            gaps = [ours[q] - theirs[q] for q in ours if q in theirs]
            told |= _interval(f"{figure}_{first}_{other}", gaps)
    return told


def by_question(
    seeds: Iterable[Sequence[Answered]], figure: str, kind: str = ""
) -> dict[str, float]:
    """The mean over the seeds, of the questions that have the figure."""
    found: dict[str, list[float]] = {}
    for row in (row for rows in seeds for row in rows if kind in ("", row.type)):
        if (value := getattr(row, figure)) is not None:
            found.setdefault(row.id, []).append(value)
    return {question: statistics.fmean(values) for question, values in found.items()}


def sampled_in(outs: Iterable[Path]) -> tuple[int, int]:
    """Rollouts, or branches, of an arm's rounds and the tokens written for them."""
    runs = [RunDirectory(path) for out in outs for path in sorted((out / "rounds").glob("[0-9]*"))]
    usage = [t.usage.completion_tokens for run in runs if run.exists for t in run.trajectories()]
    return len(usage), sum(usage)


def draw_arms(plan: HopsPlan, path: Path) -> None:
    """An SVG: the held-out reward of all arms by round, and what the rounds did to the policy."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "learns"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 1 + len(SHOWN), figsize=(13, 3.8))
    for name in ARMS:
        outs = [plan.out(name, seed) for seed in range(plan.sizes.seeds)]
        rewards = mean_curve([held_out_rewards(out) for out in outs])
        places = [min(n * plan.sizes.every, plan.sizes.rounds) for n in range(len(rewards))]
        axes[0].plot(places, rewards, marker="o", label=name)
        for axis, metric in zip(axes[1:], SHOWN, strict=True):
            curve = mean_curve([_metric(out, metric) for out in outs])
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


def _interval(name: str, values: Iterable[float]) -> dict[str, Value]:
    known = list(values)
    if not known:
        return {name: None}
    low, high = bootstrap_mean(known)
    mean = statistics.fmean(known)
    return {name: round(mean, 3), f"{name}_low": round(low, 3), f"{name}_high": round(high, 3)}
