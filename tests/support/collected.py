"""A collecting run over scripted rollouts, with fakes at the seams of judge and reflection.

A run whose rollouts are written by workers in this process, which can be killed.

What passes between them is pickled on the way, as it is between processes.

A run of two steps in a folder, its numbers worked by hand, some of its texts hostile.
"""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.learning.reflect import Reflected
from rubricem.agent.models.policy import Policy
from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import PolicyError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import Journal, RunStore
from rubricem.memory.schema import (
    NO_CRITERIA,
    AnswerFormat,
    Author,
    Criterion,
    Decoding,
    GroupJudgement,
    Judgement,
    Reflection,
    ReflectionCandidate,
    ReflectionScore,
    RubricBuffer,
    RubricChange,
    Sampling,
    ScaffoldedPrompt,
    Segment,
    Stage,
    StageScore,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verdict,
)
from rubricem.training.collect.collect_config import CollectConfig
from rubricem.training.collect.collector import Collector
from rubricem.training.collect.directory import GroupRecord, Manifest, RunDirectory, hash_of
from rubricem.training.collect.gate import Meter, RunGate
from rubricem.training.collect.questions import Question
from rubricem.training.collect.remote import GroupJob, RemoteGroups, Said, collect_here, known_error
from rubricem.training.collect.scaffolding import ScaffoldRule
from rubricem.training.rows.compile import each_row
from rubricem.training.rows.credit import Dependence, RowRule
from tests.support.policies import FixedSearch, ScriptedPolicy, answer, plan

QUESTION = "What does functools.lru_cache do with maxsize=None?"
"""what the file of questions asks in a working directory of the tests"""
QUESTIONS = tuple(
    Question(id=str(n), question=text)
    for n, text in enumerate(["What is one?", "What is two?", "What is three?"])
)


IDENTITY = RowRule(
    dependence=Dependence(weights=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))
)
"""every stage's return is its own reward"""


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


def policy_segment(text: str, stage: Stage, **changed: object) -> Segment:
    ids = tuple(map(ord, text))
    fields = {"token_ids": ids, "logprobs": tuple(-0.01 * n for n in ids), **changed}
    return Segment(author=Author.POLICY, stage=stage, turn=1, text=text, **fields)  # type: ignore[arg-type]


def rollout(name: str, *extra: Segment, **changed: object) -> Trajectory:
    """Prompt 1 2, plan a, research b, tool output 3, a rejected attempt, review c, answer d."""
    segments = (
        Segment(author=Author.PROMPT, text="question", token_ids=(1, 2)),
        policy_segment("a", Stage.PLAN),
        policy_segment("b", Stage.RESEARCH),
        Segment(author=Author.TOOL, stage=Stage.RESEARCH, text="t", token_ids=(3,)),
        policy_segment("zz", Stage.REVIEW, kept=False),
        policy_segment("c", Stage.REVIEW),
        policy_segment("d", Stage.ANSWER),
        *extra,
    )
    fields: dict[str, object] = {
        "id": name, "thread": name, "question": "q", "answer_format": AnswerFormat.LONG,
        "decoding": Decoding.FREE, "segments": segments, "status": Status.FINISHED,
        "policy": "p", "policy_version": "v1", "system": "s", "started_at": datetime.now(UTC),
        "seconds": 1.0,
    }  # fmt: skip
    return Trajectory(**{**fields, **changed})  # type: ignore[arg-type]


def group(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(question="q", trajectories=trajectories)


ONE, TWO = rollout("one"), rollout("two")


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
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        seed: int,
        beside: Trajectory | None = None,
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


class ManyReflections(FixedReflections):
    """Two candidates that differ in their score, the better one for the bank."""

    async def __call__(
        self,
        trajectory: Trajectory,
        judgement: Judgement | None,
        seed: int,
        beside: Trajectory | None = None,
    ) -> Reflected:
        found = await super().__call__(trajectory, judgement, seed, beside)
        worse = candidate(trajectory, 0.2).model_copy(update={"accepted": False})
        return found.model_copy(update={"candidates": (*found.candidates, worse)})


def collecting(**told: Any) -> CollectConfig:
    """A configuration whose questions and folder a test gives apart."""
    return CollectConfig(questions="", out=Path("run"), **told)


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
        self.reader, self.chat, self.priced = None, None, policy.priced
        self.asked = 0

    async def render(self, system: str, question: str) -> tuple[int, ...]:
        return await self._policy.render(system, question)

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._policy.encode(text)

    async def encode_response(self, text: str) -> tuple[int, ...]:
        return await self._policy.encode_response(text)

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
        self.gate = RunGate(self.journal, meter)
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
            self.run, researcher, self.buffers, self.gate,
            tell=self.lines.append, **{**parts, **options},
        )  # fmt: skip

    def close(self) -> None:
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


