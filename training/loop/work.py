"""The work of each step of the loop, through the same parts that the commands use.

Each function works in the folder it is given and returns what the page tells of it. Interrupted,
it goes on where it was: runs and training resume in their own folders.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.banking import open_bank
from agent.clients import open_researcher
from agent.rejection import rejected, rounds
from agent.reports.report import markdown
from agent.scaffold import turn_faults
from agent.settings import Settings, load_settings
from judge.stage_judge import GroupJudgement
from memory.runs import RunStore
from memory.schema import Judgement, ReflectionCandidate, Stage, Status, Trajectory
from training.compiling import Compiled
from training.exporting import write_rows
from training.local.config import TrainConfig
from training.local.training_run import Trained, train
from training.loop.plan import LoopPlan, Use
from training.loop.steps import Result, Tell
from training.opening import CollectOptions, open_collector
from training.questions_selecting import Selected
from training.row_rule import SS_GRPO
from training.run_directory import GroupRecord, Question, RunDirectory
from training.tokenising import compiled_run

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
