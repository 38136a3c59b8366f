"""The plain loop: what is a query, what is an answer, and that its cites are read like others."""

from pathlib import Path

import pytest

from agent.reports.citations import cited_answer
from agent.run import Ask
from benchmarks.plain_loop import PlainDecoder, query_of, row, summary, turn_end
from memory.schema import Status
from tests.fakes import QUESTION, FixedSearch
from tests.flow import researching
from tests.scripted_server import Scripted, ScriptedServer

GROWS = "If maxsize is None the cache can grow without bound [S1]. It sleeps at night [S9]."


@pytest.mark.parametrize(
    ("text", "query"),
    [("Search: lru cache", "lru cache"), (" search:heapq\nmore", "heapq"),
     ("Answer: it grows", None), ("Search:\n", None), ("It grows.", None)],
)  # fmt: skip
def test_a_turn_is_a_query_or_an_answer(text: str, query: str | None):
    assert query_of(text) == query


def test_a_turn_ends_with_its_query_or_before_the_next_one():
    assert turn_end("Search: lru") is None
    assert turn_end("Search: lru\nAnswer: x") == len("Search: lru")
    assert turn_end("Answer: it grows [S1].") is None
    assert turn_end("Answer: it grows.\nQuestion: what") == len("Answer: it grows.")


async def test_the_loop_searches_reads_and_answers_with_cites(tmp_path: Path):
    source = FixedSearch()
    turns: list[Scripted] = ["Search: functools.cache", f"Answer: {GROWS}"]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            researcher.decoder = PlainDecoder()
            run = await researcher.ask(Ask(QUESTION), "t")
    assert source.queries == [QUESTION, "functools.cache"]
    answer = cited_answer(run)
    assert [c.id for c in answer.citations] == ["S1"] and answer.dropped == 1
    measured = row("plain", {"question": QUESTION, "fact": "without bound"}, run)
    assert (measured["fact"], measured["cites"], measured["supported"]) == (True, 1, 1)
    assert run.status is Status.FINISHED


async def test_a_model_that_only_searches_is_made_to_answer(tmp_path: Path):
    source = FixedSearch()
    turns: list[Scripted] = ["Search: a", "Search: b", "It grows [S1]."]
    with ScriptedServer(turns) as server:
        async with researching(server.base_url, tmp_path, source) as researcher:
            researcher.decoder = PlainDecoder()
            run = await researcher.ask(Ask(QUESTION), "t")
    assert source.queries == [QUESTION, "a", "b"]
    assert cited_answer(run).text() == "It grows [1]."


def test_figures_are_sums_over_the_questions():
    rows = [
        {"fact": True, "cites": 2, "supported": 1, "dropped": 0, "finished": True, "searches": 1,
         "tokens": 10, "seconds": 1.0},
        {"fact": False, "cites": 0, "supported": 0, "dropped": 1, "finished": True, "searches": 2,
         "tokens": 20, "seconds": 3.0},
    ]  # fmt: skip
    values = summary("plain", rows)
    assert (values["plain_facts"], values["plain_cites_supported_share"]) == (1, 0.5)
    assert (values["plain_answers_without_cite"], values["plain_tokens_mean"]) == (1, 15.0)
    assert values["plain_seconds_median"] == 2.0
