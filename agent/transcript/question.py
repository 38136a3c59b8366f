"""What is asked of a run, what it may spend, and what one of its actions finds.

A budget - tokens, seconds, US dollars - has a reserve: when less than it is left, the research
ends, so that an answer can still be written; when nothing is left, the run is cut. Tokens are those
newly processed: what a server read from its cache is not counted. A call is not begun if, at the
size of the previous one, it would exceed the tokens or dollars left; seconds also end a call in
flight. The clock stands still while finished calls are replayed, so a resumed run decides as at
first.

The policy's next action is one line of text: a query, `open_page S3 words to find`, or a tool of an
MCP server by its name; `NEXT_CALL` stands between the actions of one turn. The result of each is
shown as numbered snippets, untrusted text made harmless.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar, cast

from rubricem.agent.transcript.scaffold import neutralise, parse, rubric_items
from rubricem.agent.transcript.words import cut_words, part_about
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import NO_USAGE, AnswerFormat, Source, Spent, Stage, Usage, Value
from rubricem.memory.text import one_line, pluralise, printable, storable

T = TypeVar("T")
Limited = Literal["tokens", "seconds", "cost"]
Amounts = dict[Limited, float]
RESERVE = 0.15
"""share of a budget kept for the answer, or two of the largest calls so far where that is more"""
LARGEST_RESERVE = 0.5


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of one run; None: no limit."""

    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    """in US dollars"""

    def phrases(self) -> dict[Limited, str]:
        """Each limit that there is, in words."""
        forms = {"tokens": "{:,} new token", "seconds": "{:,g} second", "cost": "{:,.6g} US dollar"}
        return {
            name: forms[name].format(limit) + ("" if limit == 1 else "s")
            for name, limit in self.amounts().items()
        }

    def amounts(self) -> Amounts:
        """The limits that there are."""
        names: tuple[Limited, ...] = ("tokens", "seconds", "cost")
        return {name: limit for name in names if (limit := getattr(self, name)) is not None}


UNLIMITED = Budgets()
Span = tuple[float, float]
"""the 10th and the 90th percentile"""


@dataclass(frozen=True, slots=True)
class UsualCost:
    """What the latest finished runs of a kind took."""

    runs: int
    """how many they are"""
    calls: Span
    tokens: Span
    """those that a budget counts"""
    seconds: Span
    cost: Span | None
    """in US dollars; None: no price was known"""
    median: float
    """of the seconds"""

    def phrases(self) -> tuple[str, ...]:
        """Each in words."""
        low, high = self.seconds
        minutes = _between((low / 60, high / 60), "minute")
        money = dict.fromkeys(f"{each:,.2g}" for each in self.cost or ())
        return (
            _between(self.calls, "search"),
            _between(self.tokens, "new token"),
            minutes if high >= 120 else _between(self.seconds, "second"),
            *([f"{' to '.join(money)} US dollars"] if money else ()),
        )


def _between(span: Span, what: str) -> str:
    low, high = map(round, span)
    return f"{f'{low:,} to ' if low != high else ''}{pluralise(high, what)}"


def new_tokens(usage: Usage) -> int:
    """Those that a budget counts: read, unless from a cache, and written."""
    return max(usage.prompt_tokens - usage.cached_tokens, 0) + usage.completion_tokens


def tokens_told(usage: Usage) -> str:
    """The tokens that a budget counts, in words."""
    read = new_tokens(usage) - usage.completion_tokens
    return f"{read:,} new tokens read, {usage.completion_tokens:,} written"


def amounts_of(usage: Usage, seconds: float = 0.0) -> Amounts:
    """What a call took of each budget."""
    return {"tokens": new_tokens(usage), "seconds": seconds, "cost": usage.cost or 0.0}


