"""The benchmark's phases: each does what is left of it, and can be ended at any moment.

traces      the teacher's forced traces of the training questions, until enough are accepted
before      the held-out questions, asked of the untrained model
sft         imitation of the accepted traces
rounds      rounds of the policy's own rollouts; the held-out questions are asked before the
first (which is after the imitation), between them and after the last
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.learns.plan import Plan
from rubricem.agent.settings import load_settings
from rubricem.memory.errors import SettingsError
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.gate import RunStopped
from rubricem.training.collect.questions import Selected, select_questions
from rubricem.training.collect.setup import CollectOptions, open_collector
from rubricem.training.local.local_config import EngineConfig, TrainConfig
from rubricem.training.rounds.fit import train
from rubricem.training.rounds.rollouts import Sampled
from rubricem.training.rounds.rounds import run_rounds
from rubricem.training.rounds.rounds_config import RoundsConfig, build_job
from rubricem.training.rounds.update import RoundFolders
from rubricem.training.rows.compile import demonstrate

BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Phases:
    """What each phase needs; `stop`, once set, ends it when the calls in flight are kept."""

    plan: Plan
    tell: Callable[[str], None]
    stop: asyncio.Event

    def all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """By name, in the order in which they are done."""
        return {"traces": self.traces, BEFORE: self.before, "sft": self.sft, "rounds": self.rounds}

    async def traces(self, teacher: str | None = None) -> None:
        """`teacher`: the address of a server that writes them; None: forced traces of a model."""
        plan, run = self.plan, RunDirectory(self.plan.keep / "traces")
        if accepted(run) >= plan.sizes.traces:
            return
        settings = load_settings({**plan.tracing(), "base_url": teacher})
        taught = teacher is not None
        options = CollectOptions(
            group_size=1, step_size=1, judge="none", reflections=0, taught=taught, **plan.shape()
        )
        # Of this phase alone: those after it go on where enough are accepted.
        end = asyncio.Event()

        def tell(line: str) -> None:
            self.tell(line)
            if line.endswith("is kept") and accepted(run) >= plan.sizes.traces:
                end.set()

        async def end_with_all() -> None:
            await self.stop.wait()
            end.set()

        chosen = Selected(plan.training())
        stopping = asyncio.create_task(end_with_all())
        try:
            async with open_collector(settings, options, run, chosen, tell) as collector:
                await collector.collect(end)
        except RunStopped:
            if accepted(run) < plan.sizes.traces:
                raise
        finally:
            stopping.cancel()

    async def before(self) -> None:
        config, rounds = self._rounds()
        folders = RoundFolders(config.out, config.out / "data")
        run = RunDirectory(config.out / "held_out" / BEFORE)
        asked = select_questions(rounds.held_out or "")
        if run.exists and run.finished_steps():
            return
        sampled = Sampled(rounds, config, load_settings(), folders, self.tell)
        async with sampled.open_held_out(run, asked, None) as collector:
            await collector.collect(self.stop)

    async def sft(self) -> None:
        found = accepted(RunDirectory(self.plan.keep / "traces"))
        if found < self.plan.sizes.traces:
            raise SettingsError(
                f"{found} traces are accepted, and {self.plan.sizes.traces} are wanted.",
                "Collect the rest first: --only traces.",
            )
        job = build_job(self.plan.sft(), self.plan.keep, "sft")
        assert isinstance(job.config, TrainConfig)
        config = await job.with_rows("sft", self.tell)
        await train(config, "sft", self.tell, load_settings().weights_dir, stop=self.stop)

    async def rounds(self) -> None:
        job = build_job(self.plan.rounds(), self.plan.keep, "ss-grpo")
        assert job.rounds is not None
        settings = load_settings()
        await run_rounds(job.config, job.rounds, job.rule, settings, self.tell, stop=self.stop)

    def _rounds(self) -> tuple[EngineConfig, RoundsConfig]:
        job = build_job(self.plan.rounds(), self.plan.keep, "ss-grpo")
        assert job.rounds is not None
        return job.config, job.rounds


def accepted(run: RunDirectory) -> int:
    """Traces of the finished steps that imitation takes."""
    if not run.exists:
        return 0
    return sum(not isinstance(demonstrate(trace), str) for trace in run.trajectories())
