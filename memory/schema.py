"""The values that every room speaks: what was asked, written, found, scored and learnt.

All are frozen pydantic models, because they are stored as JSON lines and read back by later
versions. Text is what was really written or fetched, unescaped; escaping is for rendering.
Token ids and log-probabilities (natural log, of the raw model at temperature 1) are present
only where the model that wrote the text returned them.

What is stored says its `schema_version`; what says none is of version 1. A change that an older
reader or writer would misunderstand raises the version by one and adds the function that brings
the older fields up to it; a new field with a default needs neither.

A bank's item is a reflection and what became of it: for which generations it was the bank's word
on its question, what a person decided about it, and what came of the runs that recalled it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from rubricem.memory.errors import RubricemError, StoreError


class Value(BaseModel):
    """A frozen value; unknown fields of newer versions are ignored when read.

    In JSON, what is no finite number is written as a text ("NaN"), and read back from it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


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


class ScaffoldedPrompt(Value):
    """What a rollout was shown of its question's rubric, and its prompt without that."""

    text: str
    """the end of the trajectory's system prompt"""
    shown: int
    """criteria in it"""
    bare_ids: tuple[int, ...] | None = None
    """of the whole chat prompt without the text; those with it stand in the first segment"""


Origin = Literal["run", "hand", "import"]
"""`run`: a policy reflected on its run; `hand`: a person edited it; `import`: another bank's"""


class ReflectionScore(Value):
    """How good a reflection is as guidance for later runs; each part in [0, 1]."""

    diagnostic_accuracy: float = Field(ge=0, le=1)
    specificity: float = Field(ge=0, le=1)
    scope_and_balance: float = Field(ge=0, le=1)
    justification: str = ""
    suspicion: str = ""
    """its words that a server's judge takes for an order to the reader; "": there are none"""

    @property
    def total(self) -> float:
        """Weights 0.4, 0.3, 0.3 (RubricEM, arXiv:2605.10899, appendix D)."""
        return 0.4 * self.diagnostic_accuracy + 0.3 * (self.specificity + self.scope_and_balance)


class Reflection(Value):
    """What a judged run teaches: rubrics for such a question, and portable takeaways."""

    id: str
    question: str
    rubrics: str
    takeaways: str
    score: float = Field(ge=0, le=1)
    trajectory_id: str
    policy: str = ""
    policy_version: str = ""
    judge: str = ""
    judge_version: str = ""
    """the rubrics' version, or what is known of the judge model's"""
    stage_scores: tuple[Annotated[float, Field(ge=0, le=1)] | None, ...] = ()
    """of the run it is about, in the order of the stages; None: unscored"""
    reflection_score: ReflectionScore | None = None
    """the parts of `score`, where a judge gave them"""
    origin: Origin = "run"
    replaces: str = ""
    """id of the version that a person edited"""
    flags: tuple[str, ...] = ()
    """sentences that say why it stands in quarantine: with any it is not recalled until a person
    releases it"""
    written_at: datetime


class Recollection(Value):
    """What a run was given of the bank, as it stood then; earlier versions kept the id alone."""

    id: str
    question: str = ""
    """that it was learnt from"""
    own: bool = False
    """it is the run's own question"""
    similarity: float | None = None
    """of the two questions, a cosine; None for its own, and where nobody kept it"""
    score: float | None = None
    """of the reflection"""


Fields = dict[str, Any]
Upgrade = Callable[[Fields], Fields]


class Versioned(Value):
    """A stored value that says its schema."""

    upgrades: ClassVar[tuple[Upgrade, ...]] = ()
    """the first takes the fields of version 1 to those of version 2, and so on"""
    schema_version: int = 1


class _Stamp(Value):
    """The version of what is about to be read, without the rest of it."""

    schema_version: int = 1


V = TypeVar("V", bound=Value)


def read(text: str | bytes, kind: type[V]) -> V:
    """A stored value as today's schema has it.

    Raises pydantic's ValidationError for what is no such value, StoreError for one of a newer
    schema than is known.
    """
    if not issubclass(kind, Versioned) or (
        _Stamp.model_validate_json(text).schema_version == 1 + len(kind.upgrades)
    ):
        return kind.model_validate_json(text)
    return kind.model_validate_json(json.dumps(upgraded(json.loads(text), kind)))


def upgraded(fields: Fields, kind: type[Versioned]) -> Fields:
    """Stored fields as today's schema has them. Raises StoreError for those of a newer one."""
    version, newest = fields.get("schema_version", 1), 1 + len(kind.upgrades)
    if version > newest:
        raise StoreError(
            f"This {kind.__name__} is of schema {version}, and schemas up to {newest} are known.",
            "A newer rubricem wrote it: read it with that one.",
        )
    for upgrade in kind.upgrades[max(version, 1) - 1 :]:
        fields = upgrade(fields)
    return {**fields, "schema_version": newest}


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


class StageRubric(Value):
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


NEVER = 2**31
"""the generation in which an item that was not replaced is replaced"""


class BankItem(Value):
    """One reflection of a bank and its standing now."""

    reflection: Reflection
    since: int
    """the generation that it made by being put"""
    until: int = NEVER
    """the generation that replaced it"""
    pinned: bool = False
    """a person's word: no run's reflection replaces it"""
    disabled: bool = False
    removed: bool = False
    released: bool = False
    """a person released it from quarantine"""
    released_by: str = ""
    """where a person did; "" where an earlier version kept no such thing"""
    released_at: datetime | None = None
    edited_by: str = ""
    """where a person wrote it, at its `written_at`"""
    recalled: int = 0
    """how many runs were given it"""
    mean_score: float | None = None
    """in [0, 1], over those of these runs that were scored; None: none was"""

    @property
    def quarantined(self) -> bool:
        return bool(self.reflection.flags) and not self.released

    @property
    def live(self) -> bool:
        """Whether it may be recalled."""
        barred = self.removed or self.disabled or self.quarantined
        return self.until == NEVER and not barred


@dataclass(frozen=True, slots=True)
class Match:
    """A reflection found by meaning; similarity is a cosine in [-1, 1]."""

    reflection: Reflection
    similarity: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is worth knowing before a question."""

    own: Reflection | None = None
    """of this very question"""
    similar: tuple[Match, ...] = ()
    """of others: first the nearest, then what is near and adds to what is chosen"""
    fault: RubricemError | None = None
    """why nothing similar could be looked for; what is here is good all the same"""


@dataclass(frozen=True, slots=True)
class Released:
    """What became of an item that was let out of quarantine."""

    item: BankItem
    instead: BankItem | None = None
    """what stands on its question in its place; None: the item itself, or nothing"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of reflections that were brought in, each counted once."""

    added: int = 0
    """on questions that the bank knew nothing of"""
    replaced: int = 0
    """in the place of the bank's own, which went to the history"""
    kept: int = 0
    """the bank's own stayed: the newcomer went to the history, or was there already"""
    quarantined: int = 0
    removed: int = 0
    """passed over, as a person had removed them from the bank"""


@dataclass(frozen=True, slots=True)
class BankStats:
    """A bank in numbers."""

    generation: int
    live: int
    disabled: int
    quarantined: int
    replaced: int
    removed: int
    uses: int
    """runs that were given something"""
    embedder: str
    """whose vectors the index holds; "": there is none yet"""
    journal_bytes: int
    index_bytes: int
    """of the index on this machine; 0 where a server holds it"""
