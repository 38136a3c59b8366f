"""Free decoding on its own: where turns end, how stages are cut, what a small context does.

Year and field on their way from the policy's call to the service.
"""

from pathlib import Path

import pytest

from rubricem.agent.research.free import FreeDecoder, TurnEnd
from rubricem.agent.sources.web import Scholar
from rubricem.agent.transcript.scaffold import parse
from rubricem.memory.schema import Author, Sampling, Stage, Status
from tests.agent.sources.test_web import PAPER, paper
from tests.support.policies import (
    QUESTION,
    RETURNED,
    RUN,
    SENT_BACK,
    FixedSearch,
    Opening,
    ScriptedPolicy,
    answer,
    asked,
    browsed,
    new_run,
    plan,
    search,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.sites import JsonSite


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a</call_tool>b", "a</call_tool>"),
        ("a</answer>b", "a</answer>"),
        ("a</ Answer >b", "a</ Answer >"),
        ("a<tool_output>b", "a"),
        ("no end", None),
        ("<think>say </answer> at last", None),
        ("<think>say </answer></think>x</answer>y", "<think>say </answer></think>x</answer>"),
    ],
)
def test_a_turn_ends_where_its_action_ends(text: str, kept: str | None):
    assert ends_of(text) == {kept}


def ends_of(text: str, **rules: bool) -> set[str | None]:
    """What a turn is ended with, whatever pieces it comes in."""
    found = set[str | None]()
    for piece in (1, 3, 1000):
        end = TurnEnd(**rules)
        grown = (text[: at + piece] for at in range(0, len(text), piece))
        found.add(next((t[:e] for t in grown if (e := end(t)) is not None), None))
    return found


THOUGHT = RETURNED.partition("</think>\n")[2]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{RETURNED}b</answer>", RETURNED),
        (f"{answer()}b", answer()),
        (RETURNED.replace("[missing]", "[met: S1]"), None),
        (f"<think>{THOUGHT}</think>{answer()}", f"<think>{THOUGHT}</think>{answer()}"),
        (f"{search('q')}{RETURNED}", search("q")),
    ],
    ids=["missing", "no marks", "all met", "in thinking", "search"],
)
def test_a_turn_that_may_return_ends_at_a_review_of_what_is_missing(text: str, kept: str | None):
    assert ends_of(text, reviews=True) == {kept}


SO = "so it goes " * 60


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<call_tool>a</call_tool>\n<call_tool>b</call_tool>x<tool_output>", "b</call_tool>x"),
        (f"<call_tool>a</call_tool>\n{SO}", "a</call_tool>"),
        ("<call_tool>a</call_tool><answer>b</answer>", "a</call_tool>"),
        ("then </call_tool>\n</think><call_tool>a</call_tool>", "None"),
    ],
)
def test_a_turn_of_several_calls_ends_where_something_else_begins(text: str, kept: str):
    assert all(str(found).endswith(kept) for found in ends_of(text, calls=True))


async def test_what_the_review_misses_is_searched_and_reviewed_again(run_of: Opening):
    run = await run_of(ScriptedPolicy(SENT_BACK))
    decoder = FreeDecoder()
    await decoder.plan(run)
    run.turn = 2
    assert await decoder.research(run) is None
    assert run.text.endswith("</review>")
    assert await decoder.review(run) == "eviction"
    run.returns = 1
    note = next(s for s in run.segments if "names what is missing: Says what is" in s.text)
    assert (note.author, note.stage) == (Author.PROMPT, Stage.RESEARCH)
    run.turn += 1
    assert await decoder.research(run) is None and await decoder.review(run) is None
    await decoder.answer(run)
    assert (run.status, run.text.count("<answer>")) == (Status.FINISHED, 1)


async def test_what_an_item_writes_into_the_note_opens_no_tag(run_of: Opening):
    tagged = RETURNED.replace("Says what is evicted", "Says what <answer> is")
    run = await run_of(ScriptedPolicy([plan(), tagged, search("eviction"), answer()]))
    decoder = FreeDecoder()
    await decoder.plan(run)
    run.turn = 2
    await decoder.research(run)
    await decoder.review(run)
    assert "missing: Says what \u2039answer>" in run.text


@pytest.mark.parametrize("returns", [0, 1, 3])
async def test_a_model_whose_reviews_always_miss_something_ends(returns: int, tmp_path: Path):
    def write(before: str, sampling: Sampling) -> str:
        if not before:
            return plan()
        if before.endswith("come after that.\n"):
            return search(f"query {len(before)}")
        return "<answer>It.</answer>" if before.endswith("answer in answer tags.\n") else RETURNED

    run = await browsed(
        tmp_path, write, [], None, QUESTION, FixedSearch(), review_returns=returns, tool_calls=20
    )
    assert (run.tool_calls, run.status) == (1 + returns, Status.PARTIAL)
    assert parse(run.transcript()).last("answer") == "It."


async def test_a_full_context_ends_the_search(run_of: Opening):
    turns = [plan(), answer()]
    run = await run_of(ScriptedPolicy(turns, context_tokens=2500))
    decoder = FreeDecoder()
    await decoder.plan(run)
    await run.prompt(Stage.RESEARCH, "x" * 800, Author.TOOL)
    run.turn = 2
    assert await decoder.research(run) is None
    assert "No further search is possible" in run.text
    assert run.status is Status.FINISHED


async def test_an_answer_asked_for_alone_need_hold_nothing_else(tmp_path: Path):
    run = new_run(tmp_path, ScriptedPolicy(["<answer>It grows.</answer>"]))
    await run.open("system", "question")
    run.turn = 2
    await FreeDecoder().answer(run)
    assert run.status is Status.FINISHED
    assert run.segments[-1].stage is Stage.ANSWER


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ('<call_tool name="Open_Page">S3 price</call_tool>', "open_page S3 price"),
        ('<call_tool name="search" year="2023">acme</call_tool>', "acme year:2023"),
        ('<call_tool name="browser">acme</call_tool>', "acme"),
    ],
)
async def test_a_call_is_one_line_and_an_unknown_tool_the_search(
    call: str, line: str, run_of: Opening
):
    turn = plan()
    run = await run_of(ScriptedPolicy([turn[: turn.index("<call_tool")] + call]))
    assert await FreeDecoder().plan(run) == line


CALL = '<call_tool name="search" year="2017-2020" field="computer science">attention</call_tool>'


def narrowing() -> list[str]:
    """A run whose first turn narrows its search; it cites S1 afterwards."""
    first, *later = RUN
    return [first[: first.index("<call_tool")] + CALL, *later]


async def test_year_and_field_of_a_call_reach_the_service(tmp_path: Path) -> None:
    with JsonSite(paper(PAPER)) as site, ScriptedServer(narrowing()) as server:
        run = await asked(server.base_url, tmp_path, source=Scholar(url=site.url))
        system = server.requests[0].body["messages"][0]["content"]
    params = site.asked[0].params
    assert run.status is Status.FINISHED
    assert (params["query"], params["year"]) == ("attention", "2017-2020")
    assert params["fieldsOfStudy"] == "Computer Science"
    assert run.sources[0].query == 'attention year:2017-2020 field:"Computer Science"'
    assert run.sources[0].location == "https://arxiv.org/pdf/1706.03762"
    assert 'year="2019-2021"' in system
