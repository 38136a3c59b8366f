"""The text of a fetched page, as a document in sections.

HTML goes through trafilatura, which finds the article among menus and banners; where it finds
next to nothing (forums, tables, documentation) or the page is very large, all visible lines are
taken. PDFs are read page by page until their time is up.
"""

from io import BytesIO
from urllib.parse import unquote, urlsplit

from agent.pages.fetching import Fetched
from agent.pages.kinds import decoded, kind_of
from agent.pages.visible import visible_html
from agent.sources.html_text import html_lines
from agent.sources.readers import Document, Section, by_heading, markdown_sections, pdf_document
from memory.errors import SourceError

PDF_SECONDS = 20.0
LARGEST_ARTICLE = 1_000_000
"""characters of HTML that trafilatura is given; it takes some 3 s for them"""
LEAST_ARTICLE = 0.2
"""share of the visible text below which what it found is not taken to be the page"""


def document_of(page: Fetched) -> Document:
    """What a page says. Raises SourceError where it holds no text that can be read.

    Takes seconds for a large page: to be called in a thread.
    """
    name = _name(page.address)
    match kind_of(page.content):
        case "pdf":
            document = pdf_document(BytesIO(page.content), name, PDF_SECONDS)
        case "html":
            document = _html(decoded(page.content, page.content_type), name)
        case _:
            document = _text(decoded(page.content, page.content_type), name)
    if not any(section.text.strip() for section in document.sections):
        raise SourceError("The page has no text; it may be drawn by a script.")
    return document


def _html(text: str, name: str) -> Document:
    seen = visible_html(text)
    title, lines = html_lines(seen)
    everything = by_heading(lines)
    # It gives plain text, as its Markdown escapes code; headings are told by the page itself.
    levels = {line: level for level, line in lines if level}
    article = by_heading((levels.get(line, 0), line) for line in _article(seen).splitlines())
    enough = _size(article) >= LEAST_ARTICLE * _size(everything)
    chosen = article if article and enough else everything
    return Document(title or name, tuple(chosen))


def _article(seen: str) -> str:
    """The text of the article, "" where none is found."""
    if len(seen) > LARGEST_ARTICLE:
        return ""
    import trafilatura

    return trafilatura.extract(seen, include_comments=False) or ""


def _size(sections: list[Section]) -> int:
    return sum(len(section.text) for section in sections)


def _text(text: str, name: str) -> Document:
    if name.lower().endswith((".md", ".markdown")):
        sections = markdown_sections(text)
        return Document(sections[0].heading or name if sections else name, tuple(sections))
    return Document(name, (Section("", text),))


def _name(address: str) -> str:
    """The last part of an address, or its host: what a page without a title is called."""
    parts = urlsplit(address)
    return unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc
