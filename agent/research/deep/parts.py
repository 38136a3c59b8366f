"""The investigations of a lead: each a run of its own, whose report comes back, not its transcript.

Each is an ordinary four-stage run over the same sources, with a context and a share of the budget
of its own. Where some are private and others public services, each is over those of one kind: what
reads private text asks nobody else, and what asks others is told public text alone. It is kept
below the lead's run, as THREAD.1, THREAD.2 and so on, so that a resume finishes what was begun and
pays nothing twice, and so that it can be judged and learnt from like any other. One that fails, or
is stopped, gives what it has and its reason; the others go on.
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rubricem.agent.reports.cited import NO_SOURCE, Cited, Uncited, cited_answer
from rubricem.agent.research.evidence import reply_of
from rubricem.agent.transcript.events import (
    Event,
    InvestigationAsked,
    InvestigationEvent,
    InvestigationFailed,
    Listener,
    Remarked,
    UsageCounted,
    ignore,
)
from rubricem.agent.transcript.question import (
    BREADTH,
    INVESTIGATE,
    KINDS,
    MOST_INVESTIGATIONS,
    Ask,
    Budgets,
    Found,
)
from rubricem.agent.transcript.scaffold import parse, rubric_items
from rubricem.memory.errors import RubricemError
from rubricem.memory.runs import CallKey, Journal, Reply
from rubricem.memory.schema import (
    NO_USAGE,
    AnswerFormat,
    Investigation,
    Passage,
    Status,
    Trajectory,
    Usage,
)

LOG = logging.getLogger(__name__)
PASSAGES = 10
"""shown of a search: an investigation has a context of its own for its part"""
NUMBER = re.compile(r"\d{1,3}")
SHARE = 0.6
"""of what is left of a budget that the investigations of one round may spend together"""

Answer = Callable[[Ask, str, Listener, asyncio.Event], Awaitable[Trajectory]]
"""answers a question as a run of this name below the lead's, until the event is set"""


def action_of(question: str, items: str, kind: str = "", after: str = "") -> str:
    """The line by which a lead asks for an investigation; `kind`: of `KINDS`, "": it named none.

    `after`: the number of an earlier one, with whose sources it begins.
    """
    earlier = [f"after {number}" for number in NUMBER.findall(after)[:1]]
    marks = ", ".join([*filter(None, [kind]), *earlier, *NUMBER.findall(items)[:20]])
    return f"{INVESTIGATE} {f'[{marks}] ' if marks else ''}{' '.join(question.split())}"


class Asked(NamedTuple):
    """What an action asks for."""

    question: str
    items: tuple[int, ...] = ()
    """numbers of the rubric items that it serves"""
    kind: str = ""
    after: int = 0
    """the number of the investigation with whose sources it begins; 0: with none"""

    @property
    def name(self) -> str:
        """What tells it from others."""
        told = f"{self.question} (after {self.after})" if self.after else self.question
        return f"{self.kind}: {told}" if self.kind else told


def asked_in(action: str) -> Asked:
    asked = action.removeprefix(f"{INVESTIGATE} ").strip()
    head, _, question = asked.removeprefix("[").partition("]")
    marks = head.split(", ")
    kinds = [mark for mark in marks if mark in KINDS]
    items = [int(mark) for mark in marks if mark.isdecimal()]
    after = [int(m[6:]) for m in marks if m.startswith("after ") and m[6:].isdecimal()]
    if not asked.startswith("[") or len(kinds) + len(items) + len(after) < len(marks):
        return Asked(asked)
    return Asked(question.strip(), tuple(items), "".join(kinds), sum(after))


def split_by_kind(actions: Iterable[str]) -> list[str]:
    """The actions, each over one kind of sources: what names none is asked of both."""
    return [
        action_of(part.question, str(part.items), kind, str(part.after or ""))
        for part in map(asked_in, actions)
        for kind in ([part.kind] if part.kind else KINDS)
    ]


