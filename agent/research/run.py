"""The state of a question being answered: its transcript and the calls it makes.

The transcript is append-only: what was sent to the model is never rewritten, so the prefix cache
stays valid, a trajectory is one token sequence, and a resume takes the same path. Every model and
tool call is looked up in the journal first, by a digest that covers the transcript so far: a
finished call is found again, and neither repeated nor refused. Budgets apply only to calls that are
not in the journal: tokens and cost before the call, time and ^C also during it. Decisions of the
clock are journaled as well, so that a resume under the same budget decides the same, and one under
a larger budget goes on.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import takewhile
from typing import Any

from rubricem.agent.models.policy import JournaledCalls, Policy, dump_completion, read_completion
from rubricem.agent.record.conversations import NOTHING, Background
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.deep.parts import Inquiries
from rubricem.agent.research.evidence import Evidence, reply_of, unshown
from rubricem.agent.research.lookups import Lookups
from rubricem.agent.research.outlet import Consents, Outlet
from rubricem.agent.research.recall import Recall, Recaller
from rubricem.agent.sources.fetch import SENDING, Sending
from rubricem.agent.sources.index import around
from rubricem.agent.sources.mcp_client import Equipped
from rubricem.agent.transcript.events import (
    LessonsRecalled,
    Listener,
    SourceProgress,
    TextWritten,
    ToolCalled,
    ToolReturned,
    UsageCounted,
    ignore,
)
from rubricem.agent.transcript.question import (
    ROUNDS,
    Ask,
    Budgets,
    Found,
    OutOfTime,
    RunCut,
    Spending,
    T,
    reason_of,
)
from rubricem.memory.asking import chance_of_yes, failure_before, usage_of_error
from rubricem.memory.errors import PolicyError, RubricemError, SourceError, boundary
from rubricem.memory.runs import CallKey, Journal, Reply, identity
from rubricem.memory.schema import (
    NO_USAGE,
    Author,
    Completion,
    Decoding,
    Ending,
    Message,
    PageReader,
    Sampling,
    ScaffoldedPrompt,
    SearchTool,
    Segment,
    Source,
    Stage,
    Status,
    StopPredicate,
    Trajectory,
    Usage,
    Verification,
    Widening,
)
from rubricem.memory.text import pluralise, storable

MakeCall = Callable[[], Coroutine[Any, Any, Reply]]


@dataclass
class CallsBeside:
    """Calls the policy's model outside the transcript, within the run's budgets.

    Raises PolicyError for a call that the budgets do not allow beside those in flight. Calls that
    the journal holds are counted by `found`, so that a resume has as much left as the first run.
    """

    spending: Spending
    used: Usage = NO_USAGE
    """by calls that ended, in this process or before"""
    _in_flight: int = 0

    async def __call__(self, make: Callable[[], Awaitable[Reply]]) -> Reply:
        if by := self.spending.out(self._in_flight):
            raise PolicyError(reason_of(by, self.spending.budgets))
        self.spending.live()
        self._in_flight += 1
        try:
            reply = await make()
            self.note(reply)
        except RubricemError as error:
            self._count(usage_of_error(error))
            raise
        finally:
            self._in_flight -= 1
        return reply

    def note(self, reply: Reply) -> None:
        self._count(Usage.model_validate(reply.get("usage") or NO_USAGE))

    def _count(self, usage: Usage) -> None:
        if usage.calls:
            self.used += usage
            self.spending.count(usage, 0.0)


LEFT_OUT = "\n<tool_output>\nLeft out for lack of room.\n</tool_output>\n"
KEYED_TOKENS = 4096
"""in the place of a server's limit, in the names of its calls: so many every turn had once"""
MOST_BYTES_A_TOKEN, USUAL_BYTES_A_TOKEN = 5.5, 4.0
"""of UTF-8: what English prose has at most in a tokeniser of 200,000 words, and what is usual"""
CUT_RATIO = 1.5
"""times as many bytes a token as were seen before, above which a prompt must have been cut"""
GROWN = 1.15
"""times the size of the prompt before, from which it must have more tokens"""
LEAST_COMPARED = 8000
"""bytes of a prompt that are worth a comparison"""


