"""The values that every room speaks: what was asked, written, found, scored and learnt.

All are frozen pydantic models, because they are stored as JSON lines and read back by later
versions. Text is what was really written or fetched, unescaped; escaping is for rendering.
Token ids and log-probabilities (natural log, of the raw model at temperature 1) are present
only where the model that wrote the text returned them.
"""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Value(BaseModel):
    """A frozen value; unknown fields of newer versions are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Stage(StrEnum):
    """The four stages, in order (RubricEM, arXiv:2605.10899, section 3.2)."""

    PLAN = "plan"
    RESEARCH = "research"
    REVIEW = "review"
    ANSWER = "answer"


class Author(StrEnum):
    """Who wrote a segment; only POLICY text is ever trained on."""

    PROMPT = "prompt"
    POLICY = "policy"
    TOOL = "tool"


class AnswerFormat(StrEnum):
    """The shape of the answer; the question's rubric sets its substance."""

    LONG = "long"
    SHORT = "short"
    EXACT = "exact"


class Decoding(StrEnum):
    """FORCED: the runner writes tags and caps slots (SFT only). FREE: nothing is edited."""

    FORCED = "forced"
    FREE = "free"


class Status(StrEnum):
    """FINISHED: a whole answer. PARTIAL: ended early, usable. FAILED: see the reason."""

    FINISHED = "finished"
    PARTIAL = "partial"
    FAILED = "failed"


class Usage(Value):
    """Tokens and money of one call or of many; `cost` is None where no price is known."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """in US dollars"""
    calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        costs = [usage.cost for usage in (self, other) if usage.calls and usage.cost is not None]
        unknown = any(usage.calls and usage.cost is None for usage in (self, other))
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=None if unknown or not costs else sum(costs),
            calls=self.calls + other.calls,
        )


NO_USAGE = Usage()


class Source(Value):
    """One retrieved passage, numbered by code when it was retrieved; the text as fetched."""

    id: str
    """S1, S2, ... in order of first retrieval within a trajectory"""
    title: str
    location: str
    """url or path"""
    place: str = ""
    """where inside it: symbol, heading, page or lines"""
    text: str
    tool: str
    query: str
    """the query that found it first"""


class Segment(Value):
    """A run of text by one author inside one stage; a transcript is a list of them."""

    author: Author
    stage: Stage | None = None
    """None for what stands before the plan: system prompt and question"""
    turn: int = 0
    """0 before the plan; the policy's turns count from 1"""
    text: str
    token_ids: tuple[int, ...] | None = None
    """those of the first segment are of the whole chat prompt: system, question, template"""
    logprobs: tuple[float, ...] | None = None
    """one per token id, for POLICY segments"""
    retokenised: bool = False
    """the ids are not those that were sampled (chat-only server, or trimmed text)"""
    attempt: int = 0
    kept: bool = True
    """False: an attempt that was retried; it is no part of the transcript or of training"""


class Trajectory(Value):
    """One question's way from prompt to answer: the one value that passes between rooms."""

    schema_version: int = SCHEMA_VERSION
    id: str
    thread: str
    question: str
    answer_format: AnswerFormat
    decoding: Decoding
    system: str = ""
    """the system prompt; the first segment is the user's message after it"""
    segments: tuple[Segment, ...]
    sources: tuple[Source, ...] = ()
    status: Status
    reason: str = ""
    """one sentence, when the status is not FINISHED"""
    policy: str
    policy_version: str = ""
    """hash of the weights, or what the server calls the model"""
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    recalled: tuple[str, ...] = ()
    """ids of the bank items put before the question"""
    rubric_version: str = ""
    seed: int = 0
    started_at: datetime
    seconds: float

    def transcript(self) -> str:
        """Everything the run wrote after the question, as one text: POLICY, TOOL and PROMPT."""
        return "".join(s.text for s in self.segments if s.kept and s.stage is not None)


class TrajectoryGroup(Value):
    """Rollouts of one question, with the reasons of those that failed."""

    question: str
    trajectories: tuple[Trajectory, ...]
    failures: tuple[str, ...] = ()


class Criterion(Value):
    """One item of a rubric. Positive: should hold. Negative: a flaw that should not."""

    title: str
    description: str
    weight: float = Field(default=2.0, gt=0)
    """1 minor, 2 important, 3 critical"""
    positive: bool = True


class Rubric(Value):
    """The criteria of one stage for one question."""

    stage: Stage
    criteria: tuple[Criterion, ...]
    version: str = ""


class StageScore(Value):
    """A judge's score of one stage: a number in [0, 1], or None with the reason."""

    stage: Stage
    score: float | None = Field(default=None, ge=0, le=1)
    unscored_reason: str = ""
    justification: str = ""


class Reflection(Value):
    """What a judged run teaches: rubrics for such a question, and portable takeaways."""

    question: str
    rubrics: str
    takeaways: str
    score: float | None = Field(default=None, ge=0, le=1)


CitationSupport = Literal["supported", "partial", "unsupported", "unchecked"]
