"""A collecting run over scripted rollouts, with fakes at the seams of judge and reflection.

A run whose rollouts are written by workers in this process, which can be killed.

What passes between them is pickled on the way, as it is between processes.
"""

import asyncio
import json
import math
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from rubricem.agent.models.policy import JournaledCalls, Policy
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.question import Ask
from rubricem.agent.research.researcher import Researcher
from rubricem.judge.stage import GroupJudgement
from rubricem.memory.errors import PolicyError, RubricemError
from rubricem.memory.interfaces import Sampling
from rubricem.memory.journal import Journal
from rubricem.memory.rubrics import BufferStore, RubricBuffer
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    Author,
    Criterion,
    Decoding,
    Judgement,
    Reflection,
    ReflectionCandidate,
    ReflectionScore,
    Segment,
    Stage,
    StageScore,
    Trajectory,
    TrajectoryGroup,
)
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import Manifest, Question, RunDirectory, hash_of
from rubricem.training.collect.gate import Flow, Meter
from rubricem.training.collect.groups import Reflected
from rubricem.training.collect.remote import (
    Begin,
    RemoteRollouts,
    RolloutWorker,
    Said,
    WorkerLost,
    WorkerPool,
)
from rubricem.training.rows.forms import run_rows
from tests.support.policies import FixedSearch, ScriptedPolicy, answer, plan

QUESTION = "What does functools.lru_cache do with maxsize=None?"
"""what the file of questions asks in a working directory of the tests"""
QUESTIONS = tuple(
    Question(id=str(n), question=text)
    for n, text in enumerate(["What is one?", "What is two?", "What is three?"])
)


def two_turns(before: str, sampling: Sampling) -> str:
    """A rollout that searches once; its answer differs with the seed."""
    if not before:
        return plan()
    return answer(f'It is <cite id="S1">answer {sampling.seed}</cite>.')


def manifest(questions: Sequence[Question] = QUESTIONS, **changed: Any) -> Manifest:
    fields: dict[str, Any] = {
        "policy": "scripted",
        "policy_version": "1",
        "decoding": Decoding.FREE,
        "group_size": 2,
        "step_size": 2,
        "reflections": 1,
        "memory": "on",
        "seed": 7,
        "tool_calls": 3,
        "settings": {"model": None, "base_url": None},
        "questions_sha256": hash_of(questions),
    }
    return Manifest(**{**fields, **changed})


class LengthJudge:
    """Scores every stage by the length of its text, and adds one criterion each time."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []
        """question, step and the version of the rubrics it was handed"""

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement:
        self.seen.append((group.question, step, buffer.version))
        criterion = Criterion(title=f"step {step}", description="as long as it should be")
        grown = buffer.model_copy(
            update={
                "version": buffer.version + 1,
                "active": {Stage.ANSWER: (*buffer.active.get(Stage.ANSWER, ()), criterion)},
            }
        )
        judgements = tuple(judgement(t, [0.1 * n] * 4) for n, t in enumerate(group.trajectories))
        return GroupJudgement(judgements=judgements, buffer=grown)


def judgement(trajectory: Trajectory, scores: Sequence[float | None]) -> Judgement:
    """What a judge says of each stage; None: unscored."""
    return Judgement(
        trajectory_id=trajectory.id,
        judge="fake",
        rubric_version="1-abc",
        stages=tuple(
            StageScore(stage=stage, score=score, unscored_reason="" if score is not None else "x")
            for stage, score in zip(Stage, scores, strict=True)
        ),
    )


def candidate(
    trajectory: Trajectory, total: float | None = 0.8, fault: str = ""
) -> ReflectionCandidate:
    score = (
        None
        if total is None
        else ReflectionScore(diagnostic_accuracy=total, specificity=total, scope_and_balance=total)
    )
    prompt = Segment(author=Author.PROMPT, text="Reflect.", token_ids=(9, 9))
    written = Segment(author=Author.POLICY, text="ab", token_ids=(1, 2), logprobs=(-0.1, -0.2))
    return ReflectionCandidate(
        trajectory_id=trajectory.id, question=trajectory.question, segments=(prompt, written),
        rubrics="r", takeaways="t", fault=fault, score=score, accepted=True,
    )  # fmt: skip


class FixedReflections:
    """Writes one accepted candidate on whatever it is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, float | None]] = []

    async def __call__(
        self, trajectory: Trajectory, judgement: Judgement | None, seed: int
    ) -> Reflected:
        score = judgement.score(Stage.ANSWER) if judgement else None
        self.seen.append((trajectory.question, trajectory.thread, score))
        reflection = Reflection(
            id=f"r-{trajectory.thread}", question=trajectory.question, rubrics="r", takeaways="t",
            score=0.8, trajectory_id=trajectory.id, written_at=datetime.now(UTC),
        )  # fmt: skip
        return Reflected(
            trajectory_id=trajectory.id, candidates=(candidate(trajectory),), reflection=reflection
        )


class ListMemory:
    """A bank in a list, which remembers at which generations it was pinned."""

    def __init__(self) -> None:
        self.items: list[Reflection] = []
        self.pinned: list[int] = []
        self.own: list[bool] = []

    async def generation(self) -> int:
        return len(self.items)

    def pin(self, generation: int, *, own: bool = True) -> None:
        self.pinned.append(generation)
        self.own.append(own)

    async def put(self, reflection: Reflection) -> bool:
        if any(reflection.id == item.id for item in self.items):
            return False
        self.items.append(reflection)
        return True