class Effort(StrEnum):
    """How widely a question is researched. DEEP: by several investigations under one rubric."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


@dataclass(frozen=True, slots=True)
class EffortLimits:
    """What a run may do and spend where nobody says otherwise."""

    tool_calls: int
    """of an investigation, where there are several"""
    budgets: Budgets
    length: int = 0
    """characters of the report, about; 0: as many as the question deserves"""


LIMITS: Mapping[Effort, EffortLimits] = {
    Effort.QUICK: EffortLimits(4, Budgets(60_000, 120, 0.2), 1500),
    Effort.STANDARD: EffortLimits(30, Budgets(300_000, 1200, 1), 8000),
    Effort.DEEP: EffortLimits(30, Budgets(1_000_000, 3600, 8), 24_000),
}
SMALL = EffortLimits(10, Budgets(200_000, 900, 1))
"""of a model in this process"""
BREADTH, MOST_INVESTIGATIONS, ROUNDS = 5, 12, 2
"""investigations at once, and in all; times that a lead may ask for some"""


class RunCut(Exception):
    """The run is broken off: a budget is spent, a person wants it to end, or the model failed.

    `text` is what the policy had written of the turn in flight.
    """

    def __init__(
        self,
        by: Limited | Literal["interrupt", "failure"],
        stage: Stage,
        text: str = "",
        reason: str = "",
    ) -> None:
        """`reason`: of a failure of the model, which no budget explains."""
        super().__init__(by)
        self.by = by
        self.stage = stage
        self.text = text
        self.reason = reason


class OutOfTime(Exception):
    """A call was ended before its own end: by its budget of seconds, or by a person."""

    def __init__(self, by: Literal["seconds", "interrupt"]) -> None:
        super().__init__(by)
        self.by = by


@dataclass
class Spending:
    """What one run has spent so far of its budgets."""

    budgets: Budgets = UNLIMITED
    stop: asyncio.Event | None = None
    """set by a person who wants the run to end now"""
    _spent: Amounts = field(default_factory=partial(amounts_of, NO_USAGE))
    _last: Amounts = field(default_factory=partial(amounts_of, NO_USAGE))
    _largest: Amounts = field(default_factory=partial(amounts_of, NO_USAGE))
    usage: Usage = NO_USAGE
    slots: dict[str, Spent] = field(default_factory=dict)
    """what was spent, by what it was spent on"""
    _since: float | None = field(default_factory=time.monotonic)
    """None while finished calls are replayed"""

    @property
    def seconds(self) -> float:
        """Time the run was worked on, in this process and before."""
        going = 0.0 if self._since is None else time.monotonic() - self._since
        return self._spent["seconds"] + going

    def live(self) -> None:
        """From now on time counts: a call is made that no journal holds."""
        if self._since is None:
            self._since = time.monotonic()

    def pause(self) -> None:
        """A person is waited for: until the next call is made no time counts."""
        self._spent["seconds"], self._since = self.seconds, None

    def replay_to(self, at: float) -> None:
        """A call was read back that had ended after so many seconds; the clock stands there."""
        self._spent["seconds"], self._since = max(at, 0.0), None

    def count(self, usage: Usage, seconds: float) -> None:
        """Count one call of the policy and how long it took."""
        self.add(usage)
        self._last = amounts_of(usage, seconds)
        self._largest = {name: max(self._largest[name], now) for name, now in self._last.items()}

    def book(self, slot: str, seconds: float, usage: Usage = NO_USAGE) -> None:
        """Add a call to the usage, under the name of what it was for."""
        self.usage += usage
        read = usage.prompt_tokens - usage.cached_tokens
        call = Spent(
            slot=slot, calls=1, seconds=seconds, read=read, written=usage.completion_tokens
        )
        self.slots[slot] = self.slots[slot] + call if slot in self.slots else call

    def low(self) -> Limited | None:
        """The budget of which only the reserve is left."""
        for name, limit in self.budgets.amounts().items():
            reserve = min(max(RESERVE * limit, 2 * self._largest[name]), LARGEST_RESERVE * limit)
            if self._amount_of(name) > limit - reserve:
                return name
        return None

    def add(self, usage: Usage) -> None:
        """Count what a part of the run spent, whose size says nothing of the next call."""
        for name, amount in amounts_of(usage).items():
            self._spent[name] += amount

    def left(self, beside: Usage = NO_USAGE) -> Budgets:
        """What is left of each budget that there is; `beside`: spent and not counted yet."""
        more = amounts_of(beside)
        limits = {
            name: max(limit - self._amount_of(name) - more[name], 0)
            for name, limit in self.budgets.amounts().items()
        }
        tokens = int(limits["tokens"]) if "tokens" in limits else None
        return Budgets(tokens, limits.get("seconds"), limits.get("cost"))

    def out(self, in_flight: int = 0) -> Limited | None:
        """The budget that does not allow another call of the policy, beside those `in_flight`."""
        for name, limit in self.budgets.amounts().items():
            coming = 0.0 if name == "seconds" else self._last[name] * (1 + in_flight)
            if self._amount_of(name) >= limit or self._amount_of(name) + coming > limit:
                return name
        return None

    def room(self, tokens: int) -> int:
        """So many tokens as may be written, of those wanted."""
        if self.budgets.tokens is None:
            return tokens
        return max(min(tokens, self.budgets.tokens - int(self._spent["tokens"])), 1)

    async def limit_time(self, call: Coroutine[Any, Any, T], *, timed: bool = True) -> T:
        """What the call gives; raises OutOfTime where it is ended before.

        Not `timed`: only by a person.
        """
        seconds = self.budgets.seconds if timed else None
        if self.stop is None and seconds is None:
            return await call
        left = None if seconds is None else seconds - self.seconds
        stop = self.stop or asyncio.Event()
        if stop.is_set() or (left is not None and left <= 0):
            call.close()
            raise OutOfTime("interrupt" if stop.is_set() else "seconds")
        work, stopped = asyncio.ensure_future(call), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([work, stopped], timeout=left, return_when="FIRST_COMPLETED")
            if work.done():
                return work.result()
            raise OutOfTime("interrupt" if stopped.done() else "seconds")
        finally:
            work.cancel()
            stopped.cancel()
            await asyncio.gather(work, stopped, return_exceptions=True)

    def holds(self, decision: dict[str, Any]) -> bool:
        """Whether a decision that the journal kept is still right: not under a larger budget."""
        limit = self.budgets.amounts().get(decision["by"])
        return limit is not None and limit <= decision["limit"]

    def decision(self, by: Limited, text: str = "") -> dict[str, Any]:
        """A decision as the journal keeps it."""
        limit = getattr(self.budgets, by)
        return {"by": by, "limit": limit, "text": text, "at": self.seconds}

    def _amount_of(self, name: Limited) -> float:
        return self.seconds if name == "seconds" else self._spent[name]


def reason_of(by: str, budgets: Budgets, *, low: bool = False) -> str:
    """Why a run ended early, as a clause."""
    if by == "interrupt":
        return "it was stopped"
    phrase = budgets.phrases()[cast(Limited, by)]
    how = "ran low, so the research ended before it was done" if low else "ran out"
    return f"the budget of {phrase} {how}"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked, and the limits the answer has to keep."""

    question: str
    answer_format: AnswerFormat = AnswerFormat.LONG
    tool_calls: int = 10
    passages: int = 5
    passage_words: int = 500
    """words shown of each passage; the source keeps its whole text"""
    max_tokens: int = 4096
    """tokens the policy may write in one turn"""
    seed: int = 0
    approve_plan: bool = False
    review_returns: int = 1
    """times that a review which names something missing sends the run back to research"""
    clarify: bool = False
    """the policy may ask the person one question before it plans"""
    budgets: Budgets = UNLIMITED
    """may be other ones when the run is resumed; all else is part of what was asked"""
    scaffold: str = ""
    """criteria of the question's rubric, put after the system prompt of a collected rollout"""
    criteria_shown: int = 0
    """how many stand in it"""
    earlier: tuple[str, ...] = ()
    """the runs of the conversation before this question, in order; none: it is asked alone"""
    effort: Effort = Effort.STANDARD
    length: int = 0
    """characters of a long report, about; 0: as many as the question deserves"""
    serves: tuple[str, ...] = ()
    """of an investigation: the items of the whole question's rubric that it is for"""
    whole: str = ""
    """of an investigation: the whole question; "": this is no part of another"""

    @property
    def leads(self) -> bool:
        """Whether the run calls nothing but investigations."""
        return self.effort is Effort.DEEP and not self.whole

    @property
    def calls(self) -> int:
        """Tool calls that the run itself may make."""
        return MOST_INVESTIGATIONS if self.leads else self.tool_calls

    def limits(self, priced: bool | None) -> tuple[str, ...]:
        """Each limit in words; `priced`: whether money is counted; None: there is none to pay."""
        phrases = self.budgets.phrases()
        if priced is None:
            phrases.pop("cost", None)
        elif "cost" in phrases and not priced:
            phrases["cost"] = "no limit in dollars (name the model's price in [prices])"
        what = "investigation" if self.leads else "search"
        return pluralise(self.calls, what), *phrases.values()


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """A piece of an investigation's report: a claim with its sources, or text between claims."""

    text: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brought: sources (numbered), those shown for the first time, or an error."""

    sources: tuple[Source, ...]
    new: frozenset[str] = frozenset()
    error: str = ""
    repeated: bool = False
    """answered from the transcript, without a tool call"""
    note: str = ""
    """what the policy has to know of it, in one sentence"""
    claims: tuple[FoundClaim, ...] = ()
    """the report of an investigation, in pieces"""
    asked: str = ""
    """which of the calls of a turn it answers; "": there was one"""


LONGEST_QUESTION = 20_000
"""characters; more is a document, and documents are sources"""


def check_question(question: str) -> str:
    """The question, if it is one; raises SettingsError otherwise."""
    # A caller over the network may send what is no text.
    if not isinstance(question, str) or not printable(question).strip():
        raise SettingsError("There is no question.", 'Ask one, such as "How does ... work?"')
    if len(question) > LONGEST_QUESTION:
        raise SettingsError(
            f"The question has {len(question):,} characters; at most {LONGEST_QUESTION:,} can be "
            "asked at once.",
            "Put long material into a folder, and name that as a source.",
        )
    return storable(question.strip())


OPEN_PAGE, READ = "open_page", "read"
"""the tool that opens a source, and what models call it as well"""
INVESTIGATE = "investigate"
"""the tool of a lead: a question that a run of its own answers"""
KINDS = PRIVATE, PUBLIC = "private", "public"
"""of sources: an investigation is over those of one kind, where a question is over both"""
NEXT_CALL = "\x1e"
"""between the actions of one turn"""


def tool_output(
    found: Found,
    words: int,
    about: Mapping[str, str] = MappingProxyType({}),
    *,
    placed: bool = False,
) -> str:
    """The `<tool_output>` block; a source shown before is named and not shown again.

    `about`: id of a source -> words, of which the part of it that is shown has most. `placed`: each
    with where it stands.
    """
    note = f"{neutralise(found.note)}\n" if found.note else ""
    asked = f"{neutralise(one_line(found.asked))}:\n" if found.asked else ""
    if found.error:
        reason = neutralise(" ".join(found.error.split())).replace('"', "'")
        said = note or "The search failed.\n"
        return f'<tool_output error="{reason}">\n{asked}{said}</tool_output>\n'
    if not found.sources and not note:
        return f"<tool_output>\n{asked}Nothing was found.\n</tool_output>\n"
    snippets = (
        snippet(
            source, words, new=source.id in found.new, about=about.get(source.id, ""), placed=placed
        )
        for source in found.sources
    )
    return f"<tool_output>\n{asked}{note}{''.join(snippets)}</tool_output>\n"


def snippet(
    source: Source, words: int, *, new: bool = True, about: str = "", placed: bool = False
) -> str:
    """The source as the policy reads it: its title, and its first `words` words, or those of it
    that are most `about` something; `placed`: below the title its file or address and its heading,
    and dots where its section begins before, or goes on.
    """
    text = part_about(source.text, words, about) if about else cut_words(source.text, words)
    if placed:
        text = f"{'... ' * source.begun_before}{text}{' ...' * source.goes_on}"
    where = ", ".join(filter(None, (source.location, source.place))) if placed else ""
    also = f" It stands in {', '.join(source.copies)}, too." if placed and source.copies else ""
    shown = f"Shown above.{also}"
    body = "\n".join(filter(None, (source.title, where, text))) if new else shown
    return f'<snippet id="{source.id}">\n{neutralise(body)}\n</snippet>\n'


MOST_REJECTED = 5
"""plans that a person may reject before the run ends"""
RUBRIC, RESEARCH, QUERY = "## Rubric", "## Research plan", "## First search"


class ShownPlan(Value):
    """What a person is shown of a plan, and may change."""

    rubric: tuple[str, ...] = ()
    research_plan: str = ""
    query: str = ""
    """the first search"""

    @classmethod
    def of(cls, text: str, query: str) -> "ShownPlan":
        """The last plan of a transcript."""
        document = parse(text)
        rubric = tuple(rubric_items(document.last("rubric")))
        query = query.replace(NEXT_CALL, "; ")
        return cls(rubric=rubric, research_plan=document.last("research_plan").strip(), query=query)

    @classmethod
    def read(cls, text: str) -> "ShownPlan":
        """The plan that an edited text holds; a part whose heading is gone is empty."""
        parts: dict[str, list[str]] = {}
        at = ""
        for line in text.splitlines():
            if line.strip() in (RUBRIC, RESEARCH, QUERY):
                at = line.strip()
            else:
                parts.setdefault(at, []).append(line)
        rubric = (line.strip().lstrip("-*").strip() for line in parts.get(RUBRIC, []))
        return cls(
            rubric=tuple(item for item in rubric if item),
            research_plan="\n".join(parts.get(RESEARCH, [])).strip(),
            query=" ".join(" ".join(parts.get(QUERY, [])).split()),
        )

    def text(self) -> str:
        """The plan as it is shown and edited."""
        items = "\n".join(f"- {one_line(item.lstrip('-* '))}" for item in self.rubric)
        research, query = f"{self.research_plan}\n", one_line(self.query)
        return "\n".join([RUBRIC, f"{items}\n", RESEARCH, research, QUERY, query]) + "\n"

    def note(self) -> str:
        """The plan as the policy is told that it was changed to it."""
        items = "\n".join(f"- {neutralise(item)}" for item in self.rubric)
        first = f"\nThe first search is for: {neutralise(self.query)}\n" if self.query else "\n"
        return (
            "\n\nThe person who asked has changed the plan. What follows holds now.\n"
            f"<structured_plan>\n<rubric>\n{items}\n</rubric>\n"
            f"<research_plan>{neutralise(self.research_plan)}</research_plan>\n</structured_plan>"
            f"{first}"
        )


class PlanDecision(Value):
    """What a person says of a plan; `plan` is theirs where they edited it."""

    verdict: Literal["approve", "edit", "reject"]
    plan: ShownPlan = ShownPlan()
    reason: str = ""


class Reply(Value):
    """A person's answer to a question back; "" where they had none."""

    text: str = ""


RUN, ALWAYS, NEVER = "run", "always", "never"


class Permission(Value):
    """What a person says of something that would reach beyond reading.

    `run`: for the rest of the run; `always`: a tool, in later runs as well; `never`: not now, nor
    again in this run.
    """

    verdict: Literal["once", "run", "always", "never"]


class Person(Protocol):
    """Decides, and takes as long as it takes.

    `asked["ask"]` is `approve_plan` (with `question`, `rubric`, `research_plan`, `query`): the
    decision is `{"verdict": "approve"}`, `{"verdict": "reject", "reason": ...}`, or `{"verdict":
    "edit", "plan": {"rubric": [...], "research_plan": ..., "query": ...}}`; `clarify` (with
    `doubt`): `{"text": ...}`; or `permit` (with `to`, `text`, `choices`): `{"verdict": ...}`, one
    of the choices. What cannot be read ends the run, and is asked again by a resume.
    """

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]: ...


class Nobody:
    """Approves every plan unseen, allows nothing else and answers no question."""

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked["ask"] == "permit":
            return {"verdict": NEVER}
        return {"verdict": "approve"} if asked["ask"] == "approve_plan" else {"text": ""}
