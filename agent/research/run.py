"""One question being answered: the growing transcript and everything that may touch it.

The transcript is append-only: what was sent to the model is never rewritten, so the prefix
cache holds, a trajectory is one token sequence, and a resume walks the same way. Every model
and tool call goes through the journal first: its digest covers the transcript so far, so a
finished call is found again, never repeated and never refused. Budgets are asked only before a
call that the journal does not hold. What the clock decided is kept as well, so that a resume with
the same budget hears the same, and one with a larger budget goes on.
"""

import hashlib
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from rubricem.agent.models.policy import Policy, tokens_between
from rubricem.agent.research.events import (
    LessonsRecalled,
    Listener,
    TextWritten,
    ToolCalled,
    ToolReturned,
    UsageCounted,
    ignore,
)
from rubricem.agent.research.evidence import Evidence
from rubricem.agent.research.question import (
    Ask,
    Found,
    Limited,
    OutOfTime,
    RunCut,
    Spending,
    reason_of,
)
from rubricem.agent.research.recall import Recall, Recaller, journalled
from rubricem.agent.verify.verifier import AnswerVerifier
from rubricem.memory.interfaces import Completion, PageReader, Sampling, SearchTool, StopPredicate
from rubricem.memory.journal import CallJournal, CallKey, identity
from rubricem.memory.schema import (
    Author,
    Decoding,
    Ending,
    ScaffoldedPrompt,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    Usage,
    Verification,
)
from rubricem.memory.text import spans, storable

