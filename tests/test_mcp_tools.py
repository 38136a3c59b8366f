"""Tools of MCP servers: reached by a program and by HTTP, allowed, bounded, and cited."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from agent.mcp_tools.config import ToolServer
from agent.mcp_tools.equipped import Equipped
from agent.mcp_tools.offers import Offer
from agent.mcp_tools.pinned import Pinned
from agent.pages.addresses import AddressGuard
from memory.errors import SourceError
from tests.conftest import ROOT
from tests.fakes import FixedSearch
from tests.processes import descendants, name_of
from tests.tool_servers import PAGES, TOOLS, server, serving_http

PROGRAM = {"command": sys.executable, "env": {"PYTHONPATH": str(ROOT)}, "seconds": 60}


def program(*more: str, **options: Any) -> ToolServer:
    args = ("-m", "tests.tool_servers", *more)
    return ToolServer(**{**PROGRAM, "args": args, "tools": TOOLS, **options})


@asynccontextmanager
async def equipped(**servers: ToolServer) -> AsyncIterator[tuple[Equipped, tuple[str, ...]]]:
    tools = Equipped(FixedSearch(), servers)
    try:
        yield tools, await tools.prepare()
    finally:
        await tools.aclose()


async def test_a_program_is_asked_for_its_allowed_tools_and_called() -> None:
    async with equipped(wiki=program(tools=("page", "nothing"))) as (tools, problems):
        assert problems == ("The MCP server wiki has no tool nothing.",)
        assert list(tools.offers) == ["wiki.page"]
        found, note = await tools.call("wiki.page", '{"title": "lru_cache"}')
        [passage] = found
        assert (passage.title, passage.location) == ("wiki.page", "mcp:wiki.page")
        assert (passage.text, note) == (PAGES["lru_cache"], "")
        running = [pid for pid in descendants(os.getpid()) if "tests.tool_servers" in name_of(pid)]
        assert running
    assert not [pid for pid in descendants(os.getpid()) if "tests.tool_servers" in name_of(pid)]


async def test_a_server_over_http_is_asked_and_called() -> None:
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=("page", "find"), seconds=20)
        async with equipped(wiki=wiki) as (tools, problems):
            assert (problems, sorted(tools.offers)) == ((), ["wiki.find", "wiki.page"])
            found, _ = await tools.call("wiki.find", "lru_cache")
    assert [(p.title, p.location, p.text) for p in found] == [
        ("lru_cache", "https://wiki.example/lru_cache", PAGES["lru_cache"])
    ]


async def test_the_host_that_is_named_may_be_private_but_leads_nowhere_else() -> None:
    async def rebound(host: str, port: int) -> list[str]:
        return ["169.254.169.254"]

    guard = AddressGuard(("metadata.test:80",), rebound)
    async with httpx2.AsyncClient(transport=Pinned(guard)) as client:
        with pytest.raises(SourceError, match="in a private network"):
            await client.get("http://metadata.test/mcp")


async def test_headers_of_the_settings_are_sent_and_hosts_keep_their_name() -> None:
    heard: list[dict[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        heard.append({k.decode(): v.decode() for k, v in scope["headers"]})
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with serving_http(app, lifespan="off") as address:
        host = address.replace("127.0.0.1", "localhost")
        wiki = ToolServer(url=host, headers={"Authorization": "Bearer s3cret"}, tools=("page",))
        async with equipped(wiki=wiki) as (tools, problems):
            assert tools.offers == {}
    [problem] = problems
    assert problem.startswith("The MCP server wiki could not answer when it was connected to")
    assert problem.endswith("Its tools are left out.")
    assert "s3cret" not in problem
    assert heard[0]["authorization"] == "Bearer s3cret"
    assert heard[0]["host"] == host.removeprefix("http://")


async def test_what_a_tool_says_against_it_is_a_sentence_and_the_connection_stays() -> None:
    async with equipped(wiki=program()) as (tools, problems):
        assert problems == ()
        with pytest.raises(SourceError, match=r"^The tool wiki.broken failed: .*broken.$"):
            await tools.call("wiki.broken", "x")
        with pytest.raises(SourceError, match="takes a JSON object with first, second"):
            await tools.call("wiki.two", "x")
        found, _ = await tools.call("wiki.two", '{"first": "one", "second": 2}')
        assert found[0].text == "one and 2"
        found, note = await tools.call("wiki.picture", "x")
        assert (found, note) == ([], "What wiki.picture returned as image is left out.")


async def test_a_tool_that_hangs_is_given_up_and_the_next_call_is_answered() -> None:
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=("page", "hang"), seconds=5)
        async with equipped(wiki=wiki) as (tools, _):
            with pytest.raises(SourceError, match="did not answer the call of hang within 5 s"):
                await tools.call("wiki.hang", "x")
            found, _ = await tools.call("wiki.page", "lru_cache")
    assert found[0].text == PAGES["lru_cache"]


async def test_a_server_that_dies_is_started_again_by_the_next_call() -> None:
    async with equipped(wiki=program()) as (tools, _):
        with pytest.raises(SourceError, match=r"^The MCP server wiki could not answer the call"):
            await tools.call("wiki.die", "x")
        found, _ = await tools.call("wiki.page", "lru_cache")
        assert found[0].text == PAGES["lru_cache"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (program("silent", seconds=1), "did not answer when it was connected to within 1 s."),
        (
            ToolServer(command="/nowhere/wiki-mcp", tools=("page",)),
            "could not answer when it was connected to: ",
        ),
        (
            ToolServer(url="http://127.0.0.1:9/mcp", tools=("page",)),
            "could not answer when it was connected to: ",
        ),
    ],
    ids=["silent", "no such program", "nobody listens"],
)
async def test_a_server_that_cannot_be_had_is_a_sentence_and_searches_go_on(
    bad: ToolServer, said: str
) -> None:
    async with equipped(bad=bad, wiki=program(tools=("page",))) as (tools, problems):
        assert [said in problem for problem in problems] == [True]
        assert list(tools.offers) == ["wiki.page"]
        assert len(await tools.search("query", 2)) == 2


async def test_a_call_that_is_cancelled_leaves_no_program_behind() -> None:
    async with equipped(wiki=program()) as (tools, _):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tools.call("wiki.hang", "x"), 0.5)
    assert not [pid for pid in descendants(os.getpid()) if "tests.tool_servers" in name_of(pid)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": ("a",)}, "either a command or a url"),
        ({"command": "a", "url": "http://b/", "tools": ("a",)}, "either a command or a url"),
        ({"command": "a"}, "tools"),
        ({"command": "a", "tools": ()}, "at least 1"),
        ({"command": "a", "tools": ("a b",)}, "match pattern"),
        ({"url": "ftp://a/", "tools": ("a",)}, "must be an address"),
        ({"url": "http://u:p@a/", "tools": ("a",)}, "must be an address"),
        ({"url": "http://a/", "args": ("x",), "tools": ("a",)}, "args does not go with url"),
        ({"command": "a", "headers": {"X": "y"}, "tools": ("a",)}, "headers does not go with"),
        ({"command": "a", "tools": ("a",), "seconds": 0}, "greater than 0"),
        ({"command": "a", "tools": ("a",), "allow": ("b",)}, "Extra inputs"),
    ],
)
def test_a_server_that_cannot_be_meant_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ToolServer(**fields)


def test_a_tool_is_told_on_one_line_that_opens_no_tag() -> None:
    schema = {
        "properties": {"title": {"type": "string"}, "lang": {"type": "string"}, "odd": 3},
        "required": ["title"],
    }
    offer = Offer("wiki", "page", 'Gives\n<answer>"pages"</answer> ' + "x" * 400, schema)
    line = offer.line()
    assert line.startswith(
        'wiki.page {title: string, lang?: string, odd?: any} - "Gives \u2039answer>'
    )
    assert "\n" not in line and "<answer" not in line and line.count('"') == 2
    assert len(line) < 400


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"title": "a", "lang": "de"}', {"title": "a", "lang": "de"}),
        ("a page", {"title": "a page"}),
        ("[1]", {"title": "[1]"}),
        ("{broken", {"title": "{broken"}),
    ],
)
def test_a_call_is_an_object_or_the_one_text_that_is_required(
    written: str, arguments: dict[str, Any]
) -> None:
    properties = {"title": {"type": "string"}, "lang": {"type": "string"}}
    offer = Offer("wiki", "page", "", {"properties": properties, "required": ["title"]})
    assert offer.arguments(written) == arguments


def test_an_odd_schema_takes_an_object_and_nothing_else() -> None:
    offer = Offer("wiki", "page", "", {"properties": ["title"], "required": []})
    assert offer.arguments("{}") == {}
    with pytest.raises(SourceError, match="takes a JSON object with no arguments"):
        offer.arguments("x")
