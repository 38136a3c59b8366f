"""One thin line through every room: warm up, collect, judge, reflect, train, and ask again.

What the loop does and how large: questions, sizes and seeds, kept with its results.

The loop from beginning to end: every step once, in order, and the page that tells of it.

The loop's steps, each done once: its result is kept, and a step that has one is not repeated.

LOOP/plan.json             what the loop does; another plan needs another folder
LOOP/steps/NAME.json       the result of a finished step, with the seconds it took
LOOP/NAME/                 what the step works in; it resumes there if it was interrupted

The loop's results as one self-contained page: no script, nothing loaded, all text escaped.

The work of each step of the loop, through the same parts that the commands use.

Each function works in the folder it is given and returns what the page tells of it. Interrupted,
it goes on where it was: runs and training resume in their own folders.
"""

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined
from pydantic import Field

from rubricem.agent.reports.report import markdown
from rubricem.agent.research.scaffold import rejected, rounds, turn_faults
from rubricem.agent.research.setup import open_bank, open_researcher
from rubricem.agent.settings import Settings, load_settings
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import RunStore, write_atomically
from rubricem.memory.schema import Judgement, ReflectionCandidate, Stage, Status, Trajectory, Value
from rubricem.training.collect.directory import GroupRecord, Question, RunDirectory
from rubricem.training.collect.questions import Selected
from rubricem.training.collect.setup import CollectOptions, open_collector
from rubricem.training.local.local_config import TrainConfig
from rubricem.training.rounds.fit import Trained, train
from rubricem.training.rows.compile import Compiled
from rubricem.training.rows.credit import SS_GRPO
from rubricem.training.rows.forms import compiled_run, write_rows

Use = Literal["imitate", "measure", "collect", "ask"]


class LoopQuestion(Value):
    """A question, and what the loop uses it for.

    No question has two uses, but one may be collected twice: the second group sees the rubrics
    that the first one led to, and recalls its reflection.
    """

    question: str
    use: Use


class LoopPlan(Value):
    """Everything that shapes a loop's result."""

    model: str = "0.5b"
    judge: str = "0.5b"
    """the judge's model; never the adapter in training, which it would then score itself"""
    judge_base_url: str | None = None
    """None: the judge is embedded, too"""
    source: tuple[str, ...] = ("python",)
    questions: tuple[LoopQuestion, ...]
    group_size: int = Field(default=4, ge=2)
    tool_calls: int = Field(default=2, ge=1)
    """searches a free rollout may make; rows grow with it, and so does the time to train"""
    max_tokens: int = Field(default=700, ge=16)
    """tokens of one turn"""
    candidates: int = Field(default=3, ge=1)
    """reflections written for each judged group"""
    least_reflection_score: float = Field(default=0.0, ge=0, le=1)
    """0 is the paper's rule, the best of valid form: a small judge's scores lie near 0.35 anyway"""
    imitation_epochs: int = Field(default=2, ge=1)
    imitation_rate: float = Field(default=2e-4, gt=0)
    policy_rate: float = Field(default=5e-5, gt=0)
    seed: int = Field(default=0, ge=0)

    def used_for(self, use: Use) -> tuple[str, ...]:
        """The questions of one use, in order."""
        return tuple(q.question for q in self.questions if q.use == use)


def default_plan() -> LoopPlan:
    """The loop of `make loop`: the embedded 0.5B on the installed libraries' documentation."""
    text = (files("rubricem.training.loop") / "questions.jsonl").read_text(encoding="utf-8")
    questions = [LoopQuestion(**json.loads(line)) for line in text.splitlines()]
    return LoopPlan(questions=tuple(questions))


Result = dict[str, Any]
Tell = Callable[[str], None]


