"""One question being answered: the growing transcript and everything that may touch it.

The transcript is append-only: what was sent to the model is never rewritten, so the prefix
cache holds, a trajectory is one token sequence, and a resume walks the same way. Every model
and tool call goes through the journal first: its digest covers the transcript so far, so a
finished call is found again and never repeated.
"""

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from agent.asking import Ask as Ask
from agent.asking import Found as Found
from agent.events import (
    Listener,
    Recalled,
    TextWritten,
    ToolCalled,
    ToolReturned,
    UsageCounted,
    ignore,
)
from agent.policy import Policy
from agent.recalling import Recaller, journalled
from memory.errors import SourceError, boundary
from memory.interfaces import Completion, Passage, Sampling, SearchTool, StopPredicate
from memory.journal import CallKey, Journal
from memory.schema import (
    Author,
    Decoding,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
    Usage,
)
from memory.text import spans, storable, storable_fields

_COMPLETION = TypeAdapter(Completion)


@dataclass
class Run:
    """The state of one question; the graph's nodes and decoders work on it."""

    ask: Ask
    thread: str
    decoding: Decoding
    policy: Policy
    search_tool: SearchTool
    journal: Journal
    listener: Listener = ignore
    recaller: Recaller | None = None
    recalled: tuple[str, ...] = ()
    """ids of the bank items that stand before the question"""
    system: str = ""
    segments: list[Segment] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    """the nodes of the graph that it has gone through"""
    turn: int = 0
    attempt: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    status: Status = Status.FINISHED
    reason: str = ""
    search_error: str = ""
    """why the last search failed, if it did"""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self._clock = time.monotonic()
        self._answered: dict[str, tuple[str, ...]] = {}
        self._numbers: dict[tuple[str, str, str], str] = {}
        self._digest = hashlib.sha256(
            f"{self.policy.name}\0{self.policy.version}\0{self.decoding}".encode()
        )

    async def recall(self) -> str:
        """What is put before the question; a resumed run gets what it got at first."""
        if self.recaller is None:
            return ""
        key = self._key(f"recall\0{self.ask.question}")
        found = await journalled(self.recaller, self.ask.question, self.journal, key)
        self.recalled = found.ids
        self.listener(Recalled(len(found.ids), found.own))
        return found.block

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

        `live`: the listener is told each piece as it comes, also what is cut off later.
        """
        key = self._key(f"write\0{sampling}")
        if reply := self.journal.find(key):
            completion = _COMPLETION.validate_python(reply)
        else:
            completion = await self.policy.write(
                self.system,
                self.kept,
                replace(sampling, seed=int(key.digest[:8], 16)),
                stop,
                (lambda text: self.listener(TextWritten(stage, text))) if live else None,
            )
            completion = replace(
                completion, text=storable(completion.text), reasoning=storable(completion.reasoning)
            )
            await self.journal.append(key, _COMPLETION.dump_python(completion, mode="json"))
        self.usage += completion.usage
        self.listener(UsageCounted(self.usage))
        return completion

    def keep(self, pieces: list[tuple[Stage, str]], completion: Completion) -> None:
        """Append what the policy wrote, unedited, cut into the stages it belongs to."""
        for stage, start, end in spans(pieces):
            self._append(self._policy_segment(stage, completion, start, end))

    async def keep_edited(self, stage: Stage, text: str) -> None:
        """Append what the policy wrote after trimming it; its ids are then our own."""
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
    def queries(self) -> list[str]:
        """What was searched so far, in order, each once, case folded."""
        return list(self._answered)

    async def search(self, query: str) -> Found:
        """Search once; a query asked before is answered from the transcript."""
        asked = " ".join(query.casefold().split())
        if asked in self._answered:
            ids = self._answered[asked]
            return Found(tuple(self.sources[i] for i in ids), repeated=True)
        self.tool_calls += 1
        self.listener(ToolCalled(self.search_tool.name, query, self.tool_calls))
        began = time.monotonic()
        passages, error = await self._passages(query)
        known = set(self.sources)
        sources = tuple(self._number(passage, query) for passage in passages)
        self.search_error = error
        if not error:
            self._answered[asked] = tuple(source.id for source in sources)
        self.listener(ToolReturned(sources, time.monotonic() - began, error))
        return Found(sources, frozenset(s.id for s in sources if s.id not in known), error)

    def end_early(self, reason: str, status: Status = Status.PARTIAL) -> None:
        """Note that the run did not end as it should; the first reason stands, but for failure."""
        if self.status is Status.FINISHED or status is Status.FAILED:
            self.status, self.reason = status, reason

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
            status=self.status,
            reason=self.reason,
            policy=self.policy.name,
            policy_version=self.policy.version,
            usage=self.usage,
            tool_calls=self.tool_calls,
            recalled=self.recalled,
            seed=self.ask.seed,
            started_at=self.started_at,
            seconds=time.monotonic() - self._clock,
        )

    async def _passages(self, query: str) -> tuple[list[Passage], str]:
        key = self._key(f"search\0{self.search_tool.name}\0{query}")
        if (reply := self.journal.find(key)) is None:
            reply = await self._ask_tool(query)
            await self.journal.append(key, reply)
        return [Passage(**passage) for passage in reply["passages"]], reply["error"]

    async def _ask_tool(self, query: str) -> dict[str, Any]:
        # As many more as were seen, so that a new query brings something new to read.
        limit = self.ask.passages + len(self.sources)
        try:
            with boundary(SourceError, f"the search in {self.search_tool.name}"):
                found = await self.search_tool.search(query, limit)
        except SourceError as error:
            return {"passages": [], "error": str(error)}
        unseen = [p for p in found if (p.location, p.place, p.text) not in self._numbers]
        chosen = unseen[: self.ask.passages] or found[: self.ask.passages]
        return {"passages": [storable_fields(asdict(passage)) for passage in chosen], "error": ""}

    def _number(self, passage: Passage, query: str) -> Source:
        key = (passage.location, passage.place, passage.text)
        identifier = self._numbers.setdefault(key, f"S{len(self._numbers) + 1}")
        if identifier not in self.sources:
            self.sources[identifier] = Source(
                id=identifier,
                title=passage.title,
                location=passage.location,
                place=passage.place,
                text=passage.text,
                tool=self.search_tool.name,
                query=query,
            )
        return self.sources[identifier]

    def _policy_segment(
        self, stage: Stage, completion: Completion, start: int, end: int
    ) -> Segment:
        """The part of a completion from `start` to `end`; a token belongs where it begins."""
        ids = logprobs = None
        if completion.token_ids is not None and completion.token_ends is not None:
            starts = (0, *completion.token_ends[:-1])
            chosen = [i for i, at in enumerate(starts) if start <= at < end]
            ids = tuple(completion.token_ids[i] for i in chosen)
            if completion.logprobs is not None:
                logprobs = tuple(completion.logprobs[i] for i in chosen)
        return Segment(
            author=Author.POLICY,
            stage=stage,
            turn=self.turn,
            attempt=self.attempt,
            text=completion.text[start:end],
            token_ids=ids,
            logprobs=logprobs,
            retokenised=self.policy.retokenised,
        )

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._digest.update(f"\0{segment.author}\0{segment.text}".encode())

    def _key(self, call: str) -> CallKey:
        digest = self._digest.copy()
        digest.update(f"\0{call}\0{self.ask.seed}".encode())
        return CallKey(self.thread, self.turn, self.attempt, digest.hexdigest()[:32])
