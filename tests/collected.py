"""A collecting run over scripted rollouts, with fakes at the seams of judge and reflection."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.free import FreeDecoder
from agent.journaled import Calls
from agent.policy import Policy
from agent.researcher import Researcher
from agent.run import Ask
from judge.stage_judge import GroupJudgement
from memory.buffers import BufferStore
from memory.errors import PolicyError
from memory.interfaces import Sampling
from memory.journal import Journal
from memory.rubrics import RubricBuffer
from memory.schema import (
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
from tests.fakes import FixedSearch, ScriptedPolicy
from tests.flow import answer, plan
from training.collecting import Collector
from training.flow import Flow
from training.groups import Reflected
from training.meter import Meter
from training.run_directory import Manifest, Question, RunDirectory, hash_of

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
        researcher = Researcher(
            policy=self.policy,
            decoder=FreeDecoder(),
            decoding=Decoding.FREE,
            search_tool=self.search,
            store=self.run.store,
            template=Ask("", tool_calls=3),
            journal=self.journal,
        )
        parts: dict[str, Any] = {
            "judge": self.judge, "reflecting": self.reflecting, "memory": self.memory, "at_once": 2,
        }  # fmt: skip
        return Collector(
            self.run, researcher, Calls(self.journal), self.buffers, self.flow,
            tell=self.lines.append, **{**parts, **options},
        )  # fmt: skip

    def close(self) -> None:
        self.journal.close()
