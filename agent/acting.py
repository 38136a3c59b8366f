"""What the policy asked for, done: a search, a page opened, or a tool of an MCP server called."""

from agent.action import page_of
from agent.asking import Found
from agent.mcp_tools.equipped import Equipped
from agent.mcp_tools.using import call_tool
from agent.pages.opening import open_page
from agent.run import Run


async def act(run: Run, action: str) -> Found:
    """Do what one line of the policy says; a line that names no tool is a query."""
    if (wanted := page_of(action)) is not None:
        return await open_page(run, wanted)
    name, _, written = action.partition(" ")
    tools = run.search_tool
    if isinstance(tools, Equipped) and name in tools.allowed:
        return await call_tool(run, tools, name, written.strip())
    return await run.search(action)
