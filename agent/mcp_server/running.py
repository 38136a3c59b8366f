"""One MCP server from its settings to its end: on standard input and output, or on loopback."""

import asyncio
import logging

import click
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from agent.auto_source import settled, with_default_source
from agent.choice import choose_policy
from agent.clients import decoding_of
from agent.mcp_server.tools import server_of
from agent.mcp_server.workbench import Workbench
from agent.serve.serving import bound
from agent.settings import Settings

HOST = "127.0.0.1"
PATH = "/mcp"
GRACE = 3
"""seconds that connections get to end"""
_NAMES = ("127.0.0.1", "localhost", "[::1]")


async def run_stdio(settings: Settings) -> None:
    """Serve until standard input ends; nothing but the protocol goes to standard output."""
    async with Workbench(await _ready(settings), _tell) as bench:
        server = server_of(bench)
        _quiet()
        await server.run_stdio_async()


async def run_http(settings: Settings, port: int) -> None:
    """Serve at /mcp on this machine alone, until ^C.

    Requests under another host's name, and those of a page of another site, are refused.
    """
    listening = bound(HOST, port)
    async with Workbench(await _ready(settings), _tell) as bench:
        app = server_of(bench).streamable_http_app(
            streamable_http_path=PATH, transport_security=security()
        )
        _quiet()
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
        _tell(f"Serving on http://{HOST}:{listening.getsockname()[1]}{PATH} (^C ends it)")
        await uvicorn.Server(config).serve([listening])


def security() -> TransportSecuritySettings:
    """Only names of this machine, and no page but its own."""
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in _NAMES],
        allowed_origins=[f"http://{name}:*" for name in _NAMES],
    )


async def _ready(settings: Settings) -> Settings:
    # What cannot be is told before any client is answered.
    decoding_of(settings, choose_policy(settings))
    return await settled(with_default_source(settings))


def _quiet() -> None:
    """Libraries of sources log what concerns nobody, and the SDK shows it all."""
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.ERROR)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def run(settings: Settings, port: int | None) -> None:
    """Serve by HTTP on a port (0: any free one), or by standard input and output where None."""
    asyncio.run(run_stdio(settings) if port is None else run_http(settings, port))
