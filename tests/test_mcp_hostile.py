"""What a server of tools can say that no server should: it costs little and breaks nothing."""

import json
from typing import Any

import pytest
from mcp.types import CallToolResult, TextContent

from agent.mcp_tools.offers import LONGEST_ARGUMENTS, LONGEST_DESCRIPTION, Offer
from agent.mcp_tools.results import MOST_CHARACTERS, MOST_ROWS, passages_of
from memory.errors import SourceError


def returned(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])


@pytest.mark.parametrize("required", [None, True, 5, {"title": 1}])
def test_a_schema_with_an_odd_list_of_what_it_requires_requires_nothing(required: Any) -> None:
    schema = {"properties": {"title": {"type": "string"}}, "required": required}
    offer = Offer("wiki", "page", "Gives a page.", schema)
    assert offer.line() == 'wiki.page {title?: string} - "Gives a page."'
    assert offer.arguments("lru_cache") == {"title": "lru_cache"}


def test_a_long_schema_takes_little_of_the_prompt() -> None:
    properties = {f"{at}{'x' * 100_000}": {"type": "y" * 100_000} for at in range(20)}
    line = Offer("wiki", "page", "z" * 100_000, {"properties": properties}).line()
    assert len(line) < LONGEST_ARGUMENTS + LONGEST_DESCRIPTION + 50


def test_of_many_results_the_first_are_read() -> None:
    rows = [{"text": f"result {at}"} for at in range(5 * MOST_ROWS)]
    found, _ = passages_of(returned(json.dumps(rows)), "wiki.find")
    assert [passage.text for passage in found] == [row["text"] for row in rows[:MOST_ROWS]]


def test_of_large_results_no_more_is_read_than_of_one_text() -> None:
    rows = [{"text": "word " * (MOST_CHARACTERS // 10)} for _ in range(10)]
    found, _ = passages_of(returned(json.dumps(rows)), "wiki.find")
    assert 0.9 * MOST_CHARACTERS < sum(len(p.text) for p in found) <= MOST_CHARACTERS


def test_what_is_nested_beyond_reading_is_text() -> None:
    nested = '{"results":' * 100_000
    found, _ = passages_of(returned(nested), "wiki.find")
    assert found and found[0].text.startswith('{"results":{"results":')
    with pytest.raises(SourceError, match="takes a JSON object"):
        Offer("wiki", "page", "", {}).arguments("[" * 100_000)
