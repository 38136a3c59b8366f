"""What a run reports while in progress: derived from its events, kept in a file.

    Event -> Telling -> EventLog

    runs/RUN/events.jsonl     {"id": 1, "event": "stage", "data": {...}}, one event a line

Readers ask for what follows the number they have, so there are no queues per reader. Events are for
people watching and are not fsynced; the journal is authoritative.
"""

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from starlette.responses import StreamingResponse

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import LONGEST_ITEM, checklist
from rubricem.agent.settings import BUDGETS
from rubricem.agent.transcript import events
from rubricem.agent.transcript.question import Budgets, ShownPlan, UsualCost
from rubricem.agent.transcript.scaffold import STAGE_OF
from rubricem.memory.runs import RunStore, plain_bytes
from rubricem.memory.schema import Stage, Trajectory, Usage
from rubricem.memory.text import one_line, storable

END, RESTART = "end", "restart"
BEAT = b":\n\n"
SaidEvent = tuple[str, dict[str, Any]]
"""the name and the data of an event"""


def usage_of(usage: Usage, calls: int) -> dict[str, Any]:
    told = usage.model_dump(exclude={"calls"})
    return told | {"tool_calls": calls}


def calls_of(trajectory: Trajectory) -> int:
    """The tool calls of a run; of one that led, those of its investigations."""
    parts = trajectory.investigations
    return sum(part.tool_calls for part in parts) if parts else trajectory.tool_calls


def left_of(budgets: Budgets) -> dict[str, float]:
    """What is left of each budget that there is, by its setting."""
    left = {BUDGETS[name]: value for name, value in asdict(budgets).items()}
    return {name: round(value, 4) for name, value in left.items() if value is not None}


def last_events(trajectory: Trajectory) -> list[SaidEvent]:
    """The last events of a run: checklist, counts, verdicts, and outcome. Takes a while."""
    rubric = checklist(trajectory.transcript())
    return [
        *([("rubric", {"items": rubric})] if rubric else []),
        ("usage", usage_of(trajectory.usage, calls_of(trajectory))),
        ("verdicts", {"citations": citations_of(trajectory)}),
        end_event(trajectory.status.value, trajectory.reason),
    ]


def end_event(status: str, reason: str) -> SaidEvent:
    return "finished", {"status": status, "reason": one_line(reason)}


