"""Several sources as one: asked at the same time, their passages taken in turn."""

import asyncio
from collections.abc import Sequence
from itertools import chain, zip_longest

from memory.interfaces import Passage, SearchTool


class Combined:
    """A `SearchTool` over others; the best of each comes before the second best of any."""

    def __init__(self, tools: Sequence[SearchTool]) -> None:
        self._tools = tools
        self.name = "+".join(tool.name for tool in tools)

    async def prepare(self) -> tuple[str, ...]:
        problems = [await tool.prepare() for tool in self._tools]
        return tuple(chain.from_iterable(problems))

    async def search(self, query: str, limit: int) -> list[Passage]:
        found = await asyncio.gather(*(tool.search(query, limit) for tool in self._tools))
        ranked = chain.from_iterable(zip_longest(*found))
        return [passage for passage in ranked if passage is not None][:limit]
