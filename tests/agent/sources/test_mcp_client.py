"""Tools of MCP servers: reached by a program and by HTTP, allowed, bounded, and cited.

What a server of tools can say that no server should: it costs little and breaks nothing.

Servers of tools that were down at the start: told once, asked again, waited for briefly.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from rubricem.agent.research.free import FreeDecoder
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.sources import mcp_client
from rubricem.agent.sources.choice import about, reading_of
from rubricem.agent.sources.fetch import AddressGuard
from rubricem.agent.sources.mcp_client import MOST_CHARACTERS, Bounded, Equipped, passages_of
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.events import Event, SourceProgress
from rubricem.agent.transcript.question import Ask
from rubricem.memory.errors import SourceError
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Author, Decoding
from tests.conftest import ROOT
from tests.support.policies import QUESTION, FixedSearch, ScriptedPolicy, answer, plan
from tests.support.tool_servers import PAGES, TOOLS, server, serving_http
from tests.support.waiting import descendants, free_port, name_of

_BEGUN = (
    f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
    "runpy.run_module('tests.support.tool_servers', run_name='__main__')"
)


def program(tools: tuple[str, ...] = TOOLS) -> ToolServer:
    return ToolServer(command=sys.executable, args=("-c", _BEGUN), tools=tools, seconds=60)


@asynccontextmanager
async def equipped(**servers: ToolServer) -> AsyncIterator[tuple[Equipped, tuple[str, ...]]]:
    tools = Equipped(FixedSearch(), servers)
    try:
        yield tools, await tools.prepare()
    finally:
        await tools.aclose()


def programs() -> list[int]:
    """Servers that this process has begun and that still run."""
    every = descendants(os.getpid())
    return [pid for pid in every if "tests.support.tool_servers" in name_of(pid)]


async def test_a_program_is_asked_for_its_allowed_tools_and_called() -> None:
    async with equipped(wiki=program(tools=("page", "nothing"))) as (tools, problems):
        assert problems == ("The MCP server wiki has no tool nothing.",)
        assert list(tools.offers) == ["wiki.page"]
        found, note = await tools.call("wiki.page", '{"title": "lru_cache"}')
        [passage] = found
        assert (passage.title, passage.location) == ("wiki.page", "mcp:wiki.page")
        assert (passage.text, note) == (PAGES["lru_cache"], "")
        assert programs()
    assert not programs()


async def test_while_a_server_starts_that_is_what_is_told() -> None:
    told = list[str]()
    tools = Equipped(FixedSearch(), {"wiki": program()}, tell=told.append)
    await tools.prepare()
    await tools.aclose()
    assert told == ["waiting for MCP servers to start: wiki"]


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
    async with httpx2.AsyncClient(transport=Bounded(guard)) as client:
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
        wiki = ToolServer(
            url=f"{host}/mcp?key=tvly-s3cret%21",
            headers={"Authorization": "Bearer s3cret"},
            tools=("page",),
        )
        async with equipped(wiki=wiki) as (tools, problems):
            assert tools.offers == {}
    [problem] = problems
    assert problem.startswith("The MCP server wiki could not answer when it was connected to")
    assert problem.endswith("Its tools are left out.")
    assert "s3cret" not in problem
    assert (
        wiki.without_key(f"401 for {wiki.url}, tvly-s3cret!") == f"401 for {host}/mcp?key=***, ***"
    )
    assert heard[0]["authorization"] == "Bearer s3cret"
    assert heard[0]["host"] == host.removeprefix("http://")


async def test_a_reply_without_end_is_not_read() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        assert dict(scope["headers"])[b"accept-encoding"] == b"identity"
        kind = (b"content-type", b"application/json")
        await send({"type": "http.response.start", "status": 200, "headers": [kind]})
        for _ in range(40):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

    with serving_http(app, lifespan="off") as address:
        async with httpx2.AsyncClient(transport=Bounded(AddressGuard.of(address))) as client:
            with pytest.raises(httpx2.ReadError, match="too large"):
                await client.get(f"{address}/mcp")


async def test_what_a_tool_says_against_it_is_a_sentence_and_the_connection_stays() -> None:
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=TOOLS, seconds=60)
        async with equipped(wiki=wiki) as (tools, problems):
            assert problems == ()
            with pytest.raises(SourceError, match=r"^The tool wiki.broken failed: .*broken.$"):
                await tools.call("wiki.broken", "x")
            with pytest.raises(SourceError, match="takes a JSON object with first, second"):
                await tools.call("wiki.two", "x")
            found, _ = await tools.call("wiki.two", '{"first": "one", "second": 2}')
            assert found[0].text == "one and 2"
            found, note = await tools.call("wiki.picture", "x")
    assert (found, note) == ([], "What wiki.picture returned as image is left out.")


async def test_a_server_that_dies_is_started_again_and_a_cancelled_call_leaves_none_behind() -> (
    None
):
    async with equipped(wiki=program()) as (tools, _):
        with pytest.raises(SourceError, match=r"^The MCP server wiki could not answer the call"):
            await tools.call("wiki.die", "x")
        found, _ = await tools.call("wiki.page", "lru_cache")
        assert found[0].text == PAGES["lru_cache"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tools.call("wiki.hang", "x"), 0.5)
    assert not programs()


@pytest.mark.parametrize("over", ["pipes", "http"])
async def test_a_call_that_takes_too_long_ends_no_other_on_its_server(over: str) -> None:
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=TOOLS, seconds=60)
        wiki = (program() if over == "pipes" else wiki).model_copy(update={"seconds": 8.0})
        async with equipped(wiki=wiki) as (tools, _):
            await tools.call("wiki.page", "lru_cache")
            hanging = asyncio.create_task(tools.call("wiki.hang", "x"))
            await asyncio.sleep(4)
            slow = asyncio.create_task(tools.call("wiki.slow", '{"seconds": 6}'))
            with pytest.raises(SourceError, match="did not answer the call of hang within 8 s"):
                await hanging
            found, _ = await tools.call("wiki.page", "lru_cache")
            assert found[0].text == PAGES["lru_cache"], "over a connection of its own"
            assert (await slow)[0][0].text == "after 6 s"
    assert not programs()


async def test_a_server_that_cannot_be_had_is_a_sentence_and_searches_go_on() -> None:
    asleep = ("-c", "import time; time.sleep(3600)")
    bad = {
        "silent": ToolServer(command=sys.executable, args=asleep, tools=("page",), seconds=1),
        "missing": ToolServer(command="/nowhere/wiki-mcp", tools=("page",)),
        "away": ToolServer(url="http://127.0.0.1:9/mcp", tools=("page",)),
    }
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=("page",), seconds=60)
        async with equipped(**bad, wiki=wiki) as (tools, problems):
            silent, *others = problems
            assert "did not answer when it was connected to within 1 s." in silent
            assert len(others) == 2
            assert all("could not answer when it was connected to: " in said for said in others)
            assert list(tools.offers) == ["wiki.page"]
            assert len(await tools.search("query", 2)) == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": ("a",)}, "either a command or a url"),
        ({"command": "a", "url": "http://b/", "tools": ("a",)}, "either a command or a url"),
        ({"command": "a", "tools": ()}, "at least 1"),
        ({"url": "ftp://a/", "tools": ("a",)}, "must be an address"),
        ({"url": "http://u:p@a/", "tools": ("a",)}, "must be an address"),
        ({"url": "http://a/", "args": ("x",), "tools": ("a",)}, "args does not go with url"),
        *(
            ({"command": "x", "env": {name: "./evil.so"}, "tools": ("a",)}, f"may not set {name}")
            for name in (
                "LD_PRELOAD",
                "DYLD_INSERT_LIBRARIES",
                "pythonpath",
                "NODE_OPTIONS",
                "BASH_ENV",
            )
        ),
        ({"command": "a", "tools": ("a",), "allow": ("b",)}, "Extra inputs"),
    ],
)
def test_a_server_that_cannot_be_meant_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ToolServer(**fields)


def test_of_large_results_no_more_is_read_than_of_one_text() -> None:
    rows = [{"text": "word " * (MOST_CHARACTERS // 10)}] * 10
    result = CallToolResult(content=[TextContent(text=json.dumps(rows))])
    found, _ = passages_of(result, "wiki.find")
    assert 0.9 * MOST_CHARACTERS < sum(len(p.text) for p in found) <= MOST_CHARACTERS


def test_a_results_place_has_the_arguments_as_they_were_written() -> None:
    result = CallToolResult(content=[TextContent(text="Two.")])
    [[passage], _] = passages_of(result, "wiki.find", {"rule": {"über": None}})
    assert passage.place == 'rule: {"über": null}'


def test_what_was_read_of_the_sources_is_told_beside_tools_too() -> None:
    search = FixedSearch()
    tools = Equipped(search, {})
    search.reading = ("read 2 files of notes; not read: 1 .doc.",)  # type: ignore[attr-defined]
    assert reading_of(tools) == ("read 2 files of notes; not read: 1 .doc.",)
    assert about(tools) == (search.name,), "of one that tells nothing its name"


async def test_a_later_question_is_told_and_may_call_it(tmp_path: Path):
    port = free_port()
    wiki = ToolServer(url=f"http://127.0.0.1:{port}/mcp", tools=("page",), seconds=60)
    calling = plan().replace('"search">lru_cache maxsize None', '"wiki.page">lru_cache')
    tools = Equipped(FixedSearch(), {"wiki": wiki})
    told: list[Event] = []
    policy = ScriptedPolicy(lambda before, _: answer() if before else calling)
    researcher = Researcher(
        policy, FreeDecoder(), Decoding.FREE, tools, RunStore(tmp_path), Ask("")
    )
    await tools.prepare()
    run = await researcher.ask(Ask(QUESTION), listener=told.append)
    [error] = [s.text.strip() for s in run.segments if s.author is Author.TOOL]
    assert error.startswith('<tool_output error="The MCP server wiki could not'), "and no crash"
    assert "wiki.page" not in run.system and said_in(told) == []
    with serving_http(server().streamable_http_app(), port=port):
        while not said_in(told):
            run = await researcher.ask(Ask(QUESTION), listener=told.append)
        await tools.aclose()
    assert "wiki.page {title: string}" in run.system
    assert [source.tool for source in run.sources] == ["wiki.page"]
    assert said_in(told) == ["The tools of the MCP server wiki can be called now."]


async def test_a_tool_that_has_come_to_act_is_known_to_at_a_later_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changing = server()
    with serving_http(changing.streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=("page",), seconds=60)
        async with equipped(wiki=wiki) as (tools, _):
            changing.remove_tool("page")
            changing.add_tool(lambda title: "Written.", name="page", description="Writes.")
            assert await tools.look_again() == [] and not tools.acts("wiki.page")
            monkeypatch.setattr(mcp_client, "LISTED_SECONDS", 0.0)
            assert await tools.look_again() == ["The tools of the MCP server wiki have changed."]
            assert tools.acts("wiki.page") and await tools.look_again() == []


async def test_of_a_long_result_the_policy_is_told_how_much_it_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PAGES, "long", "\n\n".join(f"{n} " + "word " * 150 for n in range(40)))
    calling = plan().replace('"search">lru_cache maxsize None', '"wiki.page">long')
    policy = ScriptedPolicy(lambda before, _: answer() if before else calling)
    with serving_http(server().streamable_http_app()) as address:
        wiki = ToolServer(url=f"{address}/mcp", tools=("page",), seconds=60)
        async with equipped(wiki=wiki) as (tools, _):
            run = await Researcher(
                policy, FreeDecoder(), Decoding.FREE, tools, RunStore(tmp_path), Ask("")
            ).ask(Ask(QUESTION))
    [shown] = [s.text for s in run.segments if s.author is Author.TOOL]
    assert f"Of 40 passages these {shown.count('<snippet')} are nearest to the call." in shown


def said_in(told: list[Event]) -> list[str]:
    return [event.message for event in told if isinstance(event, SourceProgress)]
