"""The values that every room speaks: what was asked, written, found, scored and learnt.

All are frozen pydantic models, because they are stored as JSON lines and read back by later
versions. Text is what was really written or fetched, unescaped; escaping is for rendering.
Token ids and log-probabilities (natural log, of the raw model at temperature 1) are present
only where the model that wrote the text returned them.

What is stored says its `schema_version`; what says none is of version 1. A change that an older
reader or writer would misunderstand raises the version by one and adds the function that brings
the older fields up to it; a new field with a default needs neither.

A rubric buffer is a value: the judge makes a new one of it, and its caller saves that at a step's
end. Persistent criteria came with the question, or were made from it before any run was seen, and
are never pruned; active ones were proposed by contrasting runs (RubricEM, arXiv:2605.10899,
appendix C).

The seams stand at the end: what the rooms ask of a model, a search tool and an embedder. A model is
asked through one of two. `TokenPolicy` continues a list of token ids and is what training needs
(token in, token out). `ChatModel` answers messages; a chat-only server used as the policy is
adapted, and its segments are marked `retokenised`.

It is one module, since whoever speaks of a value nearly always speaks of who makes it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rubricem.memory.errors import StoreError
from rubricem.memory.text import digest_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


class Kept(Value):
    """What an item of the bank is, of whichever kind, and where it comes from."""

    id: str
    question: str
    score: float = Field(ge=0, le=1)
    """of a reflection what a judge gave it; of an episode the share of its look-ups answered"""
    trajectory_id: str
    policy: str = ""
    policy_version: str = ""
    origin: Origin = "run"
    replaces: str = ""
    """id of the version that a person edited"""
    flags: tuple[str, ...] = ()
    """sentences that say why it stands in quarantine: with any it is not recalled until a person
    releases it"""
    written_at: datetime


class Basis(Value):
    """What in its run a lesson rests on, as code found it there."""

    kind: Literal["stage", "source", "query"]
    name: str
    """the stage, the source's id in that run, or the query, case folded"""
    mark: str = ""
    """of a source the SHA-256 of its text; of a query `hit` or `miss`"""


class Reflection(Kept):
    """What a judged run teaches: rubrics for such a question, and portable takeaways."""

    rubrics: str
    takeaways: str
    judge: str = ""
    judge_version: str = ""
    """the rubrics' version, or what is known of the judge model's"""
    stage_scores: tuple[Annotated[float, Field(le=1, allow_inf_nan=False)] | None, ...] = ()
    """of the run it is about, in the order of the stages; None: unscored"""
    reflection_score: ReflectionScore | None = None
    """the parts of `score`, where a judge gave them"""
    rests_on: tuple[Basis, ...] = ()
    """of the takeaways in their order; none of what a person or an earlier version wrote"""


class Pointer(Value):
    """Where a passage stood that answered something. Its text is not kept, only how to know it."""

    source: str
    """its id in that run"""
    title: str
    location: str
    place: str = ""
    digest: str
    """SHA-256 of its text as it was fetched"""
    tool: str
    query: str
    """that found it first"""
    claims: tuple[str, ...] = ()
    """of the answer, that it was found to support"""


class PastLookup(Value):
    """One thing that a run looked up, and what came of it."""

    asked: str
    answer: str = ""
    """in a source's words; "": it was not found"""
    queries: tuple[str, ...] = ()
    """searched for it, in order"""
    source: str = ""
    """id of the one that the answer was read in"""


class PastSearch(Value):
    """One query of a run, and what it brought."""

    tool: str
    query: str
    passages: int
    new: int
    """of them, that nothing before had brought"""
    hit: bool
    """something that it brought first stands behind a supported claim"""
    vain: tuple[str, ...] = ()
    """of one without a hit: how the SHA-256 begins of each passage that no claim rests on"""


