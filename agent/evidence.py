"""What a run has found: every passage numbered once, every question to a tool answered once.

Ids are given in order of first retrieval, whichever tool it was, and a passage found again keeps
its own. A text of the web that another address holds as well is one source, and so is a page.
The text is kept as it was fetched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agent.action import OPEN_PAGE
from agent.asking import Found
from agent.pages.likeness import Excerpts, Sketch, resembling
from memory.errors import SourceError, boundary
from memory.interfaces import Passage, SearchTool
from memory.schema import Source
from memory.text import storable_fields


@dataclass
class Evidence:
    """The sources of one run, and which of them each query brought."""

    sources: dict[str, Source] = field(default_factory=dict)
    answered: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """tool, and what was asked of it, case folded -> ids of what it brought"""
    _numbers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _excerpts: Excerpts = field(default_factory=Excerpts)
    _pages: dict[str, tuple[Sketch, tuple[str, ...]]] = field(default_factory=dict)
    """address -> sketch of the page that was opened there, and ids of what was shown of it"""

    def known(self, tool: str, asked: str) -> Found | None:
        """What was brought by something asked before."""
        ids = self.answered.get((tool, folded(asked)))
        return None if ids is None else Found(self._sources(ids), repeated=True)

    def take(self, tool: str, asked: str, reply: dict[str, Any]) -> Found:
        """Number what a tool brought, in the form that the journal keeps."""
        known = set(self.sources)
        passages = [Passage(**passage) for passage in reply["passages"]]
        found = [self.number(passage, asked, tool) for passage in passages]
        ids = tuple(dict.fromkeys(source.id for source in found))
        if copied := reply.get("copy_of"):
            ids = self._pages[copied][1]
        elif page := reply.get("page"):
            self._pages.setdefault(page, (reply["sketch"], ids))
        if not reply["error"]:
            self.answered[tool, folded(asked)] = ids
        new = frozenset(ids) - known
        return Found(self._sources(ids), new, reply["error"], note=reply.get("note", ""))

    def page_like(self, address: str, sketch: Sketch) -> str:
        """The address of a page that was opened before and holds nearly the same text, or ""."""
        others = (a for a, (seen, _) in self._pages.items() if a != address)
        return next((a for a in others if resembling(self._pages[a][0], sketch)), "")

    def _sources(self, ids: Iterable[str]) -> tuple[Source, ...]:
        return tuple(self.sources[identifier] for identifier in ids)

    def number(self, passage: Passage, query: str, tool: str) -> Source:
        """The source that a passage is, numbered now if it is new and no copy of another."""
        key = (passage.location, passage.place, passage.text)
        if key not in self._numbers:
            # What is read of a whole page stays whole: the excerpts that led there are shorter.
            original = "" if tool == OPEN_PAGE else self._excerpts.original(passage)
            self._numbers[key] = original or f"S{len(self.sources) + 1}"
            if original:
                self._add_copy(original, passage.location)
        identifier = self._numbers[key]
        if identifier not in self.sources:
            self._excerpts.add(identifier, passage)
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

    def _add_copy(self, identifier: str, location: str) -> None:
        source = self.sources[identifier]
        if location not in source.copies:
            copies = (*source.copies, location)
            self.sources[identifier] = source.model_copy(update={"copies": copies})

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
