"""What a run can search, with the tools of MCP servers beside it.

The servers are asked for their tools when the sources are prepared; one that fails or hangs then
is a sentence, told once, and its tools are not offered. It is asked again when the next question
begins, or when one of its tools is called, and its tools are offered from then on. Which tool a
name means is decided here alone.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from agent.mcp_tools.config import ToolServer
from agent.mcp_tools.connection import Connection
from agent.mcp_tools.offers import Offer
from agent.mcp_tools.results import passages_of
from memory.errors import SourceError
from memory.interfaces import Passage, SearchTool

PATIENCE = 2.0
"""seconds that a question waits for servers that were missing; the next one may gain by more"""
AGAIN = 10.0
"""seconds after which a server that was missing is asked again"""


class Equipped:
    """A `SearchTool` that passes searches on, and calls tools by their names; close it."""

    def __init__(
        self,
        search_tool: SearchTool,
        servers: Mapping[str, ToolServer],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = search_tool.name
        self.offers: dict[str, Offer] = {}
        """the tools that can be called, by the names that the policy calls them"""
        self.allowed = frozenset(f"{n}.{tool}" for n in servers for tool in servers[n].tools)
        """the names on the lists of what may be called, whether their servers answer or not"""
        self._search_tool = search_tool
        self._servers = servers
        self._clock = clock
        self._connections = {name: Connection(name, servers[name]) for name in servers}
        self._missing: dict[str, float] = {}
        """servers whose tools are not known, and when they were asked last"""
        self._asking: dict[str, asyncio.Task[str]] = {}

    async def prepare(self) -> tuple[str, ...]:
        search = asyncio.ensure_future(self._search_tool.prepare())
        problems = await asyncio.gather(*map(self._asked, self._connections))
        return (*await search, *(problem for problem in problems if problem))

    async def look_again(self) -> list[str]:
        """Ask the servers that were missing; returns what has changed, in sentences.

        Waits a moment alone. A server that takes longer is asked on, for the next question.
        """
        now = self._clock()
        for name in [n for n, since in self._missing.items() if now - since >= AGAIN]:
            if name not in self._asking:
                self._asking[name] = asyncio.create_task(self._asked(name))
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=PATIENCE)
        ended = [name for name, task in self._asking.items() if task.done()]
        said = {name: self._asking.pop(name).result() for name in ended}
        back = [name for name in said if name not in self._missing]
        return [said[n] or f"The tools of the MCP server {n} can be called now." for n in back]

    async def _asked(self, name: str) -> str:
        """Ask a server for its tools; returns what is wrong with them, in a sentence, or ""."""
        try:
            offers = await self._connections[name].offers()
        except SourceError as error:
            self._missing[name] = self._clock()
            return f"{error} Its tools are left out."
        self._missing.pop(name, None)
        self.offers |= {offer.name: offer for offer in offers}
        missing = sorted(set(self._servers[name].tools) - {offer.tool for offer in offers})
        return f"The MCP server {name} has no tool {', '.join(missing)}." if missing else ""

    async def search(self, query: str, limit: int) -> list[Passage]:
        return await self._search_tool.search(query, limit)

    async def call(self, name: str, written: str) -> tuple[list[Passage], str]:
        """What a tool returned, as passages, and a note. Raises SourceError, in a sentence."""
        server, _, tool = name.partition(".")
        problem = "" if name in self.offers else await self._asked(server)
        if name not in self.offers:
            raise SourceError(problem)
        arguments = self.offers[name].arguments(written)
        result: Any = await self._connections[server].call(tool, arguments)
        return await asyncio.to_thread(passages_of, result, name, arguments)

    async def aclose(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in self._connections.values()))
