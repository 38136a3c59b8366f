"""Every rejection rule is named when it is broken, and only then."""

from datetime import UTC, datetime

import pytest

from agent.reading import Cite
from agent.rejection import Rule, rejected, rounds, tool_error
from memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Segment,
    Source,
    Stage,
    Status,
    Trajectory,
)

FIRST = (
    "<think>a</think><structured_plan><deep_analysis>b</deep_analysis><rubric>c</rubric>"
    "<research_plan>d</research_plan></structured_plan><call_tool name='s'>q</call_tool>"
)
MORE = "<think>e</think><state_evaluation>f</state_evaluation><call_tool name='s'>r</call_tool>"
LAST = (
    "<think>g</think><state_evaluation>h</state_evaluation>"
    "<review><rubric_review>i</rubric_review><writing_plan>j</writing_plan></review>"
    '<answer>It is <cite id="S1">so</cite>.</answer>'
)
FOUND = '<tool_output>\n<snippet id="S1">so</snippet>\n</tool_output>\n'
FAILED = '\n<tool_output error="no route to <host>">\nThe search failed.\n</tool_output>\n'


def policy(text: str, turn: int, *, kept: bool = True) -> Segment:
    return Segment(author=Author.POLICY, stage=Stage.RESEARCH, turn=turn, text=text, kept=kept)


def tool(text: str, turn: int, *, kept: bool = True) -> Segment:
    return Segment(author=Author.TOOL, stage=Stage.RESEARCH, turn=turn, text=text, kept=kept)


def prompt(text: str, turn: int) -> Segment:
    return Segment(author=Author.PROMPT, stage=Stage.RESEARCH, turn=turn, text=text)


def trajectory(*segments: Segment, decoding: Decoding = Decoding.FREE) -> Trajectory:
    question = Segment(author=Author.PROMPT, text="<answer>in the prompt</answer> Why?")
    source = Source(id="S1", title="t", location="l", text="so", tool="s", query="q")
    return Trajectory(
        id="1",
        thread="1",
        question="Why?",
        answer_format=AnswerFormat.SHORT,
        decoding=decoding,
        segments=(question, *segments),
        sources=(source,),
        status=Status.FINISHED,
        policy="p",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
    )


def run(*texts: str) -> Trajectory:
    """A free run of these turns, each but the last followed by a search that found something."""
    segments: list[Segment] = []
    for turn, text in enumerate(texts, start=1):
        segments += [policy(text, turn), tool(FOUND, turn)]
    return trajectory(*segments[:-1])


def rule(broken: Trajectory) -> Rule | None:
    rejection = rejected(broken)
    return rejection and rejection.rule


def test_a_whole_trajectory_is_fit():
    assert rejected(run(FIRST, MORE, LAST)) is None
    assert rejected(run(FIRST, MORE, LAST), citations=True, supported=lambda cite: True) is None


@pytest.mark.parametrize(
    ("texts", "broken", "sentence"),
    [
        ([], Rule.NO_ANSWER, "The last round has no closed answer with text in it."),
        (
            [FIRST, LAST.removesuffix("</answer>")],
            Rule.NO_ANSWER,
            "The last round has no closed answer with text in it.",
        ),
        (
            [FIRST, LAST.split("<answer>")[0] + "<answer> </answer>"],
            Rule.NO_ANSWER,
            "The last round has no closed answer with text in it.",
        ),
        ([FIRST, MORE], Rule.NO_ANSWER, "The last round has no closed answer with text in it."),
        (
            [FIRST, MORE.split("<call_tool")[0], LAST],
            Rule.NO_CALL,
            "Round 2 makes no tool call.",
        ),
        (
            [FIRST.replace("rubric>", "b>"), LAST],
            Rule.STRUCTURE,
            "Round 1: rubric is missing.",
        ),
        (
            [FIRST, MORE.replace("state_evaluation>", "b>"), LAST],
            Rule.STRUCTURE,
            "Round 2: state_evaluation is missing.",
        ),
        (
            [FIRST, MORE.replace("</state_evaluation>", ""), LAST],
            Rule.STRUCTURE,
            "Round 2: state_evaluation is not closed.",
        ),
        (
            [FIRST.removesuffix("</call_tool>"), LAST],
            Rule.STRUCTURE,
            "Round 1: call_tool is not closed.",
        ),
        (
            [FIRST, "</review>" + LAST],
            Rule.STRUCTURE,
            "Round 2: A closing tag at character 0 closes nothing.",
        ),
    ],
)
def test_the_rule_broken_is_named(texts: list[str], broken: Rule, sentence: str):
    rejection = rejected(run(*texts) if texts else trajectory())
    assert rejection is not None
    assert (rejection.rule, rejection.sentence) == (broken, sentence)