class Episode(Kept):
    """What a run did and found, written down by code and by no model.

    It leads later runs to sources; its own texts, answers and claims included, are evidence of
    nothing and are shown to people alone. Queries are searched again, as queries.
    """

    names: tuple[str, ...] = ()
    """persons, things and identifiers that the question, its look-ups and its sources name"""
    lookups: tuple[PastLookup, ...] = ()
    searches: tuple[PastSearch, ...] = ()
    pointers: tuple[Pointer, ...] = ()
    missing: tuple[str, ...] = ()
    """what was looked up and not found"""
    failures: tuple[str, ...] = ()
    """a line for each query that brought nothing of use, and what did instead"""

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything in it that somebody wrote, but the question and where passages stand."""
        pointers = (text for p in self.pointers for text in (p.title, p.query, *p.claims))
        lookups = (text for x in self.lookups for text in (x.asked, x.answer, *x.queries))
        queries = (search.query for search in self.searches)
        told = (*self.names, *lookups, *queries, *pointers, *self.missing, *self.failures)
        return tuple(dict.fromkeys(text for text in told if text != self.question))


ItemKind = Literal["reflection", "episode"]


FORMED = "asked in the same words but for the names"


class Recollection(Value):
    """What a run was given of the bank, as it stood then; earlier versions kept the id alone."""

    id: str
    kind: ItemKind = "reflection"
    why: str = ""
    """what an episode shares with the question or query, where that is not its whole question"""
    question: str = ""
    """that it was learnt from"""
    own: bool = False
    """it is the run's own question"""
    similarity: float | None = None
    """of the two questions, a cosine; None for its own, and where nobody kept it"""
    score: float | None = None
    """of the item"""


class Contribution(Value):
    """What a recalled episode did in a run.

    `pointer`: a passage it leads to was offered; `query`: a query of it was searched in the place
    of one that brought nothing; `miss`: a search that had brought nothing was left out; `vain`:
    what a search had brought in vain was read after others, or not again; `plan`: its look-ups were
    made again, on the very question, on one in the same words or on one that begins with one of
    them; `reading`: what answered a look-up was read off the same passage again.
    """

    item: str
    use: Literal["pointer", "query", "miss", "vain", "plan", "reading"]
    what: str
    """the source's id, the query, or the question; of a pointer that leads nowhere its title"""
    outcome: Literal["offered", "changed", "gone", "barred"] = "offered"
    """`changed`, `gone`: what the source holds today no longer bears it, or it is not there;
    `barred`: its source is none of today's"""


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


V = TypeVar("V")


def read(text: str | bytes, kind: type[V]) -> V:
    """A stored value, or a list or mapping of them, as today's schema has it.

    Raises pydantic's ValidationError for what is no such value, StoreError for one of a newer
    schema than is known.
    """
    if (
        isinstance(kind, type)
        and issubclass(kind, Versioned)
        and _Stamp.model_validate_json(text).schema_version != 1 + len(kind.upgrades)
    ):
        text = json.dumps(upgraded(json.loads(text), kind))
    found: V = _form(cast(Any, kind)).validate_json(text)
    return found


@cache
def _form(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


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

    @property
    def whole(self) -> bool:
        """Whether nothing is left to go on with."""
        return self in (Status.FINISHED, Status.NO_EVIDENCE)


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
    recalled: str = ""
    """id of the episode that led to it, where the search alone would not have shown it"""


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


class Spent(Value):
    """What the calls of one kind came to in a run: of a slot, of a tool, of the verifier."""

    slot: str
    calls: int = 0
    seconds: float = 0.0
    read: int = 0
    """tokens of the prompt that no cache held"""
    written: int = 0
    """tokens"""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            slot=self.slot,
            calls=self.calls + other.calls,
            seconds=self.seconds + other.seconds,
            read=self.read + other.read,
            written=self.written + other.written,
        )


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
    policy_version: str = ""
    """of the weights that wrote it, where they are not those that its run was begun with"""
    kept: bool = True
    """False: an attempt that was retried; it is no part of the transcript or of training"""


