"""An MCP server with the tools research, search and open_page.

It communicates over standard input and output; `rubricem serve` has its tools over HTTP. A failure
is returned as the tool's error, in a sentence with a remedy; no traceback is exposed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from itertools import count
from typing import Annotated, Any, Literal

import click
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp

from rubricem.agent.mcp.workbench import Workbench
from rubricem.agent.reports.cited import bracket_marks, cited_answer
from rubricem.agent.reports.report import markdown, prose, render_marked
from rubricem.agent.research.setup import Setup, resolve_auto
from rubricem.agent.transcript.events import Tell
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import AnswerFormat, CitationSupport
from rubricem.memory.text import one_line

INSTRUCTIONS = (
    "rubricem researches a question in documents or on the web and answers it with citations "
    "that were checked against what was really fetched. research takes minutes and reports its "
    "progress; search and open_page only look things up."
)
READS = ToolAnnotations(read_only_hint=True)


class ToolResult(BaseModel):
    """What a client is told, with a schema; it is read off our own objects."""

    model_config = ConfigDict(from_attributes=True)


class FoundPassage(ToolResult):
    """A passage of a document or page."""

    title: str
    location: str = Field(description="address or path")
    place: str = Field(description="symbol, heading, page or lines inside it")
    text: str


class FoundPassages(BaseModel):
    passages: list[FoundPassage]
    note: str = Field(default="", description="what was not asked, and why")


class CitedSource(ToolResult):
    """A source that the answer cites."""

    number: int = Field(description="of its marks in the answer")
    title: str
    location: str
    text: str = Field(description="the passage as it was fetched")


class CheckedCitation(ToolResult):
    """One claim on one source, and whether the source holds it."""

    number: int
    claim: str
    verdict: CitationSupport
    why: str
    quote: str = Field(description="the sentence of the source nearest to the claim")


class Researched(BaseModel):
    """A report and what it stands on."""

    answer: str = Field(description="in Markdown without pictures, with marks like [1]")
    report: str = Field(description="the whole report in Markdown")
    status: Literal["finished", "no_evidence", "partial"]
    reason: str = Field(description="why it is not finished")
    citations: list[CheckedCitation]
    sources: list[CitedSource]
    run: str = Field(description="its name, as in `rubricem runs`")


def server_of(bench: Workbench) -> MCPServer:
    from importlib.metadata import version

    server: MCPServer = MCPServer(
        "rubricem", instructions=INSTRUCTIONS, version=version("rubricem"), log_level="ERROR"
    )
    _add_research(server, bench)
    _add_looking_up(server, bench)
    return server


@contextmanager
def tool_errors() -> Iterator[None]:
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
            with tool_errors():
                trajectory = await bench.research(question, AnswerFormat(format), tell)
        answer, report = cited_answer(trajectory), markdown(trajectory)
        found = Researched.model_validate(
            {
                "answer": render_marked(answer, prose, bracket_marks),
                "report": report,
                "status": trajectory.status.value,
                "reason": trajectory.reason,
                "citations": [
                    {**asdict(c), "quote": c.quote, "why": c.reason} for c in answer.citations
                ],
                "sources": [
                    {"number": number, **source.model_dump()}
                    for number, source in enumerate(answer.sources, start=1)
                ],
                "run": trajectory.thread,
            }
        )
        structured = found.model_dump(mode="json")
        return CallToolResult(content=[TextContent(text=report)], structured_content=structured)


def _add_looking_up(server: MCPServer, bench: Workbench) -> None:
    @server.tool(annotations=READS)
    async def search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 5) -> FoundPassages:
        """Search the sources of this server for passages."""
        with tool_errors():
            found, note = await bench.search(query, limit)
        return FoundPassages.model_validate({"passages": found, "note": note})

    @server.tool(annotations=READS)
    async def open_page(
        address: Annotated[str, Field(description="http or https")],
        words: Annotated[str, Field(description="to look for in it")] = "",
    ) -> FoundPassages:
        """Read a page of the web: the passages nearest to the words, in the page's order."""
        with tool_errors():
            found = await bench.open_page(address, words)
        return FoundPassages.model_validate({"passages": found})


AGAIN_SECONDS = 10.0
"""after which progress is told again: a turn of a model may take minutes"""
Report = Callable[[float, float | None, str | None], Coroutine[Any, Any, None]]


@asynccontextmanager
async def _progress(report: Report) -> AsyncIterator[Tell]:
    """What is told is reported as progress, in its order, while it comes, from any thread.

    The last line is told again while nothing else is, as clients give up what shows no progress.
    """
    loop, numbers, sent = asyncio.get_running_loop(), count(1), list[Future[None]]()
    last = "working"

    def tell(line: str) -> None:
        nonlocal last
        if line:
            last = one_line(line, 300)
            told = report(float(next(numbers)), None, last)
            sent.append(asyncio.run_coroutine_threadsafe(told, loop))

    async def go_on() -> None:
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            tell(last)

    again = asyncio.create_task(go_on())
    try:
        yield tell
    finally:
        again.cancel()
        await asyncio.gather(*map(asyncio.wrap_future, sent), return_exceptions=True)


PATH = "/mcp"
MOST_SESSIONS, SESSION_SECONDS = 64, 1800.0
"""that are open at the same time, and that one may lie idle before it is ended"""


def http_app_of(server: MCPServer) -> ASGIApp:
    """The tools by streamable HTTP at `PATH`; hosts, origins and tokens are a guard's before it."""
    return server.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=SESSION_SECONDS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )


async def run(setup: Setup) -> None:
    """Serve until standard input ends; nothing but the protocol goes to standard output."""

    def tell(line: str) -> None:
        click.echo(line, err=True)

    async with Workbench(await resolve_auto(setup), tell) as bench:
        server = server_of(bench)
        # Libraries of sources log what concerns nobody, and the SDK shows it all.
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.ERROR)
        await server.run_stdio_async()
