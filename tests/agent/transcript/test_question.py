"""Budgets: what is spent, when the research ends, and what a run leaves that is broken off."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.report import markdown
from rubricem.agent.transcript.question import Budgets, OutOfTime, Spending, snippet
from rubricem.agent.transcript.words import part_about
from rubricem.judge.base import cut_off
from rubricem.memory.schema import Source, Stage, Status, Usage
from tests.support.policies import (
    PASSAGES,
    RUN,
    FixedSearch,
    answer,
    asked,
    contents,
    journalled,
    plan,
    search,
)
from tests.support.scripted_server import Fault, Hang, Reply, Scripted, ScriptedServer


def usage(prompt: int, written: int, cached: int = 0, cost: float | None = None) -> Usage:
    return Usage(
        prompt_tokens=prompt, completion_tokens=written, cached_tokens=cached, cost=cost, calls=1
    )


def spent(budgets: Budgets, *calls: Usage) -> Spending:
    spending = Spending(budgets)
    for call in calls:
        spending.count(call, 0.0)
    return spending


CACHED = [usage(100, 20), usage(400, 20, cached=300)]
SMALL, LARGE, DEAR = usage(9, 1), usage(90, 10), usage(1, 1, cost=0.04)


@pytest.mark.parametrize(
    ("enough", "too_little", "calls"),
    [
        # What was read from a cache is not counted.
        (Budgets(tokens=361), Budgets(tokens=359), CACHED),
        (Budgets(tokens=300), Budgets(tokens=299), [LARGE] * 2),
        (Budgets(cost=0.12), Budgets(cost=0.11), [DEAR] * 2),
    ],
)
def test_a_call_is_refused_that_would_take_more_than_is_left(
    enough: Budgets, too_little: Budgets, calls: list[Usage]
):
    assert spent(enough, *calls).out() is None
    assert spent(too_little, *calls).out() == ("tokens" if too_little.tokens else "cost")
    # A price that nobody knows limits nothing.
    assert spent(Budgets(cost=0.01), usage(10**9, 1)).out() is None


@pytest.mark.parametrize(
    ("limit", "call", "enough"), [(1000, SMALL, 85), (1000, LARGE, 8), (150, SMALL, 7)]
)
def test_the_reserve_is_two_of_the_largest_calls_between_its_bounds(
    limit: int, call: Usage, enough: int
):
    assert spent(Budgets(tokens=limit), *[call] * enough).low() is None
    over = [LARGE] if limit == 150 else [call] * (enough + 1)
    assert spent(Budgets(tokens=limit), *over).low() == "tokens"


def test_the_clock_stands_still_while_calls_are_read_back():
    spending = Spending(Budgets(seconds=10))
    spending.replay_to(8.6)
    assert (spending.seconds, spending.low(), spending.out()) == (8.6, "seconds", None)
    spending.live()
    assert 8.6 <= spending.seconds < 60


async def test_a_call_in_flight_ends_with_its_budget_of_seconds():
    spending = Spending(Budgets(seconds=0.05))
    with pytest.raises(OutOfTime, match="seconds"):
        await spending.limit_time(asyncio.sleep(30))
    begun: list[int] = []

    async def call() -> None:
        begun.append(1)

    with pytest.raises(OutOfTime):
        await spending.limit_time(call())
    assert begun == [], "no call is begun without time"


async def test_a_budget_that_runs_low_ends_the_research_and_leaves_an_answer(tmp_path: Path):
    # A call of 120 tokens, and a second one whose beginning was sent before, are more than half.
    turns = [plan("one"), search("two"), answer()]
    with ScriptedServer(turns) as server:
        run = await asked(server.base_url, tmp_path, budgets=Budgets(tokens=280))
        told = contents(server.requests[-1].body)[-1][1]
    assert "No further search is possible" in told
    assert (run.status, run.ended_by, run.cut_in) == (Status.PARTIAL, "tokens", None)
    assert cited_answer(run).text() == "It is an unbounded cache [1]."
    assert "the budget of 280 new tokens ran low" in markdown(run)
    assert all(cut_off(run, stage) == "" for stage in Stage)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Fault(503, "asleep", headers={"Retry-After": "4"}), r"limits .*\(503\): asleep"),
        (Hang(), "wrote nothing for [123] s"),
    ],
)
async def test_where_the_clock_ends_a_wait_the_report_says_for_what(
    reply: Scripted, why: str, tmp_path: Path
):
    with ScriptedServer([reply] * 9) as server:
        for _ in range(2):  # once more from the journal
            run = await asked(server.base_url, tmp_path, budgets=Budgets(seconds=3))
            assert re.match(f"the budget of 3 seconds ran out; the model .*{why}", run.reason)


async def test_a_budget_that_runs_out_leaves_the_passages_quoted_and_a_larger_one_goes_on(
    tmp_path: Path,
):
    source = FixedSearch()
    with ScriptedServer(RUN) as server:
        run = await asked(server.base_url, tmp_path, source=source, budgets=Budgets(tokens=200))
        assert len(server.requests) == 1
        more = await asked(server.base_url, tmp_path, source=source, budgets=Budgets(10**6))
        assert len(server.requests) == len(RUN)
    assert (run.status, run.ended_by, run.cut_in) == (Status.PARTIAL, "tokens", Stage.RESEARCH)
    assert run.reason == "the budget of 200 new tokens ran out"
    cited = cited_answer(run)
    assert [c.id for c in cited.citations] == ["S1", "S2", "S3"]
    assert all(c.claim in PASSAGES[i].text for i, c in enumerate(cited.citations))
    assert "Ended early: the budget of 200 new tokens ran out" in markdown(run)
    assert cut_off(run, Stage.PLAN) == ""
    assert "broken off" in cut_off(run, Stage.RESEARCH) and cut_off(run, Stage.ANSWER)
    assert (more.status, journalled(tmp_path)) == (Status.FINISHED, 8)
    assert source.queries == ["lru_cache maxsize None", "functools.cache unbounded"]


async def test_an_answer_in_flight_is_kept_as_far_as_it_came(tmp_path: Path):
    whole = answer('It is <cite id="S1">an unbounded cache</cite>. And <cite id="S2">it goes on')
    at = whole.index("on</answer>")
    slow = Reply(pieces=[whole[:at], "on"], hang_after=1)
    with ScriptedServer([plan(), slow]) as server:
        run = await asked(server.base_url, tmp_path, budgets=Budgets(seconds=1.5))
        assert (run.ended_by, run.cut_in) == ("seconds", Stage.ANSWER)
        again = await asked(server.base_url, tmp_path, budgets=Budgets(seconds=1.5))
        assert len(server.requests) == 2, "the end by the clock is kept, too"
    text = cited_answer(run).text()
    assert text == "It is an unbounded cache [1]. And it goes [2]\n\n(The answer breaks off here.)"
    assert cited_answer(again).text() == text
    assert again.seconds == pytest.approx(1.5, abs=0.3)


def test_while_a_person_is_waited_for_no_time_counts():
    spending = Spending(Budgets(seconds=0.05))
    spending.replay_to(0.01)
    spending.pause()
    time.sleep(0.1)
    assert (spending.seconds, spending.out()) == (0.01, None)
    spending.live()
    time.sleep(0.06)
    assert spending.out() == "seconds"


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("def f():\n        return   1", 4, "def f():\n        return   1"),
        ("def f():\n        return   1", 3, "def f():\n        return ..."),
        ("a\nb\nc", 2, "a\nb ..."),
        ("\u5b57" * 25, 2, "\u5b57" * 4 + " ..."),
        ("ab " + "c" * 30, 2, "ab " + "c" * 18 + " ..."),
        ("", 2, ""),
    ],
    ids=["indentation is no word", "cut", "lines", "without spaces", "a long word", "nothing"],
)
def test_a_snippet_has_so_many_words_of_its_source(text: str, words: int, shown: str):
    source = Source(id="S1", title="T", location="x", text=text, tool="t", query="q")
    body = f"T\n{shown}" if shown else "T"
    assert snippet(source, words) == f'<snippet id="S1">\n{body}\n</snippet>\n'


def test_of_a_long_passage_the_sentences_about_the_question_are_shown():
    text = "One thing is told here. Another is how a lock is given back. " + "It goes on. " * 20
    assert part_about(text, 12, "lock given back").startswith("... Another is how a lock")
    assert len(part_about(text, 12, "lock").split()) <= 14
    assert part_about("It is short.", 12, "lock") == "It is short."
    assert part_about("word " * 50, 12, "word").endswith(" ...")


def test_a_section_that_was_cut_shows_it_where_sources_are_placed():
    source = Source(
        id="S1", title="Pump", location="pump.md", text="It leaks.", tool="t", query="q"
    )
    cut = source.model_copy(update={"begun_before": True, "goes_on": True})
    assert "\n... It leaks. ...\n" in snippet(cut, 100, placed=True)
    assert "\nIt leaks.\n" in snippet(source, 100, placed=True)
