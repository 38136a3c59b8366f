"""Collecting: steps of questions, each with a group of rollouts that is judged and reflected on.

All groups of a step see the same rubrics and the same state of the bank; their changes are saved at
its end, in the order of the questions, so that results do not depend on which group finished first
(RubricEM, arXiv:2605.10899, appendix C and D). A group is judged as soon as its rollouts have
ended. Each finished part is on disk before the next begins, and is read back after a restart.
Rollouts start only when a place is free, and a finished one is held in memory only by name.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from rubricem.agent.learning.reflect import Reflected, Reflector
from rubricem.agent.models.limits import Price
from rubricem.agent.models.policy import call_scope
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.judge.buffers import bring_in, persistent_criteria
from rubricem.judge.rubrics.llm import asking_through
from rubricem.memory.errors import PolicyError, RubricemError, StoreError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    NO_USAGE,
    Criterion,
    GroupJudge,
    GroupJudgement,
    Judgement,
    Reflection,
    RubricBuffer,
    Stage,
    Trajectory,
    TrajectoryGroup,
    Value,
)
from rubricem.memory.text import pluralise, seed_of
from rubricem.training.collect.directory import (
    GroupRecord,
    RunDirectory,
    StepMemory,
    group_name,
    part_of,
    thread_of,
)
from rubricem.training.collect.expected import estimate, expected
from rubricem.training.collect.gate import MEND, RunGate
from rubricem.training.collect.questions import Curriculum, Question, QuestionBatch
from rubricem.training.collect.scaffolding import Scaffold, ask_under
from rubricem.training.extras import Pace, in_thread, lasting

Milestone = Literal["rolled", "judged"]
"""of a group: `rolled`: all rollouts ended; `judged`: its judgement, if any, is on disk"""
TELL_EVERY = 60.0
WriteGroup = Callable[[str, Mapping[str, Ask]], Awaitable[Sequence[Trajectory]]]


class Memory(Protocol):
    """The part of the bank that a step needs."""

    async def generation(self) -> int: ...
    def pin(self, generation: int, *, own: bool = True) -> None:
        """Recall as of this generation from now on; without `own`, only from similar questions."""
        ...

    async def put(self, reflection: Reflection) -> bool: ...


class Group(NamedTuple):
    """What a step keeps in memory of one question; the rest is on disk under its name."""

    record: GroupRecord
    threads: tuple[str, ...]


class InForce(Value):
    criteria: tuple[Criterion, ...]


def rubric_of(buffers: BufferStore, question: Question) -> RubricBuffer:
    """The rubric that rollouts are shown and scored on, the question's own criteria among them."""
    buffer = buffers.load(question.question)
    gone = {criterion.meaning for criterion in buffer.retired.get(Stage.ANSWER, ())}
    # A plain text is worth one point.
    points = [
        ("", c, 1.0) if isinstance(c, str) else ("", c.criterion, c.points)
        for c in question.criteria
    ]
    own = [c for c in persistent_criteria(points) if c.meaning not in gone]
    return bring_in(buffer, {Stage.ANSWER: own}, "from the questions file")


