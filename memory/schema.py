"""The data types that all packages share: what was asked, written, found, scored and learnt.

All stored values are frozen pydantic models, because they are kept as JSON lines and read back by
later versions. Text is exactly what was written or fetched; escaping is left to rendering. Token
ids and log-probabilities (natural log, of the raw model at temperature 1) are present only if the
model that wrote the text returned them.

A `Versioned` value is stored with its `schema_version`; without one it is of version 1. A change
that an older reader or writer would misunderstand raises it; a new field with a default does not.

At the end stand the protocols: what the packages require of a model, a search tool and an embedder.
`TokenPolicy` continues a list of token ids, which training needs; `ChatModel` answers messages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rubricem.memory.errors import StoreError
from rubricem.memory.text import digest_of, pluralise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Value(BaseModel):
    """A frozen value; fields that a newer version added are ignored when it is read.

    In JSON, NaN and infinities are written as strings ("NaN") and read back from them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


class Usage(Value):
    """Tokens and cost of one or more calls; `cost` is None if a price is unknown."""

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

    def told(self) -> str:
        """Calls, tokens, and the cost where it is known."""
        dollars = f", {self.cost:.2f} US dollars" if self.cost else ""
        tokens = f"{self.prompt_tokens:,} tokens read, {self.completion_tokens:,} written"
        return f"{pluralise(self.calls, 'call')}, {tokens}{dollars}"


NO_USAGE = Usage()


class ScaffoldedPrompt(Value):
    """The part of its question's rubric that a rollout was shown, and its prompt without it."""

    text: str
    """the end of the trajectory's system prompt"""
    shown: int
    """the number of criteria in it"""
    bare_ids: tuple[int, ...] | None = None
    """ids of the whole chat prompt without the text; the first segment has those with it"""


Origin = Literal["run", "hand", "import"]
"""`run`: learnt from a run; `hand`: edited by a person; `import`: merged from another bank"""


class ReflectionScore(Value):
    """How good a reflection is as guidance for later runs; each part in [0, 1]."""

    diagnostic_accuracy: float = Field(ge=0, le=1)
    specificity: float = Field(ge=0, le=1)
    scope_and_balance: float = Field(ge=0, le=1)
    justification: str = ""
    suspicion: str = ""
    """words of it that a judge on a server takes for an instruction to the reader; "": none"""

    @property
    def total(self) -> float:
        """Weights 0.4, 0.3, 0.3 (RubricEM, arXiv:2605.10899, appendix D)."""
        return 0.4 * self.diagnostic_accuracy + 0.3 * (self.specificity + self.scope_and_balance)


class Reflection(Value):
    """What a judged run teaches: rubrics for questions like it, and portable takeaways."""

    id: str
    question: str
    rubrics: str
    takeaways: str
    score: float = Field(ge=0, le=1)
    """the judge's"""
    trajectory_id: str
    """the run that it is about"""
    policy: str = ""
    policy_version: str = ""
    judge: str = ""
    judge_version: str = ""
    """the version of the rubrics, or what is known of the judge model's version"""
    stage_scores: tuple[Annotated[float, Field(le=1, allow_inf_nan=False)] | None, ...] = ()
    """stage scores of the run it is about, in the order of the stages; None: unscored"""
    reflection_score: ReflectionScore | None = None
    """the parts of `score`, if a judge gave them"""
    origin: Origin = "run"
    replaces: str = ""
    """id of the version that a person edited"""
    flags: tuple[str, ...] = ()
    """sentences that say why it is in quarantine, where it stays until a person releases it"""
    private: bool = True
    """whether the run read private sources; unknown of earlier versions, and so it is"""
    server: str | None = None
    """that of the run's model; "": it ran in this process; None: not known, but by its policy"""
    written_at: datetime


class Recollection(Value):
    """A bank item that a run was given, as it was then; earlier versions kept only its id."""

    id: str
    kind: str = "reflection"
    """earlier versions also recalled episodes"""
    question: str = ""
    """the question that it was learnt from"""
    own: bool = False
    """that question is the run's own"""
    similarity: float | None = None
    """cosine of the two questions; None for the run's own question, and if it was not kept"""
    score: float | None = None
    """the item's score"""
    private: bool = True
    """whether it was learnt from private text; unknown of earlier versions, and so it was"""


class Versioned(Value):
    """A stored value that carries the version of its schema."""

    schema_version: int = 1


class _Stamp(Value):
    """Only the version of a value that is about to be read."""

    schema_version: int = 1


V = TypeVar("V")


def read(text: str | bytes, kind: type[V]) -> V:
    """Read a stored value, or a list or mapping of values.

    Raises pydantic's ValidationError if it is none, and StoreError if its schema is not today's.
    """
    if isinstance(kind, type) and issubclass(kind, Versioned):
        version = _Stamp.model_validate_json(text).schema_version
        if version != (today := kind.model_fields["schema_version"].default):
            raise StoreError(
                f"This {kind.__name__} is of schema {version}, and schema {today} is read.",
                "Another rubricem wrote it: read it with that one.",
            )
    found: V = _form(cast(Any, kind)).validate_json(text)
    return found


@cache
def _form(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


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
    """FINISHED: a complete answer. PARTIAL: ended early, usable. FAILED: see the reason.

    NO_EVIDENCE: the run completed, but found nothing to base an answer on.
    """

    FINISHED = "finished"
    NO_EVIDENCE = "no_evidence"
    PARTIAL = "partial"
    FAILED = "failed"

    @property
    def whole(self) -> bool:
        """Whether nothing is left to continue."""
        return self in (Status.FINISHED, Status.NO_EVIDENCE)


Ending = Literal[
    "", "tool_calls", "tokens", "seconds", "cost", "attempts", "max_tokens", "interrupt",
    "failure", "not_found", "uncertain", "uncited", "unsupported",
]  # fmt: skip
"""What ended a run; "": the policy itself (or an older record, which did not say).
A budget that ran low ended only the research; one that ran out cut the run (`cut_in`)."""


class Source(Value):
    """One retrieved passage, numbered by code at retrieval; its text is as fetched."""

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
    begun_before: bool = False
    goes_on: bool = False
    """whether text under the same heading stands before it, and follows"""
    copies: tuple[str, ...] = ()
    """other addresses with nearly the same text"""
    public: bool = False
    """whether a public service or an installed library told it; unknown of older runs: not"""
    date: str = ""
    """of its page, as a search told it; the place ends with it"""


class ToolUse(Value):
    """One call of a tool, and what it found."""

    tool: str
    asked: str
    """the query, or the page and the words to find there; case-folded for comparison"""
    sources: tuple[str, ...] = ()
    """ids of the sources that it found"""


CitationSupport = Literal["supported", "partial", "unsupported", "unchecked"]


class CitationCheck(Value):
    """How far one source supports one claim that cites it, judged by its text as fetched."""

    source: str
    """its id"""
    claim: str
    verdict: CitationSupport
    reason: str = ""
    context: str = ""
    """what the claim stands in, where it is no statement by itself: its sentence, or its row"""
    quote: str = ""
    """what of the source decides, verbatim, where the checker named it"""


class Repair(Value):
    """How a statement whose claim no source supports was repaired; the transcript keeps it."""

    claim: str
    became: str = ""  # its claims in cite tags; "": it was removed
    statement: bool = False  # else an earlier version repaired a claim alone


BY_RULES = "lexical rules"
"""checked the citations, where no model did"""


class Verification(Value):
    """The result of checking an answer's citations."""

    mode: Literal["mark", "repair"]
    checker: str
    """who checked: the name of a model, or `BY_RULES`"""
    note: str = ""
    """why a different checker ran than was intended"""
    checks: tuple[CitationCheck, ...] = ()
    repairs: tuple[Repair, ...] = ()


class Spent(Value):
    """What all calls of one kind in a run took: of a slot, of a tool, or of the verifier."""

    slot: str
    calls: int = 0
    seconds: float = 0.0
    read: int = 0
    """prompt tokens that were in no cache"""
    written: int = 0
    """completion tokens"""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            slot=self.slot,
            calls=self.calls + other.calls,
            seconds=self.seconds + other.seconds,
            read=self.read + other.read,
            written=self.written + other.written,
        )


