"""What a run can search, with the tools of MCP servers beside it.

The servers are asked for their tools when the sources are prepared; one that fails or hangs then
is a sentence, and its tools are not offered. Which tool a name means is decided here alone.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from agent.mcp_tools.config import ToolServer
from agent.mcp_tools.connection import Connection
from agent.mcp_tools.offers import Offer
from agent.mcp_tools.results import passages_of
from memory.errors import SourceError
from memory.interfaces import Passage, SearchTool


class Equipped:
    """A `SearchTool` that passes searches on, and calls tools by their names; close it."""

    def __init__(self, search_tool: SearchTool, servers: Mapping[str, ToolServer]) -> None:
        self.name = search_tool.name
        self.offers: dict[str, Offer] = {}
        """the tools that can be called, by the names that the policy calls them"""
        self._search_tool = search_tool
        self._servers = servers
        self._connections = {name: Connection(name, servers[name]) for name in servers}

    async def prepare(self) -> tuple[str, ...]:
        search = asyncio.ensure_future(self._search_tool.prepare())
        problems = await asyncio.gather(*map(self._asked, self._connections))
        return (*await search, *(problem for problem in problems if problem))

    async def _asked(self, name: str) -> str:
        """Ask a server for its tools; returns what is wrong with them, in a sentence, or ""."""
        try:
            offers = await self._connections[name].offers()
        except SourceError as error:
            return f"{error} Its tools are left out."
        self.offers |= {offer.name: offer for offer in offers}
        missing = sorted(set(self._servers[name].tools) - {offer.tool for offer in offers})
        return f"The MCP server {name} has no tool {', '.join(missing)}." if missing else ""

    async def search(self, query: str, limit: int) -> list[Passage]:
        return await self._search_tool.search(query, limit)

    async def call(self, name: str, written: str) -> tuple[list[Passage], str]:
        """What a tool returned, as passages, and a note. Raises SourceError, in a sentence."""
        offer = self.offers[name]
        result: Any = await self._connections[offer.server].call(
            offer.tool, offer.arguments(written)
        )
        return await asyncio.to_thread(passages_of, result, name)

    async def aclose(self) -> None:
        await asyncio.gather(*(each.aclose() for each in self._connections.values()))