SHARE_OF_A_SEARCH, TOKENS_A_WORD, LEAST_WORDS = 1 / 16, 1.5, 160
"""of the context that a search may fill; of a word, about; shown of a passage at least"""
WIDE = 3
"""passages found for each one shown, where those of one section are shown as one"""


@dataclass(frozen=True)
class Place:
    """Where a tool call stands among those of its turn, which run at once.

    What they find is numbered in the order in which they were written: a call takes its sources
    once the one before it has (`reached`).
    """

    number: int
    reached: asyncio.Event


ALONE = Place(0, asyncio.Event())
ALONE.reached.set()
PLACE: ContextVar[Place] = ContextVar("place", default=ALONE)
"""of the running task"""


@dataclass
class Run:
    """The state of one question, on which the graph's nodes and the decoders work."""

    ask: Ask
    thread: str
    decoding: Decoding
    policy: Policy
    search_tool: SearchTool
    journal: Journal
    listener: Listener = ignore
    recaller: Recaller | None = None
    pages: PageReader | None = None
    """None: pages cannot be opened"""
    background: Background = NOTHING
    verifier: AnswerVerifier | None = None
    recalled: Recall = field(default_factory=Recall)
    scaffold: ScaffoldedPrompt | None = None
    doubt: str = ""
    """the policy's clarifying question before it plans; "": none"""
    alone: str = ""
    """the question as it can be searched for without its conversation"""
    system: str = ""
    segments: list[Segment] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    turn: int = 0
    attempt: int = 0
    tool_calls: int = 0
    status: Status = Status.FINISHED
    reason: str = ""
    ended_by: Ending = ""
    cut_in: Stage | None = None
    """the stage in which the run was cut; after that no step but `verify` runs"""
    verification: Verification | None = None
    checked: set[CallKey] = field(default_factory=set)
    """calls of the verifier that were counted"""
    consents: Consents = field(default_factory=Consents)
    outlet: Outlet = field(default_factory=Outlet)
    sent: list[tuple[str, str]] = field(default_factory=list)
    """public services, and what they were sent"""
    lookups: Lookups = field(default_factory=Lookups)
    """the plan, which code follows in forced decoding"""
    parts: Inquiries = field(init=False)
    """the investigations, in deep research"""
    returns: int = 0
    """how often the review sent the run back to research"""
    search_error: str = ""
    missed: list[str] = field(default_factory=list)
    """why searches, or single sources in them, failed"""
    left_out: int = 0
    """of its first tool outputs, those that are not sent any more, for lack of room"""
    cut_prompt: tuple[int, int] | None = None
    """tokens of a prompt that the server read, and about as many as it was sent"""
    asking: bool = False
    """a person has decided on one call of the turn, and others may be left"""
    answered: bool = False
    """the first turn answered already, from what the conversation had found"""
    restored: bool = False
    """came with a copy, whose calls and decisions anybody may have written"""
    tells_left: bool = False
    """whether the policy is told what is left of the limits; earlier versions did not"""
    today: date = field(default_factory=date.today)
    """that the prompts tell; a resume tells that of the beginning"""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: Trajectory | None = None
    """what is kept of it, once it has ended"""

    def __post_init__(self) -> None:
        self.alone = self.alone or self.ask.question
        self.evidence, self.parts = Evidence(self.background), Inquiries(self.thread)
        self.parts.mixed = getattr(self.search_tool, "mixed", False)
        self._bytes_a_token, self._compared = MOST_BYTES_A_TOKEN, (0, 0)
        self.spending = Spending(self.ask.budgets)
        self.outlet.allows = self.consents.allows
        self.outlet.say(self.ask.whole or self.ask.question, *self.background.questions)
        if self.background.private:
            self.outlet.see(Found(self.background.sources))
            self.outlet.hold(*(turn.report for turn in self.background.turns))
            self.outlet.turn()
        self._digest = hashlib.sha256(
            f"{identity(self.policy.name)}\0{self.policy.version}\0{self.decoding}".encode()
        )

    async def recall(self) -> str:
        """The text to put before the question; a resumed run gets the same text again."""
        if self.recaller is None:
            return ""
        key = self.key(f"recall\0{self.ask.question}")
        if (reply := self.journal.find(key)) is None:
            found = await self.recaller.recall(self.alone)
            reply = found.model_dump(mode="json")
            await self.journal.append(key, reply)
        self.recalled = Recall.model_validate(reply)
        if any(item.private for item in self.recalled.items):
            self.outlet.hold(self.recalled.block)
            self.outlet.turn()
        self.listener(LessonsRecalled(len(self.recalled.items), self.recalled.own))
        return self.recalled.block

    @property
    def day(self) -> str:
        """The day in words, as `Friday, 5 June 2026`."""
        return f"{self.today:%A}, {self.today.day} {self.today:%B %Y}"

    async def remember_day(self) -> None:
        """Take the day on which the run began, where its prompts are to tell it."""
        if self.policy.chat is None:
            return
        kept = await self.once("today", {"today": self.today.isoformat()})
        self.today = date.fromisoformat(kept["today"])

    @property
    def left(self) -> str:
        """What is left of the limits, in one sentence for the policy."""
        calls = max(self.ask.calls - self.tool_calls, 0)
        left, digits = self.spending.left().amounts(), {"tokens": -3, "seconds": None, "cost": 2}
        rounded: dict[str, Any] = {name: round(left[name], digits[name]) for name in left}
        phrases = Budgets(**rounded).phrases()
        if not self.policy.priced:
            phrases.pop("cost", None)
        told = [f"{calls} of {self.ask.calls} calls", *phrases.values()]
        if self.ask.leads:
            rounds = ROUNDS + min(self.parts.steering.heard, ROUNDS)  # a remark brings one more
            told.insert(0, f"{max(rounds + 1 - self.turn, 0)} of {rounds} rounds")
        return f"Left: {', '.join(told)}."

    async def once(self, name: str, now: Reply) -> Reply:
        """What the run first had here, so that a resume tells its policy the same."""
        key = self.key(name)
        if (kept := self.journal.find(key)) is None:
            await self.journal.append(key, now)
        return now if kept is None else kept

    async def open(self, system: str, message: str) -> None:
        """Put the system prompt and the user's message before everything else.

        As the run began with them: a newer version, whose prompts read otherwise, goes on with it.
        """
        now = {"system": system, "message": message, "left": True}
        kept = await self.once("opening", now)
        self.tells_left = bool(kept.get("left")) and self.policy.chat is not None
        system, message = kept["system"], kept["message"]
        self.system = system
        ids = await self.policy.render(system, message)
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
        """Tokens that still fit into the model's context; None if its size is unknown."""
        if self.policy.context_tokens is None:
            return None
        return self.policy.context_tokens - sum(len(s.token_ids or ()) for s in self.kept)

    @property
    def passage_words(self) -> int:
        """Words shown of each passage: so many that a search takes a small share of the context."""
        asked, context = self.ask.passage_words, self.policy.context_tokens
        if context is None or asked <= LEAST_WORDS:
            return asked
        share = int(context * SHARE_OF_A_SEARCH / self.ask.passages / TOKENS_A_WORD)
        return min(asked, max(share, LEAST_WORDS))

    async def prompt(
        self, stage: Stage, text: str, author: Author = Author.PROMPT, *, told: bool = True
    ) -> None:
        """Append text that the policy did not write: tags, notes (PROMPT) or tool output (TOOL).

        `told`: whoever watches hears of a note, too.
        """
        if told and author is Author.PROMPT:
            self.listener(TextWritten(stage, text))
        ids = await self.policy.encode(text)
        self._append(Segment(author=author, stage=stage, turn=self.turn, text=text, token_ids=ids))

    async def respond(
        self, stage: Stage, text: str, author: Author = Author.PROMPT, *, told: bool = True
    ) -> None:
        """Append what answers the policy: in free decoding a turn of its own by its ids.

        What follows without a word of the policy is one turn, whose ids its first segment holds.
        """
        await self.prompt(stage, text, author, told=told)
        if self.decoding is Decoding.FORCED or self.policy.chat:
            return
        side = list(takewhile(lambda s: s.author is not Author.POLICY, reversed(self.kept)))[::-1]
        said = "".join(segment.text for segment in side)
        opened = side[0] is self.segments[0]
        ids = await (
            self.policy.render(self.system, said) if opened else self.policy.encode_response(said)
        )
        for segment in side:
            place = next(i for i, s in enumerate(self.segments) if s is segment)
            self.segments[place] = segment.model_copy(update={"token_ids": ids})
            ids = ids and ()

    async def write(
        self,
        stage: Stage,
        sampling: Sampling,
        stop: StopPredicate | None = None,
        *,
        live: bool = True,
        slot: str = "",
        begun: str = "",
    ) -> Completion:
        """Have the policy continue the transcript; the reply is not yet appended to it.

        `live`: the listener gets each piece as it arrives, a journaled reply all at once.
        `slot`: the name under which the call is counted; "": the stage. `begun`: the beginning of
        the turn, which a server broke off and which is not in the transcript yet. What no longer
        fits the context of a model that exchanges messages is sent without its oldest outputs.
        """
        # How much a server's model may write is no part of the question: a cut reply is gone on
        # with, under a larger limit as well.
        asked = replace(sampling, max_tokens=KEYED_TOKENS) if self.policy.chat else sampling
        more = f"\0{begun}\0{self.left_out}" if begun or self.left_out else ""
        key = self.key(f"write\0{asked}{more}")
        heard: list[str] = []
        sent = self._sent(stage, begun)

        def hear(piece: str) -> None:
            heard.append(piece)
            if live and self.listener is not ignore:
                self.listener(TextWritten(stage, piece))

        async def call() -> Reply:
            # Not in the key: the tokens left differ in a resume under a larger budget.
            room, seed = self.spending.room(sampling.max_tokens), int(key.digest[:8], 16)
            chosen = replace(sampling, max_tokens=room, seed=seed)
            written = await self.policy.write(self.system, sent, chosen, stop, hear)
            return dump_completion(written)

        try:
            reply = await self.call(key, stage, call, heard, of_policy=True)
        except PolicyError as error:
            if error.kind != "context" or not self._leave_out():
                raise
            self.charge(error)
            return await self.write(stage, sampling, stop, live=live, slot=slot, begun=begun)
        completion = self._said(reply, slot or stage.value)
        if not heard:
            hear(completion.text)
        if self.policy.chat:
            self._compare(completion.usage, [self.system, *(s.text for s in sent)])
        if completion.stop_reason == "length" and self.spending.out() == "tokens":
            raise RunCut("tokens", stage, completion.text)
        return completion

    def _said(self, reply: Reply, slot: str) -> Completion:
        """What the policy replied, which is counted."""
        said = read_completion(reply)
        self.count(said.usage, reply.get("took", 0.0), slot)
        return said

    def _leave_out(self) -> bool:
        """Send half of the tool outputs no more, the oldest; False: none is left to leave out."""
        outputs = sum(segment.author is Author.TOOL for segment in self.kept)
        more = math.ceil((outputs - self.left_out) / 2)
        if self.policy.chat is None or more < 1:
            return False
        self.left_out += more
        said = f"the context is full: {self.left_out} of {outputs} results are no longer sent"
        self.listener(SourceProgress(said))
        return True

    def _sent(self, stage: Stage, begun: str) -> list[Segment]:
        """What the policy is sent of the transcript."""
        outputs = [i for i, s in enumerate(self.kept) if s.author is Author.TOOL]
        gone = set(outputs[: self.left_out])
        sent = [
            s.model_copy(update={"text": LEFT_OUT}) if i in gone else s
            for i, s in enumerate(self.kept)
        ]
        turn = Segment(author=Author.POLICY, stage=stage, turn=self.turn, text=begun)
        return [*sent, turn] if begun else sent

    def _compare(self, usage: Usage, sent: Sequence[str]) -> None:
        """Note where a server read far fewer tokens than it was sent, and did not say so.

        What a token holds is learnt from the fewest bytes that were seen of one; and a server that
        reads no more though the prompt has grown has cut it, whatever a token holds.
        """
        size, read = sum(len(text.encode(errors="replace")) for text in sent), usage.prompt_tokens
        if not read or size < LEAST_COMPARED:
            return
        before, self._compared = self._compared, (size, read)
        same = read <= before[1] and size > GROWN * before[0] > 0
        if same or size / read > CUT_RATIO * self._bytes_a_token:
            about = round(size / min(self._bytes_a_token, USUAL_BYTES_A_TOKEN))
            if self.cut_prompt is None:
                said = f"the server read {read:,} of about {about:,} tokens: it cuts what is long"
                self.listener(SourceProgress(said))
            self.cut_prompt = read, about
        else:
            self._bytes_a_token = min(self._bytes_a_token, max(size / read, 1.0))

    async def aside(
        self, stage: Stage, messages: Sequence[Message], sampling: Sampling, slot: str
    ) -> Completion:
        """The reply of the policy's model to a system and a user message beside the transcript."""
        system, asked = (message.content for message in messages)
        if self.policy.chat:
            system = f"{system}\n\nToday is {self.day}."
        key = self.key(f"aside\0{sampling}\0{messages}")

        async def call() -> Reply:
            chosen = replace(sampling, max_tokens=self.spending.room(sampling.max_tokens))
            ids = await self.policy.render(system, asked)
            head = Segment(author=Author.PROMPT, text=asked, token_ids=ids)
            return dump_completion(await self.policy.write(system, [head], chosen, None, None))

        return self._said(await self.call(key, stage, call, of_policy=True), slot)

    async def chance(self, stage: Stage, messages: Sequence[Message], slot: str) -> float | None:
        """Probability in [0, 1] that the policy's model answers Yes; None: it weighs no choices."""
        reader = self.policy.reader
        if reader is None:
            return None

        async def call() -> Reply:
            chance, used = await chance_of_yes(reader, messages)
            return {"chance": chance, "usage": used.model_dump(mode="json")}

        reply = await self.call(self.key(f"chance\0{messages}"), stage, call, of_policy=True)
        self.count(Usage.model_validate(reply["usage"]), reply.get("took", 0.0), slot)
        return float(reply["chance"])

    async def check(self, ask: Callable[[JournaledCalls], Coroutine[Any, Any, T]]) -> T:
        """What a verifier says, within the run's budgets; what it was asked once is found again.

        Raises OutOfTime.
        """
        began, beside = self.spending.seconds, CallsBeside(self.spending)
        calls = JournaledCalls(self.journal, beside, beside.note, self.checked)
        try:
            return await self.spending.limit_time(ask(calls))
        finally:
            self.book(beside.used, self.spending.seconds - began, "verify")

    async def bears_out(self, source: Source, claim: str) -> bool:
        """Whether a claim on a source will pass, at least in part, what checks the answer."""
        verifier = self.verifier
        if verifier is None or self.spending.out():
            return True
        try:
            asked = claim, source, self.ask.question, self.thread
            return await self.check(lambda calls: verifier.passes(*asked, calls))
        except OutOfTime:
            return True

    async def call(
        self,
        key: CallKey,
        stage: Stage,
        make: MakeCall,
        heard: Sequence[str] = (),
        *,
        of_policy: bool = False,
    ) -> Reply:
        """The reply to a call, from the journal or made now.

        Raises RunCut if the clock or a person ends the call, or if a budget does not allow a call
        of the policy. `heard` grows while the policy writes.
        """
        if (kept := self.journal.find(key)) is not None:
            self.spending.replay_to(kept.get("at", 0.0))
            return kept
        cut = self.key("cut")
        ended = self.journal.find(cut)
        if of_policy and ended is None and (by := self.spending.out()) not in (None, "seconds"):
            raise RunCut(by, stage)
        if ended is not None and self.spending.holds(ended):
            self.spending.replay_to(ended["at"])
            raise RunCut(ended["by"], stage, ended["text"], ended.get("reason", ""))
        self.spending.live()
        began, failed = self.spending.seconds, list[str]()

        async def made() -> Reply:
            try:
                return await make()
            except asyncio.CancelledError as end:
                failed.append(failure_before(end))
                raise

        try:
            reply = await self.spending.limit_time(made())
        except OutOfTime as end:
            text, why, waited = storable("".join(heard)), "", self.spending.seconds - began
            if of_policy and end.by == "seconds" and not text and waited >= 1:
                told = "".join(failed) or f"the model wrote nothing for {waited:,.0f} s"
                why = f"{reason_of('seconds', self.spending.budgets)}; {told}"
            if end.by == "seconds":
                kept = self.spending.decision("seconds", text)
                await self.journal.append(cut, kept | {"reason": why})
            raise RunCut(end.by, stage, text, why) from None
        # Rounded down, so that the clock of a resume is never ahead of the first run's.
        at = math.floor(self.spending.seconds * 1000) / 1000
        reply = reply | {"at": at, "took": max(at - began, 0.0)}
        await self.journal.append(key, reply)
        return reply

    def charge(self, failed: PolicyError) -> None:
        """Count what a call cost that failed, where the run goes on."""
        usage = usage_of_error(failed)
        self.spending.count(usage, 0.0)
        self.spending.usage += usage

    def count(self, usage: Usage, seconds: float, slot: str) -> None:
        """Count a call, made now or replayed, against the budgets and in the usage."""
        self.spending.count(usage, seconds)
        self.book(usage, seconds, slot)

    def book(self, usage: Usage, seconds: float, slot: str) -> None:
        """Count a call in the usage only; the budgets have counted it already."""
        self.spending.book(slot, seconds, usage)
        self.tell_usage()

    def tell_usage(self) -> None:
        beside = self.parts.used
        self.listener(UsageCounted(self.spending.usage + beside, self.spending.left(beside)))

    def keep(self, pieces: list[tuple[Stage, str]], completion: Completion) -> None:
        """Append what the policy wrote, unedited, split by the stages it belongs to."""
        start = 0
        for stage, text in pieces:
            if text:
                segment = self._policy_segment(stage, completion, start, start + len(text))
                self._append(segment)
            start += len(text)

    async def keep_edited(self, stage: Stage, text: str, *, told: bool = False) -> None:
        """Append what the policy wrote in trimmed form, with ids encoded anew (`retokenised`).

        `told`: the listener already got it while it was written.
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
        """Keep a rejected attempt, outside the transcript."""
        segment = self._policy_segment(stage, completion, 0, len(completion.text))
        self.segments.append(segment.model_copy(update={"kept": False}))

    @property
    def sources(self) -> dict[str, Source]:
        return self.evidence.sources

    @property
    def opens(self) -> bool:
        """Whether sources can be opened, to read on in them."""
        return self.pages is not None or isinstance(self.search_tool, Widening)

    @property
    def equipped(self) -> Equipped | None:
        """The tools besides searching and opening pages, if there are any."""
        return self.search_tool if isinstance(self.search_tool, Equipped) else None

    @property
    def read_others(self) -> bool:
        """Whether the policy was shown text of others: passages, earlier reports, lessons.

        All of a restored run is.
        """
        called = self.tool_calls > 0 or self.restored
        return bool(called or self.sources or self.background.turns or self.recalled.items)

    async def search(
        self, query: str, *, seen: Collection[str] | None = None, least: int = 0
    ) -> Found:
        """Search once, for at least so many passages; a query asked before gets what it found then.

        The passages shown are those without `seen` ids, if there are any (None: of whatever the run
        has found).
        """
        tool, place, limit = self.search_tool, PLACE.get(), max(self.ask.passages, least)
        wide = self.decoding is Decoding.FREE

        async def call() -> Reply:
            # As many more as were seen, so that a new query finds something new to read.
            before = {*self.sources} if seen is None else seen
            most = (WIDE * limit if wide else limit) * (1 + place.number) + len(before)
            found = await tool.search(query, most)
            await place.reached.wait()
            known = {*self.sources} if seen is None else seen
            if wide:
                shown = self.evidence.shown(known)
                found = (unshown(found, shown) or found)[: WIDE * limit]
                found = await around(tool, found, self.passage_words, shown)
            return reply_of(self.evidence.choose(found, limit, known))

        found = await self.use(tool.name, query, f"the search in {tool.name}", call)
        if not found.repeated:
            self.search_error = found.error
            self.missed += [found.error] * bool(found.error)
        return found

    async def use(self, tool: str, asked: str, doing: str, call: MakeCall, **failed: str) -> Found:
        """Call a tool and number its passages; the same call is not made twice.

        A failure while `doing` so becomes a result with the reason; `failed` is stored with it.
        """
        asked_here = len(self.evidence.answered)
        if (known := self.evidence.find_earlier(tool, asked)) is not None:
            if len(self.evidence.answered) > asked_here:
                count = pluralise(len(known.sources), "passage")
                self.listener(SourceProgress(f"found before in this thread: {asked} ({count})"))
            return known

        async def try_call() -> Reply:
            sending = Sending(self.outlet.let_out)
            token = SENDING.set(sending)
            try:
                with boundary(SourceError, doing):
                    reply = await call()
            except SourceError as error:
                reply = {"passages": [], "error": str(error), **failed}
            except asyncio.CancelledError:  # what is on its way is sent
                self.sent += sending.sent
                raise
            finally:
                SENDING.reset(token)
            note = " ".join(filter(None, (reply.get("note", ""), *dict.fromkeys(sending.kept))))
            missed = [*sending.missed, *reply.get("missed", ())]
            sent = [*sending.sent, *reply.get("sent", ())]
            return reply | {"sent": sent, "note": note, "missed": missed}

        self.tool_calls += 1
        self.listener(ToolCalled(tool, asked, self.tool_calls))
        began = time.monotonic()
        reply = await self.call(self.key(f"search\0{tool}\0{asked}"), Stage.RESEARCH, try_call)
        await PLACE.get().reached.wait()
        usage = Usage.model_validate(reply.get("usage") or NO_USAGE)
        self.spending.add(usage)
        self.spending.book(tool, reply.get("took", 0.0), usage)
        found = self.evidence.take(tool, asked, reply)
        self.sent += [(to, text) for to, text in reply.get("sent", ())]
        self.missed += reply.get("missed", ())
        private = reply.get("private", False) or self._is_private(tool, found)
        self.outlet.see(found, private=private)
        self.listener(ToolReturned(found.sources, time.monotonic() - began, found.error))
        return found

    def _is_private(self, tool: str, found: Found) -> bool:
        """Whether what it says beside passages is: a private server's, or an error of sources."""
        tools = self.equipped
        if tools is not None and tool in tools.allowed:
            return not tools.is_public(tool)
        # What the gate refused says only what was asked; the note repeats it.
        return found.error not in found.note and getattr(self.search_tool, "private", True)

    def end_early(
        self, reason: str, status: Status = Status.PARTIAL, by: Ending = "attempts"
    ) -> None:
        """Record that the run ended early; the first reason counts, unless this is a failure."""
        if self.status is Status.FINISHED or status is Status.FAILED:
            self.status, self.reason, self.ended_by = status, reason, by

    async def runs_low(self) -> bool:
        """Whether a budget has only its reserve left; if so, the run is marked PARTIAL."""
        key = self.key("low")
        kept = self.journal.find(key)
        if kept is not None and self.spending.holds(kept):
            by = kept["by"]
        elif (by := self.spending.low()) == "seconds":
            await self.journal.append(key, self.spending.decision(by))
        if by is not None:
            self.end_early(reason_of(by, self.spending.budgets, low=True), by=by)
        return by is not None

    def trajectory(self, identifier: str) -> Trajectory:
        """The run as a `Trajectory`, which is stored, judged and trained on."""
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
            missed=tuple(dict.fromkeys(self.missed)),
            private=self.outlet.guards,
            sent=tuple(self.sent),
            alone=self.alone if self.background.turns else "",
            earlier=self.ask.earlier,
            status=self.status,
            reason=self.reason,
            ended_by=self.ended_by,
            cut_in=self.cut_in,
            policy=self.policy.name,
            policy_version=self.policy.version,
            # What investigations spent that were cut off is spent all the same.
            usage=self.spending.usage + self.parts.used,
            spent=tuple(self.spending.slots.values()),
            tool_calls=self.tool_calls,
            left_out=self.left_out,
            cut_prompt=self.cut_prompt,
            verification=self.verification,
            recalled=self.recalled.ids,
            recollections=self.recalled.items,
            investigations=self.parts.told(),
            scaffold=self.scaffold,
            seed=self.ask.seed,
            started_at=self.started_at,
            seconds=self.spending.seconds,
        )

    def _policy_segment(
        self, stage: Stage, completion: Completion, start: int, end: int
    ) -> Segment:
        ids, logprobs = completion.tokens_between(start, end)
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
        if segment.author is Author.POLICY and not self.outlet.guards:
            self.outlet.say(segment.text)  # it had read nothing private then
        self._digest.update(f"\0{segment.author}\0{segment.text}".encode())

    def key(self, call: str) -> CallKey:
        digest = self._digest.copy()
        digest.update(f"\0{call}\0{self.ask.seed}".encode())
        return CallKey(self.thread, self.turn, self.attempt, digest.hexdigest()[:32])