class Segment(Value):
    """A stretch of text by one author in one stage; a transcript is a list of segments."""

    author: Author
    stage: Stage | None = None
    """None before the plan: system prompt and question"""
    turn: int = 0
    """0 before the plan; the policy's turns are counted from 1"""
    text: str
    token_ids: tuple[int, ...] | None = None
    """in the first segment, those of the whole chat prompt: system, question, template"""
    logprobs: tuple[float, ...] | None = None
    """one per token id, for POLICY segments"""
    retokenised: bool = False
    """the ids are not the sampled ones (chat-only server, or trimmed text)"""
    attempt: int = 0
    kept: bool = True
    """False: a rejected attempt, which belongs neither to the transcript nor to training"""


class Investigation(Value):
    """A part of deep research: a run of its own, kept below the lead's."""

    thread: str
    """the name of its run"""
    question: str
    items: tuple[int, ...] = ()
    """of the rubric, counted from 1, that it was for"""
    after: int = 0
    """the number of the one that it went on with"""
    status: Status = Status.FAILED
    reason: str = ""
    """why it ended early or failed"""
    tool_calls: int = 0
    sources: tuple[str, ...] = ()
    """of the lead: ids of those that its report cites"""


class Trajectory(Versioned):
    """A run from prompt to answer: the one value that the packages exchange."""

    id: str
    thread: str
    """the name of the run"""
    question: str
    answer_format: AnswerFormat
    decoding: Decoding
    system: str = ""
    """the system prompt; the first segment is the user's message after it"""
    segments: tuple[Segment, ...]
    sources: tuple[Source, ...] = ()
    """those that the conversation provided at the beginning come first"""
    searched: tuple[ToolUse, ...] = ()
    """each call that did not fail, including those that the conversation had answered"""
    missed: tuple[str, ...] = ()
    """why searches, or single sources in them, failed; of deep research, of all investigations"""
    private: bool = True
    """whether it was shown private text; unknown of earlier versions, and so it was"""
    sent: tuple[tuple[str, str], ...] = ()
    """public services and what they were sent, in order; of deep research, by all investigations"""
    reading: tuple[str, ...] = ()
    """what of the sources was not read, or not wholly: a line for each that has such"""
    alone: str = ""
    """the question in words that need no conversation; "": it is asked alone, or an older run"""
    earlier: tuple[str, ...] = ()
    """the earlier runs of the conversation, whose reports preceded the question"""
    status: Status
    reason: str = ""
    """one sentence, if the status is not FINISHED"""
    ended_by: Ending = ""
    cut_in: Stage | None = None
    """the stage that was cut off from outside; None if the policy ended by itself"""
    policy: str
    policy_version: str = ""
    """hash of the weights with which it began, or the server's name for the model"""
    usage: Usage = NO_USAGE
    spent: tuple[Spent, ...] = ()
    """time and tokens by kind of call, in the order in which each kind was first made"""
    tool_calls: int = 0
    left_out: int = 0
    """of its first tool outputs, those that the model's context had no room for at the end"""
    cut_prompt: tuple[int, int] | None = None
    """tokens of a prompt that a server read, and about as many as it was sent; None: it read all"""
    verification: Verification | None = None
    """None: the citations were not checked"""
    recalled: tuple[str, ...] = ()
    """ids of the bank items that the run was given"""
    recollections: tuple[Recollection, ...] = ()
    """the same items, in the same order"""
    investigations: tuple[Investigation, ...] = ()
    """of deep research, in the order in which they were asked for"""
    scaffold: ScaffoldedPrompt | None = None
    rubric_version: str = ""
    seed: int = 0
    started_at: datetime
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the model or a store failed; what was found before may stand in a report."""
        return self.status is Status.FAILED or self.ended_by == "failure"

    def transcript(self) -> str:
        """The kept text after the question, by every author: POLICY, TOOL and PROMPT."""
        return "".join(s.text for s in self.segments if s.kept and s.stage is not None)


class TrajectoryGroup(Value):
    """The rollouts of one question, with the reason for each that failed."""

    question: str
    trajectories: tuple[Trajectory, ...]
    failures: tuple[str, ...] = ()
    facts: dict[str, Any] | None = None
    """what the questions file gives for a custom rubric to score by"""


class Criterion(Value):
    """One item of a rubric. Positive: should hold. Negative: a flaw that should be absent."""

    title: str
    description: str
    weight: float = Field(default=2.0, gt=0)
    """1 minor, 2 important, 3 critical"""
    given: float | None = None
    """the points that a file gave it, of which the weight is made"""
    positive: bool = True
    persistent: bool = False
    """never pruned: came with the question, or was made from it before any rollout"""

    @property
    def key(self) -> str:
        """Identifies it in a buffer's history: the same text is the same criterion."""
        text = f"{self.title}\0{self.description}\0{self.positive}"
        return digest_of(text, 12)

    @property
    def meaning(self) -> str:
        """Its text without case and punctuation, whichever its sign."""
        text = f"{self.title} {self.description}".casefold()
        return " ".join("".join(c if c.isalnum() else " " for c in text).split())


