"""The work on one group: its rollouts, their judgement, the reflections on one of them.

Each finished part is on disk before the next begins: rollouts in their own folders, a judgement
and the reflections as files of their step. What was done before is read back and not done again.
Trajectories are in memory only while a rollout goes on and while its group is judged.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.journaled import Calls
from judge.rubrics.llm_client import asking_through
from judge.stage_judge import GroupJudgement
from memory.buffers import BufferStore
from memory.errors import RubricemError
from memory.schema import NO_USAGE, Status, Trajectory, TrajectoryGroup
from training.flow import Flow
from training.groups import (
    Group,
    GroupJudge,
    Milestone,
    Reflected,
    Reflecting,
    Rollout,
    Rollouts,
    judged_part,
    means,
    reflected_part,
    rollout_of,
    rollout_seed,
    thread_of,
)
from training.meter import usage_of
from training.rubric_calls import RubricCalls
from training.run_directory import Question, RunDirectory
from training.scaffolding import Scaffold


@dataclass
class GroupWork:
    """What the groups of a run are made with; what is None is not done."""

    run: RunDirectory
    rollouts: Rollouts
    calls: Calls
    buffers: BufferStore
    flow: Flow
    seed: int
    judge: GroupJudge | None = None
    reflecting: Reflecting | None = None
    tell: Callable[[str], None] = lambda line: None
    reached: Callable[[Milestone, str], None] = lambda milestone, group: None

    async def ended(self, group: str, members: int) -> list[Rollout | None]:
        """The rollouts that ended before; one that failed goes on from its journal."""
        threads = [thread_of(group, member) for member in range(members)]
        return await asyncio.to_thread(lambda: [self._ended(thread) for thread in threads])

    async def rollout(
        self, group: str, question: Question, member: int, scaffold: Scaffold
    ) -> Rollout:
        """One rollout to its end."""
        thread = thread_of(group, member)
        ask = replace(
            self.rollouts.template,
            question=question.question,
            seed=rollout_seed(self.seed, group, member),
            scaffold=scaffold.text,
            criteria_shown=scaffold.shown,
        )
        with self.flow.rollout():
            trajectory = await self.rollouts.ask(ask, thread)
        self.tell(f"{thread}: {trajectory.status}, {trajectory.tool_calls} searches"
                  f"{f' ({trajectory.reason})' if trajectory.reason else ''}")  # fmt: skip
        return rollout_of(trajectory)

    async def finish(self, step: int, group: Group) -> Group:
        """Judge a group and reflect on one of its members."""
        if not group.members:
            self.reached("judged", group.name)
            return group
        judged = self.run.part(step, judged_part(group.name), GroupJudgement)
        reflected = self.run.part(step, reflected_part(group.name), Reflected)
        wants = (judged is None and self.judge is not None) or (
            reflected is None and self.reflecting is not None
        )
        runs = await asyncio.to_thread(self._trajectories, group) if wants else None
        if runs and self.judge is not None and judged is None:
            judged = await self._judged(step, group, runs, self.judge)
        self.reached("judged", group.name)
        if runs and self.reflecting is not None and reflected is None:
            reflected = await self._reflected(step, group, runs, judged, self.reflecting)
        return _with(group, judged, reflected)

    def _ended(self, thread: str) -> Rollout | None:
        if not self.run.store.ended(thread):
            return None
        trajectory = self.run.store.load(thread)
        return None if trajectory.status is Status.FAILED else rollout_of(trajectory)

    def _trajectories(self, group: Group) -> TrajectoryGroup:
        runs = tuple(self.run.store.load(rollout.thread) for rollout in group.members)
        return TrajectoryGroup(
            question=group.question.question, trajectories=runs, failures=group.failures
        )

    async def _judged(
        self, step: int, group: Group, runs: TrajectoryGroup, judge: GroupJudge
    ) -> GroupJudgement:
        part = judged_part(group.name)
        buffer = await asyncio.to_thread(self.buffers.load, runs.question)
        began = time.monotonic()
        with self.calls.scope(part), asking_through(RubricCalls(self.flow).once):
            judged = await judge.judge(runs, buffer, step)
        noted = {"version_before": buffer.version, "seconds": time.monotonic() - began}
        judged = judged.model_copy(update=noted)
        await asyncio.to_thread(self.run.save_part, step, part, judged)
        self.calls.forget(part)
        self.tell(f"{group.name}: judged, {means(judged)}")
        return judged

    async def _reflected(
        self,
        step: int,
        group: Group,
        runs: TrajectoryGroup,
        judged: GroupJudgement | None,
        reflecting: Reflecting,
    ) -> Reflected:
        """Reflect on one trajectory, drawn whatever its score and length."""
        part = reflected_part(group.name)
        draw = random.Random(f"{self.seed}:{part}")
        run: Trajectory = draw.choice(runs.trajectories)
        scored = judged.judgements if judged else ()
        judgement = next((j for j in scored if j.trajectory_id == run.id), None)
        with self.calls.scope(part):
            try:
                reflected = await reflecting(run, judgement, draw.randrange(2**32))
            except RubricemError as error:
                reflected = Reflected(trajectory_id=run.id, notes=(f"{error}",))
        spent = sum(map(usage_of, self.flow.journal.held(part).values()), NO_USAGE)
        reflected = reflected.model_copy(update={"usage": spent})
        await asyncio.to_thread(self.run.save_part, step, part, reflected)
        self.calls.forget(part)
        kept = "one accepted" if reflected.reflection else "none accepted"
        self.tell(f"{group.name}: {len(reflected.candidates)} reflections, {kept}")
        return reflected


def _with(group: Group, judged: GroupJudgement | None, reflected: Reflected | None) -> Group:
    """The group with what its record says of both."""
    notes = (*(judged.notes if judged else ()), *(reflected.notes if reflected else ()))
    version = judged.judgements[0].rubric_version if judged else ""
    run = reflected.trajectory_id if reflected else ""
    return replace(group, rubric_version=version, reflected=run, notes=notes)