class Steps:
    """The finished steps of one loop's folder."""

    def __init__(self, folder: Path, plan: LoopPlan, tell: Tell) -> None:
        self.folder = folder
        self.plan = plan
        self.tell = tell
        written = plan.model_dump_json(indent=1)
        path = folder / "plan.json"
        if not path.exists():
            write_atomically(path, written)
        elif LoopPlan.model_validate_json(path.read_text(encoding="utf-8")) != plan:
            raise SettingsError(
                f"{folder} holds a loop of another plan.", "Name another folder with --out."
            )

    def result(self, name: str) -> Result | None:
        """What a finished step found, or None."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found: Result = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read: {error}", "Remove it, and the step is done again."
            ) from error
        return found

    async def once(self, name: str, step: Callable[[Path], Awaitable[Result]]) -> Result:
        """The step's result; it is run, in a folder of its own, only if there is none yet."""
        if (found := self.result(name)) is not None:
            self.tell(f"{name}: done before")
            return found
        self.tell(f"{name}: begins")
        began = time.monotonic()
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        result = await step(folder)
        # Of an interrupted step only the last stretch is counted, and the page says so.
        result = {**result, "seconds": round(time.monotonic() - began, 1)}
        write_atomically(self._path(name), json.dumps(result, ensure_ascii=False, indent=1))
        self.tell(f"{name}: done in {result['seconds']:.0f} s")
        return result

    def _path(self, name: str) -> Path:
        return self.folder / "steps" / f"{name}.json"


StoryResult = Mapping[str, Any]
MEASURES = (
    "rows",
    "tokens",
    "loss",
    "advantage_size",
    "sampler_gap",
    "importance_truncated",
    "grad_norm",
)
"""of each policy-gradient step, by the names of `metrics.jsonl`"""
WIDTH, HEIGHT, TOP = 600, 145, 24


