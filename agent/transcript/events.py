"""The events of a run, as values: whoever watches a question being answered gets these.

The graph calls one `Listener` and never waits for it, so a listener must return at once and must
not raise. Events inform people, traces and logs about a run's progress; the trajectory and the
journal are authoritative.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    """The run's usage so far, exact; sent after each call of the model."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run ended, well or not; the trajectory says which."""

    trajectory: Trajectory


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
    | InvestigationEvent
)

Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener of a run that nobody watches."""


Tell = Callable[[str], None]
"""hears a sentence on what is being done; all that prepares a run has nothing else to say"""


def hush(line: str) -> None:
    """Nobody listens."""


def tell_to(listener: Listener) -> Tell:
    """Has the listener hear sentences as progress."""
    return lambda line: listener(SourceProgress(line))