class Trajectory(Versioned):
    """One question's way from prompt to answer: the one value that passes between rooms."""

    id: str
    thread: str
    """names the run"""
    question: str
    answer_format: AnswerFormat
    decoding: Decoding
    system: str = ""
    """the system prompt; the first segment is the user's message after it"""
    segments: tuple[Segment, ...]
    sources: tuple[Source, ...] = ()
    """those of the conversation that were at hand from the beginning come first"""
    searched: tuple[ToolUse, ...] = ()
    """each call that did not fail, also where the conversation had the answer"""
    earlier: tuple[str, ...] = ()
    """the runs of the conversation whose reports stood before the question"""
    status: Status
    reason: str = ""
    """one sentence, when the status is not FINISHED"""
    ended_by: Ending = ""
    cut_in: Stage | None = None
    """the stage that was broken off from outside; None where the policy ended its work itself"""
    policy: str
    policy_version: str = ""
    """hash of the weights that it was begun with, or what the server calls the model"""
    usage: Usage = NO_USAGE
    spent: tuple[Spent, ...] = ()
    """where its time went, in the order in which each kind of call was first made"""
    tool_calls: int = 0
    verification: Verification | None = None
    """None: nobody checked the citations"""
    recalled: tuple[str, ...] = ()
    """ids of the bank items put before the question"""
    recollections: tuple[Recollection, ...] = ()
    """the same items, in their order"""
    contributions: tuple[Contribution, ...] = ()
    """what came of those that are episodes"""
    lookups: tuple[PastLookup, ...] = ()
    """the plan that code followed, in forced decoding"""
    scaffold: ScaffoldedPrompt | None = None
    shared: int = 0
    """of a branch, how many kept segments at its beginning its group's others have as well, sampled
    once; 0: it is a whole run"""
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
    facts: dict[str, Any] | None = None
    """what the questions file says for a rubric of one's own to score by"""


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
        return digest_of(text, 12)

    @property
    def meaning(self) -> str:
        """What it says, without case, punctuation and sign."""
        text = f"{self.title} {self.description}".casefold()
        return " ".join("".join(c if c.isalnum() else " " for c in text).split())


class Verdict(Value):
    """How far one criterion holds of one stage, as a judge sees it."""

    criterion: Criterion
    points: float = Field(ge=0, le=2)
    """0 absent, 1 partial, 2 full; between them where a probability was read. Not inverted for
    a negative criterion: 2 means that the flaw is fully present."""
    justification: str = ""
    justified_by: Literal["judge", "code"] = "judge"
    """`code`: a span of the trajectory that code found for it; the judge gave no words"""


NO_CRITERIA, ANOTHER_STAGE = "no criteria", "the branch is about another stage"
"""the reasons of a stage that is left out of every sum it would enter, rather than unknown"""


class StageScore(Value):
    """A judge's score of one stage: a number of at most 1, or None with the reason."""

    stage: Stage
    score: float | None = Field(default=None, le=1, allow_inf_nan=False)
    """at least 0, but of a checklist on which more points were lost than won"""
    unscored_reason: str = ""
    """also of a score that a gate gave in the judge's place, which had nothing to say"""
    justification: str = ""
    verdicts: tuple[Verdict, ...] = ()
    missing: bool = False
    """the policy ended without this stage: a score of 0 that stands in the baseline"""
    spread: float | None = None
    """population standard deviation of the score over repeated scorings; None for a single one"""
    components: dict[str, float] = Field(default_factory=dict)
    """what each rubric below a composed one gave, by its dotted name; unknown ones are left out"""


def left_out(
    score: StageScore | None, reasons: Sequence[str] = (NO_CRITERIA, ANOTHER_STAGE)
) -> bool:
    """Whether the stage has no score because there was nothing to score: nobody failed at it.

    Its rubric says nothing, or a branch is not about it.
    """
    return score is not None and score.score is None and score.unscored_reason in reasons


