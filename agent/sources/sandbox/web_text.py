"""What a page of the web says: its passages, from its bytes; and what its search engines say.

What a page is, is told by its bytes: what a server declares is often wrong, and never to be
trusted. HTML is read as it is from the disk, and PDFs are read page by page until their time is up.
"""

import codecs
import math
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import islice
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from rubricem.agent.sources.readers import READERS, TEXTS, read
from rubricem.agent.sources.readers.document import LONGEST_NAME, Document, Input
from rubricem.agent.sources.readers.encoding import names_of
from rubricem.agent.sources.readers.pages.markup import read_html
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.agent.sources.readers.pdf import read_pdf
from rubricem.agent.sources.readers.plain.text import read_unnamed
from rubricem.agent.sources.sandbox import NoText
from rubricem.memory.errors import SourceError
from rubricem.memory.schema import BELOW
from rubricem.memory.text import one_line, printable

Kind = Literal["html", "pdf", "text", "packed"]

_LOOKED_AT = 2048
"""bytes, as browsers look at some thousand"""
_BINARY = {mark.encode("latin-1"): name for mark, name in names_of("binary").items()}
_HTML = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--(?>.*?-->)\s*+)*+<(?:!doctype\s+html|[a-z])", re.I | re.S
)


def kind_of(content: bytes) -> Kind:
    """What the bytes are. Raises SourceError where they hold no text that can be read."""
    head = content[:_LOOKED_AT]
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "packed"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        head = head.decode("utf-16", "ignore").encode()
    name = next((name for mark, name in _BINARY.items() if head.startswith(mark)), "")
    if name or b"\0" in head:
        raise SourceError(f"What is there is {name or 'binary'}, and no text.")
    if not content.strip():
        raise SourceError("The page is empty.")
    return "html" if _HTML.match(head.lstrip(codecs.BOM_UTF8)) else "text"


def document_of(
    content: bytes,
    declared: str,
    address: str,
    seconds: float = math.inf,
    get_on: Callable[[], None] = lambda: None,
) -> Document:
    """What a page says. Raises SourceError where it holds no text that can be read.

    `declared`: its content type; `seconds` and `get_on` are those of `Input`.
    """
    parts = urlsplit(address)
    # What a page without a title is called.
    name = unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc
    given = Input(name, BytesIO(content), declared, seconds, get_on)
    reader = "" if given.suffix in TEXTS else READERS.get(given.suffix, "")
    match kind_of(content):
        case "pdf":
            document = read_pdf(given)
        case "html" if "read_xml" not in reader:
            document = read_html(given)
        case "packed" if not reader.startswith(("office.", "pages.books")):
            raise SourceError("What is there is a ZIP archive, and no text.")
        case _:
            document = read(given) if reader else read_unnamed(given)
    if all(section.text.strip() in ("", *section.path[-1:]) for section in document.sections):
        failure = NoText if kind_of(content) == "html" else SourceError
        raise failure("The page has no text; it may be drawn by a script.")
    return document


PASSAGE_WORDS = 160
MOST_PASSAGES = 600
"""of one page: a book of some 90,000 words"""


def passages_of(
    content: bytes, declared: str, address: str, seconds: float, get_on: Callable[[], None]
) -> dict[str, Any]:
    """The title of a page, and heading and text of its passages, as `document_of` reads it."""
    document = document_of(content, declared, address, seconds, get_on)
    # What no reader sees is no text of the page: characters can be hidden as well.
    every = (
        (one_line(_below(document.title, section.heading), LONGEST_NAME), text)
        for section in document.sections
        for text in split_passages(printable(section.text), PASSAGE_WORDS)
    )
    pieces = list(islice(every, MOST_PASSAGES + 1))
    long = f"its first {MOST_PASSAGES} passages" if len(pieces) > MOST_PASSAGES else ""
    note = document.note or long
    title = one_line(document.title, LONGEST_NAME) + (f" ({note})" if note else "")
    return {"title": title, "passages": pieces[:MOST_PASSAGES]}


def _below(title: str, heading: str) -> str:
    """The heading without its first level where the title of the page says that."""
    first, _, rest = heading.partition(BELOW)
    return rest if first in title else heading


ENGINE_SECONDS = 8
_LATER = "Search again later, or name another source."
_NOTHING = "No results found."
"""ddgs raises this for an empty result"""


def ask_engines(query: str, most: int, client: Any = None) -> Sequence[dict[str, Any]]:
    """Ask the engines; SourceError where they failed, [] where none of them found anything.

    An engine that refuses its callers looks to ddgs like one that found nothing.
    """
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException, TimeoutException

    asked = client or DDGS(timeout=ENGINE_SECONDS)
    try:
        found: Sequence[dict[str, Any]] = asked.text(query, max_results=most)
    except TimeoutException as cause:
        message = "The engines of the web search did not answer in time."
        raise SourceError(message, _LATER) from cause
    except DDGSException as cause:
        if str(cause) == _NOTHING:
            return []
        raise SourceError(
            "The web search got no result, and not all of its engines could be asked.",
            "Check that this machine is connected, or name another source.",
        ) from cause
    return found
