"""An MCP server with the tools research, search, open_page, judge, bank_search and bank_show.

It speaks on standard input and output, or by HTTP on loopback. What fails is the tool's error, in
a sentence and a remedy; nothing of a traceback leaves.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Literal

import click
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from rubricem.agent.mcp.workbench import (
    FoundPassage,
    FoundPassages,
    JudgedStages,
    KeptReflection,
    NearReflection,
    NearReflections,
    Researched,
    Tell,
    Workbench,
)
from rubricem.agent.research.setup import Setup, settle
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import AnswerFormat
from rubricem.memory.text import one_line

INSTRUCTIONS = (
    "rubricem researches a question in documents or on the web and answers it with citations "
    "that were checked against what was really fetched. research takes minutes and reports its "
    "progress; search and open_page only look things up."
)
READS = ToolAnnotations(read_only_hint=True)


def server_of(bench: Workbench) -> MCPServer:
    """The server over an open workbench."""
    from importlib.metadata import version

    server: MCPServer = MCPServer(
        "rubricem", instructions=INSTRUCTIONS, version=version("rubricem"), log_level="ERROR"
    )
    _add_research(server, bench)
    _add_looking_up(server, bench)
    _add_memory(server, bench)
    return server


@contextmanager
def told() -> Iterator[None]:
    """Our errors as a tool's."""
    try:
        yield
    except RubricemError as error:
        raise ToolError(error.told()) from error


def _add_research(server: MCPServer, bench: Workbench) -> None:
    @server.tool()
    async def research(
        question: Annotated[str, Field(description="in any language")],
        context: Context,
        format: Literal["long", "short", "exact"] = "long",
    ) -> Annotated[CallToolResult, Researched]:
        """Research a question; returns a report whose citations were checked."""
        async with _progress(context.report_progress) as tell:
            with told():
                trajectory = await bench.research(question, AnswerFormat(format), tell)
        found = Researched.of(trajectory)
        return CallToolResult(
            content=[TextContent(text=found.report)],
            structured_content=found.model_dump(mode="json"),
        )

    @server.tool()
    async def judge(
        run: Annotated[str, Field(description="the name that research returned")],
    ) -> JudgedStages:
        """Score a run stage by stage - plan, research, review, answer - by rubrics."""
        with told():
            return JudgedStages.of(await bench.judge(run))


def _add_looking_up(server: MCPServer, bench: Workbench) -> None:
    @server.tool(annotations=READS)
    async def search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> FoundPassages:
        """Search the sources of this server for passages."""
        with told():
            found = await bench.search(query, limit)
        return FoundPassages(passages=[FoundPassage.of(passage) for passage in found])

    @server.tool(annotations=READS)
    async def open_page(
        address: Annotated[str, Field(description="http or https")],
        words: Annotated[str, Field(description="to look for in it")] = "",
    ) -> FoundPassages:
        """Read a page of the web: the passages nearest to the words, in the page's order."""
        with told():
            found = await bench.open_page(address, words)
        return FoundPassages(passages=[FoundPassage.of(passage) for passage in found])


def _add_memory(server: MCPServer, bench: Workbench) -> None:
    @server.tool(annotations=READS)
    async def bank_search(
        text: str, count: Annotated[int, Field(ge=1, le=50)] = 5
    ) -> NearReflections:
        """Find what earlier runs taught on questions like this one."""
        with told():
            matches = await bench.bank_search(text, count)
        near = [
            NearReflection(
                id=m.reflection.id,
                question=m.reflection.question,
                score=m.reflection.score,
                similarity=m.similarity,
            )
            for m in matches
        ]
        return NearReflections(matches=near)

    @server.tool(annotations=READS)
    async def bank_show(id: str) -> KeptReflection:
        """Show one reflection: the rubrics and takeaways that a run left."""
        with told():
            return KeptReflection.of(await bench.bank_show(id))


Report = Callable[[float, float | None, str | None], Awaitable[None]]


@asynccontextmanager
async def _progress(report: Report) -> AsyncIterator[Tell]:
    """What is told is reported as progress, in its order, while it comes, from any thread."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def tell(line: str) -> None:
        if line:
            loop.call_soon_threadsafe(lines.put_nowait, one_line(line, 300))

    async def send() -> None:
        number = 0
        while (line := await lines.get()) is not None:
            number += 1
            await report(float(number), None, line)

    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(send())
    try:
        yield tell
    finally:
        loop.call_soon_threadsafe(lines.put_nowait, None)
        await asyncio.gather(sending, return_exceptions=True)


HOST = "127.0.0.1"
PATH = "/mcp"
GRACE = 3
"""seconds that connections get to end"""
_NAMES = ("127.0.0.1", "localhost", "[::1]")


async def run_stdio(setup: Setup) -> None:
    """Serve until standard input ends; nothing but the protocol goes to standard output."""
    async with Workbench(await settle(setup), _tell) as bench:
        server = server_of(bench)
        _quiet()
        await server.run_stdio_async()


async def run_http(setup: Setup, listening: socket.socket) -> None:
    """Serve at /mcp, on a socket of this machine alone, until ^C.

    Requests under another host's name, and those of a page of another site, are refused.
    """
    async with Workbench(await settle(setup), _tell) as bench:
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


def _quiet() -> None:
    """Libraries of sources log what concerns nobody, and the SDK shows it all."""
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.ERROR)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def run(setup: Setup, listening: socket.socket | None) -> None:
    """Serve by HTTP on a socket that is bound to `HOST`, or by standard input and output."""
    asyncio.run(run_stdio(setup) if listening is None else run_http(setup, listening))
