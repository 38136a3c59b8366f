"""A connection to one server of tools: opened once, kept, opened again after it broke.

The SDK's client must be closed by the task that opened it, so a task of its own holds it. All
waits are bounded, and every failure is a SourceError in one sentence.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agent.mcp_tools.config import ToolServer
from agent.mcp_tools.offers import Offer
from agent.mcp_tools.transports import opened_client
from agent.reports.printable import one_line
from memory.errors import RubricemError, SourceError

if TYPE_CHECKING:
    from mcp import Client

LEAVING = 10.0
"""seconds for ending a connection; a program that does not go by itself is ended by then"""
QUOTED = 300
"""characters of a server's own words"""
MOST_PAGES = 20
"""of a list of tools"""


class Connection:
    """One server, by its name in the settings."""

    def __init__(self, name: str, server: ToolServer) -> None:
        self._name = name
        self._server = server
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def offers(self) -> list[Offer]:
        """The allowed tools that the server has. Raises SourceError."""
        client = await self._connected()
        found: list[Offer] = []
        async with self._bounded("list its tools"):
            cursor = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += [
                    Offer(self._name, tool.name, tool.description or "", tool.input_schema)
                    for tool in page.tools
                    if tool.name in self._server.tools
                ]
                if not (cursor := page.next_cursor):
                    break
        return found

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The `CallToolResult` of one call. Raises SourceError, also for a tool's own error."""
        client = await self._connected()
        async with self._bounded(f"answer the call of {tool}"):
            result = await client.call_tool(tool, arguments)
        if result.is_error:
            said = " ".join(b.text for b in result.content if b.type == "text")
            words = one_line(said, QUOTED).rstrip(".") or "it did not say why"
            raise SourceError(f"The tool {self._name}.{tool} failed: {words}.")
        return result

    async def aclose(self) -> None:
        """End the connection, and the program where it is one."""
        task, self._task, self._client = self._task, None, None
        if task is not None:
            self._closing.set()
            # What goes wrong while a server is left is of no use to anybody.
            await asyncio.wait([task], timeout=LEAVING)
            task.cancel()

    async def _connected(self) -> "Client":
        async with self._lock:
            if self._client is None or self._task is None or self._task.done():
                await self.aclose()
                async with self._bounded("answer when it was connected to"):
                    self._client = await self._open()
            return self._client

    async def _open(self) -> "Client":
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Client] = loop.create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._hold(opened, self._closing))
        try:
            return await opened
        except BaseException:
            self._task.cancel()
            raise

    async def _hold(self, opened: "asyncio.Future[Client]", closing: asyncio.Event) -> None:
        """Keep the client open, in the one task that may close it."""
        try:
            async with opened_client(self._name, self._server) as client:
                if not opened.done():
                    opened.set_result(client)
                await closing.wait()
        except Exception as error:
            # A broken connection shows in the call that needs it.
            if not opened.done():
                opened.set_exception(error)

    @asynccontextmanager
    async def _bounded(self, doing: str) -> AsyncIterator[None]:
        """Within the server's seconds, with one sentence for whatever goes wrong."""
        place = f"The MCP server {self._name}"
        try:
            async with asyncio.timeout(self._server.seconds):
                yield
        except RubricemError:
            raise
        except TimeoutError as cause:
            self._break()
            raise SourceError(
                f"{place} did not {doing} within {self._server.seconds:g} s."
            ) from cause
        except Exception as cause:
            self._break()
            first = _innermost(cause)
            words = one_line(str(first), QUOTED).rstrip(".") or type(first).__name__
            raise SourceError(f"{place} could not {doing}: {words}.") from cause

    def _break(self) -> None:
        """Connect anew before the next call: this connection may be dead, or hold it up."""
        self._closing.set()
        self._client = None


def _innermost(error: BaseException) -> BaseException:
    """What a group of errors is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
