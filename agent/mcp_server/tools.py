"""The tools: research, search, open_page, judge, bank_search, bank_show.

What fails is the tool's error, in a sentence and a remedy; nothing of a traceback leaves.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from agent.mcp_server.values import (
    FoundPassage,
    FoundPassages,
    Judged,
    KeptReflection,
    NearReflection,
    NearReflections,
    Researched,
)
from agent.mcp_server.workbench import Tell, Workbench
from agent.reports.printable import one_line
from memory.errors import RubricemError
from memory.schema import AnswerFormat

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
        raise ToolError(f"{error} {error.remedy}".strip()) from error


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
    ) -> Judged:
        """Score a run stage by stage - plan, research, review, answer - by rubrics."""
        with told():
            return Judged.of(await bench.judge(run))


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