def citations_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Each claim with each of its sources, in order of appearance, and its verdict."""
    return [
        {
            "n": citation.number,
            "id": citation.id,
            "claim": citation.claim,
            "verdict": citation.verdict,
            "why": citation.reason,
            "quote": citation.quote,
            "quotes": citation.quotes,
        }
        for citation in cited_answer(trajectory).citations
    ]


_OPENS = re.compile(r"<\s*(state_evaluation|review|answer)\s*>", re.I)
_MAY_OPEN = re.compile(r"<[^<>]{0,24}\Z")


@dataclass
class StageSpans:
    """Which stage a piece of text belongs to, while it is still being written.

    A model that decodes freely writes several stages in one turn, and the turn is reported as the
    stage in which it began. Its tags show where the next one begins.
    """

    within: Stage = Stage.RESEARCH
    held: str = ""
    """the beginning of a possible tag; its stage is not known yet"""

    def of(self, stage: Stage, text: str) -> list[tuple[Stage, str]]:
        """The parts of a piece, each with its stage; `stage` is the one in which its turn began."""
        if stage is not Stage.RESEARCH:
            return [*self.rest(), (stage, text)]
        text, self.held, parts, at = self.held + text, "", list[tuple[Stage, str]](), 0
        if (begun := _MAY_OPEN.search(text)) is not None:
            text, self.held = text[: begun.start()], begun[0]
        for tag in _OPENS.finditer(text):
            parts.append((self.within, text[at : tag.start()]))
            at, self.within = tag.start(), STAGE_OF[tag[1].lower()] or self.within
        return [(s, t) for s, t in (*parts, (self.within, text[at:])) if t]

    def rest(self) -> list[tuple[Stage, str]]:
        """What is held back, at the end of the turn."""
        rest = [(self.within, self.held)] if self.held else []
        self.within, self.held = Stage.RESEARCH, ""
        return rest


_LAST = (Stage.REVIEW, Stage.ANSWER)
LOOKED_AT = 20_000
"""characters of a plan or a review that are parsed while they grow"""


@dataclass
class Telling:
    """Converts the events of one run; remembers what it has seen of the plan and the review."""

    run: str
    tell: Callable[[str, dict[str, Any]], None]
    """is given the name and the data of each event for watchers"""
    plan: str = ""
    review: str = ""
    answer: str = ""
    plan_told: bool = True
    stage: Stage | None = None
    spans: StageSpans = field(default_factory=StageSpans)
    calls: int = 0
    open: deque[int] = field(default_factory=deque)
    """calls that have not returned: they return in their order"""
    usage: dict[str, Any] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    usual: UsualCost | None = None
    """what such runs took; None: too few are known"""
    parts: dict[int, events.InvestigationProgress] = field(default_factory=dict)
    """the investigations of a lead"""
    rubric: list[dict[str, Any]] = field(default_factory=list)

    def hear(self, event: events.Event) -> None:
        """Report an event of the agent."""
        match event:
            case events.TextWritten(stage, text):
                self._write_all(self.spans.of(stage, text))
            case events.InvestigationEvent():
                self._report_part(event)
            case events.SourceProgress(message):
                self.tell("note", {"message": one_line(message)})
            case events.TurnRetried(reason):
                self.plan, self.review, self.answer, self.spans = "", "", "", StageSpans()
                self.tell("retry", {"reason": reason})
            case _:
                self._write_all(self.spans.rest())
                self._report(event)

    def _report(self, event: events.Event) -> None:
        match event:
            case events.StageStarted(stage):
                self._begin(stage)
            case events.ToolCalled(name, query, number):
                self.calls = number
                self.open.append(number)
                self._report_plan(query)
                self.tell("tool", {"number": number, "name": name, "query": query})
            case events.ToolReturned(sources, seconds, error):
                number = self.open.popleft() if self.open else self.calls
                found = [
                    {"id": s.id, "title": one_line(s.title), "url": one_line(s.location)}
                    for s in sources
                ]
                taken = {"seconds": round(seconds, 3), "error": error}
                self.tell("results", {"number": number, "sources": found, **taken})
            case events.BudgetSet(limits, budgets, usual):
                self.limits, self.usual = list(limits), usual
                self.tell("budget", {"limits": self.limits, "left": left_of(budgets)})
            case events.Remarked(remarks, heard):
                self.tell("remarks", {"said": list(remarks), "heard": heard})
            case events.LessonsRecalled(count, own):
                self.tell("recalled", {"count": count, "own": own})
            case events.UsageCounted(usage, left):
                calls = sum(part.calls for part in self.parts.values()) or self.calls
                self.usage = usage_of(usage, calls) | {"left": left_of(left)}
                self.tell("usage", self.usage)
            case events.PersonAsked(waiting=True) | events.RunFinished():
                self._report_plan()

    def _report_part(self, told: events.InvestigationEvent) -> None:
        """An investigation as it stands, if what is shown of it changed."""
        begun = events.InvestigationProgress(told.number, told.question)
        part = self.parts.setdefault(told.number, begun)
        before = self._shown_part(part)
        part.hear(told.event)
        shown = self._shown_part(part)
        if shown != before or part is begun:
            self.tell("investigation", shown)

    def _shown_part(self, part: events.InvestigationProgress) -> dict[str, Any]:
        doing = part.doing
        return {
            "number": part.number,
            "run": f"{self.run}.{part.number}",
            "question": one_line(part.question, LONGEST_ITEM),
            "state": part.state,
            "reason": one_line(part.reason, LONGEST_ITEM),
            "stage": part.stage.value if part.stage else "",
            "tool": doing.name if doing else "",
            "query": one_line(doing.query if doing else part.asked, LONGEST_ITEM),
            "calls": part.calls,
            "passages": part.passages,
        }

    def _begin(self, stage: Stage) -> None:
        self._report_plan()
        if stage is Stage.PLAN:
            self.plan, self.plan_told = "", False
        # A turn that went on into review and answer has had them told by its text.
        if self.stage not in _LAST or stage not in _LAST[: _LAST.index(self.stage) + 1]:
            self._enter(stage)

    def _enter(self, stage: Stage) -> None:
        self.stage, self.answer = stage, ""
        if stage is Stage.REVIEW:
            self.review = ""
        self.tell("stage", {"stage": stage.value})

    def _write_all(self, parts: Iterable[tuple[Stage, str]]) -> None:
        """Pieces of stages, and the checklist where a piece completed a part of it."""
        for stage, text in parts:
            if stage is not self.stage:
                self._enter(stage)
            self.tell("text", {"stage": stage.value, "text": text})
            whole = ""
            if stage is Stage.PLAN and len(self.plan) < LOOKED_AT:
                whole = self.plan = self.plan + text
            elif stage is Stage.REVIEW and len(self.review) < LOOKED_AT:
                whole = self.review = self.review + text
            elif stage is Stage.ANSWER:
                self.answer += text
            if ">" in text and "</rubric" in whole[-len(text) - 20 :]:
                self._report_checklist()

    def _report_checklist(self) -> None:
        rubric = checklist(self.plan + self.review)
        if rubric and rubric != self.rubric:
            self.rubric = rubric
            self.tell("rubric", {"items": rubric})

    def _report_plan(self, query: str = "") -> None:
        """The plan, once what follows it begins."""
        if self.plan and not self.plan_told:
            self.plan_told = True
            plan = ShownPlan.of(self.plan, query)
            self._report_checklist()
            self.tell("plan", {"text": plan.research_plan})


PAUSE = 0.25
"""seconds for which events are gathered"""
_LATEST = ("usage", "investigation", "remarks")
"""of several (by number, where they have one) only the last matters"""
_IN_A_ROW = ("note", "rubric")
"""the same of those between which nothing else is told"""


FILE_NAME = "events.jsonl"
BATCH = 512
HEARTBEAT = 15.0
"""seconds without events after which a watcher is told that the connection is alive"""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event."""

    id: int
    name: str
    data: Mapping[str, Any]

    @property
    def frame(self) -> bytes:
        return f"id: {self.id}\nevent: {self.name}\ndata: {_json(self.data)}\n\n".encode()

    @property
    def line(self) -> bytes:
        value = {"id": self.id, "event": self.name, "data": self.data}
        return _json(value).encode() + b"\n"