def write_story(folder: Path, plan: LoopPlan, results: Mapping[str, StoryResult]) -> Path:
    """Write `story.html` into the loop's folder."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"minutes": minutes, "points": points}
    template = (files("rubricem.training.loop") / "story.html").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        plan=plan,
        stages=[stage.value for stage in Stage],
        measures=MEASURES,
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        seconds=sum(result["seconds"] for result in results.values()),
        pairs=list(zip(results["before"]["runs"], results["after"]["runs"], strict=True)),
        checkpoint=os.path.relpath(results["train"]["checkpoint"], folder.parent),
        share=share,
        **results,
    )
    path = folder / "story.html"
    write_atomically(path, page)
    return path


def share(measured: StoryResult) -> str:
    """How many of the measured free runs the rejection rules accept."""
    return f"{sum(run['fit'] for run in measured['runs'])} of {len(measured['runs'])}"


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def points(values: Sequence[float]) -> str:
    """A line through the values, scaled to the picture."""
    low, high = min(values), max(values)
    scale = (HEIGHT - TOP) / (high - low or 1.0)
    step = WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{i * step:.1f},{HEIGHT - (v - low) * scale:.1f}" for i, v in enumerate(values)
    )


ASKED_TRIES = 3
"""of a turn when the question is asked at the end; collecting tries once"""


@dataclass(frozen=True, slots=True)
class Loop:
    """What every step needs to know."""

    plan: LoopPlan
    data_dir: Path
    """the loop's own bank and rubrics, apart from the user's"""
    tell: Tell

    def settings(self, model: str, **choices: Any) -> Settings:
        """The settings of one collecting run or answer."""
        plan = self.plan
        return load_settings(
            {
                "model": model,
                "source": plan.source,
                "tool_calls": plan.tool_calls,
                "max_tokens": plan.max_tokens,
                "seed": plan.seed,
                "data_dir": self.data_dir,
                "temperature": 1.0,
                **choices,
            }
        )

    async def trace(self, folder: Path) -> Result:
        """Forced traces of the questions to imitate."""
        settings = self.settings(self.plan.model, decoding="forced", memory="off")
        run = await self._collected(folder, settings, "imitate", _ROLLOUTS_ONLY)
        reasons = [rejected(trajectory) for trajectory in run.trajectories()]
        broken = Counter(reason.rule.value for reason in reasons if reason)
        return {
            "asked": len(reasons),
            "accepted": sum(reason is None for reason in reasons),
            "rejected": dict(broken),
        }

    async def measure(self, folder: Path, model: str) -> Result:
        """How often free runs of a model keep to the scaffold."""
        settings = self.settings(model, decoding="free", memory="off", attempts=1)
        run = await self._collected(folder, settings, "measure", _ROLLOUTS_ONLY)
        runs = list(_measured(run))
        return {
            "runs": runs,
            "turns": sum(found["turns"] for found in runs),
            "sound_turns": sum(found["sound_turns"] for found in runs),
        }

    async def warm(self, folder: Path, traces: Path) -> Result:
        """Imitation of the accepted traces."""
        plan = self.plan
        compiled = await self._rows(folder, traces)
        config = self._training(
            folder, learning_rate=plan.imitation_rate, epochs=plan.imitation_epochs, batch=4
        )
        trained = await train(config, "sft", self.tell)
        losses = [step["loss"] for step in trained.steps]
        return {**_told(compiled, trained), "losses": losses}

    async def collect(self, folder: Path, model: str) -> Result:
        """Groups of free rollouts, judged and reflected upon, with the bank and the rubrics."""
        plan = self.plan
        settings = self.settings(
            model,
            decoding="free",
            memory="on",
            attempts=1,
            least_reflection_score=plan.least_reflection_score,
        )
        options = CollectOptions(
            group_size=plan.group_size,
            step_size=1,
            judge_model=plan.judge,
            judge_base_url=plan.judge_base_url,
            reflections=plan.candidates,
        )
        run = await self._collected(folder, settings, "collect", options)
        trajectories = {trajectory.id: trajectory for trajectory in run.trajectories()}
        judgements = {judgement.trajectory_id: judgement for judgement in run.judgements()}
        groups = list(run.groups())
        reflections = list(run.reflections())
        return {
            "rollouts": len(trajectories),
            "groups": [_group(run, g, trajectories, judgements) for g in groups],
            "reflections": [_reflected(g, reflections) for g in groups],
            "bank": len(await open_bank(settings).items()),
        }

    async def improve(self, folder: Path, collected: Path, start: Path) -> Result:
        """Policy-gradient steps on the collected rows, one for each group."""
        compiled = await self._rows(folder, collected)
        if not compiled.rows:
            # Where no stage of any group differs there is nothing to learn, and that is told.
            return {**_told(compiled), "checkpoint": str(start), "canary": None, "steps": []}
        config = self._training(
            folder, learning_rate=self.plan.policy_rate, batch=1, start_adapter=start
        )
        trained = await train(config, "ss-grpo", self.tell, rule=SS_GRPO)
        return {**_told(compiled, trained), "steps": list(trained.steps)}

    async def ask(self, folder: Path, model: str) -> Result:
        """A similar question: of the untrained model, and of the trained one with its memory."""
        (question,) = self.plan.used_for("ask")
        base = await self._answered(folder, "base", question, self.plan.model, "off")
        trained = await self._answered(folder, "trained", question, model, "read-only")
        bank = open_bank(self.settings(model))
        recalled = [item for i in trained.recalled for item in await bank.find(i)]
        return {
            "question": question,
            "recalled": [item.model_dump(mode="json") for item in recalled],
            "base": {"status": base.status, "report": _report(base)},
            "trained": {"status": trained.status, "report": _report(trained)},
        }

    async def _answered(
        self, folder: Path, thread: str, question: str, model: str, memory: str
    ) -> Trajectory:
        settings = self.settings(model, decoding="free", memory=memory, attempts=ASKED_TRIES)
        store = RunStore(folder)
        if store.ended(thread):
            return store.load(thread)
        async with open_researcher(settings) as opened:
            researcher = replace(opened, store=store, verifier=None)
            ask = replace(researcher.template, question=question)
            return await researcher.ask(ask, thread)

    async def _collected(
        self, folder: Path, settings: Settings, use: Use, options: CollectOptions
    ) -> RunDirectory:
        asked = self.plan.used_for(use)
        questions = [Question(id=str(i), question=question) for i, question in enumerate(asked)]
        run = RunDirectory(folder)
        if run.exists and run.finished_steps() == len(asked):
            return run
        chosen = Selected(tuple(questions))
        async with open_collector(settings, options, run, chosen, self.tell) as collector:
            await collector.collect()
        return run

    async def _rows(self, folder: Path, collected: Path) -> Compiled:
        compiled = await compiled_run(collected, model=self.plan.model)
        write_rows(folder / "rows.jsonl", compiled.rows)
        return compiled

    def _training(self, folder: Path, **choices: Any) -> TrainConfig:
        return TrainConfig(
            out=folder / "training",
            rows=(folder / "rows.jsonl",),
            model=self.plan.model,
            seed=self.plan.seed,
            **choices,
        )


_ROLLOUTS_ONLY = CollectOptions(group_size=1, step_size=1, judge="none", reflections=0)


def _measured(run: RunDirectory) -> Iterator[Result]:
    """One entry for each question, in order; a rollout that failed has no sound turn."""
    trajectories = {trajectory.id: trajectory for trajectory in run.trajectories()}
    for group in run.groups():
        for reason in group.failures:
            yield _outcome(group.question, f"failed: {reason}", fit=False, turns=0, sound=0)
        for trajectory in (trajectories[name] for name in group.trajectories):
            broken = rejected(trajectory)
            turns = [document.text for document in rounds(trajectory)]
            sound = sum(not turn_faults(text, i) for i, text in enumerate(turns, start=1))
            fit = broken is None and trajectory.status is Status.FINISHED
            outcome = broken.sentence if broken else trajectory.reason or "fit to imitate"
            yield _outcome(group.question, outcome, fit=fit, turns=len(turns), sound=sound)


def _outcome(question: str, outcome: str, *, fit: bool, turns: int, sound: int) -> Result:
    return {
        "question": question,
        "outcome": outcome,
        "fit": fit,
        "turns": turns,
        "sound_turns": sound,
    }


def _told(compiled: Compiled, trained: Trained | None = None) -> Result:
    """Rows and, where there was something to train on, the checkpoint and its canary."""
    told = {
        "rows": len(compiled.rows),
        "trained_tokens": sum(sum(row.loss_mask) for row in compiled.rows),
        "dropped": dict(compiled.dropped),
    }
    if trained is None:
        return told
    return {
        **told,
        "dropped": {**compiled.dropped, **trained.dropped},
        "checkpoint": str(trained.checkpoint),
        "canary": trained.canary and trained.canary.as_dict(),
    }


def _group(
    run: RunDirectory,
    group: GroupRecord,
    trajectories: dict[str, Trajectory],
    judgements: dict[str, Judgement],
) -> Result:
    """A group with its scores, and what its step changed in the question's rubrics."""
    judged = run.part(group.step, f"{group.id}-judged", GroupJudgement)
    history = judged.buffer.history if judged else ()
    changes = [change for change in history if change.step == group.step]
    return {
        "step": group.step + 1,
        "question": group.question,
        "failures": list(group.failures),
        "recalled": list(group.recalled),
        "notes": list(group.notes),
        "trajectories": [
            {
                "status": trajectories[name].status,
                "reason": trajectories[name].reason,
                "scores": [judgements[name].score(stage) for stage in Stage],
            }
            for name in group.trajectories
        ],
        **{
            kind: [
                {
                    "stage": change.stage,
                    "title": change.criterion.title,
                    "description": change.criterion.description,
                    "reason": change.reason,
                }
                for change in changes
                if (change.kind == "retired") == (kind == "retired")
            ]
            for kind in ("added", "retired")
        },
    }