class Failing:
    """A policy that fails at some calls, as a server does."""

    def __init__(self, policy: ScriptedPolicy, fails: Callable[[int], bool]) -> None:
        self._policy, self._fails = policy, fails
        self.name, self.version = policy.name, policy.version
        self.retokenised, self.context_tokens = False, None
        self.reader = self.chat = None
        self.asked = 0

    async def open(self, system: str, question: str) -> tuple[int, ...]:
        return await self._policy.open(system, question)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._policy.encode(text)

    async def write(self, *call: Any) -> Any:
        self.asked += 1
        if self._fails(self.asked):
            raise PolicyError("The server is down.", "Start it.")
        return await self._policy.write(*call)


def researcher_of(
    policy: Policy, store: RunStore, journal: Journal, search: FixedSearch
) -> Researcher:
    """One that writes freely and may search three times."""
    return Researcher(
        policy=policy,
        decoder=FreeDecoder(),
        decoding=Decoding.FREE,
        search_tool=search,
        store=store,
        template=Ask("", tool_calls=3),
        journal=journal,
    )


class Opened:
    """A run's folder with everything that a collector needs; close it when done."""

    def __init__(
        self,
        folder: Path,
        policy: Policy | None = None,
        questions: Sequence[Question] = QUESTIONS,
        **changed: Any,
    ) -> None:
        self.run = RunDirectory(folder / "run")
        meter = Meter()
        self.journal: Journal = self.run.journal(meter.hear)
        self.flow = Flow(self.journal, meter)
        self.run.begin(manifest(questions, **changed), questions)
        self.policy = policy or ScriptedPolicy(two_turns)
        self.search = FixedSearch()
        self.judge, self.reflecting, self.memory = LengthJudge(), FixedReflections(), ListMemory()
        self.buffers = BufferStore(folder / "rubrics")
        self.lines: list[str] = []

    def collector(self, **options: Any) -> Collector:
        researcher = researcher_of(self.policy, self.run.store, self.journal, self.search)
        parts: dict[str, Any] = {
            "judge": self.judge, "reflecting": self.reflecting, "memory": self.memory, "at_once": 2,
        }  # fmt: skip
        return Collector(
            self.run, researcher, JournaledCalls(self.journal), self.buffers, self.flow,
            tell=self.lines.append, **{**parts, **options},
        )  # fmt: skip

    def close(self) -> None:
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


OWN = {"id", "started_at", "seconds"}
"""fields of a trajectory that no two runs share"""


class NearWorker:
    """A `Worker`; one that is killed lets go of its calls and answers nobody any more."""

    def __init__(self, worker: RolloutWorker) -> None:
        self._worker = worker
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun: list[Begin] = []

    async def begin(self, rollout: Begin) -> Said:
        self.begun.append(rollout)
        return await self._passed(self._worker.begin, rollout)

    async def go_on(self, thread: str, answer: Any) -> Said:
        return await self._passed(self._worker.go_on, thread, answer)

    def kill(self) -> None:
        if not self._death.done():
            self._death.set_result(None)
        for _, writing in self._worker._rollouts.values():
            writing.cancel()

    async def _passed(self, call: Callable[..., Awaitable[Said]], *arguments: Any) -> Said:
        if self._death.done():
            raise WorkerLost("killed")
        work = asyncio.ensure_future(call(*pickle.loads(pickle.dumps(arguments))))
        # Nobody may wait any more for what a worker says after its run has ended.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({work, self._death}, return_when=asyncio.FIRST_COMPLETED)
        if self._death.done():
            work.cancel()
            raise WorkerLost("killed")
        said: Said = pickle.loads(pickle.dumps(work.result()))
        return said


class Remote:
    """A collector of an opened run, its rollouts written by two workers."""

    def __init__(
        self,
        opened: Opened,
        policy: Policy,
        *,
        recalls: bool = False,
        cannot: Callable[[int], RubricemError | None] = lambda number: None,
        coming: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
        **options: Any,
    ) -> None:
        """`cannot`: what the so many-th worker raises; `coming`: how all but the first come."""
        self.hired: list[NearWorker] = []
        self._opened, self._policy, self._recalls = opened, policy, recalls
        self._cannot, self._coming, self._asked = cannot, coming, 0
        self.collector: Collector = opened.collector(**options)
        self.researcher = self.collector.rollouts
        share = math.ceil(self.collector.at_once / 2)
        self.pool = WorkerPool(self._hire, 2, share, opened.lines.append)
        self.collector.rollouts = RemoteRollouts(
            self.researcher, opened.journal, opened.flow, self.pool
        )

    async def _hire(self) -> NearWorker:
        self._asked = number = self._asked + 1
        if number > 1:
            await self._coming()
        if error := self._cannot(number):
            raise error
        own = replace(self.researcher, policy=self._policy, journal=None)
        self.hired.append(NearWorker(RolloutWorker(own, recalls=self._recalls)))
        return self.hired[-1]


@asynccontextmanager
async def remote(opened: Opened, policy: Policy, **options: Any) -> AsyncIterator[Remote]:
    made = Remote(opened, policy, **options)
    try:
        yield made
    finally:
        await made.pool.close()
        for worker in made.hired:
            worker.kill()


async def left(run: RunDirectory) -> dict[str, Any]:
    """All that a run leaves, rows included, without what no two runs share."""
    trajectories = list(run.trajectories())
    fields = [json.loads(t.model_dump_json(exclude=OWN)) for t in trajectories]
    rows = (await run_rows(run)).rows
    written = json.dumps([json.loads(row.model_dump_json()) for row in rows])
    groups = "\n".join(group.model_dump_json() for group in run.groups())
    for trajectory in trajectories:
        written = written.replace(trajectory.id, trajectory.thread)
        groups = groups.replace(trajectory.id, trajectory.thread)
    return {"trajectories": fields, "rows": written, "groups": groups}