@dataclass
class Collector:
    """Collects one run; a part that is None is skipped."""

    run: RunDirectory
    rollouts: Researcher
    buffers: BufferStore
    gate: RunGate
    judge: GroupJudge | None = None
    reflecting: Reflector | None = None
    memory: Memory | None = None
    at_once: int = 1
    judged_at_once: int | None = None
    """groups being judged and reflected on at the same time; None: they share the places of the
    rollouts, since one model in this process does both"""
    elsewhere: WriteGroup | None = None
    """what writes the rollouts of a question in other processes; None: this process does"""
    fresh: bool = False
    """the questions are a fresh batch of a larger curriculum, which this run does not know"""
    prices: tuple[Price | None, Price | None] = (None, None)
    """of the policy and of the judge"""
    tell: Callable[[str], None] = lambda line: None
    before_put: Callable[[], Awaitable[None]] | None = None
    """awaited before a reflection enters the bank"""
    reached: Callable[[Milestone], None] = lambda milestone: None
    """called at every milestone of a group, also for those reached before a restart"""

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.at_once)
        apart = self.judged_at_once
        self._judging = self._places if apart is None else asyncio.Semaphore(apart)
        self._manifest = self.run.manifest()
        self._pace = Pace()

    async def collect(self, stop: asyncio.Event | None = None) -> None:
        """Do every step that is not committed yet; `stop` ends the run after calls in flight.

        Raises RunStopped if a person or the cost limit ended it, PolicyError if a server was away
        for too long or all rollouts of a step failed; nothing of such a step is committed.
        """
        manifest, finished = self._manifest, self.run.finished_steps()
        curriculum = Curriculum(self.run.questions(), manifest.step_size, manifest.windows)
        batches = [curriculum.batch(step) for step in range(curriculum.steps)]
        sizes = [len(batch.questions) * manifest.group_size for batch in batches]
        self._pace = Pace(sum(sizes[:finished]), sum(sizes))
        if left := sum(sizes[finished:]):
            taken = expected(manifest, self.rollouts.template, left)
            self.tell(estimate(taken, *self.prices))
        telling = asyncio.create_task(self._tell_progress())
        try:
            for step, batch in list(enumerate(batches))[finished:]:
                await self._step(step, batch, stop)
                self.tell(f"step {step + 1} of {len(batches)} is kept")
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _step(self, step: int, batch: QuestionBatch, stop: asyncio.Event | None) -> None:
        if self.memory is not None:
            snapshot = self.run.part(step, "snapshot", StepMemory)
            if snapshot is None:
                snapshot = StepMemory(generation=await self.memory.generation())
                self.run.save_part(step, "snapshot", snapshot)
            self.memory.pin(snapshot.generation, own=not (batch.fresh or self.fresh))
        groups = await self.gate.through(self._collect_groups(step, batch), stop)
        if not any(group.threads for group in groups):
            reasons = [reason for group in groups for reason in group.record.failures]
            raise PolicyError(
                f"No rollout of step {step} ended. The first failed thus: {reasons[0]}", MEND
            )
        records = [await self._apply(group.record) for group in groups]
        threads = [thread for group in groups for thread in group.threads]
        # Waited for by whoever stops here, too: what goes on with the folder would cut it short.
        await in_thread(partial(self._commit, step, records, threads))

    async def _collect_groups(self, step: int, batch: QuestionBatch) -> list[Group]:
        async with asyncio.TaskGroup() as tasks:
            groups = []
            for number, question in enumerate(batch.questions):
                record = GroupRecord(
                    id=group_name(step, number), step=step, question_id=question.id,
                    question=question.question, trajectories=(), replay_of=batch.replay_of,
                )  # fmt: skip
                groups.append(await self._begin(tasks, record, question))
        return [group.result() for group in groups]

    async def _begin(
        self, tasks: asyncio.TaskGroup, record: GroupRecord, question: Question
    ) -> "asyncio.Task[Group]":
        """Start a group, each rollout as soon as there is a place: they begin in their order."""
        asks = await self._asks(record, question)
        known = await asyncio.to_thread(self._load_ended, record, asks)
        self._pace.done += len(known)
        left = {name: ask for name, ask in asks.items() if name not in known}
        rolling: Awaitable[Sequence[Trajectory]]
        if self.elsewhere is not None and left:
            rolling = tasks.create_task(self._roll_elsewhere(self.elsewhere, question, left))
        else:
            rollouts = []
            for name, ask in left.items():
                await self._places.acquire()
                rollouts.append(tasks.create_task(self._roll(name, ask)))
            rolling = asyncio.gather(*rollouts)
        return tasks.create_task(self._finish(record, question, list(asks), known, rolling))

    async def _asks(self, record: GroupRecord, question: Question) -> dict[str, Ask]:
        """What each rollout is asked, by its name.

        Criteria that are shown are saved first, so that a resumed step shows the same.
        """
        manifest = self._manifest
        shown = [Scaffold()] * manifest.group_size
        if manifest.scaffold is not None:
            part = part_of(record.id, "criteria")
            found = self.run.part(record.step, part, InForce)
            if found is None:
                buffer = await asyncio.to_thread(rubric_of, self.buffers, question)
                criteria = (c for stage in Stage for c in buffer.criteria(stage))
                found = InForce(criteria=tuple(criteria))
                await asyncio.to_thread(self.run.save_part, record.step, part, found)
            seed = f"{manifest.seed}:{record.id}"
            shown = manifest.scaffold.scaffolds(found.criteria, manifest.group_size, seed)
        template, form = self.rollouts.template, question.answer_format
        return {
            thread_of(record.id, member): ask_under(
                template, question.question, form, seed_of(manifest.seed, record.id, member), each
            )
            for member, each in enumerate(shown)
        }

    def _load_ended(self, record: GroupRecord, names: Iterable[str]) -> dict[str, Trajectory]:
        """The rollouts that are not to be made; one that failed is, unless its group is judged."""
        judged = self.run.judgement_of(record.step, record.id) is not None
        store = self.run.store
        found = (store.load(name) for name in names if store.has_ended(name))
        return {run.thread: _in_outline(run) for run in found if judged or not run.failed}

    async def _roll_elsewhere(
        self, elsewhere: WriteGroup, question: Question, asks: Mapping[str, Ask]
    ) -> list[Trajectory]:
        return [self._took(run) for run in await elsewhere(question.question, asks)]

    async def _roll(self, thread: str, ask: Ask) -> Trajectory:
        """Run one rollout to its end, in the place that was acquired for it."""
        try:
            with self.gate.rollout():
                return self._took(await self.rollouts.ask(ask, thread))
        finally:
            self._places.release()

    def _took(self, run: Trajectory) -> Trajectory:
        """A rollout that has ended, in outline."""
        self._pace.advance()
        why = f" ({run.reason})" if run.reason else ""
        self.tell(f"{run.thread}: {run.status}, {pluralise(run.tool_calls, 'search')}{why}")
        return _in_outline(run)

    async def _finish(
        self,
        record: GroupRecord,
        question: Question,
        names: Iterable[str],
        known: Mapping[str, Trajectory],
        rolling: Awaitable[Sequence[Trajectory]],
    ) -> Group:
        step, name = record.step, record.id
        found = {**known, **{run.thread: run for run in await rolling}}
        ended = [found[each] for each in names]
        members = [rollout for rollout in ended if not rollout.failed]
        failed = [rollout for rollout in ended if rollout.failed]
        threads = tuple(rollout.thread for rollout in members)
        failures = tuple(rollout.reason for rollout in failed)
        self.reached("rolled")
        async with self._judging:
            judged = self.run.judgement_of(step, name)
            reflected = self.run.reflection_of(step, name)
            judge = self.judge if judged is None else None
            reflecting = self.reflecting if reflected is None else None
            runs = None
            if members and (judge or reflecting):
                load = self.run.store.load
                runs = TrajectoryGroup(
                    question=record.question,
                    trajectories=await asyncio.to_thread(lambda: tuple(map(load, threads))),
                    failures=failures,
                    facts=question.facts,
                )
            if runs and judge:
                judged = await self._judge(record, question, runs, judge)
            self.reached("judged")
            if runs and reflecting:
                reflected = await self._reflect(record, runs, judged, reflecting)
        told = {
            "trajectories": tuple(rollout.id for rollout in members),
            "failures": failures,
            "lost": sum((rollout.usage for rollout in failed), NO_USAGE),
            "rubric_version": judged.judgements[0].rubric_version if judged else "",
            "reflected": reflected.trajectory_id if reflected else "",
            "recalled": members[0].recalled if members else (),
            "notes": (*(judged.notes if judged else ()), *(reflected.notes if reflected else ())),
        }
        return Group(record.model_copy(update=told), threads)

    async def _judge(
        self, record: GroupRecord, question: Question, runs: TrajectoryGroup, judge: GroupJudge
    ) -> GroupJudgement:
        part = part_of(record.id, "judged")
        buffer = await asyncio.to_thread(rubric_of, self.buffers, question)
        with call_scope(part), asking_through(self.gate.ask_rubric):
            judged = await judge.judge(runs, buffer, record.step)
        judged = judged.model_copy(update={"version_before": buffer.version})
        await self._keep_part(record.step, part, judged)
        lacking = f"; no new criteria: {judged.unproposed}" if judged.unproposed else ""
        self.tell(f"{record.id}: judged, {_describe_means(judged)}{lacking}")
        return judged

    async def _reflect(
        self,
        record: GroupRecord,
        runs: TrajectoryGroup,
        judged: GroupJudgement | None,
        reflecting: Reflector,
    ) -> Reflected:
        """Reflect on the best run beside the worst; on one drawn at random where none is better."""
        part = part_of(record.id, "reflected")
        draw = random.Random(f"{self._manifest.seed}:{part}")
        scored = judged.judgements if judged else ()
        run, beside = apart(runs.trajectories, scored) or (draw.choice(runs.trajectories), None)
        judgement = next((j for j in scored if j.trajectory_id == run.id), None)
        with call_scope(part):
            try:
                reflected = await reflecting(run, judgement, draw.randrange(2**32), beside)
            except RubricemError as error:
                reflected = Reflected(trajectory_id=run.id, notes=(error.told(),))
        told: dict[str, Any] = {"usage": self.gate.usage_in(part)}
        if reflected.reflection is not None:
            private = run.private or (beside is not None and beside.private)
            learnt = reflected.reflection.model_copy(update={"private": private})
            told["reflection"] = learnt
        reflected = reflected.model_copy(update=told)
        await self._keep_part(record.step, part, reflected)
        kept = "one accepted" if reflected.reflection else "none accepted"
        count = pluralise(len(reflected.candidates), "reflection")
        self.tell(f"{record.id}: {'; '.join([f'{count}, {kept}', *reflected.notes])}")
        return reflected

    async def _keep_part(self, step: int, part: str, value: Value) -> None:
        await asyncio.to_thread(self.run.save_part, step, part, value)
        self.gate.journal.forget(part)

    async def _apply(self, record: GroupRecord) -> GroupRecord:
        """Save the changes of a group; idempotent, so that it can be repeated after a kill."""
        if judged := self.run.judgement_of(record.step, record.id):
            try:
                await asyncio.to_thread(self.buffers.save, judged.buffer)
            except StoreError as error:
                # Another process judged this question meanwhile: its rubrics stay, the run goes on.
                notes = (*record.notes, f"The rubrics were not saved: {error}")
                record = record.model_copy(update={"notes": notes})
        reflected = self.run.reflection_of(record.step, record.id)
        if self.memory is not None and reflected and reflected.reflection:
            if self.before_put is not None:
                await self.before_put()
            await self.memory.put(reflected.reflection)
        return record

    def _commit(self, step: int, records: Sequence[GroupRecord], threads: Sequence[str]) -> None:
        judged = (self.run.judgement_of(step, record.id) for record in records)
        reflected = (self.run.reflection_of(step, record.id) for record in records)
        self.run.commit(
            step,
            {
                "trajectories": map(self.run.store.load, threads),
                "groups": records,
                "judgements": (j for found in judged if found for j in found.judgements),
                "reflections": (c for found in reflected if found for c in found.candidates),
            },
        )

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            pace, cost = self._pace, self.gate.meter.cost
            told = f"{pace.done} of {pace.of} rollouts"
            told += f", {cost:.2f} US dollars so far" if cost else ""
            self.tell(told + (f", about {lasting(pace.left)} left" if pace.left else ""))


def _in_outline(run: Trajectory) -> Trajectory:
    """A run without what it wrote and read, which is on disk."""
    return run.model_copy(update={"segments": (), "sources": ()})


LEAST_APART = 0.1
"""of the mean scores of two runs, from which one is told to be better"""


def apart(
    runs: Sequence[Trajectory], judged: Sequence[Judgement]
) -> tuple[Trajectory, Trajectory] | None:
    """The best and the worst run by the means of their stages' scores, if they differ."""
    means = {j.trajectory_id: mean for j in judged if (mean := j.mean) is not None}
    ranked = sorted((r for r in runs if r.id in means), key=lambda run: means[run.id])
    if not ranked or means[ranked[-1].id] - means[ranked[0].id] < LEAST_APART:
        return None
    return ranked[-1], ranked[0]


def _describe_means(judged: GroupJudgement) -> str:
    told = []
    for scores in zip(*(judgement.stages for judgement in judged.judgements), strict=True):
        known = [score.score for score in scores if score.score is not None]
        mean = f"{sum(known) / len(known):.2f}" if known else "unscored"
        told.append(f"{scores[0].stage} {mean}")
    return ", ".join(told)