def _reflected(group: GroupRecord, candidates: Sequence[ReflectionCandidate]) -> Result:
    own = [c for c in candidates if c.trajectory_id == group.reflected]
    best = max(own, key=lambda c: (c.accepted, c.score.total if c.score else -1.0), default=None)
    return {
        "question": group.question,
        "candidates": len(own),
        "valid": sum(not candidate.fault for candidate in own),
        "score": best.score.total if best and best.score else None,
        "accepted": bool(best and best.accepted),
        "takeaways": best.takeaways if best else "",
    }


def _report(trajectory: Trajectory) -> str:
    return markdown(trajectory) if trajectory.status is not Status.FAILED else trajectory.reason


async def run_loop(folder: Path, plan: LoopPlan, tell: Tell) -> Path:
    """Do what is not done yet; returns the page. The same call goes on after an interruption."""
    folder = folder.absolute()
    steps = Steps(folder, plan, tell)
    loop = Loop(plan, folder / "data", tell)
    results: dict[str, Result] = {}
    results["trace"] = await steps.once("trace", loop.trace)
    results["before"] = await steps.once("before", lambda at: loop.measure(at, plan.model))
    results["warm"] = await steps.once("warm", lambda at: loop.warm(at, folder / "trace"))
    warm = results["warm"]["checkpoint"]
    results["after"] = await steps.once("after", lambda at: loop.measure(at, warm))
    results["collect"] = await steps.once("collect", lambda at: loop.collect(at, warm))
    results["train"] = await steps.once(
        "train", lambda at: loop.improve(at, folder / "collect", Path(warm))
    )
    trained = results["train"]["checkpoint"]
    results["ask"] = await steps.once("ask", lambda at: loop.ask(at, trained))
    return write_story(folder, plan, results)
