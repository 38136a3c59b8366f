"""Runs, reports and judgements on the terminal.

A run is shown while it happens, on standard error: on a terminal its stages, the rubric as it is
written, the searches, tokens and time, redrawn in place; elsewhere one plain line per stage and
search. Its progress is folded from its events into an immutable `StageProgress`, so that a view may
draw the latest one from another thread at any time. The report, and what a judge says, go to
standard output; on a terminal the answer's Markdown is rendered, in a pipe it stays as written.
Other text of models and pages is printed as plain text; the terminal obeys nothing in it.
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rubricem.agent.reports.cited import CitedAnswer, cited_answer
from rubricem.agent.reports.report import (
    NO_ANSWER,
    TITLE,
    duration,
    facts,
    grammar,
    latest_rubric,
    notes,
    quotes,
    recalled_lines,
    whereabouts,
)
from rubricem.agent.transcript import events
from rubricem.agent.transcript.question import OPEN_PAGE
from rubricem.agent.transcript.scaffold import parse
from rubricem.judge.evaluation.report import PairReport, shares_of
from rubricem.memory.schema import (
    NO_USAGE,
    Judgement,
    Source,
    Stage,
    StageScore,
    Status,
    Trajectory,
    Usage,
)
from rubricem.memory.text import one_line, printable

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.markdown import Markdown

STAGES = tuple(Stage)
RUBRIC_TAIL = 20_000
"""characters of a plan that are searched for its rubric"""


@dataclass(frozen=True, slots=True)
class Call:
    """One search, or one page that was opened; `found` is None while it runs."""

    number: int
    query: str
    found: int | None = None
    seconds: float = 0.0
    error: str = ""
    page: bool = False


@dataclass(frozen=True, slots=True)
class StageProgress:
    """What is known of a run so far."""

    stage: Stage | None = None
    rubric: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    message: str = ""
    """what is being prepared, or why the last turn was repeated"""
    limits: str = ""
    recalled: str = ""
    usage: Usage = NO_USAGE
    pieces: int = 0
    """pieces of text since `usage` was last counted: about a token each"""
    plan: str = ""
    status: Status | None = None

    @property
    def tokens(self) -> int:
        """Tokens written so far; those of the turn in progress are estimated."""
        return self.usage.completion_tokens + self.pieces


def advance(progress: StageProgress, event: events.Event) -> StageProgress:
    """The progress after one more event."""
    match event:
        case events.StageStarted(stage):
            return replace(progress, stage=stage, message="")
        case events.TextWritten(stage, text):
            return _add_text(progress, stage, text)
        case events.ToolCalled(tool, query, number):
            call = Call(number, one_line(query), page=tool == OPEN_PAGE)
            return replace(progress, calls=(*progress.calls, call), message="")
        case events.ToolReturned():
            return _end_call(progress, event)
        case events.TurnRetried(reason):
            return replace(progress, message=f"asked again: {one_line(reason)}", plan="")
        case events.UsageCounted(usage):
            return replace(progress, usage=usage, pieces=0)
        case events.RunFinished(trajectory):
            return _finish(progress, trajectory)
        case _:
            return _beside(progress, event)


def _beside(progress: StageProgress, event: events.Event) -> StageProgress:
    """The progress after an event that belongs to no stage."""
    match event:
        case events.SourceProgress(message):
            return replace(progress, message=one_line(message))
        case events.LessonsRecalled(count, own):
            similar = f"{count - own} of similar questions" if count > own else ""
            parts = filter(None, ("one of this very question" if own else "", similar))
            told = f"{count} reflection{'' if count == 1 else 's'}: {', '.join(parts)}"
            return replace(progress, recalled=f"recalled {told}" if count else "")
        case events.BudgetSet(limits):
            return replace(progress, limits=f"at most {', '.join(limits)}")
        case _:
            return progress


def _add_text(progress: StageProgress, stage: Stage, text: str) -> StageProgress:
    progress = replace(progress, pieces=progress.pieces + 1)
    if stage is not Stage.PLAN or len(progress.plan) > RUBRIC_TAIL:
        return progress
    plan = progress.plan + text
    # Only a line that has ended is read, so that items do not flicker while they grow.
    whole = "\n" in text or ">" in text
    rubric = _rubric(plan.rpartition("\n")[0]) if whole else ()
    return replace(progress, plan=plan, rubric=rubric or progress.rubric)


def _rubric(text: str) -> tuple[str, ...]:
    return tuple(map(one_line, latest_rubric(parse(printable(text)))))


def _end_call(progress: StageProgress, event: events.ToolReturned) -> StageProgress:
    if not progress.calls:
        return progress
    ended = replace(
        progress.calls[-1],
        found=len(event.sources),
        seconds=event.seconds,
        error=one_line(event.error),
    )
    return replace(progress, calls=(*progress.calls[:-1], ended))


def _finish(progress: StageProgress, trajectory: Trajectory) -> StageProgress:
    return replace(
        progress,
        rubric=_rubric(trajectory.transcript()) or progress.rubric,
        usage=trajectory.usage,
        pieces=0,
        message=one_line(trajectory.reason),
        status=trajectory.status,
    )


AGAIN = 30.0
"""seconds after which a line is repeated if only its numbers changed"""
SHOWN = 8
"""most rubric items, and most searches, shown during a run"""
WIDEST = 100

Clock = Callable[[], float]

_SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_ENDED = {
    Status.FINISHED: ("\u2713", "green"),
    Status.NO_EVIDENCE: ("!", "yellow"),
    Status.PARTIAL: ("!", "yellow"),
    Status.FAILED: ("\u2717", "red"),
}
_MARK = re.compile(r"(?<!\w)(?:\[\d+\])+")
_DOUBT = re.compile(r"\[(?:\d+:[a-z\s]+|no\s+source|claim\s+removed)\]")


@contextmanager
def live_view(
    question: str, *, quiet: bool = False, named: bool = False, console: Console | None = None
) -> Iterator[events.Listener]:
    """A listener that shows the events it receives, for as long as the context lasts.

    `named`: the question is on screen already, so lines do not begin with it.
    """
    if quiet:
        yield events.ignore
        return
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        if not named:
            console.print(Text(one_line(question)), soft_wrap=True)
        yield PlainLines(console)
        return
    view = _Drawing(question, console)
    view.begin()
    try:
        yield view
    finally:
        view.end()
    console.print()


class _Drawing:
    """A listener that draws the run in place, and makes room while a person is asked."""

    def __init__(self, question: str, console: Console) -> None:
        self._question = question
        self._console = console
        self._started = time.monotonic()
        self._progress = StageProgress()

    def __call__(self, event: events.Event) -> None:
        self._progress = advance(self._progress, event)
        if isinstance(event, events.PersonAsked):
            (self.end if event.waiting else self.begin)()

    def begin(self) -> None:
        # A new one each time, since one that begins again wipes what stands above it. Standard
        # output is the report's: what is written there must not pass through here.
        self._live = Live(
            get_renderable=lambda: drawing(
                self._question, self._progress, time.monotonic() - self._started
            ),
            console=self._console,
            refresh_per_second=8,
            redirect_stdout=False,
        )
        self._live.start()

    def end(self) -> None:
        self._live.stop()


class PlainLines:
    """A listener that prints a line for each stage, search, retry and end, and the rubric."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._started = clock()
        self._progress = StageProgress()
        self._said: dict[str, float] = {}
        """when a line was last printed, by its text without numbers"""

    def __call__(self, event: events.Event) -> None:
        before, self._progress = self._progress, advance(self._progress, event)
        line = self._line(event, before)
        if not line or (isinstance(event, events.SourceProgress) and self._runs_up(line)):
            return
        self._console.print(Text(line), soft_wrap=True)

    def _runs_up(self, line: str) -> bool:
        """Whether only the numbers are new: rising counts would fill a log."""
        said, now = re.sub(r"\d+", "", line), self._clock()
        if now - self._said.get(said, -math.inf) < AGAIN:
            return True
        self._said[said] = now
        return False

    def _line(self, event: events.Event, before: StageProgress) -> str:
        match event:
            case events.StageStarted(stage):
                return "" if stage is before.stage else stage.value
            case events.ToolCalled() if not before.calls:
                return "\n".join(f"  - {item}" for item in self._progress.rubric[:SHOWN])
            case events.ToolReturned() if self._progress.calls:
                call = self._progress.calls[-1]
                doing = "page" if call.page else "search"
                return f"{doing} {call.number}: {call.query} ({_outcome(call)})"
            case events.SourceProgress() | events.TurnRetried():
                return self._progress.message
            case events.LessonsRecalled():
                return self._progress.recalled
            case events.BudgetSet():
                return self._progress.limits
            case events.RunFinished():
                return _totals(self._progress, self._clock() - self._started)
            case _:
                return ""