class Judgement(Value):
    """One trajectory as one judge saw it, under one version of the rubrics."""

    trajectory_id: str
    judge: str
    rubric_version: str = ""
    stages: tuple[StageScore, ...]
    """one for each stage, in order"""
    usage: Usage = NO_USAGE

    def at(self, stage: Stage) -> StageScore | None:
        """What was said of a stage; None: nothing."""
        return next((score for score in self.stages if score.stage is stage), None)

    def score(self, stage: Stage) -> float | None:
        found = self.at(stage)
        return found.score if found else None


class ReflectionCandidate(Value):
    """One attempt at a reflection: what the policy read and wrote, and what became of it."""

    trajectory_id: str
    question: str
    segments: tuple[Segment, ...]
    """the prompt (with the trajectory in it), then what the policy wrote; ids where it has them"""
    rubrics: str = ""
    takeaways: str = ""
    rests_on: tuple[Basis, ...] = ()
    """of the takeaways in their order"""
    fault: str = ""
    """why its format is not valid; such a candidate is never kept in the bank"""
    held: bool = False
    """written under a grammar, for the bank: no sample of the policy"""
    score: ReflectionScore | None = None
    unscored_reason: str = ""
    accepted: bool = False
    """the one that went into the bank"""


ChangeKind = Literal["added", "returned", "retired", "pinned"]


class RubricChange(Value):
    """One line of a buffer's history."""

    version: int
    """of the buffer that the change led to"""
    step: int
    stage: Stage
    kind: ChangeKind
    criterion: Criterion
    reason: str


Criteria = Mapping[Stage, tuple[Criterion, ...]]
"""by stage; a stage without any may be left out"""


class RubricBuffer(Value):
    """Every criterion of one question. A version counts each set of changes made at once."""

    question: str
    version: int = 0
    persistent: Criteria = Field(default_factory=dict)
    active: Criteria = Field(default_factory=dict)
    retired: Criteria = Field(default_factory=dict)
    """those that are no longer scored, the latest last"""
    history: tuple[RubricChange, ...] = ()

    @property
    def id(self) -> str:
        """Names the question: its hash."""
        return digest_of(self.question, 24)

    def at(self, version: int) -> "RubricBuffer":
        """The buffer as it was at an earlier version, replayed from its history."""
        buffer = RubricBuffer(question=self.question)
        for change in self.history:
            if change.version <= version:
                buffer = buffer._after(change)
        return buffer

    def changed(
        self, step: int, changes: Iterable[tuple[Stage, ChangeKind, Criterion, str]]
    ) -> "RubricBuffer":
        """The next version: what happened to which criterion of which stage, and why.

        The same buffer if nothing changed.
        """
        buffer = self
        for stage, kind, criterion, reason in changes:
            buffer = buffer._after(
                RubricChange(
                    version=self.version + 1,
                    step=step,
                    stage=stage,
                    kind=kind,
                    criterion=criterion,
                    reason=reason,
                )
            )
        return buffer

    def _after(self, change: RubricChange) -> "RubricBuffer":
        """With one change made, on whichever shelves the criterion stood."""
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
        """What this stage is scored on: the persistent ones, then the active ones."""
        return self.persistent.get(stage, ()) + self.active.get(stage, ())

    @property
    def label(self) -> str:
        """Names what is scored now: the version, and a hash of the criteria in force."""
        keys = [f"{stage}:{c.key}:{c.weight}" for stage in Stage for c in self.criteria(stage)]
        return f"{self.version}-{digest_of(' '.join(keys), 8)}"