def event_stream(frames: AsyncIterator[bytes] | Iterator[bytes]) -> StreamingResponse:
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)


class EventLog:
    """The events of a run, numbered from 1 without gaps; used on one event loop.

    They are gathered for a moment, so that a model's pieces of text are not an event each.
    """

    def __init__(self, path: Path) -> None:
        """Continues the file of an earlier process. Reads it."""
        self.path = path
        self.begins = 1
        """the first event of its latest start; what is before is history"""
        self.ended = False
        self.lost = False
        """the run's folder is gone: no more events are written"""
        self._events: list[LoggedEvent] = []
        self._gathered: list[SaidEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        with suppress(FileNotFoundError):
            held = plain_bytes(path)
            whole = held[: held.rfind(b"\n") + 1]
            if len(whole) < len(held):  # a kill left half a line
                os.truncate(path, len(whole))
            for line in whole.splitlines():
                self._add(_parse_line(self.last + 1, line))

    @property
    def last(self) -> int:
        return len(self._events)

    def put(self, name: str, data: dict[str, Any]) -> None:
        last, held = self._gathered[-1] if self._gathered else ("", {})
        if name == last == "text" and held["stage"] == data["stage"]:
            held["text"] += data["text"]
            return
        if name == last and name in _IN_A_ROW:
            self._gathered.pop()
        if name in _LATEST:
            same = name, data.get("number")
            self._gathered = [(n, d) for n, d in self._gathered if (n, d.get("number")) != same]
        self._gathered.append((name, data))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self.flush)

    def flush(self) -> None:
        """Tell all that was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        for name, data in gathered:
            self.append(name, data)

    def append(self, name: str, data: Mapping[str, Any]) -> None:
        event = LoggedEvent(self.last + 1, name, data)
        self._add(event)
        if not self.lost:
            # On a full disk it is told, and nothing of it is in the file.
            with suppress(OSError), self.path.open("ab", buffering=0) as file:
                end = file.tell()
                if file.write(event.line) < len(event.line):
                    file.truncate(end)
            self.lost = not self.path.parent.exists()
        self.wake()

    def end(self, said: Iterable[SaidEvent]) -> None:
        """Append the last events of a run that nobody works on."""
        for name, data in (*said, (END, {})):
            self.append(name, data)

    def read(self, after: int) -> list[LoggedEvent]:
        """The events after a number, at most `BATCH`; empty if there are none yet."""
        after = max(after, self.begins - 1)
        return self._events[after : after + BATCH]

    async def wait_for_news(self, after: int) -> None:
        """Return when there is an event after the number, at the next `wake`, or after a while."""
        if self.last <= after:
            # Not by `wait_for`, which loses a cancellation that comes with the news.
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._news.wait()

    def wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _add(self, event: LoggedEvent) -> None:
        self._events.append(event)
        self.begins = event.id if event.name == RESTART else self.begins
        self.ended = event.name == END


def _json(value: Mapping[str, Any]) -> str:
    return storable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _parse_line(number: int, line: bytes) -> LoggedEvent:
    """A line as its event; an unreadable one becomes a note, so that no number is missing."""
    try:
        value = json.loads(line)
        return LoggedEvent(number, str(value["event"]), dict(value["data"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return LoggedEvent(number, "note", {"message": "this event was damaged on disk"})


MOST_RESTARTS = 5
"""a run that was resumed this often and never ended is not resumed again by itself"""


class Logs:
    """Opens the log of a run, or returns the one that somebody writes or reads."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._held: WeakValueDictionary[str, EventLog] = WeakValueDictionary()
        self._lock = asyncio.Lock()

    async def of(self, run: str) -> EventLog:
        async with self._lock:
            if (log := self._held.get(run)) is None:
                log = await asyncio.to_thread(EventLog, self._store.folder_of(run) / FILE_NAME)
                self._held[run] = log
            return log

    def wake(self) -> None:
        for log in list(self._held.values()):
            log.wake()

    def find_unfinished(self) -> list[str]:
        """Runs that were begun here and have not ended, the oldest first; reads files."""
        paths = [path for path in self._store.folder.glob(f"*/{FILE_NAME}") if _goes_on(path)]
        return [path.parent.name for path in sorted(paths, key=os.path.getmtime)]


def _goes_on(path: Path) -> bool:
    try:
        held = plain_bytes(path)
    except OSError:
        # A file that cannot be read keeps no other run from going on.
        return False
    _, ended, since = held.rpartition(f'"event":"{END}"'.encode())
    since = since.partition(b"\n")[2] if ended else since
    return bool(since) and since.count(f'"event":"{RESTART}"'.encode()) < MOST_RESTARTS
