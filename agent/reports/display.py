"""Runs, reports and judgements on the terminal.

A run is shown while it happens, on standard error: a line per stage and search, and on a terminal
below them what goes on. The report, and what a judge says, go to standard output; on a terminal the
answer's Markdown is rendered, in a pipe it stays as written. Other text of models and pages is
printed as plain text; the terminal obeys nothing in it.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rubricem.agent.reports.cited import CitedAnswer, cited_answer
from rubricem.agent.reports.report import (
    NO_ANSWER,
    TITLE,
    documents,
    duration,
    end_notes,
    facts,
    grammar,
    latest_rubric,
    notes,
    quotes,
    recalled_lines,
    whereabouts,
)
from rubricem.agent.transcript import events
from rubricem.agent.transcript.question import INVESTIGATE, OPEN_PAGE, tokens_told
from rubricem.agent.transcript.scaffold import parse
from rubricem.agent.transcript.words import closest_sentence
from rubricem.judge.evaluation.report import PairReport, shares_of
from rubricem.memory.schema import SUPPORT, Judgement, Source, Stage, StageScore, Trajectory
from rubricem.memory.text import one_line, pluralise, printable

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.markdown import Markdown

RUBRIC_TAIL = 20_000
"""characters of a plan that are searched for its rubric"""
SHOWN = 8
"""most rubric items shown during a run"""
PASSAGES, SAID = 3, 300
"""of the first search, and characters of a sentence of each"""
WIDEST = 100
_MARK = re.compile(r"(?<!\w)(?:\[\d+\])+")
_DOUBT = re.compile(r"\[(?:\d+:[a-z\s]+|no\s+source|claim\s+removed)\]")


@contextmanager
def live_view(
    question: str, *, quiet: bool = False, named: bool = False, console: Console | None = None
) -> Iterator[events.Listener]:
    """A listener that shows the events it receives, for as long as the context lasts.

    `named`: the question is on screen already.
    """
    if quiet:
        yield events.ignore
        return
    console = console or Console(stderr=True, highlight=False)
    if not named:
        console.print(Text(one_line(question), style="bold"), soft_wrap=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield ProgressLines(console)
        return
    # Standard output is the report's: what is written there must not pass through here.
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        yield ProgressLines(console, bar)
    console.print()


class ProgressLines:
    """A listener that prints a line for each stage, search, retry and end, and the rubric."""

    def __init__(self, console: Console, bar: Progress | None = None) -> None:
        """`bar`: where a terminal shows what goes on between two lines."""
        self._console = console
        self._bar = bar
        self._task = bar.add_task("") if bar else None
        self._stage: Stage | None = None
        self._plan = ""
        self._planned = False
        """its rubric was shown"""
        self._calls = deque[events.ToolCalled]()
        """those that have not returned: they return in their order"""
        self._parts: dict[int, _Part] = {}
        self._said = ""
        """the last progress, without its numbers: rising counts would fill a log"""

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TextWritten(Stage.PLAN, text) if len(self._plan) < RUBRIC_TAIL:
                self._plan += text
            case events.PersonAsked(waiting) if self._bar:
                (self._bar.stop if waiting else self._bar.start)()
            case events.SourceProgress(message):
                self._tell_progress(one_line(message))
            case events.InvestigationEvent(number, question, within):
                seen = events.InvestigationProgress(number, question)
                part = self._parts.setdefault(number, _Part(seen))
                self._tell_part(part, within)
            case _:
                if line := self._stage_line(event) or _line_beside(event):
                    self._console.print(Text(line), soft_wrap=True)

    def _tell_progress(self, line: str) -> None:
        self._go_on(line)
        said = re.sub(r"\d+", "", line)
        if said != self._said:
            self._console.print(Text(line), soft_wrap=True)
        self._said = said

    def _go_on(self, line: str) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=line)

    def _stage_line(self, event: events.Event) -> str:
        match event:
            case events.StageStarted(stage) if stage is not self._stage:
                self._stage = stage
                self._go_on(stage.value)
                return f"{stage.value}\n{self._rubric()}".rstrip("\n")
            case events.ToolCalled():
                self._calls.append(event)
                return self._rubric()
            case events.ToolReturned() if self._calls:
                called = self._calls.popleft()
                told = _passages(called.query, event.sources) if called.number == 1 else []
                return "\n".join([_call_line(called, event), *told])
            case events.TurnRetried(reason):
                self._plan = ""
                return f"asked again: {one_line(reason)}"
            case _:
                return ""

    def _rubric(self) -> str:
        """The items of the plan, when it has been written; once."""
        rubric = [] if self._planned else latest_rubric(parse(printable(self._plan)))
        self._planned = self._planned or bool(rubric)
        return "\n".join(f"  - {one_line(item)}" for item in rubric[:SHOWN])

    def _tell_part(self, part: "_Part", event: events.Event) -> None:
        """What an investigation does: on a terminal beside the others, in a file line by line."""
        if isinstance(event, events.StageStarted) and event.stage is Stage.PLAN:
            for said in filter(None, (self._rubric(), part.title)):
                self._console.print(Text(said), soft_wrap=True)
        line = part.line_of(event)
        if self._bar is None:
            if line:
                self._console.print(Text(line), soft_wrap=True)
            return
        if part.task is None:
            part.task = self._bar.add_task("")
        self._bar.update(part.task, description=part.doing)
        if isinstance(event, events.RunFinished | events.InvestigationFailed):
            self._bar.remove_task(part.task)
            self._console.print(Text(line), soft_wrap=True)


@dataclass
class _Part:
    """An investigation as it is shown."""

    seen: events.InvestigationProgress
    task: TaskID | None = None
    doing: str = ""

    @property
    def title(self) -> str:
        return f"[{self.seen.number}] {one_line(self.seen.question)}"

    def line_of(self, event: events.Event) -> str:
        """The line of an event, "" for one that has none."""
        called = self.seen.hear(event)
        counts = f"{pluralise(self.seen.calls, 'call')}, {pluralise(self.seen.passages, 'passage')}"
        match event:
            case events.ToolCalled(_, query):
                doing = query
            case events.ToolReturned() if called:
                return f"[{self.seen.number}] {_call_line(called, event)}"
            case events.StageStarted(stage):
                doing = stage.value
            case events.InvestigationAsked():
                doing = "waiting"
            case events.RunFinished() | events.InvestigationFailed():
                status = self.seen.state.replace("_", " ")
                why = f" ({one_line(self.seen.reason)})" if self.seen.reason else ""
                return f"[{self.seen.number}] {status}{why}: {counts}"
            case _:
                return ""
        self.doing = f"{one_line(self.title, 60)}: {one_line(doing, 50)} ({counts})"
        return ""


def _call_line(called: events.ToolCalled, returned: events.ToolReturned) -> str:
    own = called.name if "." in called.name else "search"  # only tools of servers have a dot
    doing = {OPEN_PAGE: "page", INVESTIGATE: "report"}.get(called.name, own)
    return f"{doing} {called.number}: {one_line(called.query)} ({_outcome(returned)})"


def _passages(query: str, sources: Sequence[Source]) -> list[str]:
    """What the documents say: of the best passages the sentence nearest to what was asked."""
    said = [(source.title, closest_sentence(query, source.text)) for source in sources[:PASSAGES]]
    return [f"  {one_line(title)}: {one_line(text)[:SAID]}" for title, text in said if text]


def _line_beside(event: events.Event) -> str:
    """The line of an event that belongs to no stage."""
    match event:
        case events.LessonsRecalled(count, own) if count:
            similar = f"{count - own} of similar questions" if count > own else ""
            parts = filter(None, ("one of this very question" if own else "", similar))
            return f"recalled {pluralise(count, 'reflection')}: {', '.join(parts)}"
        case events.Remarked(remarks, heard) if remarks:
            state = "the lead was told" if heard == len(remarks) else "kept for the lead"
            return f"{state}: {one_line(remarks[-1])}"
        case events.BudgetSet():
            return event.told()
        case events.RunFinished(ended):
            status = ended.status.value.replace("_", " ")
            return f"{status}: {tokens_told(ended.usage)}, {duration(ended.seconds)}"
        case _:
            return ""


def _outcome(returned: events.ToolReturned) -> str:
    if returned.error:
        return f"failed: {one_line(returned.error)}"
    count = len(returned.sources)
    passages = pluralise(count, "passage") if count else "no passages"
    return f"{passages}, {duration(returned.seconds)}"


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
        *(_document(answer, each) for each in documents(answer)),
        *(Text(note, style="yellow") for note in end_notes(trajectory, answer)),
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


def _document(answer: CitedAnswer, sources: Sequence[Source]) -> Text:
    """A file or page, with each of its parts that is cited below it where there are several."""
    many, text = len(sources) > 1, Text()
    if many:
        text.append(f"{one_line(sources[0].title)}\n")
        text.append(f"    {one_line(sources[0].location)}\n", style="dim")
    for source in sources:
        where = ", ".join(whereabouts(source)[many:])
        text.append(f"[{answer.of(source)[0].number}]", style="cyan")
        text.append(
            f" {where}" if many else f" {one_line(source.title)}", style="dim" if many else ""
        )
        text.append(f"\n    {where}" if where and not many else "", style="dim")
        for quote in quotes(answer, source):
            text.append(f'\n    "{quote}"', style="italic")
        text.append("\n" if source is not sources[-1] else "")
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
    facts += f", rubrics {judgement.rubric_version}" if judgement.rubric_version else ""
    question = one_line(trajectory.question, LONGEST)
    console = print_heading(question, facts)
    table = Table("stage", "score", "weight", "criterion", "points", "justification")
    for score in judgement.stages:
        mean = "unscored" if score.score is None else f"{score.score:.2f}"
        missing = " (missing)" if score.missing and score.score is not None else ""
        if (support := score.components.get(SUPPORT, 1.0)) < 1:
            mean += f" (support {support:.2f})"
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
            f"{sign}{criterion.weight:.3g}",
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
