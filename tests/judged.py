"""Runs with the text of each stage given, and judges that follow a script."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from judge.scoring import Scored, Standard
from judge.stage_judge import Proposed
from memory.errors import JudgeError
from memory.interfaces import Passage
from memory.rubrics import RubricBuffer
from memory.schema import (
    AnswerFormat,
    Author,
    Criterion,
    Decoding,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verdict,
)

QUESTION = "How does lru_cache evict?"
WHOLE = {
    Stage.PLAN: "Look up lru_cache.",
    Stage.RESEARCH: "It evicts the least recently used entry.",
    Stage.REVIEW: "The rule is known.",
    Stage.ANSWER: "<answer>The least recently used entry goes first.</answer>",
}
SOURCE = Source(
    id="S1", title="lru_cache", location="lib.py", text="LRU", tool="search", query="lru"
)


def run_of(
    texts: Mapping[Stage, str] = WHOLE,
    name: str = "a",
    *,
    status: Status = Status.FINISHED,
    reason: str = "",
    decoding: Decoding = Decoding.FREE,
    extra: Sequence[Segment] = (),
    sources: tuple[Source, ...] = (SOURCE,),
) -> Trajectory:
    """A run in which the policy wrote the given texts; `extra` segments come last."""
    written = [
        Segment(author=Author.POLICY, stage=stage, turn=1, text=text)
        for stage, text in texts.items()
    ]
    return Trajectory(
        id=name,
        thread=name,
        question=QUESTION,
        answer_format=AnswerFormat.LONG,
        decoding=decoding,
        segments=(Segment(author=Author.PROMPT, text=QUESTION), *written, *extra),
        sources=sources,
        status=status,
        reason=reason,
        policy="test",
        started_at=datetime(2026, 8, 5, tzinfo=UTC),
        seconds=1.0,
    )


def varied(name: str, answer: str) -> Trajectory:
    return run_of({**WHOLE, Stage.ANSWER: answer}, name)


def group_of(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(question=QUESTION, trajectories=trajectories)


def item(text: str, weight: float = 2, *, positive: bool = True, kept: bool = False) -> Criterion:
    return Criterion(
        title=text, description=text, weight=weight, positive=positive, persistent=kept
    )


class ScriptedProposer:
    """Proposes the same criteria each time; None: it fails."""

    def __init__(self, criteria: Mapping[Stage, tuple[Criterion, ...]] | None) -> None:
        self.criteria = criteria
        self.contrasted: list[int] = []
        """how many runs each contrast was given"""
        self.asked: list[str] = []

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        self.contrasted.append(len(trajectories))
        return self._given()

    async def from_question(self, question: str, found: Sequence[Passage] = ()) -> Proposed:
        self.asked.append(question)
        return self._given()

    def _given(self) -> Proposed:
        if self.criteria is None:
            raise JudgeError("it wrote nothing of use")
        return Proposed(self.criteria, Usage(calls=1))


class ScriptedScorer:
    """Points by a function of trajectory, stage and criterion; a None makes it fail."""

    name = "scripted judge"

    def __init__(self, points: Callable[[Trajectory, Stage, Criterion], float | None]) -> None:
        self.points = points
        self.standards: list[Standard] = []

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        self.standards.append(standard)
        verdicts: dict[Stage, tuple[Verdict, ...]] = {}
        for stage, criteria in standard.items():
            for criterion in criteria:
                given = self.points(trajectory, stage, criterion)
                if given is None:
                    raise JudgeError("the server is down")
                one = Verdict(criterion=criterion, points=given, justification="seen")
                verdicts[stage] = (*verdicts.get(stage, ()), one)
        return Scored(verdicts, Usage(calls=1))
