"""`learns`: whether credit by stage beats credit by the answer, at equal rollouts.

Each arm goes on from the same imitated checkpoint of a small model, under the same seeds, questions
and number of rollouts; `benchmarks/learns/recipe` is what is asked, scored and configured:

imitation   of a teacher that is code and knows the facts (`facts.py`), and nothing after it
answer      GRPO on the answer's reward alone
sum         the sum of the stage rewards, the same for every token: dense, without credit
stages      SS-GRPO: each stage by its own reward and those of later ones (dependence matrix)

Replicates. One is all of that under one seed: the imitation too, all arms, and what they answered.
It takes some hours of two cores, goes on where it was ended, and leaves a file of its own in
`benchmarks/results/learns_hops`, to be committed; its folder need not outlive it. Further ones add
seeds, and are read together. So the experiment grows from sitting to sitting.

Held-out questions of the train split are asked of each arm at every so many rounds. The dev split
is asked of the imitation and of each arm at its end: evidence recall (primary), F1, share of valid
answers, of refusals, searches, by type.
"""

import asyncio
import json
import random
import shutil
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hops import corpus, questions_of, rows_of
from benchmarks.learns.facts import FactsTeacher
from benchmarks.learns.replicates import ARMS, IMITATION, ArmCourse, Replicate, answered, askings_of
from benchmarks.loopback import MODEL, Loopback
from rubricem.agent.evaluate.questions import EvalQuestion
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import AnswerFormat
from rubricem.training.collect.collect_config import CollectConfig
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import RunStopped
from rubricem.training.collect.questions import Question, Selected
from rubricem.training.collect.setup import open_collector
from rubricem.training.local.checkpoints import TrainingFolder
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.rounds.fit import train
from rubricem.training.rounds.rollouts import NUMBERS, RoundCollectors
from rubricem.training.rounds.rounds import run_rounds
from rubricem.training.rounds.rounds_config import TrainingJob, build_job
from rubricem.training.rounds.update import RoundFolders
from rubricem.training.rows.compile import demonstrate

RECIPE = Path(__file__).parent / "recipe"
NAMES = ("traces", "sft", "before", "arms", "test")
TRACE_TOKENS = 700
CREDITS = {"answer": "answer-only", "sum": "sum", "stages": "ss-grpo"}
"""name -> its credit"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; `held_out` and `questions` are of the train split."""

    traces: int = 128
    """accepted ones that imitation needs"""
    questions: int = 380
    rounds: int = 12
    """with 4 x 8 rollouts each that is 384 an arm"""
    per_round: int = 4
    group: int = 8
    held_out: int = 24
    every: int = 3
    """rounds between two askings of the held-out questions"""
    test: int | None = None
    """questions of the dev split; None: all"""
    distractors: int | None = None
    """passages that hold no evidence; None: the whole corpus"""


