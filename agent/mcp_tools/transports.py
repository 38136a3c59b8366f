"""How a server of tools is reached: a program's standard input and output, or HTTP.

The extra `mcp` brings the SDK.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.mcp_tools.config import ToolServer
from memory.errors import SettingsError

if TYPE_CHECKING:
    from mcp import Client


@asynccontextmanager
async def opened_client(name: str, server: ToolServer) -> "AsyncIterator[Client]":
    """A client that has shaken hands with the server. Raises whatever went wrong with that."""
    try:
        from mcp import Client, Implementation
    except ImportError as cause:
        raise SettingsError(
            f"The MCP server {name} needs the extra `mcp`.",
            'Install it: pip install "rubricem[mcp]"',
        ) from cause
    told = Implementation(name="rubricem", version="1")
    transport: Any = _program(server) if server.command else _http(server)
    async with Client(transport, client_info=told, cache=None) as client:
        yield client


@asynccontextmanager
async def _program(server: ToolServer) -> AsyncIterator[Any]:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    env = {key: value.get_secret_value() for key, value in server.env.items()}
    program = StdioServerParameters(command=server.command or "", args=[*server.args], env=env)
    # What a program writes beside the protocol would run across the terminal.
    with Path(os.devnull).open("w", encoding="utf-8") as log:
        async with stdio_client(program, errlog=log) as streams:
            yield streams


@asynccontextmanager
async def _http(server: ToolServer) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client

    from agent.mcp_tools.pinned import pinned_client

    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(pinned_client(server))
        opening = streamable_http_client(server.url or "", http_client=http)
        yield await stack.enter_async_context(opening)