def drawing(question: str, progress: StageProgress, seconds: float) -> Group:
    """The live view, one line per item, cut to the terminal's width."""
    lines = [Text(one_line(question), style="bold")]
    before = filter(None, (progress.limits, progress.recalled))
    lines += [Text(f"   {line}", style="dim") for line in before]
    for stage in STAGES:
        lines.append(_stage_line(stage, progress, seconds))
        if stage is Stage.PLAN:
            lines += [Text(f"     - {item}", style="dim") for item in progress.rubric[:SHOWN]]
        if stage is Stage.RESEARCH:
            for call in progress.calls[-SHOWN:]:
                doing = "opening" if call.page else "searching"
                outcome = _outcome(call) if call.found is not None else doing
                style = "red" if call.error else "dim"
                lines.append(
                    Text.assemble(f"   {call.number:>2} ", (outcome, style), f"  {call.query}")
                )
    if progress.message:
        lines.append(Text(f"   {progress.message}", style="yellow"))
    lines.append(Text(f"   {_totals(progress, seconds)}", style="dim"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _stage_line(stage: Stage, progress: StageProgress, seconds: float) -> Text:
    at = STAGES.index(progress.stage) if progress.stage else -1
    own = STAGES.index(stage)
    mark, style = "\u25cb", "dim"
    if own < at:
        mark, style = _ENDED[Status.FINISHED]
    elif own == at and progress.status:
        mark, style = _ENDED[progress.status]
    elif own == at:
        mark, style = _SPINNER[int(seconds * 8) % len(_SPINNER)], "bold cyan"
    return Text(f" {mark} {stage.value.capitalize()}", style=style)


def _outcome(call: Call) -> str:
    if call.error:
        return f"failed: {call.error}"
    passages = "1 passage" if call.found == 1 else f"{call.found or 'no'} passages"
    return f"{passages}, {duration(call.seconds)}"


def _totals(progress: StageProgress, seconds: float) -> str:
    read = f"{progress.usage.prompt_tokens:,} tokens read, " if progress.status else ""
    state = f"{progress.status.value.replace('_', ' ')}: " if progress.status else ""
    return f"{state}{read}{progress.tokens:,} tokens written, {duration(seconds)}"


def print_report(
    trajectory: Trajectory, console: Console | None = None, *, titled: bool = True
) -> None:
    """Print the answer, its sources and its figures; wrapped on a terminal, unwrapped in a pipe.

    `titled`: with the question above them, which the reader may have just asked. In the format
    `exact` the last line is the bare answer and nothing else.
    """
    console = console or Console(highlight=False)
    answer = cited_answer(trajectory)
    recalled = "".join(f"\n  - {line}" for line in recalled_lines(trajectory))
    recalled += "\n  more of one: rubricem bank show ID" if recalled else ""
    width = min(console.width, WIDEST) if console.is_terminal else None
    body = _body(answer, console, width)
    body.highlight_regex(_MARK, "cyan")
    body.highlight_regex(_DOUBT, "yellow")
    parts = [
        Text(one_line(trajectory.question) if titled else "", style="bold"),
        *(Text(note, style="yellow") for note in notes(trajectory, answer)),
        body,
        Text("Sources" if answer.sources else "", style="bold"),
        *(_source(answer, source) for source in answer.sources),
        Text.assemble((TITLE, "bold"), (recalled, "dim")) if recalled else Text(),
        Text(", ".join(facts(trajectory)), style="dim"),
        Text(answer.bare, style="bold"),
    ]
    for i, part in enumerate(part for part in parts if part):
        if i:
            console.print()
        console.print(part, width=width, soft_wrap=width is None)


def for_terminal(text: str) -> "Markdown":
    """The text for rich's Markdown, with formulas as they were written."""
    from rich.markdown import Markdown

    drawn = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    drawn.parsed = [_as_source(token) for token in grammar().parse(text)]
    return drawn


def _as_source(token: "Token") -> Any:
    if token.type.startswith("math"):
        kind = "fence" if token.block else "text"
        return token.copy(type=kind, tag="code" if token.block else "", info="latex")
    children = token.children and [_as_source(child) for child in token.children]
    return token.copy(children=children)


def _body(answer: CitedAnswer, console: Console, width: int | None) -> Text:
    """The answer rendered in this many columns; None: leave it as it was written."""
    written = answer.body() if answer.pieces else NO_ANSWER
    if width is None:
        return Text(written)
    with console.capture() as drawn:
        console.print(for_terminal(written), width=width)
    return Text.from_ansi("\n".join(line.rstrip() for line in drawn.get().strip().splitlines()))


def _source(answer: CitedAnswer, source: Source) -> Text:
    where = whereabouts(source)
    text = Text.assemble(
        (f"[{answer.of(source)[0].number}]", "cyan"),
        f" {one_line(source.title)}",
        (f"\n    {', '.join(where)}" if where else "", "dim"),
    )
    for quote in quotes(answer, source):
        text.append(f'\n    "{quote}"', style="italic")
    return text


LONGEST = 160
"""most characters of a question or a justification"""
TABLE_WIDTH = 160
"""columns of a table in a file or a pipe"""


def print_heading(title: str, fact: str) -> Console:
    """Print the heading; the console for the table below it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    console.print(Text(one_line(title), style="bold"))
    console.print(Text(fact, style="dim"))
    return console


def print_judgement(trajectory: Trajectory, judgement: Judgement) -> None:
    """Print a line of facts, then a table: stage, score, criterion, points, justification."""
    facts = f"run {trajectory.thread}, judged by {judgement.judge}"
    facts = f"{facts}, rubrics {judgement.rubric_version}"
    question = one_line(trajectory.question, LONGEST)
    console = print_heading(question, facts)
    table = Table("stage", "score", "weight", "criterion", "points", "justification")
    for score in judgement.stages:
        mean = "unscored" if score.score is None else f"{score.score:.2f}"
        missing = " (missing)" if score.missing and score.score is not None else ""
        for i, cells in enumerate(_rows(score)):
            shown = (score.stage.value, mean + missing) if i == 0 else ("", "")
            table.add_row(*(Text(cell) for cell in (*shown, *cells)))
        table.add_section()
    console.print(table)


def _rows(score: StageScore) -> Iterator[tuple[str, str, str, str]]:
    """A row for each verdict; if there is none, one with the reason."""
    if not score.verdicts:
        yield "", one_line(score.unscored_reason or score.justification), "", ""
    for verdict in score.verdicts:
        criterion = verdict.criterion
        sign = "" if criterion.positive else "-"
        kept = " (persistent)" if criterion.persistent else ""
        said = one_line(verdict.justification, LONGEST)
        if verdict.justified_by == "code":
            said = f"found by code: {said}" if said else "no sentence of the stage speaks of it"
        yield (
            f"{sign}{criterion.weight:g}",
            one_line(criterion.description) + kept,
            f"{verdict.points:.2g}",
            said,
        )


def print_judge_eval(report: PairReport) -> None:
    """Print a line of facts, the shares, and the cost."""
    size = f"{report.measures.pairs} pairs, {report.measures.comparisons} comparisons"
    console = print_heading(f"{report.judge} on {report.data}", size)
    table = Table("measure", "share", "95% interval", "of")
    for name, share in shares_of(report):
        value = "-" if share.value is None else f"{share.value:.3f}"
        interval = f"{share.low:.3f} - {share.high:.3f}"
        table.add_row(Text(name), value, interval, str(share.n))
    console.print(table)
    usage = report.usage
    tokens = f"{usage.prompt_tokens} prompt and {usage.completion_tokens} completion tokens"
    price = "of unknown cost" if usage.cost is None else f"for ${usage.cost:.4f}"
    cost = f"{usage.calls} calls, {tokens}, {price}" if usage.calls else "no calls"
    console.print(Text(cost, style="dim"))
