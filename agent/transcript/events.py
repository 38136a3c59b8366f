"""The events of a run, as values: whoever watches a question being answered gets these.

The graph calls one `Listener` and never waits for it, so a listener must return at once and must
not raise. Events inform people, traces and logs about a run's progress; the trajectory and the
journal are authoritative.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from string import digits

from rubricem.agent.transcript.question import UNLIMITED, Budgets, UsualCost
from rubricem.memory.schema import Source, Stage, Trajectory, Usage


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage was entered, perhaps again after a tool call."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class TextWritten:
    """A piece of text was put down (often one token), by the policy or by the runner."""

    stage: Stage
    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A search, a page or another tool was asked; `number` counts the run's calls from 1."""

    name: str
    query: str
    number: int


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """The search ended: with passages, with none, or with `error` saying why it failed."""

    sources: tuple[Source, ...]
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class TurnRetried:
    """What the policy wrote this turn was rejected, and the turn is asked again."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """Work around the stages: indexing a folder, loading weights, checking citations."""

    message: str


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """The run began, and may spend so much, each limit in words."""

    limits: tuple[str, ...]
    budgets: Budgets = UNLIMITED
    usual: UsualCost | None = None
    """what such runs took before; None: too few are known"""

    def told(self) -> str:
        """What the run may cost, in a line."""
        most, usual = f"at most {', '.join(self.limits)}", self.usual
        if usual is None:
            return most
        return f"{', '.join(usual.phrases())}, as the last {usual.runs} such runs; {most}"


@dataclass(frozen=True, slots=True)
class PersonAsked:
    """A person is being asked something; nothing else may use the terminal until `waiting` ends."""

    waiting: bool


@dataclass(frozen=True, slots=True)
class LessonsRecalled:
    """So many reflections of earlier runs were put before the question."""

    count: int
    own: bool = False
    """the first of them is of this very question"""


@dataclass(frozen=True, slots=True)
class UsageCounted:
    """The run's usage so far, exact, its investigations' included; sent after each call."""

    usage: Usage
    left: Budgets = UNLIMITED
    """of each budget that there is"""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended, well or not; the trajectory says which."""

    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class Remarked:
    """What the person said to the lead so far; it has heard the first so many."""

    remarks: tuple[str, ...]
    heard: int


@dataclass(frozen=True, slots=True)
class InvestigationAsked:
    """An investigation was asked for, and waits for its place."""


@dataclass(frozen=True, slots=True)
class InvestigationFailed:
    """An investigation ended without a trajectory."""

    reason: str


@dataclass(frozen=True, slots=True)
class InvestigationEvent:
    """What happened in an investigation of a lead, `number` of them counted from 1."""

    number: int
    question: str
    event: "Event"


Event = (
    StageStarted
    | TextWritten
    | ToolCalled
    | ToolReturned
    | TurnRetried
    | SourceProgress
    | BudgetSet
    | PersonAsked
    | LessonsRecalled
    | UsageCounted
    | RunFinished
    | Remarked
    | InvestigationAsked
    | InvestigationFailed
    | InvestigationEvent
)

Listener = Callable[[Event], None]


@dataclass
class InvestigationProgress:
    """How far an investigation has come, by its events."""

    number: int
    question: str
    state: str = "waiting"
    """or working; a `Status`, once it ended"""
    reason: str = ""
    stage: Stage | None = None
    calls: int = 0
    passages: int = 0
    asked: str = ""
    """what its latest call asked for"""
    _open: deque[ToolCalled] = field(default_factory=deque)
    _found: set[str] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "working")

    @property
    def doing(self) -> ToolCalled | None:
        """The call that was begun last and goes on."""
        return self._open[-1] if self._open and not self.ended else None

    def hear(self, event: Event) -> ToolCalled | None:
        """Take an event; the call that it answers, if it is an answer."""
        match event:
            case InvestigationAsked():
                self.state = "waiting"
            case StageStarted(stage):
                self.state, self.stage = "working", stage
            case ToolCalled(_, query):
                self.asked = query
                self._open.append(event)
            case ToolReturned(sources) if self._open:
                self._found.update(source.id for source in sources)
                self.calls, self.passages = self.calls + 1, len(self._found)
                return self._open.popleft()
            case InvestigationFailed(reason):
                self.state, self.reason = "failed", reason
            case RunFinished(ended):
                self.calls, self.passages = ended.tool_calls, len(ended.sources)
                self.state, self.reason = ended.status.value, ended.reason
        return None


def ignore(event: Event) -> None:
    """The listener of a run that nobody watches."""


Tell = Callable[[str], None]
"""hears a sentence on what is being done; all that prepares a run has nothing else to say"""


def hush(line: str) -> None:
    """Nobody listens."""


DIGITS = str.maketrans("", "", digits)


AGAIN_SECONDS = 60.0


def once_each(tell: Tell) -> Tell:
    """Tells lines that differ in more than their numbers, as rising counts would fill a log.

    What goes on longer is told once a minute, with how far it has come.
    """
    told: dict[str, float] = {}

    def tell_new(line: str) -> None:
        said, now = line.translate(DIGITS), time.monotonic()
        if now - told.get(said, -math.inf) >= AGAIN_SECONDS:
            told[said] = now
            tell(line)

    return tell_new


def tell_to(listener: Listener) -> Tell:
    """Has the listener hear sentences as progress."""
    return lambda line: listener(SourceProgress(line))


def line_of(event: Event) -> str:
    """What is going on, in a line; "" for what needs none."""
    match event:
        case StageStarted(stage):
            return f"stage: {stage.value}"
        case ToolCalled(name, query, number):
            return f"call {number}: {name}: {query}"
        case ToolReturned(sources, _, error):
            return error or f"found {len(sources)} passages"
        case SourceProgress(message):
            return message
        case InvestigationEvent(number, _, within):
            line = line_of(within)
            return f"[{number}] {line}" if line else ""
        case _:
            return ""
