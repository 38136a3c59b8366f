"""The values that every room speaks: what was asked, written, found, scored and learnt.

All are frozen pydantic models, because they are stored as JSON lines and read back by later
versions. Text is what was really written or fetched, unescaped; escaping is for rendering.
Token ids and log-probabilities (natural log, of the raw model at temperature 1) are present
only where the model that wrote the text returned them.
"""

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from memory.reflections import Recollection as Recollection
from memory.reflections import Reflection as Reflection
from memory.reflections import ReflectionScore as ReflectionScore
from memory.values import NO_USAGE as NO_USAGE
from memory.values import ScaffoldedPrompt as ScaffoldedPrompt
from memory.values import Usage as Usage
from memory.values import Value as Value
from memory.versions import Versioned


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
    """FINISHED: a whole answer. PARTIAL: ended early, usable. FAILED: see the reason.

    NO_EVIDENCE: came to its end, but nothing was found that an answer could rest on.
    """

    FINISHED = "finished"
    NO_EVIDENCE = "no_evidence"
    PARTIAL = "partial"
    FAILED = "failed"


Ending = Literal["", "tool_calls", "tokens", "seconds", "cost", "attempts", "interrupt", "failure"]
"""What ended a run's work; "": the policy, of its own accord (or an older line that did not say).
A budget that ran low ended the research alone, one that ran out broke the run off (`cut_in`)."""


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
    copies: tuple[str, ...] = ()
    """other addresses that were found to hold nearly the same text"""


class ToolUse(Value):
    """What one call of a tool brought."""

    tool: str
    asked: str
    """the query, or the page and the words to find there; case folded, as it is compared"""
    sources: tuple[str, ...] = ()
    """their ids"""


CitationSupport = Literal["supported", "partial", "unsupported", "unchecked"]


class CitationCheck(Value):
    """How far one source holds one claim that cites it, by its text as fetched."""

    source: str
    """its id"""
    claim: str
    verdict: CitationSupport
    reason: str = ""


class Repair(Value):
    """What became of a claim that none of its sources holds; the transcript keeps the claim."""

    claim: str
    became: str = ""
    """the claim as its source was found to hold it; "": it was removed"""


class Verification(Value):
    """What checking an answer's citations came to."""

    mode: Literal["mark", "repair"]
    checker: str
    """who checked: a model by its name, or "lexical rules" where none did"""
    note: str = ""
    """why another checker ran than was to"""
    checks: tuple[CitationCheck, ...] = ()
    repairs: tuple[Repair, ...] = ()


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


class Trajectory(Versioned):
    """One question's way from prompt to answer: the one value that passes between rooms."""

    id: str
    thread: str
    question: str
    answer_format: AnswerFormat
    decoding: Decoding
    system: str = ""
    """the system prompt; the first segment is the user's message after it"""
    segments: tuple[Segment, ...]
    sources: tuple[Source, ...] = ()
    """those of the thread that were at hand from the beginning come first"""
    searched: tuple[ToolUse, ...] = ()
    """each call that did not fail, also where the thread had the answer"""
    earlier: tuple[str, ...] = ()
    """the runs of the thread whose reports stood before the question"""
    status: Status
    reason: str = ""
    """one sentence, when the status is not FINISHED"""
    ended_by: Ending = ""
    cut_in: Stage | None = None
    """the stage that was broken off from outside; None where the policy ended its work itself"""
    policy: str
    policy_version: str = ""
    """hash of the weights, or what the server calls the model"""
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    verification: Verification | None = None
    """None: nobody checked the citations"""
    recalled: tuple[str, ...] = ()
    """ids of the bank items put before the question"""
    recollections: tuple[Recollection, ...] = ()
    """the same items, in their order"""
    scaffold: ScaffoldedPrompt | None = None
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
    persistent: bool = False
    """never pruned: it came with the question, or was made from it before any rollout"""

    @property
    def key(self) -> str:
        """What names it in a buffer's history: the same text is the same criterion."""
        text = f"{self.title}\0{self.description}\0{self.positive}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class Rubric(Value):
    """The criteria of one stage for one question."""

    stage: Stage
    criteria: tuple[Criterion, ...]
    version: str = ""


class Verdict(Value):
    """How far one criterion holds of one stage, as a judge sees it."""

    criterion: Criterion
    points: float = Field(ge=0, le=2)
    """0 absent, 1 partial, 2 full; between them where a probability was read. Not inverted for
    a negative criterion: 2 means that the flaw is fully present."""
    justification: str = ""
    justified_by: Literal["judge", "code"] = "judge"
    """`code`: a span of the trajectory that code found for it; the judge gave no words"""


class StageScore(Value):
    """A judge's score of one stage: a number in [0, 1], or None with the reason."""

    stage: Stage
    score: float | None = Field(default=None, ge=0, le=1)
    unscored_reason: str = ""
    justification: str = ""
    verdicts: tuple[Verdict, ...] = ()
    missing: bool = False
    """the policy ended without this stage: a score of 0 that stands in the baseline"""
    spread: float | None = None
    """population standard deviation of the score over repeated scorings; None for a single one"""
    components: dict[str, float] = Field(default_factory=dict)
    """what each rubric below a composed one gave, by its dotted name; unknown ones are left out"""


class Judgement(Value):
    """One trajectory as one judge saw it, under one version of the rubrics."""

    trajectory_id: str
    judge: str
    rubric_version: str = ""
    stages: tuple[StageScore, ...]
    """one for each stage, in order"""
    usage: Usage = NO_USAGE

    def score(self, stage: Stage) -> float | None:
        return next(s.score for s in self.stages if s.stage is stage)


class ReflectionCandidate(Value):
    """One attempt at a reflection: what the policy read and wrote, and what became of it."""

    trajectory_id: str
    question: str
    segments: tuple[Segment, ...]
    """the prompt (with the trajectory in it), then what the policy wrote; ids where it has them"""
    rubrics: str = ""
    takeaways: str = ""
    fault: str = ""
    """why its format is not valid; such a candidate is never kept in the bank"""
    held: bool = False
    """written under a grammar, for the bank: no sample of the policy"""
    score: ReflectionScore | None = None
    unscored_reason: str = ""
    accepted: bool = False
    """the one that went into the bank"""
