"""The live view and the printed report, read from consoles that write into memory."""

import io

import pytest
from rich.console import Console

from rubricem.agent.reports.display import (
    ProgressLines,
    live_view,
    print_judgement,
    print_report,
)
from rubricem.agent.transcript.events import (
    Event,
    PersonAsked,
    RunFinished,
    SourceProgress,
    StageStarted,
    TextWritten,
    ToolCalled,
    ToolReturned,
    TurnRetried,
    ignore,
)
from rubricem.judge.base import answer_judgement
from rubricem.memory.schema import SUPPORT, Stage, StageScore, Status, Trajectory
from tests.support.values import BOUND, PLAN, run_of, source, trajectory

FOUND = (source(1, BOUND), source(2, BOUND))
RUN: tuple[Event, ...] = (
    SourceProgress("indexing 1/200"),
    SourceProgress("indexing 2/200"),
    SourceProgress("The wiki is away."),
    StageStarted(Stage.PLAN),
    TextWritten(Stage.PLAN, PLAN),
    StageStarted(Stage.RESEARCH),
    ToolCalled("search", "lru [bold]evict[/bold] \x1b[31mnow", 1),
    ToolReturned(FOUND, 0.12),
    StageStarted(Stage.RESEARCH),
    ToolCalled("wiki.page", "maxsize", 2),
    ToolReturned((), 0.5, "no connection"),
    TurnRetried("there is no </answer>"),
    StageStarted(Stage.REVIEW),
)


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, highlight=False)


def pipe() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, highlight=False)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_are_one_for_each_stage_rubric_item_and_search():
    console = pipe()
    listen = ProgressLines(console)
    for event in (*RUN, RunFinished(trajectory("x"))):
        listen(event)
    assert written(console).splitlines() == [
        "indexing 1/200",
        "The wiki is away.",
        "plan",
        "research",
        "  - Names the rule",
        "  - Names the default",
        "search 1: lru [bold]evict[/bold] now (2 passages, 0.1 s)",
        "wiki.page 2: maxsize (failed: no connection)",
        "asked again: there is no </answer>",
        "review",
        "finished: 1,200 new tokens read, 80 written, 1 min 5 s",
    ]


def test_the_first_search_shows_what_the_documents_say_before_any_plan():
    console = pipe()
    listen = ProgressLines(console)
    found = ToolReturned((source(1, f"f(a) \x1b[31m\n\nIt evicts.\n\n{BOUND}"),), 0.1)
    for event in (
        StageStarted(Stage.PLAN),
        ToolCalled("search", "How can the cache grow?", 1), found,
        TextWritten(Stage.PLAN, PLAN), StageStarted(Stage.RESEARCH),
        ToolCalled("search", "How can the cache grow?", 2), found,
    ):  # fmt: skip
        listen(event)
    first, said, stage, *rest = written(console).splitlines()[1:]
    assert first.startswith("search 1") and said == f"  lru_cache: {BOUND.partition('. ')[0]}."
    assert (stage, rest[:2]) == ("research", ["  - Names the rule", "  - Names the default"])
    assert len(rest) == 3, "passages of the first search alone"


def test_a_plan_that_is_asked_again_is_read_afresh():
    console = pipe()
    listen = ProgressLines(console)
    again = TextWritten(Stage.PLAN, PLAN.replace("Names the rule", "Says when"))
    told = ToolCalled("search", "x", 1)
    for event in (TextWritten(Stage.PLAN, PLAN), TurnRetried("x"), again, told):
        listen(event)
    assert written(console).splitlines()[1:] == ["  - Says when", "  - Names the default"]


def test_a_pipe_gets_plain_lines_a_terminal_what_goes_on_too_and_the_quiet_nothing():
    piped, tty, quiet = pipe(), terminal(), terminal()
    for console in (piped, tty):
        with live_view("How?", console=console) as listener:
            for event in RUN:
                listener(event)
            listener(PersonAsked(True))
            listener(PersonAsked(False))
    assert "\x1b" not in written(piped) and "indexing 2/200" not in written(piped)
    assert "The wiki is away.\n" in written(tty), "a line that stays"
    assert "\u280b" in written(tty) and "\x1b[31mnow" not in written(tty)
    with live_view("How?", quiet=True, console=quiet) as listener:
        assert listener is ignore
        listener(StageStarted(Stage.PLAN))
    assert written(quiet) == ""


def test_the_report_goes_to_standard_output_and_the_view_beside_it(
    capsys: pytest.CaptureFixture[str],
):
    with live_view("How?") as listener:
        listener(StageStarted(Stage.PLAN))
        print_report(trajectory("Plain."))
    captured = capsys.readouterr()
    assert "\n\nPlain.\n\n" in captured.out and "plan" not in captured.out
    assert captured.err == "How?\nplan\n"


def test_the_printed_report_by_hand():
    assert printed(trajectory('<cite id="S1">The cache grows.</cite>')) == (
        "How does lru_cache evict?\n\n"
        "The cache grows [1].\n\n"
        "Sources\n\n"
        "[1] lru_cache\n    lib.py, line 3\n"
        '    "If maxsize is None the cache grows without bound."\n\n'
        "finished, test-policy, 1 search, 1,200 new tokens read, 80 written, $0.0021, 1 min 5 s\n"
    )


def printed(run: Trajectory, console: Console | None = None) -> str:
    console = console or pipe()
    print_report(run, console)
    return written(console)


def test_hostile_text_is_printed_as_text():
    hostile = "[red]x[/red] \x1b[2J\x1b]0;title\x07 [link=http://evil]y[/link] :smile: end"
    told = trajectory(
        f'{hostile} <cite id="S1">{hostile}</cite>',
        question=hostile,
        sources=(source(1, hostile, hostile, hostile),),
        status=Status.PARTIAL,
        reason=hostile,
    )
    shown = printed(told)
    assert "\x1b" not in shown and "title" not in shown
    assert shown.count("[red]x[/red]") == 7 and shown.count(":smile:") == 7


def test_a_score_that_support_lowered_says_so(capsys: pytest.CaptureFixture[str]):
    said = "Won 2 of 6 comparisons."
    score = StageScore(
        stage=Stage.ANSWER, score=0.25, justification=said, components={SUPPORT: 0.75}
    )
    print_judgement(run_of(), answer_judgement(run_of(), "a judge", score))
    shown = " ".join(capsys.readouterr().out.split())
    assert said in shown and "0.25 (support 0.75)" in shown
