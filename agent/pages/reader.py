"""Opening a page: cached, fetched, its text cut into passages that can be cited.

The passages carry the address that answered in the end and the heading they stand under.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from agent.pages.addresses import AddressGuard, normal
from agent.pages.cache import PageCache
from agent.pages.extracting import document_of
from agent.pages.fetching import Fetched, Fetcher
from agent.reports.printable import one_line, printable
from agent.sources.passages import split_passages
from agent.sources.readers import Document
from memory.errors import SourceError, boundary
from memory.interfaces import Passage

PASSAGE_WORDS = 160
MOST_PASSAGES = 600
"""of one page: a book of some 90,000 words"""
LONGEST_NAME = 200
"""characters of a title or heading"""
READING_SECONDS = 40.0
"""for the text of a page that is fetched"""


class WebPages:
    """The `PageReader` of the web."""

    def __init__(self, fetcher: Fetcher, cache: PageCache) -> None:
        self._fetcher = fetcher
        self._cache = cache

    async def read(self, address: str) -> list[Passage]:
        wanted = normal(address)
        if (kept := await asyncio.to_thread(self._cache.find, wanted)) is not None:
            return kept
        passages = await self._read(address)
        await asyncio.to_thread(self._cache.keep, wanted, passages)
        return passages

    async def _read(self, address: str) -> list[Passage]:
        page = await self._fetcher.fetch(address)
        with boundary(SourceError, "reading the page"):
            try:
                reading = asyncio.to_thread(_passages, page)
                return await asyncio.wait_for(reading, READING_SECONDS)
            except TimeoutError as cause:
                raise SourceError("The page takes too long to read.") from cause


def open_pages(folder: Path, allowed: Sequence[str] = ()) -> WebPages:
    """A reader that keeps pages in a folder; `allowed` hosts may be private."""
    return WebPages(Fetcher(AddressGuard(allowed)), PageCache(folder, allowed))


def _passages(page: Fetched) -> list[Passage]:
    document = document_of(page)
    pieces = list(islice(_pieces(document), MOST_PASSAGES + 1))
    long = f"its first {MOST_PASSAGES} passages" if len(pieces) > MOST_PASSAGES else ""
    note = document.note or long
    title = one_line(document.title, LONGEST_NAME) + (f" ({note})" if note else "")
    return [Passage(title, page.address, *piece) for piece in pieces[:MOST_PASSAGES]]


def _pieces(document: Document) -> Iterator[tuple[str, str]]:
    """Places and the texts there."""
    for section in document.sections:
        place = one_line(section.heading, LONGEST_NAME)
        # What no reader sees is no text of the page: characters can be hidden as well.
        for text in split_passages(printable(section.text), PASSAGE_WORDS):
            yield place, text
