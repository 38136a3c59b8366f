"""The research stage's calls of MCP tools: a tool call like a search, with sources of its own."""

import asyncio
from dataclasses import asdict
from typing import Any

from agent.asking import Found
from agent.events import SourceProgress
from agent.mcp_tools.equipped import Equipped
from agent.pages.opening import PAGES_WORTH, nearest
from agent.run import Run
from memory.errors import SourceError, boundary
from memory.text import storable_fields


async def look_again(run: Run) -> None:
    """Have servers of tools that were missing asked again, as a question begins."""
    if isinstance(run.search_tool, Equipped):
        for said in await run.search_tool.look_again():
            run.listener(SourceProgress(said))


def tool_names(run: Run) -> frozenset[str]:
    """The tools that the run may call beside the search and the opening of pages."""
    tools = run.search_tool
    return tools.allowed if isinstance(tools, Equipped) else frozenset()


def tool_lines(run: Run) -> list[str]:
    """What the prompt says of each of them."""
    tools = run.search_tool
    return [offer.line() for offer in tools.offers.values()] if isinstance(tools, Equipped) else []


async def call_tool(run: Run, tools: Equipped, name: str, written: str) -> Found:
    """Call a tool; what fails is a result that says why, and what it returned can be cited."""

    async def call() -> dict[str, Any]:
        try:
            with boundary(SourceError, f"the tool {name}"):
                passages, note = await tools.call(name, written)
        except SourceError as error:
            return {"passages": [], "error": str(error), "note": "The tool gave nothing."}
        most = PAGES_WORTH * run.ask.passages
        shown = await asyncio.to_thread(nearest, passages, written, run.ask.question, most)
        kept = [storable_fields(asdict(passage)) for passage in shown]
        return {"passages": kept, "error": "", "note": note}

    return await run.use(name, written, call)
