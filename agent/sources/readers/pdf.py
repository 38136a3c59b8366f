"""PDF, page by page.

What pypdf logs while it reads becomes the document's note, not lines on a terminal.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rubricem.agent.sources.readers.document import BlockKind, Document, Input, Outline
from rubricem.memory.errors import SourceError
from rubricem.memory.text import one_line


def read_pdf(given: Input, clock: Any = time.process_time) -> Document:
    """The pages; at the time limit those read so far, with a note that says so.

    Problems that pypdf skipped are in the note. Raises SourceError if it is encrypted or has no
    text.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    name = given.name
    with overheard("pypdf") as faults:
        reader = PdfReader(given.file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise SourceError(
                f"{name} is encrypted.", "Save a copy of it that opens without a password."
            )
        until = clock() + given.seconds
        pages: list[str] = []
        read: dict[Any, str] = {}  # by object: a file may name one page very often
        for page in reader.pages:
            if clock() >= until:
                break
            given.get_on()
            key = page.indirect_reference
            text = read.get(key) if key else None
            text = page.extract_text() if text is None else text
            if key:
                read[key] = text
            pages.append(text)
        title = ""
        with suppress(PyPdfError):  # a damaged title is no reason to lose the pages
            title = str(reader.metadata.title or "") if reader.metadata else ""
        whole = len(reader.pages)
    outline = Outline()
    for number, text in enumerate(pages, 1):
        outline.add(BlockKind.PARAGRAPH, text, f"page {number}")
    sections = outline.sections()
    if not sections and len(pages) < whole:
        raise SourceError(f"{name} takes too long to read.", "Name a shorter document.")
    if not sections:
        raise SourceError(
            f"{name} has no text in its {len(pages)} pages.",
            "It was probably scanned: run text recognition on it first.",
        )
    part = f"read in part: {len(pages)} of {whole} pages" if len(pages) < whole else ""
    note = "; ".join(filter(None, (part, complaint(faults))))
    return Document(title.strip() or given.stem, sections, note)


LONGEST = 120
"""characters of the first warning; it may quote the document"""


class _Overhearing(logging.Handler):
    """Keeps what is logged in one thread: others may be reading other documents."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


@contextmanager
def overheard(library: str) -> Iterator[list[str]]:
    """The warnings that a library logs in this thread; from now on they go nowhere else."""
    logger, hearing = logging.getLogger(library), _Overhearing()
    logger.propagate = False
    logger.addHandler(hearing)
    try:
        yield hearing.lines
    finally:
        logger.removeHandler(hearing)


def complaint(lines: list[str]) -> str:
    """The warnings in a few words; "" if there were none."""
    if not lines:
        return ""
    faults = "1 fault" if len(lines) == 1 else f"{len(lines)} faults, the first"
    return f"damaged, with {faults}: {one_line(lines[0], LONGEST).rstrip('.')}"


READERS = {".pdf": read_pdf}
