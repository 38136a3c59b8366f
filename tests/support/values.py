"""Trajectories built by hand for the tests of citations, reports and the view.

Runs with the text of each stage given, and judges that follow a script.

Labelled pairs and verdicts on them, in few words.

Rubrics with a fixed score, at once or after a wait, that say when they were called.

A model whose opinion is given, answers to check, and the journal they are checked through.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubricem.agent.models.policy import JournaledCalls
from rubricem.agent.reports.rules import Pair
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.judge.evaluation.data import LabelledComparison, LabelledPair, Side, Winner
from rubricem.judge.rubrics import Rubric
from rubricem.judge.stage import Proposed, Runs, Scored, Standard
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Completion,
    Criterion,
    Decoding,
    Message,
    OnText,
    RubricBuffer,
    Sampling,
    Segment,
    Source,
    Stage,
    Status,
    StopPredicate,
    Trajectory,
    TrajectoryGroup,
    Usage,
    Verdict,
    Verification,
)

BOUND = "If maxsize is None the cache grows without bound. Otherwise it holds 128 calls."
EVICTS = "functools.lru_cache(maxsize=128)\nThe least recently used entry is evicted first."
PLAN = (
    "<think>Look it up.</think>\n<structured_plan>\n<rubric>\n- Names the rule\n- Names the "
    "default\n</rubric>\n<research_plan>Search.</research_plan>\n</structured_plan>\n"
)


def source(number: int, text: str, title: str = "lru_cache", location: str = "lib.py") -> Source:
    return Source(
        id=f"S{number}",
        title=title,
        location=location,
        place="line 3",
        text=text,
        tool="search",
        query="lru",
    )


def trajectory(
    answer: str = "",
    *,
    answer_format: AnswerFormat = AnswerFormat.LONG,
    question: str = "How does lru_cache evict?",
    sources: tuple[Source, ...] = (source(1, BOUND), source(2, EVICTS)),
    status: Status = Status.FINISHED,
    reason: str = "",
) -> Trajectory:
    """A run with a plan, one search and the answer's inner text ("": no answer block)."""
    policy, tool = Author.POLICY, Author.TOOL
    segments = [
        Segment(author=Author.PROMPT, text=f"Question: {question}"),
        Segment(author=policy, stage=Stage.PLAN, turn=1, text=PLAN),
        Segment(author=policy, stage=Stage.RESEARCH, turn=1, text="<call_tool>lru</call_tool>\n"),
        Segment(
            author=tool,
            stage=Stage.RESEARCH,
            turn=1,
            text='<tool_output><snippet id="S1">text</snippet></tool_output>\n',
        ),
        Segment(
            author=policy,
            stage=Stage.REVIEW,
            turn=2,
            text="<review><rubric_review>Both met.</rubric_review></review>\n",
        ),
    ]
    if answer:
        text = f"<answer>{answer}</answer>"
        segments += [
            Segment(author=policy, stage=Stage.ANSWER, turn=2, text="<answer>bad", kept=False),
            Segment(author=policy, stage=Stage.ANSWER, turn=2, text=text, attempt=1),
        ]
    return Trajectory(
        id="run-1",
        thread="thread-1",
        question=question,
        answer_format=answer_format,
        decoding=Decoding.FREE,
        segments=tuple(segments),
        sources=sources,
        status=status,
        reason=reason,
        policy="test-policy",
        usage=Usage(prompt_tokens=1200, completion_tokens=80, cost=0.0021, calls=2),
        tool_calls=1,
        started_at=datetime(2026, 8, 5, 9, 3, tzinfo=UTC),
        seconds=65.2,
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

    async def from_question(
        self,
        question: str,
        stages: Sequence[Stage] = tuple(Stage),
        found: Sequence[Source] = (),
    ) -> Proposed:
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

    async def score(self, trajectory: Trajectory, standard: Standard, group: Runs = ()) -> Scored:
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


def pair(
    name: str,
    better: Side = "first",
    *,
    subset: str = "",
    first: str = "one",
    second: str = "two",
) -> LabelledPair:
    return LabelledPair(
        id=name,
        prompt=f"prompt {name}",
        first=first,
        second=second,
        better=better,
        subset=subset,
    )


def said(
    name: str, *winners: Winner | None, shares: tuple[float, ...] = ()
) -> list[LabelledComparison]:
    """What was said of a pair as given, and then swapped; in the pair's own numbering."""
    return [
        LabelledComparison(
            pair=name, swapped=swapped, winner=winner, share=shares[swapped] if shares else None
        )
        for swapped, winner in zip((False, True), winners, strict=False)
    ]


class Fixed(Rubric):
    """Its score at once; an exception is raised instead."""

    def __init__(self, score: float | Exception, name: str = "", log: list[str] | None = None):
        super().__init__()
        self.score = score
        self.name = name
        self.log = [] if log is None else log

    def forward(self, action: Any, observation: Any) -> float:
        self.log.append(self.name)
        if isinstance(self.score, Exception):
            raise self.score
        return self.score


class Slow(Fixed):
    """Its score after other tasks had their turn, or after some seconds."""

    def __init__(
        self,
        score: float | Exception,
        name: str = "",
        log: list[str] | None = None,
        seconds: float = 0.0,
    ):
        super().__init__(score, name, log)
        self.seconds = seconds

    async def forward(self, action: Any, observation: Any) -> float:
        await asyncio.sleep(self.seconds)
        return super().forward(action, observation)


class Called(Rubric):
    """What a function makes of action and observation."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, action: Any, observation: Any) -> Any:
        return self.function(action, observation)


GROWS = "If maxsize is None the cache grows without bound. Otherwise it holds 128 calls."


class ByCharacter:
    """A `TokenReader` with one token a character."""

    name, version, context_tokens = "by-character", "1", 8192

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return await self.encode("\n".join(message.content for message in messages))

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


class GivenModel(ByCharacter):
    """An embedded model, one token a character: a given probability of yes, a given text."""

    name = "given"

    def __init__(self, yes: float | Callable[[str], float] = 1.0, text: str = "NONE") -> None:
        self.yes = yes
        self.text = text
        self.read: list[str] = []

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        assert options == ("Yes", "yes", "No", "no")
        self.read.append("".join(map(chr, prefix)))
        yes = self.yes(self.read[-1]) if callable(self.yes) else self.yes
        return yes / 2, yes / 2, 1 - yes, 0.0

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.read.append("".join(map(chr, prefix)))
        return Completion(self.text, "eos", usage=Usage(completion_tokens=3, calls=1))


class GivenChat:
    """A chat server's model that answers by a list of replies, or raises them."""

    name = "given-chat"

    def __init__(self, *replies: str | Completion | PolicyError) -> None:
        self.replies = list(replies)
        self.asked: list[list[Message]] = []

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.asked.append(list(messages))
        reply = self.replies.pop(0)
        if isinstance(reply, PolicyError):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply, "eos", usage=Usage(prompt_tokens=10, calls=1))


def verdicts(*each: str) -> str:
    """A server's reply with these verdicts, for the claims from 1."""
    listed = [{"number": i, "reason": "So.", "verdict": v} for i, v in enumerate(each, start=1)]
    return json.dumps({"verdicts": listed})


def claim_pair(claim: str, text: str = GROWS, number: int = 1) -> Pair:
    return Pair(claim, claim_source(text, number))


def claim_source(text: str = GROWS, number: int = 1) -> Source:
    return Source(
        id=f"S{number}", title="lru_cache", location="lib.py", text=text, tool="t", query="q"
    )


@asynccontextmanager
async def calls(tmp_path: Path) -> AsyncIterator[JournaledCalls]:
    journal = Journal(tmp_path / "journal.jsonl")
    try:
        yield JournaledCalls(journal)
    finally:
        journal.close()


async def verified(
    verifier: AnswerVerifier, trajectory: Trajectory, tmp_path: Path
) -> tuple[Verification, Usage]:
    async with calls(tmp_path) as through:
        return await verifier.verify(trajectory, through)