def test_a_missing_research_plan_breaks_no_rule():
    assert rule(run(FIRST.replace("research_plan>", "b>"), LAST)) is None


def test_one_tool_error_followed_by_recovery_is_kept():
    turns = [policy(FIRST, 1), tool(FAILED, 1), policy(MORE, 2), tool(FOUND, 2)]
    turns += [policy(MORE, 3), tool(FAILED, 3), policy(LAST, 4)]
    assert rule(trajectory(*turns)) is None


def test_two_tool_errors_running_are_rejected():
    turns = [policy(FIRST, 1), tool(FAILED, 1), policy(MORE, 2), tool(FAILED, 2), policy(LAST, 3)]
    rejection = rejected(trajectory(*turns))
    assert rejection is not None and rejection.rule is Rule.TOOL_ERRORS
    assert "no route to <host>; no route to <host>" in rejection.sentence


def test_an_error_that_was_retried_away_does_not_count():
    turns = [policy(FIRST, 1), tool(FAILED, 1, kept=False), tool(FAILED, 1), policy(MORE, 2)]
    assert rule(trajectory(*turns, tool(FOUND, 2), policy(LAST, 3))) is None


def test_a_tool_error_is_read_from_its_output():
    assert tool_error(FAILED) == "no route to <host>"
    assert tool_error('<tool_output error="">') == ""
    assert tool_error(FOUND) is None
    assert tool_error('<tool_output>\n<tool_output error="x">') is None


def test_attempts_that_were_retried_are_no_part_of_a_round():
    bad = policy("nonsense</answer>", 1, kept=False)
    assert rule(trajectory(bad, policy(FIRST, 1), tool(FOUND, 1), policy(LAST, 2))) is None


def test_notes_to_a_free_policy_are_no_part_of_its_round():
    note = prompt("Now write <review> and <answer>.", 2)
    turns = [policy(FIRST, 1), tool(FOUND, 1), note, policy(LAST, 2)]
    assert [d.text for d in rounds(trajectory(*turns))] == [FIRST, LAST]
    assert rule(trajectory(*turns)) is None


def test_a_forced_round_holds_the_tags_that_the_runner_wrote():
    pieces = [prompt("<think>", 1), policy("a", 1), prompt(FIRST.removeprefix("<think>a"), 1)]
    turns = [*pieces, tool(FOUND, 1), prompt("Question: Why?\n", 2), policy(LAST, 2)]
    assert rule(trajectory(*turns, decoding=Decoding.FORCED)) is None
    assert rule(trajectory(*turns)) is Rule.NO_CALL


@pytest.mark.parametrize(
    ("cite", "sentence"),
    [
        ("<cite>", "A cite of the answer names no id."),
        ('<cite id=" ,">', "A cite of the answer names no id."),
        ('<cite id="S1, S2">', "The cited id S2 was never returned by a tool."),
    ],
)
def test_bad_cites_are_rejected_only_where_asked(cite: str, sentence: str):
    broken = run(FIRST, LAST.replace('<cite id="S1">', cite))
    assert rejected(broken) is None
    rejection = rejected(broken, citations=True)
    assert rejection is not None
    assert (rejection.rule, rejection.sentence) == (Rule.CITATION, sentence)


def test_one_supported_cite_is_enough_and_none_is_not():
    two = run(FIRST, LAST.replace("</answer>", '<cite id="S1">also</cite></answer>'))
    seen: list[Cite] = []

    def only_the_second(cite: Cite) -> bool:
        seen.append(cite)
        return cite.claim == "also"

    assert rejected(two, supported=only_the_second) is None
    assert [cite.claim for cite in seen] == ["so", "also"]
    rejection = rejected(two, supported=lambda cite: False)
    assert rejection is not None and rejection.rule is Rule.SUPPORT


def test_an_answer_without_cites_has_no_support():
    bare = run(FIRST, LAST.replace('<cite id="S1">so</cite>', "so"))
    assert rejected(bare, citations=True) is None
    rejection = rejected(bare, supported=lambda cite: True)
    assert rejection is not None and rejection.rule is Rule.SUPPORT