QUICK = Sizes(
    traces=1, questions=2, rounds=1, per_round=1, group=2, held_out=1, every=1, test=1,
    distractors=50,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """One replicate, in a folder that it goes on with; the folder above has the documents."""

    keep: Path
    sizes: Sizes = Sizes()
    model: str = "0.5b"
    replicate: int = 0
    """its number, which is its seed"""
    arms: tuple[str, ...] = ARMS
    recipe: Path = RECIPE
    """the folder of `sft.toml` and `rounds.toml`"""

    @property
    def documents(self) -> Path:
        return self.keep.parent / "documents"

    def training(self) -> tuple[Question, ...]:
        return self._train_split()[self.sizes.held_out :][: self.sizes.questions]

    def held_out(self) -> tuple[Question, ...]:
        return self._train_split()[: self.sizes.held_out]

    def test(self) -> tuple[EvalQuestion, ...]:
        return questions_of("dev", self.sizes.test).questions

    def _recipe(self, name: str) -> dict[str, Any]:
        """Read as our own: a file of others would not be let run the judge that it names."""
        return tomllib.loads((self.recipe / f"{name}.toml").read_text(encoding="utf-8"))

    def tracing(self) -> dict[str, Any]:
        """The settings that the teacher's traces are collected under."""
        shown = self._recipe("rounds")["rounds"]
        told = {"tool_calls": shown["tool_calls"]}
        told |= {"model": MODEL, "decoding": "free", "source": [str(self.documents)]}
        return told | {"memory": "off", "max_tokens": TRACE_TOKENS, "data_dir": self.keep / "data"}

    def shape(self) -> dict[str, Any]:
        """How much the policy is shown."""
        shown = self._recipe("rounds")["rounds"]
        return {n: shown[n] for n in ("system_prompt", "passages", "passage_words")}

    def sft(self) -> dict[str, Any]:
        folders = {"out": str(self.keep / "sft"), "rows": [str(self.keep / "traces")]}
        own = {"model": self.model, "seed": self.replicate}
        return {**self._recipe("sft"), **folders, **own}

    def arm(self, name: str, rounds: int) -> TrainingJob:
        """An arm's configuration up to so many rounds."""
        values, sizes = self._recipe("rounds"), self.sizes
        table = {
            **values.pop("rounds"),
            "questions": str(self.keep / "questions.jsonl"),
            "held_out": str(self.keep / "held_out.jsonl"),
            "held_out_every": sizes.every,
            "rounds": rounds,
            "questions_per_round": sizes.per_round,
            "group_size": sizes.group,
            "source": [str(self.documents)],
        }
        return build_job(
            {
                **values,
                "out": str(self.out(name)),
                "model": self.model,
                "start_adapter": str(TrainingFolder(self.keep / "sft").newest),
                "credit": CREDITS[name],
                "seed": self.replicate,
                "rounds": table,
            },
            self.keep,
            "ss-grpo",
        )

    def out(self, name: str) -> Path:
        return self.keep / "arms" / name

    def tested(self, name: str) -> RunDirectory:
        return RunDirectory(self.keep / "test" / name)

    def write(self) -> None:
        """The documents and the files of questions, once.

        Raises SettingsError where the folder was begun with other sizes, arms or configurations.
        """
        self._check_begun()
        for name, asked in (("questions", self.training()), ("held_out", self.held_out())):
            lines = "".join(q.model_dump_json() + "\n" for q in asked)
            write_atomically(self.keep / f"{name}.jsonl", lines)
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

    def told(self) -> dict[str, Any]:
        """What a replicate is made with, as it is kept."""
        recipe = {name: self._recipe(name) for name in ("sft", "rounds")}
        return {"model": self.model, "sizes": asdict(self.sizes), "recipe": recipe}

    def _check_begun(self) -> None:
        """Arms may be added: none sees another."""
        path, own = self.keep / "begun.json", {**self.told(), "arms": list(self.arms)}
        begun: dict[str, Any] = {**own, "arms": []}
        if path.exists():
            begun = json.loads(path.read_text(encoding="utf-8"))
        if set(begun["arms"]) < set(own["arms"]):
            begun["arms"] = own["arms"]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(begun, indent=1))
        if other := [name for name in own if begun.get(name) != own[name]]:
            raise SettingsError(
                f"{self.keep} was begun with other {' and '.join(other)}: see {path.name} there.",
                "Go on with the same, or begin a replicate of another number or folder.",
            )

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
class Phases:
    """traces, sft, before, arms, test: each does what is left of it, and can be ended at any time.

    `stop`, once set, ends a phase when the calls in flight are kept.
    """

    plan: Plan
    tell: Callable[[str], None]
    stop: asyncio.Event

    def all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """By name, in the order in which they are done."""
        self.plan.write()
        return {name: getattr(self, name) for name in NAMES}

    async def traces(self) -> None:
        """Traces of a teacher that knows the facts, until enough are accepted."""
        plan, run = self.plan, RunDirectory(self.plan.keep / "traces")
        if accepted(run) >= plan.sizes.traces:
            return
        facts = FactsTeacher.of(plan.training(), plan.tracing()["tool_calls"])
        server = await asyncio.start_server(Loopback(0, 1, reply=facts).serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await self._collect(run, f"http://127.0.0.1:{port}/v1")

    async def _collect(self, run: RunDirectory, teacher: str) -> None:
        plan, end = self.plan, asyncio.Event()
        settings = load_settings({**plan.tracing(), "base_url": teacher})
        told = {"group_size": 1, "step_size": 1, "judge": "none", "teacher": True, **plan.shape()}
        options = CollectConfig(questions="", out=run.folder, reflections=0, **told)

        def tell(line: str) -> None:
            self.tell(line)
            if accepted(run) >= plan.sizes.traces:
                end.set()  # of this phase alone

        async def end_with_all() -> None:
            await self.stop.wait()
            end.set()

        stopping = asyncio.create_task(end_with_all())
        chosen = Selected(plan.training())
        try:
            async with open_collector(settings, options, run, chosen, tell) as collector:
                await collector.collect(end)
        except RunStopped:
            if accepted(run) < plan.sizes.traces:
                raise
        finally:
            stopping.cancel()

    async def sft(self) -> None:
        """Imitation of the accepted traces."""
        found = accepted(RunDirectory(self.plan.keep / "traces"))
        if found < self.plan.sizes.traces:
            raise SettingsError(
                f"{found} traces are accepted, and {self.plan.sizes.traces} are wanted.",
                "Run the same command again, to collect the rest.",
            )
        job = build_job(self.plan.sft(), self.plan.keep, "sft")
        assert isinstance(job.config, TrainConfig)
        config = await job.with_rows("sft", self.tell)
        await train(config, "sft", self.tell, load_settings().weights_dir, stop=self.stop)

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
        asked = rounds_done(plan.out(name))
        job = plan.arm(name, min(asked + sizes.every, sizes.rounds))
        assert job.rounds is not None
        self.tell(f"{name}: rounds {asked + 1} to {job.rounds.rounds}")
        settings = load_settings()
        await run_rounds(job.config, job.rounds, job.rule, settings, self.tell, stop=self.stop)

    def _share_first_asking(self, name: str) -> None:
        """All arms begin with one checkpoint, which answers alike under one seed."""
        own, *others = (self.plan.out(n) / "held_out" / "000" for n in (name, *self.plan.arms))
        done = next((other for other in others if (other / NUMBERS).exists()), None)
        if done is not None and not own.exists():
            shutil.copytree(done, own)

    async def test(self) -> None:
        for name in self.plan.arms:
            newest = TrainingFolder(self.plan.out(name)).newest
            await self._ask(name, newest if newest.exists() else None)

    async def _ask(self, name: str, checkpoint: Path | None) -> None:
        """The dev questions; `checkpoint`: None is what all arms began with."""
        plan, run = self.plan, self.plan.tested(name)
        if run.exists and run.finished_steps():
            return
        asked = tuple(
            Question(id=q.id, question=q.question, answer_format=AnswerFormat.EXACT)
            for q in plan.test()
        )
        self.tell(f"{name}: {len(asked)} questions of the dev split")
        job = plan.arm("stages", plan.sizes.rounds)
        assert job.rounds is not None
        rounds = job.rounds.model_copy(update={"judge": "none"})
        folders = RoundFolders(plan.keep / "test", plan.keep / "data")
        collectors = RoundCollectors(rounds, job.config, load_settings(), folders, self.tell)
        start = checkpoint or TrainingFolder(plan.keep / "sft").newest
        async with collectors.open_held_out(run, Selected(asked), start) as collector:
            await collector.collect(self.stop)


def accepted(run: RunDirectory) -> int:
    """Traces of the finished steps that imitation takes."""
    if not run.exists:
        return 0
    return sum(not isinstance(demonstrate(trace), str) for trace in run.trajectories())


def rounds_done(out: Path) -> int:
    """The rounds of an arm after which its held-out questions were asked."""
    return max((asking.rounds for asking in askings_of(out)), default=0)


def due(plan: Plan) -> list[str]:
    """The arms whose rounds are not done, those with the fewest first.

    So they can be held against one another at equal rollouts wherever the experiment is stopped.
    """
    done = {name: rounds_done(plan.out(name)) for name in plan.arms}
    going = [name for name in plan.arms if done[name] < plan.sizes.rounds]
    return sorted(going, key=done.__getitem__)


def replicate_of(plan: Plan) -> Replicate:
    """What there is of it by now."""
    names = (IMITATION, *plan.arms)
    asked = {name: tuple(answered(plan.tested(name), plan.test())) for name in names}
    whole = all(len(asked[name]) == len(plan.test()) for name in names)
    return Replicate(
        replicate=plan.replicate,
        done=whole and not due(plan),
        arms={name: ArmCourse.of(plan.out(name)) for name in plan.arms},
        dev={name: rows for name, rows in asked.items() if rows},
        **plan.told(),
    )
