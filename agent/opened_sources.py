"""From settings to what is searched: every source that they name, as one."""

import asyncio

from agent.events import Listener, SourceProgress
from agent.settings import Settings
from memory.interfaces import Embedder, SearchTool


async def open_sources(settings: Settings, listener: Listener) -> SearchTool:
    """The named sources; folders and libraries are indexed by their first search."""
    embedder = None
    if settings.retrieval == "hybrid":
        from agent.banking import embedder_in

        embedder = await embedder_in(settings.weights_dir, listener, settings.embedder)
    tool = await asyncio.to_thread(_combined, settings, embedder, listener)
    if not settings.mcp_servers:
        return tool
    from agent.mcp_tools.equipped import Equipped

    return Equipped(tool, settings.mcp_servers)


async def close_sources(tool: SearchTool) -> None:
    """Let go of what the sources hold open: connections to MCP servers, and their programs."""
    from agent.mcp_tools.equipped import Equipped

    if isinstance(tool, Equipped):
        await tool.aclose()


def _combined(settings: Settings, embedder: Embedder | None, listener: Listener) -> SearchTool:
    from agent.sources.combined import Combined
    from agent.sources.opening import open_source

    def tell(done: int, total: int, doing: str) -> None:
        # Without the name of what is read, so that a log gets one line of it.
        listener(SourceProgress(f"reading documents: {done} of {total}" if total else doing))

    cache = settings.data_dir / "indexes"
    key = settings.scholar_key.get_secret_value() if settings.scholar_key else None
    tools = [
        open_source(name, cache, settings.retrieval, embedder, tell, key)
        for name in settings.source
    ]
    if len(tools) == 1:
        return tools[0]
    return Combined(tools, lambda problem: listener(SourceProgress(problem)))
