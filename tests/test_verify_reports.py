"""Verdicts in every form of a report, and what repair leaves of a text."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from agent.reports.citations import cited_answer
from agent.reports.report import as_json, markdown, write_report
from agent.reports.report_page import page
from agent.reports.view import print_report
from memory.schema import CitationCheck, CitationSupport, Repair, Trajectory, Verification
from tests.trajectories import trajectory

HOSTILE = "<script>alert(1)</script>"


def check(verdict: CitationSupport, claim: str, source: str = "S1", why: str = "") -> CitationCheck:
    return CitationCheck(source=source, claim=claim, verdict=verdict, reason=why)


def checked(answer: str, *checks: CitationCheck, repairs: tuple[Repair, ...] = ()) -> Trajectory:
    found = Verification(
        mode="repair" if repairs else "mark",
        checker="lexical rules",
        checks=checks,
        repairs=repairs,
    )
    return trajectory(answer).model_copy(update={"verification": found})


def text_of(answer: str, *repairs: tuple[str, str]) -> str:
    """The answer after repairs of (claim, what became of it)."""
    made = tuple(Repair(claim=claim, became=became) for claim, became in repairs)
    checks = [check("unsupported", claim) for claim, became in repairs if not became]
    return cited_answer(checked(answer, *checks, repairs=made)).text()


DOUBTED = checked(
    '<cite id="S1">It grows.</cite> <cite id="S2">It evicts 3.</cite> '
    '<cite id="S1">It ends.</cite>',
    check("supported", "It grows."),
    check("unsupported", "It evicts 3.", "S2", f"no 3 in it, {HOSTILE}"),
    check("partial", "It ends.", why="only a part"),
)
MARKED = "It grows [1]. It evicts 3 [2: not supported]. It ends [1: in part]."


def test_markdown_and_json_mark_what_is_not_supported():
    assert cited_answer(DOUBTED).text() == MARKED
    text = markdown(DOUBTED)
    assert f"\n\n{MARKED}\n\n" in text
    assert "\n\nMarked below: 1 claim was not supported by a cited source.\n\n" in text
    assert "citations checked by lexical rules: 1 supported, 1 in part, 1 not supported" in text
    report = as_json(DOUBTED)
    assert [c["support"]["verdict"] for c in report["citations"]] == [
        "supported", "unsupported", "partial",
    ]  # fmt: skip
    assert report["citations"][2]["support"]["reason"] == "only a part"
    assert report["verification"]["checker"] == "lexical rules"


def test_the_page_marks_them_and_says_why_where_the_passage_opens():
    html = page(DOUBTED)
    assert '<button type="button" class="unsupported" popovertarget="c2"' in html
    assert ">2: not supported</button>" in html
    assert '<button type="button" class="partial" popovertarget="c3"' in html
    assert "This passage does not support the claim: no 3 in it, &lt;script&gt;" in html
    assert "This passage supports the claim in part: only a part." in html
    assert HOSTILE not in html
    assert "1 supported, 1 in part, 1 not supported" in html


def test_the_terminal_marks_them():
    console = Console(file=StringIO(), width=100)
    print_report(DOUBTED, console)
    assert isinstance(console.file, StringIO)
    assert MARKED in console.file.getvalue()


def test_the_written_json_holds_every_verdict(tmp_path: Path):
    write_report(DOUBTED, tmp_path / "run.json")
    kept = json.loads((tmp_path / "run.json").read_text())["verification"]
    assert [c["verdict"] for c in kept["checks"]] == ["supported", "unsupported", "partial"]


def test_what_nobody_checked_is_not_said_to_be_checked():
    run = trajectory('<cite id="S1">It grows.</cite>')
    assert "checked by" not in markdown(run)
    assert as_json(run)["verification"] is None
    assert "Not checked." in page(run)


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ('<cite id="S1">Bad.</cite>\n<cite id="S2">It evicts.</cite>', "It evicts [1]."),
        ('- <cite id="S1">Bad.</cite>\n- <cite id="S2">It evicts.</cite>', "- It evicts [1]."),
        ('One.\n1. <cite id="S1">Bad.</cite>\nTwo.', "One.\nTwo."),
        ('It is <cite id="S1">Bad.</cite> But so.', "It is [claim removed] But so."),
        ('<cite id="S1">- Bad.</cite>\nTwo.', "Two."),
        ('So <cite id="S2">it evicts</cite> and <cite id="S1">Bad.</cite>',
         "So it evicts [1] and [claim removed]"),
    ],
)  # fmt: skip
def test_a_removed_claim_takes_its_line_or_leaves_a_note(answer: str, left: str):
    assert text_of(answer, ("Bad.", "")) == left


def test_a_rewritten_claim_stands_where_it_stood():
    answer = 'One.\n<cite id="S1">- Bad.</cite>'
    assert text_of(answer, ("Bad.", "It grows.")) == "One.\n- It grows [1]."


def test_the_page_lists_what_was_removed_escaped():
    claim = f"It is {HOSTILE}"
    run = checked(
        f'<cite id="S1">{claim}</cite> Rest.',
        check("unsupported", claim),
        repairs=(Repair(claim=claim),),
    )
    html = page(run)
    assert "as they were written</h2>" in html and '<li dir="auto">It is &lt;script&gt;' in html
    assert HOSTILE not in html
    assert "1 claim was not supported by any cited source, and removed." in markdown(run)
