"""Servers of tools that were down at the start: told once, asked again, waited for briefly."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
import uvicorn

from agent.events import Event, SourceProgress
from agent.free import FreeDecoder
from agent.mcp_tools.config import ToolServer
from agent.mcp_tools.equipped import AGAIN, PATIENCE, Equipped
from agent.researcher import Researcher
from agent.run import Ask
from memory.errors import SourceError
from memory.runs import RunStore
from memory.schema import Author, Decoding
from tests.fakes import QUESTION, FixedSearch, ScriptedPolicy
from tests.flow import answer, plan
from tests.tool_servers import PAGES, server

PAST = PATIENCE + 10
"""seconds that a server is given in all, beyond those that a question waits"""


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def wiki(port: int, *tools: str, seconds: float = 60) -> ToolServer:
    return ToolServer(url=f"http://127.0.0.1:{port}/mcp", tools=tools or ("page",), seconds=seconds)


async def news(tools: Equipped) -> list[str]:
    """The first that is told, by whichever question: a slow machine may take more than one."""
    while not (said := await tools.look_again()):
        await asyncio.sleep(0.01)
    return said


class Served:
    """A server of tools that comes to life on a port when it is told to."""

    def __init__(self, port: int) -> None:
        self._config = uvicorn.Config(
            server().streamable_http_app(), port=port, log_level="error", ws="none",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        self._running = uvicorn.Server(self._config)

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._running.serve())
        while not self._running.started:
            await asyncio.sleep(0.01)

    async def __aexit__(self, *error: object) -> None:
        self._running.should_exit = True
        await self._task


@pytest.fixture
def port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def test_a_server_that_was_down_is_asked_again_and_its_tools_are_offered(port: int):
    clock = Clock()
    tools = Equipped(FixedSearch(), {"wiki": wiki(port)}, clock)
    [problem] = await tools.prepare()
    assert problem.endswith("Its tools are left out.") and tools.offers == {}
    async with Served(port):
        assert await tools.look_again() == [], "it was asked just now"
        clock.now = AGAIN
        assert await news(tools) == ["The tools of the MCP server wiki can be called now."]
        assert list(tools.offers) == ["wiki.page"]
        assert await tools.look_again() == []
        found, _ = await tools.call("wiki.page", "lru_cache")
        assert found[0].text == PAGES["lru_cache"]
        await tools.aclose()


async def test_one_that_stays_down_is_told_once_and_asked_no_more_than_now_and_then(port: int):
    clock = Clock()
    tools = Equipped(FixedSearch(), {"wiki": wiki(port)}, clock)
    assert len(await tools.prepare()) == 1
    for clock.now in (AGAIN, AGAIN + 1, 3 * AGAIN):
        assert await tools.look_again() == []
    await tools.aclose()


async def test_what_is_missing_of_one_that_comes_back_is_told(port: int):
    clock = Clock()
    tools = Equipped(FixedSearch(), {"wiki": wiki(port, "page", "nothing")}, clock)
    await tools.prepare()
    async with Served(port):
        clock.now = AGAIN
        assert await news(tools) == ["The MCP server wiki has no tool nothing."]
        await tools.aclose()


async def test_one_that_hangs_holds_a_question_up_for_a_moment_only():
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections and never says a word.
        tools = Equipped(
            FixedSearch(), {"wiki": wiki(silent.getsockname()[1], seconds=PAST)}, clock
        )
        [problem] = await tools.prepare()
        assert f"within {PAST:g} s" in problem
        clock.now = AGAIN
        began = time.monotonic()
        assert await tools.look_again() == []
        assert time.monotonic() - began < PAST, "it is asked on, for the next question"
        assert len(await tools.search("query", 2)) == 2
        await tools.aclose()


async def test_a_call_of_a_tool_whose_server_was_down_asks_it_again(port: int):
    tools = Equipped(FixedSearch(), {"wiki": wiki(port)})
    await tools.prepare()
    with pytest.raises(SourceError, match="Its tools are left out"):
        await tools.call("wiki.page", "lru_cache")
    async with Served(port):
        found, _ = await tools.call("wiki.page", "lru_cache")
        assert found[0].text == PAGES["lru_cache"]
        await tools.aclose()


async def test_a_later_question_is_told_and_may_call_it(tmp_path: Path, port: int):
    clock = Clock()
    calling = plan().replace('"search">lru_cache maxsize None', '"wiki.page">lru_cache')
    tools = Equipped(FixedSearch(), {"wiki": wiki(port)}, clock)
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
    async with Served(port):
        clock.now = AGAIN
        while not said_in(told):
            run = await researcher.ask(Ask(QUESTION), listener=told.append)
        await tools.aclose()
    assert "wiki.page {title: string}" in run.system
    assert [source.tool for source in run.sources] == ["wiki.page"]
    assert said_in(told) == ["The tools of the MCP server wiki can be called now."]


def said_in(told: list[Event]) -> list[str]:
    return [event.message for event in told if isinstance(event, SourceProgress)]
