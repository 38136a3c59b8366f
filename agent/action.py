"""What the policy does next, as one line of text: a query, or a page to be opened.

One action a turn. The line is what the graph's state holds and a person is shown; a page is
written `open_page S3 words to find`, and nothing but the guard of pages decides on its address.
A tool of an MCP server is written by its name, `wiki.page {"title": "..."}`.
"""

from collections.abc import Collection

from agent.scaffold import ToolCall
from agent.sources.query import narrowed

OPEN_PAGE = "open_page"


def action_of(call: ToolCall, tools: Collection[str] = ()) -> str:
    """The line of a tool call; a tool that does not exist is taken for the search.

    `tools`: those that can be called beside the search and the opening of pages.
    """
    name = call.name.strip()
    if name.lower() == OPEN_PAGE:
        return f"{OPEN_PAGE} {call.query}"
    if name in tools:
        return f"{name} {' '.join(call.query.split())}"
    return narrowed(call.query, call.attributes)


def page_of(action: str) -> str | None:
    """What is to be opened: an address or a source's id, and words to find; None: a search."""
    tool, _, wanted = action.partition(" ")
    return wanted.strip() if tool == OPEN_PAGE and wanted.strip() else None