Reply = dict[str, Any]
MakeCall = Callable[[], Coroutine[Any, Any, Reply]]


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one run."""

    journal: CallJournal
    spending: Spending

    async def write(
        self, key: CallKey, cut: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        """A reply of the policy; raises RunCut where a budget does not allow the call.

        `heard` grows while the policy writes; `cut` is the key of the end by the clock.
        """
        if self.journal.find(key) is None and self.journal.find(cut) is None:
            by = self.spending.out()
            if by is not None and by != "seconds":
                raise RunCut(by, stage)
        return await self.reply(key, cut, stage, call, heard)

    async def reply(
        self, key: CallKey, cut: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        """The reply to any call; raises RunCut where the clock or a person ends it."""
        if (kept := self.journal.find(key)) is not None:
            self.spending.replayed(kept.get("at", 0.0))
            return kept
        self.spending.live()
        began = self.spending.seconds
        reply = await self._within_limits(cut, stage, call, heard)
        at = _milliseconds(self.spending.seconds)
        reply = reply | {"at": at, "took": max(at - began, 0.0)}
        await self.journal.append(key, reply)
        return reply

    async def low(self, key: CallKey) -> Limited | None:
        """The budget of which only the reserve is left."""
        kept = self.journal.find(key)
        if kept is not None and self.spending.holds(kept):
            by: Limited = kept["by"]
            return by
        low = self.spending.low()
        if low == "seconds":
            await self.journal.append(key, self.spending.decision(low))
        return low

    async def _within_limits(
        self, key: CallKey, stage: Stage, call: MakeCall, heard: list[str]
    ) -> Reply:
        kept = self.journal.find(key)
        if kept is not None and self.spending.holds(kept):
            self.spending.replayed(kept["at"])
            raise RunCut(kept["by"], stage, kept["text"])
        try:
            return await self.spending.bounded(call())
        except OutOfTime as end:
            text = storable("".join(heard))
            if end.by == "seconds":
                await self.journal.append(key, self.spending.decision("seconds", text))
            raise RunCut(end.by, stage, text) from None


def _milliseconds(seconds: float) -> float:
    # Down, so that a clock that stands here in a resume is never ahead of what was seen first.
    return math.floor(seconds * 1000) / 1000


_COMPLETION = TypeAdapter(Completion)


@dataclass
class Run:
    """The state of one question; the graph's nodes and decoders work on it."""

    ask: Ask
    thread: str
    decoding: Decoding
    policy: Policy
    search_tool: SearchTool
    journal: CallJournal
    listener: Listener = ignore
    recaller: Recaller | None = None
    pages: PageReader | None = None
    """None: no page can be opened"""
    recalled: Recall = field(default_factory=Recall)
    """the bank items that stand before the question"""
    scaffold: ScaffoldedPrompt | None = None
    doubt: str = ""
    """what the policy wants to ask the person before it plans"""
    system: str = ""
    segments: list[Segment] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    spending: Spending = field(default_factory=Spending)
    path: list[str] = field(default_factory=list)
    """the nodes of the graph that it has gone through"""
    turn: int = 0
    attempt: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    status: Status = Status.FINISHED
    reason: str = ""
    ended_by: Ending = ""
    cut_in: Stage | None = None
    """the stage in which it was broken off; no step is gone through after that"""
    verifier: AnswerVerifier | None = None
    verification: Verification | None = None
    search_error: str = ""
    """why the last search failed, if it did"""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.calls = Calls(self.journal, self.spending)
        self._digest = hashlib.sha256(
            f"{identity(self.policy.name)}\0{self.policy.version}\0{self.decoding}".encode()
        )

    async def recall(self) -> str:
        """What is put before the question; a resumed run gets what it got at first."""
        if self.recaller is None:
            return ""
        key = self.key(f"recall\0{self.ask.question}")
        question = self.evidence.alone(self.ask.question)
        self.recalled = await journalled(self.recaller, question, self.journal, key)
        self.listener(LessonsRecalled(len(self.recalled.items), self.recalled.own))
        return self.recalled.block

    async def open(self, system: str, message: str) -> None:
        """Put the system prompt and the user's message before everything else."""
        self.system = system
        ids = await self.policy.open(system, message)
        self._digest.update(system.encode())
        self._append(Segment(author=Author.PROMPT, text=message, token_ids=ids))

    @property
    def text(self) -> str:
        """The transcript after the user's message."""
        return "".join(segment.text for segment in self.segments[1:] if segment.kept)

    @property
    def kept(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.kept]

    def room(self) -> int | None:
        """Tokens that still fit into the model's context, or None where nobody knows."""
        if self.policy.context_tokens is None:
            return None
        return self.policy.context_tokens - sum(len(s.token_ids or ()) for s in self.kept)

    async def prompt(self, stage: Stage, text: str, author: Author = Author.PROMPT) -> None:
        """Append text that the policy did not write: tags, notes (PROMPT) or tool output (TOOL)."""
        if author is Author.PROMPT:
            self.listener(TextWritten(stage, text))
        ids = await self.policy.encode(text)
        self._append(Segment(author=author, stage=stage, turn=self.turn, text=text, token_ids=ids))

    async def write(
        self,
        stage: Stage,
        sampling: Sampling,
        stop: StopPredicate | None = None,
        *,
        live: bool = True,
    ) -> Completion:
        """Have the policy continue the transcript. What it wrote is not yet part of it.

        `live`: the listener is told each piece as it comes, and a journalled reply at once.
        """
        key = self.key(f"write\0{sampling}")
        heard: list[str] = []

        def hear(piece: str) -> None:
            heard.append(piece)
            if live:
                self.listener(TextWritten(stage, piece))

        async def call() -> dict[str, Any]:
            # Not in the key: what may still be written differs in a resume with a larger budget.
            room, seed = self.spending.room(sampling.max_tokens), int(key.digest[:8], 16)
            chosen = replace(sampling, max_tokens=room, seed=seed)
            said = await self.policy.write(self.system, self.kept, chosen, stop, hear)
            said = replace(said, text=storable(said.text), reasoning=storable(said.reasoning))
            written: dict[str, Any] = _COMPLETION.dump_python(said, mode="json")
            return written

        reply = await self.calls.write(key, self.key("cut"), stage, call, heard)
        completion = _COMPLETION.validate_python(reply)
        if not heard:
            hear(completion.text)
        self.count(completion.usage, reply.get("took", 0.0))
        if completion.stop_reason == "length" and self.spending.out() == "tokens":
            raise RunCut("tokens", stage, completion.text)
        return completion

    def count(self, usage: Usage, seconds: float) -> None:
        """Count what a call took, now or when it was made."""
        self.usage += usage
        self.spending.count(usage, seconds)
        self.listener(UsageCounted(self.usage))

    def keep(self, pieces: list[tuple[Stage, str]], completion: Completion) -> None:
        """Append what the policy wrote, unedited, cut into the stages it belongs to."""
        for stage, start, end in spans(pieces):
            self._append(self._policy_segment(stage, completion, start, end))

    async def keep_edited(self, stage: Stage, text: str, *, told: bool = False) -> None:
        """Append what the policy wrote after trimming it; its ids are then our own.

        `told`: the listener heard it while it was written.
        """
        if not told:
            self.listener(TextWritten(stage, text))
        self._append(
            Segment(
                author=Author.POLICY,
                stage=stage,
                turn=self.turn,
                attempt=self.attempt,
                text=text,
                token_ids=await self.policy.encode(text),
                retokenised=True,
            )
        )

    def discard(self, stage: Stage, completion: Completion) -> None:
        """Remember an attempt that was rejected, outside the transcript."""
        segment = self._policy_segment(stage, completion, 0, len(completion.text))
        self.segments.append(segment.model_copy(update={"kept": False}))

    @property
    def sources(self) -> dict[str, Source]:
        return self.evidence.sources

    async def search(self, query: str) -> Found:
        """Search once; a query asked before is answered from the transcript."""
        tool, limit = self.search_tool, self.ask.passages
        found = await self.use(tool.name, query, lambda: self.evidence.search(tool, query, limit))
        self.search_error = self.search_error if found.repeated else found.error
        return found

    async def use(self, tool: str, asked: str, call: MakeCall) -> Found:
        """One call of a tool, its passages numbered; one made before is not made again."""
        if (known := self.evidence.known(tool, asked)) is not None:
            return known
        self.tool_calls += 1
        self.listener(ToolCalled(tool, asked, self.tool_calls))
        began = time.monotonic()
        key, cut = self.key(f"search\0{tool}\0{asked}"), self.key("cut")
        reply = await self.calls.reply(key, cut, Stage.RESEARCH, call, [])
        found = self.evidence.take(tool, asked, reply)
        self.listener(ToolReturned(found.sources, time.monotonic() - began, found.error))
        return found

    def end_early(
        self, reason: str, status: Status = Status.PARTIAL, by: Ending = "attempts"
    ) -> None:
        """Note that the run did not end as it should; the first reason stands, but for failure."""
        if self.status is Status.FINISHED or status is Status.FAILED:
            self.status, self.reason, self.ended_by = status, reason, by

    async def runs_low(self) -> bool:
        """Whether a budget has only its reserve left; the run then ends partial."""
        by = await self.calls.low(self.key("low"))
        if by is not None:
            self.end_early(reason_of(by, self.spending.budgets, low=True), by=by)
        return by is not None

    def trajectory(self, identifier: str) -> Trajectory:
        """The run as the value that is stored, judged and trained on."""
        return Trajectory(
            id=identifier,
            thread=self.thread,
            question=self.ask.question,
            answer_format=self.ask.answer_format,
            decoding=self.decoding,
            system=self.system,
            segments=tuple(self.segments),
            sources=tuple(self.sources.values()),
            searched=self.evidence.searched,
            earlier=self.ask.earlier,
            status=self.status,
            reason=self.reason,
            ended_by=self.ended_by,
            cut_in=self.cut_in,
            policy=self.policy.name,
            policy_version=self.policy.version,
            usage=self.usage,
            tool_calls=self.tool_calls,
            verification=self.verification,
            recalled=self.recalled.ids,
            recollections=self.recalled.items,
            scaffold=self.scaffold,
            seed=self.ask.seed,
            started_at=self.started_at,
            seconds=self.spending.seconds,
        )

    def _policy_segment(
        self, stage: Stage, completion: Completion, start: int, end: int
    ) -> Segment:
        ids, logprobs = tokens_between(completion, start, end)
        return Segment(
            author=Author.POLICY,
            stage=stage,
            turn=self.turn,
            attempt=self.attempt,
            text=completion.text[start:end],
            token_ids=ids,
            logprobs=logprobs,
            retokenised=self.policy.retokenised or completion.retokenised,
        )

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._digest.update(f"\0{segment.author}\0{segment.text}".encode())

    def key(self, call: str) -> CallKey:
        digest = self._digest.copy()
        digest.update(f"\0{call}\0{self.ask.seed}".encode())
        return CallKey(self.thread, self.turn, self.attempt, digest.hexdigest()[:32])
