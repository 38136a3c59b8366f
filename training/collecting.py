"""Collecting: questions in steps, groups of rollouts, each judged and reflected upon.

A step is a batch of different questions. All its groups see one version of the rubrics and one
state of the bank; what they change is saved at the step's end, in the order of the questions,
so results do not depend on which group finished first (RubricEM, arXiv:2605.10899, appendix C
and D). Each finished part is on disk before the next begins: rollouts in their own folders and
the journal, a judged or reflected group as a file of its step.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agent.journaled import Calls
from agent.researcher import Researcher
from judge.stage_judge import GroupJudgement
from memory.buffers import BufferStore
from memory.errors import PolicyError, RubricemError, StoreError
from memory.schema import Status, Trajectory, TrajectoryGroup
from training.groups import (
    Group,
    GroupJudge,
    Memory,
    Reflected,
    Reflecting,
    Snapshot,
    means,
    record_of,
    rollout_seed,
    steps_of,
)
from training.run_directory import Question, RunDirectory
from training.scaffolded_groups import scaffolds
from training.scaffolding import Scaffold


@dataclass
class Collector:
    """Collects one run; what is None is not done."""

    run: RunDirectory
    researcher: Researcher
    calls: Calls
    buffers: BufferStore
    judge: GroupJudge | None = None
    reflecting: Reflecting | None = None
    memory: Memory | None = None
    at_once: int = 1
    """rollouts, groups being judged and reflections in progress at the same time"""
    tell: Callable[[str], None] = lambda line: None
    _places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.at_once)
        self._manifest = self.run.manifest()

    async def collect(self) -> None:
        """Do every step that is not committed yet.

        Raises PolicyError when a whole step brings no trajectory: nothing of it is committed.
        """
        steps = list(steps_of(self.run.questions(), self._manifest.step_size))
        for step in range(self.run.finished_steps(), len(steps)):
            await self._pin(step)
            groups = await self._groups(step, steps[step])
            groups = [await self._applied(group) for group in groups]
            await asyncio.to_thread(self._commit, step, groups)
            self.tell(f"step {step + 1} of {len(steps)} is kept")

    async def _pin(self, step: int) -> None:
        if self.memory is None:
            return
        snapshot = self.run.part(step, "snapshot", Snapshot)
        if snapshot is None:
            snapshot = Snapshot(generation=await self.memory.generation())
            self.run.save_part(step, "snapshot", snapshot)
        self.memory.pin(snapshot.generation)

    async def _groups(self, step: int, questions: Sequence[Question]) -> list[Group]:
        """All groups of a step, judged and reflected upon, in the order of the questions."""
        async with asyncio.TaskGroup() as tasks:
            begun = [
                tasks.create_task(self._group(step, number, question))
                for number, question in enumerate(questions)
            ]
        groups = [task.result() for task in begun]
        if not any(group.rollouts.trajectories for group in groups):
            reasons = [reason for group in groups for reason in group.rollouts.failures]
            raise PolicyError(
                f"No rollout of step {step} came to an end. The first failed thus: {reasons[0]}",
                "Mend that and run the same command again; what is finished is not repeated.",
            )
        return groups

    async def _group(self, step: int, number: int, question: Question) -> Group:
        name = f"s{step:03d}-q{number:03d}"
        shown = await scaffolds(self.run, self.buffers, step, name, question)
        async with asyncio.TaskGroup() as tasks:
            rollouts = [
                tasks.create_task(self._rollout(name, question, member, scaffold))
                for member, scaffold in enumerate(shown)
            ]
        ended = [task.result() for task in rollouts]
        group = TrajectoryGroup(
            question=question.question,
            trajectories=tuple(t for t in ended if t.status is not Status.FAILED),
            failures=tuple(t.reason for t in ended if t.status is Status.FAILED),
        )
        made = Group(name, question, group)
        if group.trajectories and self.judge is not None:
            made = replace(made, judged=await self._judged(step, made, self.judge))
        if group.trajectories and self.reflecting is not None:
            made = replace(made, reflected=await self._reflected(step, made, self.reflecting))
        return made

    async def _rollout(
        self, group: str, question: Question, member: int, scaffold: Scaffold
    ) -> Trajectory:
        """One rollout to its end; one that ended before is read back."""
        thread = f"{group}-r{member}"
        if (ended := await asyncio.to_thread(self._ended, thread)) is not None:
            return ended
        seed = rollout_seed(self._manifest.seed, group, member)
        ask = replace(
            self.researcher.template,
            question=question.question,
            seed=seed,
            scaffold=scaffold.text,
            criteria_shown=scaffold.shown,
        )
        async with self._places:
            trajectory = await self.researcher.ask(ask, thread)
        self.tell(f"{thread}: {trajectory.status}, {trajectory.tool_calls} searches"
                  f"{f' ({trajectory.reason})' if trajectory.reason else ''}")  # fmt: skip
        return trajectory

    def _ended(self, thread: str) -> Trajectory | None:
        """A rollout that failed is not ended: its journal lets it go on."""
        if not self.run.store.ended(thread):
            return None
        trajectory = self.run.store.load(thread)
        return None if trajectory.status is Status.FAILED else trajectory

    async def _judged(self, step: int, group: Group, judge: GroupJudge) -> GroupJudgement:
        part = f"{group.name}-judged"
        if (done := self.run.part(step, part, GroupJudgement)) is not None:
            return done
        async with self._places:
            buffer = await asyncio.to_thread(self.buffers.load, group.question.question)
            with self.calls.scope(part):
                judged = await judge.judge(group.rollouts, buffer, step)
        await asyncio.to_thread(self.run.save_part, step, part, judged)
        self.calls.forget(part)
        self.tell(f"{group.name}: judged, {means(judged)}")
        return judged

    async def _reflected(self, step: int, group: Group, reflecting: Reflecting) -> Reflected:
        """Reflect on one trajectory, drawn whatever its score and length."""
        part = f"{group.name}-reflected"
        if (done := self.run.part(step, part, Reflected)) is not None:
            return done
        draw = random.Random(f"{self._manifest.seed}:{part}")
        trajectory = draw.choice(group.rollouts.trajectories)
        judgement, seed = group.judgement(trajectory.id), draw.randrange(2**32)
        async with self._places:
            with self.calls.scope(part):
                try:
                    reflected = await reflecting(trajectory, judgement, seed)
                except RubricemError as error:
                    reflected = Reflected(trajectory_id=trajectory.id, notes=(f"{error}",))
        await asyncio.to_thread(self.run.save_part, step, part, reflected)
        self.calls.forget(part)
        kept = "one accepted" if reflected.reflection else "none accepted"
        self.tell(f"{group.name}: {len(reflected.candidates)} reflections, {kept}")
        return reflected

    async def _applied(self, group: Group) -> Group:
        """Save what a group changes; done again after a kill, it changes nothing more."""
        notes = [*(group.judged.notes if group.judged else ())]
        notes += group.reflected.notes if group.reflected else ()
        if group.judged is not None:
            try:
                await asyncio.to_thread(self.buffers.save, group.judged.buffer)
            except StoreError as error:
                # Somebody else judged this question meanwhile: theirs stand, the run goes on.
                notes.append(f"The rubrics were not saved: {error}")
        if self.memory is not None and group.reflected and group.reflected.reflection:
            await self.memory.put(group.reflected.reflection)
        return replace(group, notes=tuple(notes))

    def _commit(self, step: int, groups: Sequence[Group]) -> None:
        self.run.commit(
            step,
            {
                "trajectories": [t for group in groups for t in group.rollouts.trajectories],
                "groups": [record_of(step, group) for group in groups],
                "judgements": [j for g in groups if g.judged for j in g.judged.judgements],
                "reflections": [c for g in groups if g.reflected for c in g.reflected.candidates],
            },
        )