class Verdict(Value):
    """A judge's verdict on how far one stage meets one criterion."""

    criterion: Criterion
    points: float = Field(ge=0, le=2)
    """0 absent, 1 partial, 2 full, of a flaw as well; in between if read from probabilities"""
    justification: str = ""
    justified_by: Literal["judge", "code"] = "judge"
    """`code`: the judge gave no words, and code quotes a span of the trajectory instead"""


NO_CRITERIA = "no criteria"
"""with this reason an unscored stage is left out of every sum, rather than unknown"""


class StageScore(Value):
    """A judge's score of one stage: at most 1, or None with the reason."""

    stage: Stage
    score: float | None = Field(default=None, le=1, allow_inf_nan=False)
    """at least 0, except on a checklist on which more points were lost than won"""
    unscored_reason: str = ""
    """also set beside a score that a gate gave where the judge had nothing to score"""
    failed: bool = False
    """the judge failed, and the reason says how"""
    justification: str = ""
    verdicts: tuple[Verdict, ...] = ()
    missing: bool = False
    """the policy ended without this stage: a score of 0 that counts in the baseline"""
    components: dict[str, float] = Field(default_factory=dict)
    """the score of each part of a composed rubric, by dotted name; unknown ones are left out"""


SUPPORT = "support"
"""the component of the score of an answer, or a review, that is its support"""


def is_left_out(score: StageScore | None) -> bool:
    """Whether there was nothing to score: its rubric has no criteria."""
    return score is not None and score.score is None and score.unscored_reason == NO_CRITERIA


class Judgement(Value):
    """A judge's scores of one trajectory, under one version of the rubrics."""

    trajectory_id: str
    judge: str
    rubric_version: str = ""
    stages: tuple[StageScore, ...]
    """one for each stage, in order"""
    usage: Usage = NO_USAGE

    def at(self, stage: Stage) -> StageScore | None:
        """The score of a stage; None if there is none."""
        return next((score for score in self.stages if score.stage is stage), None)

    def score(self, stage: Stage) -> float | None:
        found = self.at(stage)
        return found.score if found else None

    @property
    def mean(self) -> float | None:
        """The mean score of the stages that were judged, not only let through; None: none was."""
        known = [s.score for s in self.stages if s.score is not None and not s.unscored_reason]
        return sum(known) / len(known) if known else None


class ReflectionCandidate(Value):
    """One attempt at a reflection: what the policy read and wrote, and the outcome."""

    trajectory_id: str
    question: str
    segments: tuple[Segment, ...]
    """the prompt (including the trajectory), then the policy's text; ids if it returns them"""
    rubrics: str = ""
    takeaways: str = ""
    fault: str = ""
    """why its format is invalid; such a candidate never enters the bank"""
    held: bool = False
    """written under a grammar, for the bank, and so not a sample of the policy"""
    score: ReflectionScore | None = None
    unscored_reason: str = ""
    accepted: bool = False
    """the candidate that entered the bank"""


ChangeKind = Literal["added", "returned", "retired", "pinned"]


class RubricChange(Value):
    """One line of a buffer's history."""

    version: int
    """of the buffer that results from the change"""
    step: int
    stage: Stage
    kind: ChangeKind
    criterion: Criterion
    reason: str


