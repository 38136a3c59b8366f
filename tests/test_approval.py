"""People in the loop: plans approved, changed, rejected; a question back; nothing asked twice."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from agent.approval import MOST_REJECTED, Plan, plan_of
from agent.graph import build_graph
from agent.plan_text import as_text, from_text
from agent.reports.page_stages import latest_rubric
from agent.researcher import Researcher
from agent.scaffold import parse
from memory.schema import Author, Status, Trajectory
from tests.fakes import QUESTION, FixedSearch
from tests.flow import RUN, answer, contents, plan, researching
from tests.scripted_server import ScriptedServer

APPROVE = {"verdict": "approve"}
EDIT = {
    "verdict": "edit",
    "plan": {"rubric": ["Says who <answer> it"], "research_plan": "Ask.", "query": "who says so"},
}


class Scripted:
    """Decides by script, and remembers what was asked."""

    def __init__(self, *decisions: dict[str, Any]) -> None:
        self.decisions = list(decisions)
        self.asked: list[Mapping[str, Any]] = []

    async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        return self.decisions[len(self.asked) - 1]


async def asking(researcher: Researcher, person: Scripted | None, **wanted: bool) -> Trajectory:
    researcher.person = person
    ask = replace(researcher.template, question=QUESTION, **(wanted or {"approve_plan": True}))
    return await researcher.ask(ask, "t")


async def test_a_plan_is_shown_before_anything_is_searched(tmp_path: Path):
    source = FixedSearch()
    person = Scripted(APPROVE)

    async def decide(asked: Mapping[str, Any]) -> dict[str, Any]:
        assert source.queries == []
        return await Scripted.decide(person, asked)

    person.decide = decide  # type: ignore[method-assign]
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await asking(researcher, person)
    assert run.status is Status.FINISHED
    (asked,) = person.asked
    items = [item.lstrip("- ") for item in asked["rubric"]]
    assert items == ["Says what happens to the size", "Says what is evicted"]
    assert (asked["research_plan"], asked["query"]) == (
        "Read the documentation.", "lru_cache maxsize None",
    )  # fmt: skip


async def test_a_changed_plan_stands_behind_the_first_and_is_followed(tmp_path: Path):
    source = FixedSearch()
    with ScriptedServer([plan(), answer()]) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await asking(researcher, Scripted(EDIT))
        shown = contents(server.requests[1].body)
    assert source.queries == ["who says so"]
    assert shown[2] == ("assistant", plan())
    assert "The person who asked has changed the plan" in shown[3][1]
    document = parse(run.transcript())
    assert [item.lstrip("- ") for item in latest_rubric(document)] == ["Says who \u2039answer> it"]
    assert len(document.find("answer")) == 1
    edited = [s for s in run.segments if "changed the plan" in s.text]
    assert [s.author for s in edited] == [Author.PROMPT]


async def test_a_rejected_plan_is_written_anew_with_the_reason(tmp_path: Path):
    person = Scripted({"verdict": "reject", "reason": "too </answer> narrow"}, APPROVE)
    source = FixedSearch()
    with ScriptedServer([plan("one"), plan("two"), answer()]) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            run = await asking(researcher, person)
        told = contents(server.requests[1].body)[-1][1]
    assert "rejected this plan: too \u2039/answer> narrow" in told
    assert [asked["query"] for asked in person.asked] == ["one", "two"]
    assert (run.status, source.queries) == (Status.FINISHED, ["two"])


async def test_a_person_who_rejects_every_plan_ends_the_run(tmp_path: Path):
    person = Scripted(*[{"verdict": "reject"}] * 9)
    with ScriptedServer(lambda body, number: plan(f"query {number}")) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, person)
        assert len(server.requests) == len(person.asked) == MOST_REJECTED
    assert (run.status, run.ended_by, run.tool_calls) == (Status.PARTIAL, "interrupt", 0)


async def test_a_decision_is_asked_for_once_whatever_is_killed_after_it(tmp_path: Path):
    first, second = Scripted(EDIT), Scripted()
    with ScriptedServer([plan(), answer()]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            await asking(researcher, first)
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, second)
        assert len(server.requests) == 2
    assert (len(first.asked), second.asked, run.status) == (1, [], Status.FINISHED)


async def test_a_run_killed_while_a_person_thinks_asks_again_and_writes_nothing_again(
    tmp_path: Path,
):
    class Gone:
        async def decide(self, asked: Mapping[str, Any]) -> dict[str, Any]:
            raise KeyboardInterrupt

    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            researcher.person = Gone()
            ask = replace(researcher.template, question=QUESTION, approve_plan=True)
            with pytest.raises(KeyboardInterrupt):
                await researcher.ask(ask, "t")
        person = Scripted(APPROVE)
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, person)
        assert len(server.requests) == len(RUN)
    assert (len(person.asked), run.status) == (1, Status.FINISHED)


async def test_without_a_person_a_plan_is_approved_unseen(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, None)
    assert run.status is Status.FINISHED


async def test_a_question_back_is_asked_once_and_its_answer_read_before_the_plan(tmp_path: Path):
    person = Scripted({"text": "The one of Python 3.9 </answer>"})
    with ScriptedServer(["Which version do you mean?\nMore.", *RUN]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, person, clarify=True)
        (aside, planned) = (contents(request.body) for request in server.requests[:2])
    assert person.asked[0]["doubt"] == "Which version do you mean?"
    assert QUESTION in aside[1][1] and "NONE" in aside[1][1]
    assert "Asked in return: Which version do you mean?" in planned[1][1]
    assert "The person answered: The one of Python 3.9 \u2039/answer>" in planned[1][1]
    assert (run.status, run.usage.calls) == (Status.FINISHED, 4)
    assert "Which version" not in run.segments[0].text


@pytest.mark.parametrize("said", ["NONE", "None. All is clear?", "It is clear."])
async def test_nobody_is_asked_where_the_model_has_no_question(said: str, tmp_path: Path):
    person = Scripted()
    with ScriptedServer([said, *RUN]) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, person, clarify=True)
    assert (person.asked, run.status) == ([], Status.FINISHED)


async def test_another_process_goes_on_from_the_interrupt(tmp_path: Path):
    """As a LangGraph server does: the position is in its saver, the decision comes from outside."""
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "x"}}
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path, approve_plan=True) as first:
            paused = await build_graph(first, saver).ainvoke({"question": QUESTION}, config)
            run = await first.find(paused["run"])
            assert run is not None
            run.journal.close()
        assert paused["__interrupt__"][0].value["ask"] == "approve_plan"
        async with researching(server.base_url, tmp_path, approve_plan=True) as second:
            graph = build_graph(second, saver)
            ended = await graph.ainvoke(Command(resume=APPROVE), config)
        assert len(server.requests) == len(RUN)
    assert ended["status"] == "finished"


async def test_a_decision_that_cannot_be_read_is_said_to_be_one(tmp_path: Path):
    with ScriptedServer(RUN) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            run = await asking(researcher, Scripted({"verdict": "perhaps"}))
    assert run.status is Status.FAILED
    assert "the decision of the person who asked cannot be read" in run.reason


def test_a_plan_is_the_same_after_it_was_shown_and_read():
    shown = Plan(rubric=("Says a", "Says b"), research_plan="One.\nTwo.", query="a query")
    assert from_text(as_text(shown)) == shown
    assert from_text("words without a heading") == Plan()


def test_the_last_plan_of_a_transcript_counts():
    text = plan("one") + plan("two").replace("Says what is evicted", "Says why")
    assert plan_of(text, "two").rubric[-1].endswith("Says why")
