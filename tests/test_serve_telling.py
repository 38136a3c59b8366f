"""What watchers are told of a run as it is written: stages by their tags, checklists, plans."""

import time
from itertools import groupby
from typing import Any

import pytest

from agent.events import (
    Event,
    Recalled,
    StageStarted,
    TextWritten,
    ToolCalled,
    ToolReturned,
    TurnRetried,
    UsageCounted,
)
from agent.serve.checklist import MOST, checklist, state_of
from agent.serve.telling import Telling
from memory.schema import Source, Stage, Usage
from tests.flow import answer, plan


def pieces(stage: Stage, text: str, size: int) -> list[Event]:
    return [TextWritten(stage, text[at : at + size]) for at in range(0, len(text), size)]


def told(events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    telling = Telling()
    return [said for event in events for said in telling.of(event)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_review_and_answer_are_told_as_the_text_of_a_turn_begins_them(size: int):
    said = told(
        [
            StageStarted(Stage.PLAN),
            *pieces(Stage.PLAN, plan(), size),
            ToolCalled("search", "one", 1),
            ToolReturned((), 0.1),
            StageStarted(Stage.RESEARCH),
            *pieces(Stage.RESEARCH, answer(), size),
            StageStarted(Stage.REVIEW),
            StageStarted(Stage.ANSWER),
        ]
    )
    rest = [data.get("stage", name) for name, data in said if name != "text"]
    assert rest == [
        "plan", "rubric", "plan", "tool", "results", "research", "review", "rubric", "answer",
    ]  # fmt: skip
    texts = groupby((d for n, d in said if n == "text"), key=lambda data: data["stage"])
    joined = {stage: "".join(data["text"] for data in group) for stage, group in texts}
    assert list(joined) == ["plan", "research", "review", "answer"]
    assert "".join(joined.values()) == plan() + answer()
    assert joined["review"].startswith("<review>") and joined["answer"].startswith("<answer>")


def test_a_less_than_sign_at_the_end_of_a_turn_is_told_when_the_turn_ends():
    said = told([*pieces(Stage.RESEARCH, "a <b", 10), UsageCounted(Usage())])
    assert [data["text"] for name, data in said if name == "text"] == ["a ", "<b"]


def test_a_turn_that_is_asked_again_is_told_from_its_beginning():
    said = told(
        [
            StageStarted(Stage.RESEARCH),
            *pieces(Stage.RESEARCH, "<review>no", 3),
            TurnRetried("no answer"),
            *pieces(Stage.RESEARCH, "<think>", 7),
        ]
    )
    assert [(n, d.get("stage")) for n, d in said][-3:] == [
        ("retry", None), ("stage", "research"), ("text", "research"),
    ]  # fmt: skip


def test_what_a_search_found_is_told_by_title_and_address():
    source = Source(id="S1", title="A\nb", location="x.md", text="t", tool="search", query="q")
    said = told([ToolCalled("search", "q", 3), ToolReturned((source,), 0.25), Recalled(2, True)])
    assert said[1:] == [
        (
            "results",
            {
                "number": 3,
                "sources": [{"id": "S1", "title": "A b", "url": "x.md"}],
                "seconds": 0.25,
                "error": "",
            },
        ),
        ("recalled", {"count": 2, "own": True}),
    ]


@pytest.mark.parametrize(
    ("note", "state"),
    [
        ("The size: S1.", "met"),
        ("The size is confirmed by the documentation.", "met"),
        ("The size: partly, S1 says only when it grows.", "partly"),
        ("The size is missing.", "unmet"),
        ("No source says anything on the size.", "unmet"),
        ("The size of it.", "unknown"),
    ],
)
def test_the_state_of_an_item_is_read_off_the_sentence_about_it(note: str, state: str):
    assert state_of(note) == state


def test_each_item_gets_the_sentence_that_shares_most_words_with_it():
    text = (
        "<structured_plan><rubric>\n- Names the default size\n- Says what is evicted first\n"
        "- Compares threads\n</rubric></structured_plan>"
        "<review><rubric_review>\n- What is evicted first: nothing found.\n"
        "- The default size is named: S2.\n</rubric_review></review>"
    )
    items = [(item["n"], item["state"]) for item in checklist(text)]
    assert items == [(1, "met"), (2, "unmet"), (3, "unknown")]


def test_a_checklist_of_hundreds_holds_nobody_up():
    items = "\n".join(f"- item number {at} is alpha" for at in range(600))
    review = "\n".join(f"- Item {at} alpha is met by S1." for at in range(800))
    began = time.process_time()
    found = checklist(
        f"<structured_plan><rubric>{items}</rubric></structured_plan>"
        f"<review><rubric_review>{review}</rubric_review></review>"
    )
    assert time.process_time() - began < 6
    assert len(found) == MOST and found[7]["note"].startswith("Item 7 ")
    assert {item["state"] for item in found} == {"met"}