Criteria = Mapping[Stage, tuple[Criterion, ...]]
"""by stage; a stage without criteria may be absent"""


class RubricBuffer(Value):
    """All criteria of one question. Each set of changes made together is a new version.

    Persistent criteria came with the question, or were made from it before any run was seen, and
    are never pruned; active ones were proposed by contrasting runs (RubricEM, arXiv:2605.10899,
    appendix C).
    """

    question: str
    version: int = 0
    persistent: Criteria = Field(default_factory=dict)
    active: Criteria = Field(default_factory=dict)
    retired: Criteria = Field(default_factory=dict)
    """criteria that are no longer scored, the latest last"""
    history: tuple[RubricChange, ...] = ()

    @property
    def id(self) -> str:
        """The hash of the question, which identifies it."""
        return digest_of(self.question, 24)

    def apply_changes(
        self, step: int, changes: Iterable[tuple[Stage, ChangeKind, Criterion, str]]
    ) -> "RubricBuffer":
        """The next version: a stage, what happened to which of its criteria, and why.

        The same buffer if nothing changed.
        """
        buffer, version = self, self.version + 1
        for stage, kind, criterion, reason in changes:
            change = RubricChange(
                version=version,
                step=step,
                stage=stage,
                kind=kind,
                criterion=criterion,
                reason=reason,
            )
            buffer = buffer._after(change)
        return buffer

    def _after(self, change: RubricChange) -> "RubricBuffer":
        """The buffer after one change, wherever the criterion was before."""
        shelves: dict[str, dict[Stage, tuple[Criterion, ...]]] = {
            "persistent": dict(self.persistent),
            "active": dict(self.active),
            "retired": dict(self.retired),
        }
        stage, criterion = change.stage, change.criterion
        for shelf in shelves.values():
            if stage in shelf:
                shelf[stage] = tuple(c for c in shelf[stage] if c.meaning != criterion.meaning)
        kept = "persistent" if criterion.persistent else "active"
        place = shelves["retired" if change.kind == "retired" else kept]
        place[stage] = (*place.get(stage, ()), criterion)
        history = (*self.history, change)
        return self.model_copy(update={**shelves, "version": change.version, "history": history})

    def criteria(self, stage: Stage) -> tuple[Criterion, ...]:
        """The criteria that this stage is scored on: persistent ones first, then active ones."""
        return self.persistent.get(stage, ()) + self.active.get(stage, ())

    @property
    def label(self) -> str:
        """Identifies what is scored now: the version, and a hash of the criteria in force."""
        keys = [f"{stage}:{c.key}:{c.weight}" for stage in Stage for c in self.criteria(stage)]
        return f"{self.version}-{digest_of(' '.join(keys), 8)}"


class GroupJudgement(Value):
    """The judgements of a group, and the rubrics after judging it."""

    judgements: tuple[Judgement, ...]
    """one per trajectory, in the same order"""
    buffer: RubricBuffer
    notes: tuple[str, ...] = ()
    """a sentence for each thing that did not work"""
    unproposed: str = ""
    """why the judge, which was to propose criteria, proposed none; "": it did, or was not to"""
    usage: Usage = NO_USAGE
    """of proposing criteria only; that of scoring is in each judgement"""
    version_before: int | None = None
    """of the rubrics that the judge was given; None if the caller did not note it"""


StopPredicate = Callable[[str], int | None]
"""Text so far -> the offset at which to end it, or None to go on. Called as text arrives."""

OnText = Callable[[str], None]
"""Called with each new piece of text, for showing it live."""

