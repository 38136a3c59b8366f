"""What the policy asked for, done: a search, a page opened, or a tool of an MCP server called.

Opened is a page that a search returned or the question names; an address that only stands in the
text of a page is not, whatever that text says. Of a long page the passages nearest to the
question and to the words given with the call are shown, in the page's order. A tool is called
like a search, with sources of its own.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rubricem.agent.mcp.client import Equipped
from rubricem.agent.pages.fetch import addresses_in, normal
from rubricem.agent.pages.likeness import sketch
from rubricem.agent.research.events import SourceProgress
from rubricem.agent.research.question import OPEN_PAGE, Found, page_of
from rubricem.agent.research.run import Run
from rubricem.agent.research.words import content_words
from rubricem.memory.errors import SourceError, boundary
from rubricem.memory.interfaces import PageReader, Passage
from rubricem.memory.text import storable_fields

PAGES_WORTH = 2
"""passages of a page that are shown, for each passage of a search"""

Reply = dict[str, Any]


async def open_page(run: Run, wanted: str) -> Found:
    """Open a page by a source's id or an address, words to look for after it.

    Counts as a tool call, also where it is refused; what cannot be opened is a result.
    """
    name, _, sought = wanted.partition(" ")
    address, refusal = permitted(run, name)
    pages = run.pages

    async def read() -> Reply:
        if pages is None or not address:
            return _failed(refusal or "There is no tool open_page in this run.")
        return await _opened(run, pages, address, sought)

    return await run.use(OPEN_PAGE, " ".join([address or name, *sought.split()]), read)


def permitted(run: Run, name: str) -> tuple[str, str]:
    """The address that a name means, or why it may not be opened."""
    source = run.sources.get(name.strip("[].,").upper())
    if source is not None:
        return normal(source.location), "" if normal(source.location) else (
            f"{source.id} is no page of the web: its text was shown."
        )
    known = set(addresses_in(run.ask.question))
    for source in run.sources.values():
        known |= {normal(location) for location in (source.location, *source.copies)}
    address = normal(name)
    if address and address in known:
        return address, ""
    return "", "Only a page that a search returned, or that the question names, can be opened."


async def _opened(run: Run, pages: PageReader, address: str, sought: str) -> Reply:
    try:
        with boundary(SourceError, "opening the page"):
            passages = await pages.read(address)
    except SourceError as error:
        return _failed(str(error))
    # Both take a moment for a book.
    most = PAGES_WORTH * run.ask.passages
    drawn, shown = await asyncio.to_thread(_looked_over, passages, sought, run.ask.question, most)
    if other := run.evidence.page_like(address, drawn):
        note = f"This page holds the same text as {other}; the two count as one source."
        return {"passages": [], "error": "", "note": note, "copy_of": other}
    cut = f"These {len(shown)} of the page's {len(passages)} passages are nearest to the question."
    note = cut if len(shown) < len(passages) else ""
    fields = [storable_fields(asdict(passage)) for passage in shown]
    return {"passages": fields, "error": "", "note": note, "page": address, "sketch": drawn}


def _looked_over(
    passages: Sequence[Passage], sought: str, question: str, most: int
) -> tuple[list[int], list[Passage]]:
    drawn = sketch(passage.text for passage in passages)
    return list(drawn), nearest(passages, sought, question, most)


def _failed(reason: str) -> Reply:
    return {"passages": [], "error": reason, "note": "The page was not opened."}


def nearest(passages: Sequence[Passage], sought: str, question: str, most: int) -> list[Passage]:
    """The passages with most of the words sought, then of the question's, in the page's order."""
    wanted = content_words(sought), content_words(question)
    words = [content_words(f"{passage.place} {passage.text}") for passage in passages]

    def rank(i: int) -> tuple[int, int, int]:
        first, second = (len(each & words[i]) for each in wanted)
        return -first, -second, i

    return [passages[i] for i in sorted(sorted(range(len(passages)), key=rank)[:most])]


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


async def act(run: Run, action: str) -> Found:
    """Do what one line of the policy says; a line that names no tool is a query."""
    if (wanted := page_of(action)) is not None:
        return await open_page(run, wanted)
    name, _, written = action.partition(" ")
    tools = run.search_tool
    if isinstance(tools, Equipped) and name in tools.allowed:
        return await call_tool(run, tools, name, written.strip())
    return await run.search(action)
