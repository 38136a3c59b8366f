"""A turn asks for one thing, and what is wrong with it is said in sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.scaffold import ToolCall, neutralise, tool_call, turn_faults
from tests.scaffold_texts import ANSWER, CALL, EVALUATION, FIRST, LAST, OUTPUT, PLAN, REVIEW


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (FIRST, ToolCall("search", "lru_cache eviction", {})),
        ("<call_tool name='s' limit=3> a < b ", ToolCall("s", "a < b", {"limit": "3"})),
        ("<call_tool name='s' query='q'/>", ToolCall("s", "q", {})),
        ("<call_tool>a</call_tool><call_tool>b</call_tool>", ToolCall("", "b", {})),
        ("<call_tool>a</call_tool><call_tool> </call_tool>", ToolCall("", "a", {})),
        ("<think><call_tool>a</call_tool></think>", None),
        ("<call_tool>a<answer>b</answer>", None),
        ("<call_tool>  </call_tool>", None),
    ],
)
def test_the_last_whole_call_outside_thinking_counts(text: str, call: ToolCall | None):
    assert tool_call(text) == call


def test_valid_turns_have_no_faults():
    assert turn_faults(FIRST, 1) == []
    assert turn_faults(EVALUATION + "<call_tool name='s'>more</call_tool>", 2) == []
    assert turn_faults(LAST, 2) == []
    assert turn_faults(LAST, 2, must_answer=True) == []


def test_a_call_whose_closing_tag_was_a_stop_string_is_valid():
    assert turn_faults(FIRST.removesuffix("</call_tool>"), 1) == []


@pytest.mark.parametrize(
    ("text", "turn", "fault"),
    [
        (FIRST.replace("<think>eviction</think>", ""), 1, "The turn must begin with think."),
        ("Sure! " + FIRST, 1, "The turn must begin with think."),
        (FIRST.replace("<rubric>- order</rubric>", ""), 1, "rubric is missing."),
        (FIRST.replace("- order", " "), 1, "rubric is empty."),
        (PLAN, 1, "The turn must end with one call_tool."),
        (PLAN + "<call_tool> </call_tool>", 1, "call_tool has no query."),
        (FIRST + CALL, 1, "One action a turn: either one call_tool, or review and then answer."),
        (
            FIRST + ANSWER,
            1,
            "The first turn must search, so it may not review or answer.",
        ),
        (FIRST.replace("</rubric>", ""), 1, "rubric is not closed."),
        (EVALUATION + OUTPUT + CALL, 2, "Only the system writes tool_output."),
        ("<think>x</think>" + CALL, 2, "state_evaluation is missing."),
        (EVALUATION, 2, "The turn must end with one call_tool."),
        (
            "<think>x</think>" + CALL + "<state_evaluation>y</state_evaluation>",
            2,
            "The turn must end with one call_tool.",
        ),
        (
            EVALUATION + CALL + REVIEW + ANSWER,
            2,
            "One action a turn: either one call_tool, or review and then answer.",
        ),
        (EVALUATION + ANSWER, 2, "review is missing."),
        (EVALUATION + REVIEW, 2, "answer is missing."),
        (EVALUATION + REVIEW + "<answer> </answer>", 2, "answer is empty."),
        (LAST.removesuffix("</answer>"), 2, "answer is not closed."),
        (EVALUATION + ANSWER + REVIEW, 2, "The turn must end with review and then answer."),
    ],
)
def test_each_fault_is_named(text: str, turn: int, fault: str):
    assert fault in turn_faults(text, turn)


def test_a_spent_budget_forbids_the_call():
    text = EVALUATION + CALL
    fault = "No tool call is left: write review and then answer."
    assert turn_faults(text, 2) == []
    assert turn_faults(text, 2, must_answer=True) == [fault]


@given(st.lists(st.sampled_from([PLAN, CALL, OUTPUT, EVALUATION, REVIEW, ANSWER, "</answer>"])))
def test_faults_can_stand_in_a_transcript_without_being_read_as_tags(parts: list[str]):
    for turn in (1, 2):
        faults = " ".join(turn_faults("".join(parts), turn))
        assert neutralise(faults) == faults
