"""Collecting: questions in steps, groups of rollouts, each judged and reflected upon.

A step is a batch of different questions. All its groups see one version of the rubrics and one
state of the bank; what they change is saved at the step's end, in the order of the questions,
so results do not depend on which group finished first (RubricEM, arXiv:2605.10899, appendix C
and D). A group is judged as soon as its rollouts have ended, while others still go on. Of a
rollout nothing is begun before there is a place for it, and of a finished one only its name is
held: what is in memory does not grow with the step.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent.journaled import Calls
from judge.stage_judge import GroupJudgement
from memory.buffers import BufferStore
from memory.errors import PolicyError, StoreError
from memory.schema import Judgement, ReflectionCandidate
from training.curriculum import Batch, Curriculum
from training.flow import Flow, RunStopped
from training.group_work import GroupWork
from training.groups import (
    Group,
    GroupJudge,
    Memory,
    Milestone,
    Reflected,
    Reflecting,
    Rollout,
    Rollouts,
    Snapshot,
    group_name,
    judged_part,
    record_of,
    reflected_part,
)
from training.progress import Progress
from training.run_directory import Question, RunDirectory
from training.scaffolded_groups import scaffolds

TOLD_EVERY = 60.0
"""seconds between two lines of progress"""

SWEPT_EVERY = 50_000
"""objects made before the youngest are looked through for garbage; at Python's own 700, those of
hundreds of rollouts are looked through again and again, a tenth of all CPU time"""


@dataclass
class Collector:
    """Collects one run; what is None is not done."""

    run: RunDirectory
    rollouts: Rollouts
    calls: Calls
    buffers: BufferStore
    flow: Flow
    judge: GroupJudge | None = None
    reflecting: Reflecting | None = None
    memory: Memory | None = None
    at_once: int = 1
    """rollouts in progress at the same time"""
    judged_at_once: int | None = None
    """groups being judged and reflected upon at the same time; None: they take the places of
    rollouts, since one model in this process does both"""
    fresh: bool = False
    """its questions are those of a fresh batch, in a curriculum that the run does not know"""
    tell: Callable[[str], None] = lambda line: None
    reached: Callable[[Milestone, str], None] = lambda milestone, group: None
    """told of every group's milestones, also of those that were reached before a kill"""
    _places: asyncio.Semaphore = field(init=False)
    _judging: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.at_once)
        apart = self.judged_at_once
        self._judging = self._places if apart is None else asyncio.Semaphore(apart)
        self._manifest = self.run.manifest()

    async def collect(self, stop: asyncio.Event | None = None) -> None:
        """Do every step that is not committed yet.

        `stop`, once set, ends the run when the calls in flight are finished. Raises RunStopped
        where a person or the limit of money ended it, PolicyError where a server was away for
        too long or a whole step brought no trajectory; nothing of such a step is committed.
        """
        manifest = self._manifest
        self._work = GroupWork(
            self.run, self.rollouts, self.calls, self.buffers, self.flow,
            manifest.seed, self.judge, self.reflecting, self.tell, self.reached,
        )  # fmt: skip
        self._steps = Curriculum(self.run.questions(), manifest.step_size, manifest.windows)
        finished = self.run.finished_steps()
        sizes = [
            len(self._steps.batch(step).questions) * manifest.group_size
            for step in range(self._steps.steps)
        ]
        self._progress = Progress(sum(sizes), sum(sizes[:finished]), self.flow.meter)
        with _seldom_swept():
            async with _beside(self._telling(), self._stopping(stop)):
                for step in range(finished, self._steps.steps):
                    await self._step(step, self._steps.batch(step))
                    self.tell(f"step {step + 1} of {self._steps.steps} is kept")

    async def _step(self, step: int, batch: Batch) -> None:
        await self._pin(step, batch)
        groups = await self._groups(step, batch)
        if not any(group.members for group in groups):
            reasons = [reason for group in groups for reason in group.failures]
            raise PolicyError(
                f"No rollout of step {step} came to an end. The first failed thus: {reasons[0]}",
                "Mend that and run the same command again; what is finished is not repeated.",
            )
        groups = [await self._applied(step, group) for group in groups]
        await asyncio.to_thread(self._commit, step, batch, groups)

    async def _pin(self, step: int, batch: Batch) -> None:
        if self.memory is None:
            return
        snapshot = self.run.part(step, "snapshot", Snapshot)
        if snapshot is None:
            snapshot = Snapshot(generation=await self.memory.generation())
            self.run.save_part(step, "snapshot", snapshot)
        self.memory.pin(snapshot.generation, own=not (batch.fresh or self.fresh))

    async def _groups(self, step: int, batch: Batch) -> list[Group]:
        """All groups of a step, in the order of the questions; raises what ended the run."""
        work = asyncio.ensure_future(self._worked(step, batch))
        over = asyncio.ensure_future(self.flow.over())
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if self.flow.ended_by is not None and not work.done():
                raise self.flow.ended_by
            return work.result()
        finally:
            work.cancel()
            over.cancel()
            await asyncio.gather(work, over, return_exceptions=True)

    async def _worked(self, step: int, batch: Batch) -> list[Group]:
        groups = []
        async with asyncio.TaskGroup() as tasks:
            for number, question in enumerate(batch.questions):
                name = group_name(step, number)
                rollouts = await self._rollouts(tasks, step, name, question)
                group = self._group(step, name, question, rollouts)
                groups.append(tasks.create_task(group))
        return [group.result() for group in groups]

    async def _rollouts(
        self, tasks: asyncio.TaskGroup, step: int, name: str, question: Question
    ) -> list["asyncio.Future[Rollout]"]:
        """The rollouts of a question, each begun as soon as there is a place for it."""
        rollouts: list[asyncio.Future[Rollout]] = []
        shown = await scaffolds(self.run, self.buffers, step, name, question)
        before = await self._work.ended(name, len(shown))
        for member, (scaffold, ended) in enumerate(zip(shown, before, strict=True)):
            if ended is not None:
                rollouts.append(asyncio.get_running_loop().create_future())
                rollouts[-1].set_result(ended)
                self._progress.done += 1
                continue
            await self._places.acquire()
            rollout = partial(self._work.rollout, name, question, member, scaffold)
            rollouts.append(tasks.create_task(self._placed(rollout)))
        return rollouts

    async def _placed(self, rollout: Callable[[], Awaitable[Rollout]]) -> Rollout:
        """A rollout in the place that was taken for it."""
        try:
            return await rollout()
        finally:
            self._places.release()
            self._progress.ended()

    async def _group(
        self, step: int, name: str, question: Question, rollouts: Sequence[Awaitable[Rollout]]
    ) -> Group:
        group = Group(name, question, tuple(await asyncio.gather(*rollouts)))
        self.reached("rolled", name)
        async with self._judging:
            return await self._work.finish(step, group)

    async def _applied(self, step: int, group: Group) -> Group:
        """Save what a group changes; done again after a kill, it changes nothing more."""
        notes = group.notes
        if judged := self.run.part(step, judged_part(group.name), GroupJudgement):
            try:
                await asyncio.to_thread(self.buffers.save, judged.buffer)
            except StoreError as error:
                # Somebody else judged this question meanwhile: theirs stand, the run goes on.
                notes = (*notes, f"The rubrics were not saved: {error}")
        reflected = self.run.part(step, reflected_part(group.name), Reflected)
        if self.memory is not None and reflected and reflected.reflection:
            await self.memory.put(reflected.reflection)
        return replace(group, notes=notes)

    def _commit(self, step: int, batch: Batch, groups: Sequence[Group]) -> None:
        names, store = [group.name for group in groups], self.run.store
        self.run.commit(
            step,
            {
                "trajectories": (store.load(r.thread) for g in groups for r in g.members),
                "groups": [record_of(step, group, batch.replay_of) for group in groups],
                "judgements": self._judgements(step, names),
                "reflections": self._candidates(step, names),
            },
        )

    def _judgements(self, step: int, names: Sequence[str]) -> Iterator[Judgement]:
        for name in names:
            if judged := self.run.part(step, judged_part(name), GroupJudgement):
                yield from judged.judgements

    def _candidates(self, step: int, names: Sequence[str]) -> Iterator[ReflectionCandidate]:
        for name in names:
            if reflected := self.run.part(step, reflected_part(name), Reflected):
                yield from reflected.candidates

    async def _telling(self) -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY)
            ending = self.flow.ended_by is not None
            self.tell(
                f"{self.flow.in_flight} calls are in flight, and the run ends with them"
                if ending
                else self._progress.line()
            )

    async def _stopping(self, stop: asyncio.Event | None) -> None:
        if stop is not None:
            await stop.wait()
            self.flow.end(RunStopped.by_a_person("The run was interrupted."))


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Work that goes on as long as what is inside, and ends with it."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _seldom_swept() -> Iterator[None]:
    """Garbage is looked for seldom, and never among what is loaded by now: it stays."""
    before = gc.get_threshold()
    if before[0] == SWEPT_EVERY:  # another run in this process has seen to it
        yield
        return
    gc.freeze()
    gc.set_threshold(SWEPT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
