"""What a run has found: every passage numbered once, every question to a tool answered once.

Ids are given in order of first retrieval, whichever tool it was, and a passage found again keeps
its own. A text of the web that another address holds as well is one source, and so is a page.
The text is kept as it was fetched. What the thread had found before is known from the beginning,
and is a source of this run once it is shown or brought again, under the id that it had.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rubricem.agent.pages.likeness import Excerpts, Sketch, resembling
from rubricem.agent.research.question import OPEN_PAGE, Found
from rubricem.agent.research.threads import NOTHING, Background, standalone
from rubricem.memory.errors import SourceError, boundary
from rubricem.memory.interfaces import Passage, SearchTool
from rubricem.memory.schema import Source, ToolUse
from rubricem.memory.text import storable_fields


@dataclass
class Evidence:
    """The sources of one run, and which of them each query brought."""

    background: Background = NOTHING
    sources: dict[str, Source] = field(default_factory=dict)
    answered: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """tool, and what was asked of it, case folded -> ids of what it brought"""
    _numbers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _excerpts: Excerpts = field(default_factory=Excerpts)
    _pages: dict[str, tuple[Sketch, tuple[str, ...]]] = field(default_factory=dict)
    """address -> sketch of the page that was opened there, and ids of what was shown of it"""
    _highest: int = 0
    """number of the last id that was given"""

    def __post_init__(self) -> None:
        for source in self.background.sources:
            self._numbers[source.location, source.place, source.text] = source.id
            self._excerpts.add(source.id, _passage(source))
        self._highest = self.background.numbered

    @property
    def own(self) -> list[Source]:
        """Those that this run found, and not only the thread before it."""
        brought = {i for ids in self.answered.values() for i in ids}
        return [s for s in self.sources.values() if s.id in brought]

    @property
    def searched(self) -> tuple[ToolUse, ...]:
        """The calls as they are kept with the run."""
        uses = self.answered.items()
        return tuple(ToolUse(tool=tool, asked=asked, sources=ids) for (tool, asked), ids in uses)

    def queries(self, tool: str) -> list[str]:
        """What this run asked of a tool so far, in order, each once, case folded."""
        return [asked for name, asked in self.answered if name == tool]

    def alone(self, question: str) -> str:
        """The run's question as it can be searched for without its thread."""
        return standalone(question, self.background.questions)

    def take_up(self, ids: Iterable[str]) -> tuple[Source, ...]:
        """Sources of this run, or of the thread, which are this run's from now on."""
        for identifier in ids:
            if identifier not in self.sources:
                self.sources[identifier] = self.background.by_id[identifier]
        return self._sources(ids)

    def known(self, tool: str, asked: str) -> Found | None:
        """What was brought by something asked before, in this run or in the thread."""
        call = (tool, folded(asked))
        ids = self.answered.get(call, self.background.answered.get(call))
        if ids is None:
            return None
        shown = set(self.sources)
        self.answered[call] = ids
        return Found(self.take_up(ids), frozenset(ids) - shown, repeated=True)

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
            self._numbers[key] = original or f"S{self._highest + 1}"
            if original:
                self.take_up([original])
                self._add_copy(original, passage.location)
        identifier = self._numbers[key]
        if identifier in self.background.by_id:
            self.take_up([identifier])
        elif identifier not in self.sources:
            self._highest += 1
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
        """The first that were not shown yet; where all were, the first of all."""
        numbers = ((self._numbers.get((p.location, p.place, p.text)), p) for p in found)
        unseen = [p for identifier, p in numbers if identifier not in self.sources]
        return unseen[:limit] or list(found[:limit])


def _passage(source: Source) -> Passage:
    return Passage(source.title, source.location, source.place, source.text)


def folded(query: str) -> str:
    """A query as it is compared with others."""
    return " ".join(query.casefold().split())