OWN = {"id", "started_at", "seconds", "spent"}
"""fields of a trajectory that no two runs share"""


class WorkerLost(Exception):
    """What Ray raises of a worker that has ended."""


class Remote:
    """A collector of an opened run, whose groups are collected as by two workers of Ray's.

    They are in this process; what passes is pickled on the way.
    """

    def __init__(self, opened: Opened, policy: Policy, **options: Any) -> None:
        self.jobs: list[GroupJob] = []
        self.death = asyncio.get_running_loop().create_future()
        """when it is set, the workers that there are die"""
        self._policy = policy
        self.collector: Collector = opened.collector(**options)
        researcher = self.collector.rollouts
        assert isinstance(researcher, Researcher)
        self.researcher = researcher
        setup = SimpleNamespace(absolute=lambda: None)
        self.collector.elsewhere = RemoteGroups(
            self.collector,
            researcher,
            setup,  # type: ignore[arg-type]
            2,
            self._start,
            WorkerLost,
        ).collect

    def kill(self) -> None:
        self.death.set_result(None)
        self.death = self.death.get_loop().create_future()

    async def _start(self, job: GroupJob) -> AsyncIterator[Awaitable[Said]]:
        self.jobs.append(job)
        job = replace(pickle.loads(pickle.dumps(job)), setup=SETUP)
        said, death = asyncio.Queue[Said | None](), self.death
        own = replace(self.researcher, policy=self._policy, journal=None)

        async def work() -> None:
            try:
                await collect_here(job, own, said.put_nowait)
            except Exception as error:
                said.put_nowait(known_error(error))
            said.put_nowait(None)

        working = asyncio.create_task(work())
        while True:
            one = asyncio.ensure_future(said.get())
            await asyncio.wait({one, death}, return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                working.cancel()
                raise WorkerLost("killed")
            if one.result() is None:
                return
            yield asyncio.sleep(0, pickle.loads(pickle.dumps(one.result())))


SETUP: Any = SimpleNamespace(model=SimpleNamespace(at_once=2))


async def left(run: RunDirectory) -> dict[str, Any]:
    """All that a run leaves, rows included, without what no two runs share."""
    trajectories = list(run.trajectories())
    fields = [json.loads(t.model_dump_json(exclude=OWN)) for t in trajectories]
    rows = [row async for row in each_row(run) if not isinstance(row, str)]
    told = {
        "rows": json.dumps([json.loads(row.model_dump_json()) for row in rows]),
        "groups": "\n".join(group.model_dump_json() for group in run.groups()),
        "judgements": "\n".join(one.model_dump_json() for one in run.judgements()),
        "reflections": "\n".join(one.model_dump_json() for one in run.reflections()),
    }
    for trajectory in trajectories:
        told = {n: text.replace(trajectory.id, trajectory.thread) for n, text in told.items()}
    return {"trajectories": fields, **told}


NASTY = "<script>alert(1)</script>\x1b[31m</pre>\"'><img src=x onerror=alert(2)>\u202e"
ASKED = (Question(id="0", question=f"What is one? {NASTY}"), Question(id="1", question="Two?"))
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def whole_member(name: str, began: float = 0, **changed: object) -> Trajectory:
    """A rollout whose form is whole: two searches, 100 tokens read and 10 written, 5 seconds."""
    bare = rollout(name)
    prompt, plan_, _, tool, *_ = bare.segments
    segments = (
        prompt,
        plan_.model_copy(update={"text": plan()}),
        tool,
        plan_.model_copy(
            update={"text": answer(), "turn": 2, "stage": Stage.ANSWER, "author": Author.POLICY}
        ),
    )
    fields: dict[str, object] = {
        "segments": segments, "tool_calls": 2, "seconds": 5.0,
        "usage": Usage(prompt_tokens=100, completion_tokens=10, cost=0.25, calls=2),
        "started_at": datetime.fromtimestamp(BEGAN + began, UTC),
    }  # fmt: skip
    return bare.model_copy(update={**fields, **changed})


def judged_in_part(one: Trajectory, *scores: float | None) -> Judgement:
    """A judgement of the first stages; a stage beyond the scores has no criteria."""
    criterion = Criterion(title="c", description=f"Says it. {NASTY}")
    verdicts = (Verdict(criterion=criterion, points=1, justification=f"Because {NASTY}"),)
    stages = [
        StageScore(
            stage=stage,
            score=score,
            unscored_reason="" if score is not None else f"the judge failed {NASTY}",
            verdicts=verdicts,
        )
        for stage, score in zip(Stage, scores, strict=False)
    ]
    stages += [StageScore(stage=s, unscored_reason=NO_CRITERIA) for s in list(Stage)[len(scores) :]]
    return Judgement(
        trajectory_id=one.id,
        judge="fake",
        rubric_version="3-abc",
        stages=tuple(stages),
        usage=Usage(prompt_tokens=7, completion_tokens=1, cost=0.125, calls=1),
    )


def change(version: int, step: int, kind: str, title: str) -> RubricChange:
    criterion = Criterion(title=title, description=f"{title} {NASTY}")
    return RubricChange(
        version=version, step=step, stage=Stage.ANSWER, kind=kind, criterion=criterion, reason="r"
    )  # type: ignore[arg-type]


def written_run(folder: Path) -> RunDirectory:
    """Step 1: two rollouts that are judged, one failed. Step 2: one malformed and not judged."""
    run = RunDirectory(folder)
    run.begin(manifest(ASKED, judge="fake", scaffold=ScaffoldRule(), step_size=1), ASKED)
    shown = ScaffoldedPrompt(text="", shown=3)
    best, worst = whole_member("best", scaffold=shown), whole_member("worst", began=10)
    broken = whole_member(
        "broken", began=100, status=Status.PARTIAL, reason=f"cut {NASTY}",
        segments=rollout("x").segments,
    )  # fmt: skip
    judgements = (
        judged_in_part(best, 0.5, 0.5, 0.5, 1.0),
        judged_in_part(worst, 0.5, 0.25, None, 0.25),
    )
    history = (
        change(1, 0, "added", "of an earlier run"),
        change(3, 0, "added", "new"),
        change(4, 0, "retired", "of no use"),
    )
    buffer = RubricBuffer(question=ASKED[0].question, version=4, history=history)
    judged = GroupJudgement(judgements=judgements, buffer=buffer, unproposed=f"no JSON {NASTY}")
    run.save_part(0, "a-judged", judged)
    spent = Usage(prompt_tokens=20, completion_tokens=4, cost=0.0625, calls=3)
    run.save_part(
        0, "a-reflected", Reflected(trajectory_id="best", usage=spent, notes=(f"down {NASTY}",))
    )
    run.commit(
        0,
        {
            "trajectories": [best, worst],
            "groups": [
                GroupRecord(
                    id="a", step=0, question_id="0", question=ASKED[0].question,
                    trajectories=("best", "worst"), failures=(f"The server is down. {NASTY}",),
                    rubric_version="3-abc", notes=(f"No new criteria {NASTY}",),
                    lost=Usage(prompt_tokens=50, cost=0.5, calls=1),
                )
            ],
            "judgements": judgements,
            "reflections": [candidate(best)],
        },
    )  # fmt: skip
    record = GroupRecord(id="b", step=1, question_id="1", question="Two?", trajectories=("broken",))
    run.commit(1, {"trajectories": [broken], "groups": [record]})
    return run


def show(*arguments: object) -> Result:
    """The command that shows a run."""
    return CliRunner().invoke(main, ["runs", "show", *map(str, arguments)])