@dataclass
class Steering:
    """What a person tells a run that goes on: remarks for its lead, investigations to end.

    Kept in the run's journal, so that a resume knows of it; what is told before the run is open is
    kept once it is.
    """

    listener: Listener = ignore
    remarks: list[str] = field(default_factory=list)
    heard: int = 0
    """how many of them the lead was told"""
    stopped: set[int] = field(default_factory=set)
    """numbers of investigations"""
    _open: "tuple[Inquiries, Journal] | None" = None

    async def open(self, parts: "Inquiries", journal: Journal, listener: Listener) -> None:
        told, self.remarks, self.listener = self.remarks, list[str](), listener
        self._open = parts, journal
        while kept := journal.find(self._key(parts, f"remark {len(self.remarks) + 1}")):
            self.remarks.append(kept["value"])
        numbers = range(1, MOST_INVESTIGATIONS + 1)
        self.stopped |= {n for n in numbers if journal.find(self._key(parts, f"stop {n}"))}
        if self.remarks:
            self.tell()
        for text in told:
            await self.remark(text)

    async def remark(self, text: str) -> None:
        """Return once it is kept; the lead hears it at its next turn."""
        self.remarks.append(text)
        self.tell()
        await self._keep(f"remark {len(self.remarks)}", text)

    async def stop(self, number: int) -> None:
        """End an investigation with what it has."""
        self.stopped.add(number)
        for part in self._open[0].by_name.values() if self._open else ():
            if part.number == number:
                part.stop.set()
        await self._keep(f"stop {number}", "")

    def tell(self) -> None:
        self.listener(Remarked(tuple(self.remarks), self.heard))

    async def _keep(self, name: str, value: str) -> None:
        if self._open is not None:
            parts, journal = self._open
            await journal.append(self._key(parts, name), {"value": value})

    def _key(self, parts: "Inquiries", name: str) -> CallKey:
        return CallKey(parts.thread, 0, 0, name)


@dataclass
class Inquiry:
    """One investigation, before, while and after it is worked on."""

    number: int
    asked: Asked
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ended: Trajectory | None = None
    failed: str = ""
    """why there is no trajectory"""
    used: Usage = NO_USAGE
    """so far, until its report is handed in"""

    @property
    def status(self) -> Status:
        return Status.FAILED if self.ended is None else self.ended.status

    @property
    def reason(self) -> str:
        return self.failed if self.ended is None else self.ended.reason


@dataclass
class Inquiries:
    """The investigations of one lead, in the order in which they were asked for."""

    thread: str
    mixed: bool = False
    """each is over one kind of sources, since some are private and others ask public services"""
    by_name: dict[str, Inquiry] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    """by name, what the lead was told"""
    discarded: frozenset[int] = frozenset()
    """numbers of those whose findings the lead found to be false"""
    steering: Steering = field(default_factory=Steering)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BREADTH))

    def expect(self, actions: Sequence[str], most: int) -> list[str]:
        """The actions that ask for something new, each of which is now a part; at most so many."""
        new = list[str]()
        for action in actions:
            asked = asked_in(action)
            if asked.question and asked.name not in self.by_name and len(new) < most:
                part = Inquiry(len(self.by_name) + 1, asked)
                self.by_name[asked.name] = part
                if part.number in self.steering.stopped:
                    part.stop.set()
            if (part_of := self.by_name.get(asked.name)) and not _is_done(part_of):
                new.append(action)
        return list(dict.fromkeys(new))

    @property
    def used(self) -> Usage:
        """By those whose reports were not handed in yet."""
        return sum((part.used for part in self.by_name.values()), NO_USAGE)

    def take(self, name: str, found: Found) -> None:
        """The lead was told what one found, and counts what it spent."""
        if not found.repeated:
            self.found[name] = found
        if name in self.by_name:
            self.by_name[name].used = NO_USAGE

    @property
    def kept(self) -> dict[str, Found]:
        """Of what was `found`, what the report may be written from."""
        gone = {name for name, part in self.by_name.items() if part.number in self.discarded}
        return {name: found for name, found in self.found.items() if name not in gone}

    def name(self, part: Inquiry) -> str:
        return f"{self.thread}.{part.number}"

    def before(self, part: Inquiry) -> tuple[str, ...]:
        """The run with whose sources a part begins: one that has ended, over the same kind."""
        same = (p for p in self.by_name.values() if p.asked.kind == part.asked.kind)
        return tuple(self.name(p) for p in same if p.number == part.asked.after and p.ended)

    async def work(
        self,
        part: Inquiry,
        ask: Ask,
        answer: Answer,
        listener: Listener,
        stop: asyncio.Event | None,
    ) -> None:
        """Have a part answered; whatever goes wrong in it is kept with it."""

        def hear(event: Event) -> None:
            if isinstance(event, UsageCounted):
                part.used = event.usage
            listener(InvestigationEvent(part.number, part.asked.name, event))

        hear(InvestigationAsked())
        async with self._places:
            relay = asyncio.create_task(_pass_on(stop, part.stop))
            try:
                part.ended = await answer(ask, self.name(part), hear, part.stop)
            except RubricemError as error:
                part.failed = error.told()
            except Exception as error:
                LOG.exception("an investigation failed")
                part.failed = f"it failed: {type(error).__name__}"
            finally:
                relay.cancel()
        if part.failed:
            hear(InvestigationFailed(part.failed))

    def told(self) -> tuple[Investigation, ...]:
        """What is kept of them."""
        nothing = Found(())
        return tuple(
            Investigation(
                thread=self.name(part),
                question=part.asked.name,
                items=part.asked.items,
                after=part.asked.after,
                status=part.status,
                reason=part.reason,
                tool_calls=part.ended.tool_calls if part.ended else 0,
                sources=tuple(s.id for s in self.found.get(part.asked.name, nothing).sources),
            )
            for part in self.by_name.values()
        )