StopReason = Literal["stop", "eos", "length", "repetition"]
"""`stop`: the predicate; `eos`: the model ended; `length`: max_tokens; `repetition`: it looped."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. `dry` and `grammar` (GBNF) are honoured by llama.cpp alone.

    `dry`: length in tokens up to which earlier text may be repeated unpenalised (DRY sampling);
    None: no such penalty. `json_schema` (as JSON) is honoured by some servers.
    """

    max_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    dry: int | None = None
    grammar: str | None = None
    seed: int | None = None
    json_schema: str | None = None
    tools: str | None = field(default=None, repr=False)  # JSON; no part of a call's name


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote.

    `token_ids`, `logprobs` and `token_ends` have one entry per token; each is None if the server
    does not return it. `token_ends[i]` is the offset in `text` after token i. `reasoning` is
    thinking that the server returned apart from the text (or that the client split off as
    `<think>`); it is never part of `text`.
    """

    text: str
    stop_reason: StopReason
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    token_ends: tuple[int, ...] | None = None
    retokenised: bool = False
    """the ids come from a tokeniser: those returned with the text do not decode to it"""
    reasoning: str = ""
    usage: Usage = NO_USAGE

    def tokens_between(
        self, start: int, end: int
    ) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Ids and log-probabilities of text[start:end]; a token belongs to where it begins."""
        if self.token_ids is None or self.token_ends is None:
            return None, None
        starts = (0, *self.token_ends[:-1])
        chosen = [i for i, at in enumerate(starts) if start <= at < end]
        ids = tuple(self.token_ids[i] for i in chosen)
        logprobs = self.logprobs
        return ids, None if logprobs is None else tuple(logprobs[i] for i in chosen)


class TokenReader(Protocol):
    """A model that reads token ids."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def context_tokens(self) -> int: ...

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the messages in the model's chat template, ready for the assistant's turn."""
        ...

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; special tokens in it are encoded as text."""
        ...


class TokenPolicy(TokenReader, Protocol):
    """A model that continues token ids."""

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion: ...


class ChoiceReader(TokenReader, Protocol):
    """A model that answers by its token probabilities instead of by text."""

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        """Probability of each option as the next token, normalised over the options: sums to 1.

        Options differ in their first token. Raises PolicyError if they have no probability.
        """
        ...


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process, which both weighs options and continues tokens."""


class ChatModel(Protocol):
    """A model that answers messages. Raises PolicyError if it gets no reply."""

    @property
    def name(self) -> str: ...

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion: ...


class GroupJudge(Protocol):
    """Judges groups. It raises nothing: what it fails on is unscored, with the reason."""

    @property
    def name(self) -> str: ...

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement: ...


BELOW = " > "
"""between the headings of a passage's place, the highest first"""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, with what is needed to quote it and to find it again."""

    title: str
    location: str
    """url or path"""
    place: str
    """symbol, heading, page or lines inside it"""
    text: str
    begun_before: bool = False
    """whether text under the same heading stands before it"""
    goes_on: bool = False
    """whether text under the same heading follows"""
    public: bool = False
    """whether a public service or an installed library told it: what it says may leave"""
    date: str = ""
    """of its page, as a search told it: the end of the place as soon as it is shown"""


ShownTexts = Mapping[str, Sequence[str]]
"""what was shown of each file or page, by its location"""
NOT_SHOWN: ShownTexts = MappingProxyType({})


class SearchTool(Protocol):
    """Finds passages. An empty list means that nothing matched; a failure raises SourceError."""

    @property
    def name(self) -> str: ...

    async def prepare(self) -> tuple[str, ...]:
        """Do in advance what the first search would have to wait for, such as reading documents.

        Returns a sentence for each thing that could not be read; the rest can be searched.
        """
        ...

    async def search(self, query: str, limit: int) -> list[Passage]: ...


@runtime_checkable
class Widening(Protocol):
    """A `SearchTool` that also knows what stands around the passages that it found."""

    async def around(
        self, passages: Sequence[Passage], words: int, shown: ShownTexts = NOT_SHOWN
    ) -> list[Passage]:
        """Each passage with its neighbours under the same heading, of at most `words` words in all.

        A page that is shorter is taken whole. A passage that another one took along is left out,
        and no neighbour is taken that was `shown` before.
        """
        ...

    async def page(self, location: str) -> list[Passage]:
        """All passages of one file or page in their order; [] if it is none of this tool's."""
        ...


class PageReader(Protocol):
    """Reads whole web pages. Raises SourceError, in one sentence, if a page cannot be read."""

    async def read(self, address: str) -> list[Passage]: ...


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> "NDArray[np.float32]":
        """(n, d) float32, each row of length 1.

        `query`: the texts are queries, which some models read under an instruction of their own;
        else they are the texts to be searched.
        """
        ...
