"""Several sources as one: asked at the same time, their passages taken in turn."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from memory.errors import SourceError
from memory.interfaces import Passage, SearchTool


class Combined:
    """A `SearchTool` over others; the best of each comes before the second best of any.

    A source that fails does not take the others with it: `on_problem` is told, and the search
    fails only where nothing was found besides.
    """

    def __init__(
        self, tools: Sequence[SearchTool], on_problem: Callable[[str], None] | None = None
    ) -> None:
        self._tools = tools
        self._on_problem = on_problem
        self.name = "+".join(tool.name for tool in tools)

    async def prepare(self) -> tuple[str, ...]:
        problems = [await tool.prepare() for tool in self._tools]
        return tuple(chain.from_iterable(problems))

    async def search(self, query: str, limit: int) -> list[Passage]:
        answers = await asyncio.gather(*(_tried(tool, query, limit) for tool in self._tools))
        found = [answer for answer in answers if isinstance(answer, list)]
        failed = [answer for answer in answers if isinstance(answer, SourceError)]
        ranked = chain.from_iterable(zip_longest(*found))
        passages = list(dict.fromkeys(passage for passage in ranked if passage is not None))
        if failed and not passages:
            remedies = " ".join(dict.fromkeys(error.remedy for error in failed))
            raise SourceError(" ".join(map(str, failed)), remedies)
        for error in failed:
            if self._on_problem:
                self._on_problem(f"left out of this search: {error}")
        return passages[:limit]


async def _tried(tool: SearchTool, query: str, limit: int) -> list[Passage] | SourceError:
    try:
        return await tool.search(query, limit)
    except SourceError as error:
        return error
