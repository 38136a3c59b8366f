"""A run shown while it happens, on standard error, and its report, on standard output.

On a terminal: the stages, the rubric as it is written, the searches, tokens and time, drawn in
place. Elsewhere: one plain line for each stage and search. Text of models and pages is printed
as text; nothing in it is read as markup or obeyed by the terminal.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agent.events import (
    BudgetSet,
    Event,
    Listener,
    PersonAsked,
    Recalled,
    RunFinished,
    SourceProgress,
    StageStarted,
    ToolCalled,
    ToolReturned,
    TurnRetried,
    ignore,
)
from agent.reports.citations import cited_answer
from agent.reports.cited import CitedAnswer
from agent.reports.printable import one_line
from agent.reports.progress import STAGES, Call, Progress, advance
from agent.reports.recalled import TITLE, recalled_lines
from agent.reports.report import NO_ANSWER, duration, facts, notes, quotes, whereabouts
from memory.schema import Source, Stage, Status, Trajectory

SHOWN = 8
"""rubric items, and searches, shown at most while the run goes on"""
WIDEST = 100
"""columns of a report at most"""

Clock = Callable[[], float]

_SPINNER = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f"
_ENDED = {
    Status.FINISHED: ("\u2713", "green"),
    Status.NO_EVIDENCE: ("!", "yellow"),
    Status.PARTIAL: ("!", "yellow"),
    Status.FAILED: ("\u2717", "red"),
}
_MARK = re.compile(r"(?<!\w)(?:\[\d+(?:: in part)?\])+")
_DOUBT = re.compile(r"\[\d+: not supported\]|\[no source\]|\[claim removed\]")


@contextmanager
def live_view(
    question: str, *, quiet: bool = False, console: Console | None = None
) -> Iterator[Listener]:
    """A listener that shows what it is told, for as long as the context lasts."""
    if quiet:
        yield ignore
        return
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainLines(console)
        return
    view = _View(question)
    lives = [_live(view, console)]

    def listen(event: Event) -> None:
        if isinstance(event, PersonAsked) and event.waiting:
            lives[-1].stop()
        elif isinstance(event, PersonAsked):
            # A new one, since one that begins again wipes what stands above it.
            lives.append(_live(view, console))
        view.listen(event)

    try:
        yield listen
    finally:
        lives[-1].stop()
    console.print()


def _live(view: "_View", console: Console) -> Live:
    # Standard output is the report's: what is written there must not pass through here.
    live = Live(
        get_renderable=view.draw, console=console, refresh_per_second=8, redirect_stdout=False
    )
    live.start()
    return live


class PlainLines:
    """A listener that prints a line at each stage, search, retry and end, and the rubric."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._started = clock()
        self._progress = Progress()
        self._said = ""

    def __call__(self, event: Event) -> None:
        before, self._progress = self._progress, advance(self._progress, event)
        line = self._line(event, before)
        # Counts that run up would fill a log: a line that differs only in its numbers is not new.
        said = re.sub(r"\d+", "", line)
        if line and not (isinstance(event, SourceProgress) and said == self._said):
            self._console.print(Text(line), soft_wrap=True)
            self._said = said

    def _line(self, event: Event, before: Progress) -> str:
        match event:
            case StageStarted(stage):
                return "" if stage is before.stage else stage.value
            case ToolCalled() if not before.calls:
                return "\n".join(f"  - {item}" for item in self._progress.rubric[:SHOWN])
            case ToolReturned() if self._progress.calls:
                call = self._progress.calls[-1]
                doing = "page" if call.page else "search"
                return f"{doing} {call.number}: {call.query} ({_outcome(call)})"
            case SourceProgress() | TurnRetried():
                return self._progress.message
            case Recalled():
                return self._progress.recalled
            case BudgetSet():
                return self._progress.limits
            case RunFinished():
                return _totals(self._progress, self._clock() - self._started)
            case _:
                return ""


class _View:
    def __init__(self, question: str) -> None:
        self._question = question
        self._started = time.monotonic()
        self._progress = Progress()

    def listen(self, event: Event) -> None:
        self._progress = advance(self._progress, event)

    def draw(self) -> Group:
        return drawing(self._question, self._progress, time.monotonic() - self._started)


def drawing(question: str, progress: Progress, seconds: float) -> Group:
    """The live view, one line for each thing, cut to the terminal's width."""
    lines = [Text(one_line(question), style="bold")]
    if progress.limits:
        lines.append(Text(f"   {progress.limits}", style="dim"))
    if progress.recalled:
        lines.append(Text(f"   {progress.recalled}", style="dim"))
    for stage in STAGES:
        lines.append(_stage_line(stage, progress, seconds))
        if stage is Stage.PLAN:
            lines += [Text(f"     - {item}", style="dim") for item in progress.rubric[:SHOWN]]
        if stage is Stage.RESEARCH:
            lines += [_call_line(call) for call in progress.calls[-SHOWN:]]
    if progress.message:
        lines.append(Text(f"   {progress.message}", style="yellow"))
    lines.append(Text(f"   {_totals(progress, seconds)}", style="dim"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _stage_line(stage: Stage, progress: Progress, seconds: float) -> Text:
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


def _call_line(call: Call) -> Text:
    outcome = _outcome(call) if call.found is not None else "opening" if call.page else "searching"
    return Text.assemble(
        f"   {call.number:>2} ", (outcome, "red" if call.error else "dim"), f"  {call.query}"
    )


def _outcome(call: Call) -> str:
    if call.error:
        return f"failed: {call.error}"
    passages = "1 passage" if call.found == 1 else f"{call.found or 'no'} passages"
    return f"{passages}, {duration(call.seconds)}"


def _totals(progress: Progress, seconds: float) -> str:
    read = f"{progress.usage.prompt_tokens:,} tokens read, " if progress.status else ""
    state = f"{progress.status.value}: " if progress.status else ""
    return f"{state}{read}{progress.tokens:,} tokens written, {duration(seconds)}"


def print_report(
    trajectory: Trajectory, console: Console | None = None, *, titled: bool = True
) -> None:
    """Print the answer, its sources and its numbers; wrapped on a terminal, unwrapped in a pipe.

    `titled`: the question stands above them, which the reader may have just asked.
    In the format `exact` the last line is the bare answer and nothing else.
    """
    console = console or Console(highlight=False)
    answer = cited_answer(trajectory)
    body = Text(answer.body() if answer.pieces else NO_ANSWER)
    body.highlight_regex(_MARK, "cyan")
    body.highlight_regex(_DOUBT, "yellow")
    parts = [
        Text(one_line(trajectory.question) if titled else "", style="bold"),
        *(Text(note, style="yellow") for note in notes(trajectory, answer)),
        body,
        *_sources(answer),
        _recalled(trajectory),
        Text(", ".join(facts(trajectory)), style="dim"),
        Text(answer.bare, style="bold"),
    ]
    for i, part in enumerate(part for part in parts if part):
        if i:
            console.print()
        _print(console, part)


def _print(console: Console, text: Text) -> None:
    if console.is_terminal:
        console.print(text, width=min(console.width, WIDEST))
    else:
        console.print(text, soft_wrap=True)


def _sources(answer: CitedAnswer) -> Iterator[Text]:
    if answer.sources:
        yield Text("Sources", style="bold")
    for source in answer.sources:
        yield _source(answer, source)


def _recalled(trajectory: Trajectory) -> Text:
    lines = recalled_lines(trajectory)
    shown = "".join(f"\n  - {line}" for line in lines)
    return Text.assemble((TITLE, "bold"), (shown, "dim")) if lines else Text()


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
