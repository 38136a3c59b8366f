"""How far a run is, folded from its events: a value that a view draws.

Nothing here draws or waits. Each event gives a new `Progress`, so that a view may draw the last
one from another thread at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.action import OPEN_PAGE
from agent.events import (
    BudgetSet,
    Event,
    PersonAsked,
    Recalled,
    RunFinished,
    SourceProgress,
    StageStarted,
    TextWritten,
    ToolCalled,
    ToolReturned,
    TurnRetried,
    UsageCounted,
)
from agent.reports.page_stages import latest_rubric
from agent.reports.printable import one_line, printable
from agent.scaffold import parse
from memory.schema import NO_USAGE, Stage, Status, Trajectory, Usage

STAGES = tuple(Stage)
RUBRIC_TAIL = 20_000
"""characters of a plan that are looked through for its rubric"""


@dataclass(frozen=True, slots=True)
class Call:
    """One search, or one page that is opened; `found` is None while it runs."""

    number: int
    query: str
    found: int | None = None
    seconds: float = 0.0
    error: str = ""
    page: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a run so far."""

    stage: Stage | None = None
    rubric: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    message: str = ""
    """what is being prepared, or why the last turn was asked again"""
    limits: str = ""
    """what the run may spend"""
    recalled: str = ""
    """what of earlier runs was put before the question"""
    usage: Usage = NO_USAGE
    pieces: int = 0
    """pieces of text since `usage` was counted: about a token each"""
    plan: str = ""
    status: Status | None = None

    @property
    def tokens(self) -> int:
        """Tokens written so far, those of the turn in progress estimated."""
        return self.usage.completion_tokens + self.pieces


def advance(progress: Progress, event: Event) -> Progress:
    """The progress after one more event."""
    match event:
        case StageStarted(stage):
            return replace(progress, stage=stage, message="")
        case TextWritten(stage, text):
            return _written(progress, stage, text)
        case ToolCalled(tool, query, number):
            call = Call(number, one_line(query), page=tool == OPEN_PAGE)
            return replace(progress, calls=(*progress.calls, call), message="")
        case ToolReturned():
            return _returned(progress, event)
        case TurnRetried(reason):
            return replace(progress, message=f"asked again: {one_line(reason)}", plan="")
        case SourceProgress() | Recalled() | BudgetSet() | PersonAsked():
            return _beside(progress, event)
        case UsageCounted(usage):
            return replace(progress, usage=usage, pieces=0)
        case RunFinished(trajectory):
            return _finished(progress, trajectory)


def _beside(
    progress: Progress, event: SourceProgress | Recalled | BudgetSet | PersonAsked
) -> Progress:
    """What is told beside the stages."""
    match event:
        case SourceProgress(message):
            return replace(progress, message=one_line(message))
        case Recalled(count, own):
            return replace(progress, recalled=_recalled(count, own))
        case BudgetSet(limits):
            return replace(progress, limits=f"at most {', '.join(limits)}")
        case PersonAsked():
            return progress


def _recalled(count: int, own: bool) -> str:
    if not count:
        return ""
    similar = count - own
    parts = ["one of this very question"] * own + [f"{similar} of similar questions"] * (
        similar > 0
    )
    return f"recalled {count} reflection{'' if count == 1 else 's'}: {', '.join(parts)}"


def _written(progress: Progress, stage: Stage, text: str) -> Progress:
    progress = replace(progress, pieces=progress.pieces + 1)
    if stage is not Stage.PLAN or len(progress.plan) > RUBRIC_TAIL:
        return progress
    plan = progress.plan + text
    # Only a line that has ended is read, so that items do not flicker while they grow.
    whole = "\n" in text or ">" in text
    rubric = _rubric(plan.rpartition("\n")[0]) if whole else ()
    return replace(progress, plan=plan, rubric=rubric or progress.rubric)


def _rubric(text: str) -> tuple[str, ...]:
    return _lines(latest_rubric(parse(printable(text))))


def _lines(items: Sequence[str]) -> tuple[str, ...]:
    return tuple(one_line(item) for item in items)


def _returned(progress: Progress, event: ToolReturned) -> Progress:
    if not progress.calls:
        return progress
    ended = replace(
        progress.calls[-1],
        found=len(event.sources),
        seconds=event.seconds,
        error=one_line(event.error),
    )
    return replace(progress, calls=(*progress.calls[:-1], ended))


def _finished(progress: Progress, trajectory: Trajectory) -> Progress:
    return replace(
        progress,
        rubric=_rubric(trajectory.transcript()) or progress.rubric,
        usage=trajectory.usage,
        pieces=0,
        message=one_line(trajectory.reason),
        status=trajectory.status,
    )