def _is_done(part: Inquiry) -> bool:
    return part.ended is not None or bool(part.failed)


async def _pass_on(stop: asyncio.Event | None, to: asyncio.Event) -> None:
    if stop is not None:
        await stop.wait()
        to.set()


def ask_of_part(lead: Ask, part: Inquiry, left: Budgets, beside: int, plan: str) -> Ask:
    """What is asked of an investigation, of which `beside` share what is `left` of the budget.

    `plan`: the text with the lead's rubric.
    """
    rubric = rubric_items(parse(plan).last("rubric"))
    items = tuple(rubric[n - 1] for n in part.asked.items if 0 < n <= len(rubric))
    waves = math.ceil(beside / BREADTH)
    return Ask(
        question=part.asked.question,
        answer_format=AnswerFormat.LONG,
        tool_calls=lead.tool_calls,
        passages=PASSAGES,
        passage_words=lead.passage_words,
        max_tokens=lead.max_tokens,
        seed=lead.seed,
        effort=lead.effort,
        serves=items,
        whole=lead.question,
        budgets=Budgets(
            left.tokens and max(int(left.tokens * SHARE / beside), 1),
            left.seconds and max(left.seconds * SHARE / waves, 1.0),
            left.cost and left.cost * SHARE / beside,
        ),
    )


def reply_of_part(part: Inquiry) -> Reply:
    """The report of an investigation, in the form that the journal keeps.

    `claims`: its pieces as (text, ids of the investigation's own sources); `local`: the ids of the
    passages, in their order.
    """
    trajectory = part.ended
    told = {"usage": (trajectory.usage if trajectory else part.used).model_dump(mode="json")}
    if trajectory is not None:
        told |= {name: getattr(trajectory, name) for name in ("sent", "missed", "private")}
    if trajectory is None or (trajectory.status is Status.FAILED and not trajectory.sources):
        return {"passages": [], "error": part.reason or "it gave nothing", **told}
    answer = cited_answer(trajectory)
    pieces = list[tuple[str, tuple[str, ...]]]()
    for piece in answer.pieces:
        ids = tuple(c.id for c in piece.citations) if isinstance(piece, Cited) else ()
        if piece.text:
            lacking = f" {NO_SOURCE}" if isinstance(piece, Uncited) else ""
            pieces.append((piece.text + lacking, ids))
    cited = answer.sources
    passages = [
        Passage(s.title, s.location, s.place, s.text, s.begun_before, s.goes_on, s.public, s.date)
        for s in cited
    ]
    ended = "" if trajectory.status is Status.FINISHED else trajectory.reason
    return reply_of(
        passages,
        local=[source.id for source in cited],
        claims=pieces,
        note=f"It ended early: {ended}." if ended else "",
        **told,
    )


def must_go_on(trajectory: Trajectory) -> bool:
    """Whether a part that ended before is worked on again: it failed, or a person stopped it."""
    return trajectory.failed or trajectory.ended_by == "interrupt"