class GroupJudgement(Value):
    """A group as the judge saw it, and the rubrics as they are afterwards."""

    judgements: tuple[Judgement, ...]
    """one for each trajectory, in their order"""
    buffer: RubricBuffer
    notes: tuple[str, ...] = ()
    """what did not work, in sentences"""
    usage: Usage = NO_USAGE
    """of proposing alone; that of scoring stands in each judgement"""
    version_before: int | None = None
    """of the rubrics that the judge was handed, where whoever keeps this has noted it"""
    seconds: float | None = None
    """that judging took, where whoever keeps this has noted it"""


StopPredicate = Callable[[str], int | None]
"""Text so far -> the offset at which it ends, or None to go on. Called as text arrives."""

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

    `dry`: tokens that may be repeated from anywhere before the repetition is made unlikely
    (DRY sampling); None: no such rule. `json_schema` (as JSON) is honoured by some servers.
    """

    max_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    dry: int | None = None
    grammar: str | None = None
    seed: int | None = None
    json_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote.

    `token_ids`, `logprobs` and `token_ends` have one entry per token, or are all None where
    the server does not return them. `token_ends[i]` is the offset in `text` after token i.
    `reasoning` is thinking that the server kept apart from the text (or `<think>` was split
    off by the client); it is never part of `text`.
    """

    text: str
    stop_reason: StopReason
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    token_ends: tuple[int, ...] | None = None
    retokenised: bool = False
    """the ids are a tokeniser's own: those that came with the text do not decode to it"""
    reasoning: str = ""
    usage: Usage = NO_USAGE
    policy_version: str = ""
    """of the weights that wrote it, where they are not those that its policy was opened with"""

    def tokens_between(
        self, start: int, end: int
    ) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Ids and log-probabilities of a part of the text; a token belongs where it begins."""
        if self.token_ids is None or self.token_ends is None:
            return None, None
        starts = (0, *self.token_ends[:-1])
        chosen = [i for i, at in enumerate(starts) if start <= at < end]
        ids = tuple(self.token_ids[i] for i in chosen)
        if self.logprobs is None:
            return ids, None
        return ids, tuple(self.logprobs[i] for i in chosen)


class TokenReader(Protocol):
    """A model that reads token ids."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def context_tokens(self) -> int: ...

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the messages in the model's chat template, open for the assistant's text."""
        ...

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; special tokens written in it stay text."""
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
    """A model whose opinion is read from its probabilities, not from what it writes."""

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        """Probability of each option as the next token, over the options alone: sums to 1.

        Options differ in their first token. Raises PolicyError when they have no probability.
        """
        ...


@runtime_checkable
class LocalModel(ChoiceReader, TokenPolicy, Protocol):
    """A model in this process: it weighs options, and it continues tokens."""


class ChatModel(Protocol):
    """A model that answers messages. Raises PolicyError when no reply could be had."""

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
    """A judge of groups. What it fails on is unscored with the reason; it raises nothing."""

    @property
    def name(self) -> str: ...

    async def judge(
        self, group: TrajectoryGroup, buffer: RubricBuffer, step: int = 0
    ) -> GroupJudgement: ...


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: enough to quote it and to find it again."""

    title: str
    location: str
    """url or path"""
    place: str
    """symbol, heading, page or lines inside it"""
    text: str


class SearchTool(Protocol):
    """Finds passages. An empty list means that nothing matched; failure raises SourceError."""

    @property
    def name(self) -> str: ...

    async def prepare(self) -> tuple[str, ...]:
        """Do now what the first search would have to wait for, such as reading documents.

        Returns a sentence for each thing that could not be read; the rest is searched.
        """
        ...

    async def search(self, query: str, limit: int) -> list[Passage]: ...


class PageReader(Protocol):
    """Reads whole pages of the web. Raises SourceError, in one sentence, where one cannot be."""

    async def read(self, address: str) -> list[Passage]: ...


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> "NDArray[np.float32]":
        """(n, d) float32, each row of length 1.

        `query`: the texts are what is looked for, which some models read under an instruction
        of their own; else they are what is kept and found.
        """
        ...
