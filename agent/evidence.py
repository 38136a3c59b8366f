"""What a run has found: every passage numbered once, every question to a tool answered once.

Ids are given in order of first retrieval, whichever tool it was, and a passage found again keeps
its own. The text is kept as it was fetched.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from memory.errors import SourceError, boundary
from memory.interfaces import Passage, SearchTool
from memory.schema import Source
from memory.text import storable_fields


@dataclass
class Evidence:
    """The sources of one run, and which of them each query brought."""

    sources: dict[str, Source] = field(default_factory=dict)
    answered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """query, case folded -> ids of what it brought"""
    _numbers: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def number(self, passage: Passage, query: str, tool: str) -> Source:
        """The source that a passage is, numbered now if it is new."""
        key = (passage.location, passage.place, passage.text)
        identifier = self._numbers.setdefault(key, f"S{len(self._numbers) + 1}")
        if identifier not in self.sources:
            self.sources[identifier] = Source(
                id=identifier,
                title=passage.title,
                location=passage.location,
                place=passage.place,
                text=passage.text,
                tool=tool,
                query=query,
            )
        return self.sources[identifier]

    async def search(self, tool: SearchTool, query: str, limit: int) -> dict[str, Any]:
        """What a search brings, as the journal keeps it; a failure is a result that says why."""
        try:
            with boundary(SourceError, f"the search in {tool.name}"):
                # As many more as were seen, so that a new query brings something new to read.
                found = await tool.search(query, limit + len(self.sources))
        except SourceError as error:
            return {"passages": [], "error": str(error)}
        chosen = self.chosen(found, limit)
        return {"passages": [storable_fields(asdict(passage)) for passage in chosen], "error": ""}

    def chosen(self, found: Sequence[Passage], limit: int) -> list[Passage]:
        """The first that were not seen yet; where all were, the first of all."""
        unseen = [p for p in found if (p.location, p.place, p.text) not in self._numbers]
        return unseen[:limit] or list(found[:limit])


def folded(query: str) -> str:
    """A query as it is compared with others."""
    return " ".join(query.casefold().split())
